#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a put of 8 bytes and its test cost, in instructions from the entry of the group on, verbs left out.

Runs bench_put under callgrind and compares with MOST, which holds for the compilers that the project knows.

    put_cost.py PROGRAM
"""
import os
import re
import subprocess
import sys
import tempfile

MOST = {"put": 330, "put and signal": 350}
ROUNDS = 64


def collected(path):
    """Instructions below the counted_ functions in one callgrind file."""
    names, total, inside, is_call = {}, 0, "", False
    with open(path, encoding="ascii", errors="replace") as lines:
        for line in lines:
            match = re.match(r"^(c?fn)=\((\d+)\)(?: (.*))?$", line.rstrip("\n"))
            if match:
                kind, number, name = match.groups()
                if name:
                    names[number] = name
                if kind == "fn":
                    inside = names[number]
            elif line.startswith("calls="):
                is_call = True
            elif is_call:  # "position inclusive-cost"
                is_call = False
                if inside.startswith("counted_"):
                    total += int(line.split()[1])
    return total


def measure(program):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no", "--compress-pos=no",
             "--dump-after=case_ends", "--toggle-collect=counted_*", "--toggle-collect=provider_*", program],
            text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if run.returncode != 0:
            sys.exit(f"put_cost.py: {program} ends with {run.returncode}:\n{run.stderr}")
        # Before each case's dump there is one of what warms up.
        return {case: collected(f"{out}.{2 * i + 2}") / ROUNDS for i, case in enumerate(run.stdout.split("\n")[:-1])}


def main():
    costs = measure(sys.argv[1])
    if set(costs) != set(MOST):
        sys.exit(f"put_cost.py: measured {sorted(costs)}, and not {sorted(MOST)}")
    for case, cost in costs.items():
        print(f"{case}: {cost:.1f} instructions, {MOST[case]} at most")
    return any(not 100 < cost <= MOST[case] for case, cost in costs.items())


if __name__ == "__main__":
    sys.exit(main())
