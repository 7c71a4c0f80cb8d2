#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a backup queue pair costs who posts: instructions and loads and stores of a post and of a wait, that have nothing
to wait for, of the code for GPUs as a compiler for the host makes it, with HA_IBGDA_BACKUP=1 and =0.

    post_cost.py WITH WITHOUT
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import callgrind  # pylint: disable=wrong-import-position

POSTS = 1000
MORE = {"counted_post": (8, 1), "counted_quiet": (8, 1)}  # instructions, loads and stores; at most


def measure(program):
    """{function: (instructions, loads and stores)}, of one call."""
    sums = {}
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        callgrind.run(program, out, "--cache-sim=yes")
        for function, _, numbers in callgrind.costs(out):
            if function in MORE:
                instructions, accesses = sums.get(function, (0, 0))
                sums[function] = (instructions + numbers[0], accesses + sum(numbers[1:3]))
    return {name: tuple(cost / POSTS for cost in pair) for name, pair in sums.items()}


def main():
    with_backup, without = measure(sys.argv[1]), measure(sys.argv[2])
    if set(with_backup) != set(MORE) or set(without) != set(MORE):
        sys.exit(f"post_cost.py: measured {sorted(with_backup)} and {sorted(without)}")
    is_wrong = False
    for name, most in MORE.items():
        more = [a - b for a, b in zip(with_backup[name], without[name])]
        print(f"{name}: {with_backup[name][0]:.1f} instructions and {with_backup[name][1]:.1f} loads and stores, without a backup "
              f"{without[name][0]:.1f} and {without[name][1]:.1f}: {more[0]:.1f} and {more[1]:.1f} more, {most[0]} and {most[1]} at most")
        is_wrong |= without[name][0] < 20 or any(a > b for a, b in zip(more, most))
    return is_wrong


if __name__ == "__main__":
    sys.exit(main())
