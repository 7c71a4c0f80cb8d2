#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a put of 8 bytes and its test cost, in instructions from the entries of NCCL's table on, verbs left out; and
that on the way no function is called but the plugin's own: no allocation, no lock, no system call.

Runs bench_put under callgrind and compares with MOST, which holds for the compilers that the project knows.

    put_cost.py PROGRAM
"""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import callgrind  # pylint: disable=wrong-import-position

MOST = {"put": 300, "put and signal": 350}
ROUNDS = 64
OWN = re.compile(r"(counted_(iput|test)|iput(_signal)?|ha_\w+)$")


def collected(path):
    """Instructions below the counted_ functions in one callgrind file."""
    return sum(numbers[0] for function, is_call, numbers in callgrind.costs(path) if is_call and function.startswith("counted_"))


def strangers(path):
    """Functions that were run there and are none of the plugin's: what allocates, locks or calls the system is libc's."""
    return {function for function, is_call, numbers in callgrind.costs(path)
            if numbers[0] and not is_call and not OWN.match(function)}


def measure(program):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        said = callgrind.run(program, out, "--collect-atstart=no", "--dump-after=case_ends", "--toggle-collect=counted_*",
                             "--toggle-collect=provider_*")
        # Before each case's dump there is one of what warms up.
        cases = {case: f"{out}.{2 * i + 2}" for i, case in enumerate(said.split("\n")[:-1])}
        for case, path in cases.items():
            if strangers(path):
                sys.exit(f"put_cost.py: {case}: calls {', '.join(sorted(strangers(path)))}")
        return {case: collected(path) / ROUNDS for case, path in cases.items()}


def main():
    costs = measure(sys.argv[1])
    if set(costs) != set(MOST):
        sys.exit(f"put_cost.py: measured {sorted(costs)}, and not {sorted(MOST)}")
    for case, cost in costs.items():
        print(f"{case}: {cost:.1f} instructions, {MOST[case]} at most")
    return any(not 100 < cost <= MOST[case] for case, cost in costs.items())


if __name__ == "__main__":
    sys.exit(main())
