#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a backup queue pair costs who posts: instructions and loads and stores of a post and of a wait, that have nothing
to wait for, of the code for GPUs as a compiler for the host makes it, with HA_IBGDA_BACKUP=1 and =0.

    post_cost.py WITH WITHOUT
"""
import os
import re
import subprocess
import sys
import tempfile

POSTS = 1000
MORE = {"counted_post": (20, 10), "counted_quiet": (20, 7)}  # instructions, loads and stores; at most


def measure(program):
    """{function: (instructions, loads and stores)}, of one call."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        run = subprocess.run(["valgrind", "--tool=callgrind", "--cache-sim=yes", f"--callgrind-out-file={out}", "--compress-pos=no",
                              program], text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if run.returncode != 0:
            sys.exit(f"post_cost.py: {program} ends with {run.returncode}:\n{run.stderr}")
        names, inside, costs = {}, "", {}
        with open(out, encoding="ascii", errors="replace") as lines:
            for line in lines:
                match = re.match(r"^(c?fn)=\((\d+)\)(?: (.*))?$", line.rstrip("\n"))
                if match:
                    kind, number, name = match.groups()
                    if name:
                        names[number] = name
                    if kind == "fn":
                        inside = names[number]
                elif inside in MORE and re.match(r"^[+*0-9-]+ \d", line):
                    numbers = [int(word) for word in line.split()[1:]] + [0, 0]
                    instructions, accesses = costs.get(inside, (0, 0))
                    costs[inside] = (instructions + numbers[0], accesses + numbers[1] + numbers[2])
        return {name: tuple(cost / POSTS for cost in pair) for name, pair in costs.items()}


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
