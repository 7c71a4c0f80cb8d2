# SPDX-License-Identifier: Apache-2.0
"""pace_cost.py SOURCES UNPACED PACED: what pacing costs of simverbs' instructions, by two files of callgrind's.

On a fabric without --pace the lines about it may take a fiftieth of what a message costs. On one with it they take
more, or they are not the lines that are meant."""

import os
import re
import sys
from collections import Counter

MOST = 0.02
LIBRARY = "libibverbs.so"
WHOLE = ("pace.c", "link.c", "link.h")
PACING = re.compile(r"paced|cfg\.links|sv_pace_admits|sv_port_(pass|as_of|resume)|no_room_ns")


def costs(path):
    """simverbs' instructions by file and line."""
    names, at, counted, after_call = {}, {"ob": "", "fl": ""}, Counter(), False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if match := re.match(r"(c?ob|c?f[lie])=\((\d+)\)(?: (.*))?$", line):
                word, number, name = match.groups()
                kind = "ob" if word.endswith("ob") else "fl"
                if name:
                    names[kind, number] = name
                if not word.startswith("c"):
                    at[kind] = names[kind, number]
            elif line.startswith("calls="):
                after_call = True
            elif match := re.match(r"(\d+) (\d+)$", line):
                if not after_call and LIBRARY in at["ob"]:
                    counted[at["fl"], int(match[1])] += int(match[2])
                after_call = False
    return counted


def pacing_lines(path):
    """Of a source: those of statements with a word about pacing."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if os.path.basename(path) in WHOLE:
        return set(range(1, len(lines) + 1))
    found = set()
    for n, line in enumerate(lines):
        if PACING.search(line):
            first = last = n
            while first > 0 and not re.search(r"([;{}:]|\*/|^)$", lines[first - 1]):
                first -= 1
            while not re.search(r"[;{}]$", lines[last]) and last + 1 < len(lines):
                last += 1
            found |= set(range(first + 1, last + 2))
    return found


def share(sources, path):
    counted, known = costs(path), {}
    pacing = 0
    for (file, line), cost in counted.items():
        _, found, name = file.partition("src/simverbs/")
        if found and name not in known:
            known[name] = pacing_lines(os.path.join(sources, name))
        pacing += cost if found and line in known[name] else 0
    return pacing / sum(counted.values())


def main(sources, unpaced, paced):
    off, on = share(sources, unpaced), share(sources, paced)
    print(f"pacing takes {off:.2%} of the instructions where it is off, {on:.2%} where it is on")
    if off > MOST:
        sys.exit(f"at most {MOST:.0%} are allowed where it is off")
    if on < 3 * MOST:
        sys.exit("these are not the lines that pace")


main(*sys.argv[1:])
