# SPDX-License-Identifier: Apache-2.0
"""Answers of the probe, the table of known differences, and the comparison of the three.

The table is the one in docs/simverbs.md, between two marks, so what users read is what is tested:

    | `question` `another` | `simverbs` | `kernel` | why |
"""

BEGIN_MARK = "<!-- differences: begin -->"
END_MARK = "<!-- differences: end -->"


class Incomplete(Exception):
    """Answers or a table that cannot be what they are said to be."""


def parse(lines):
    """Name to answer. The last line says how many there are, so that none was lost."""
    found = {}
    end = None
    for line in lines:
        if line.startswith("#") or not line:
            continue
        if line.startswith("end of "):
            end = int(line.split()[2])
            continue
        name, separator, text = line.partition(" = ")
        if not separator:
            raise Incomplete(f"not an answer: {line}")
        if name in found:
            raise Incomplete(f"answered twice: {name}")
        found[name] = text
    if end != len(found):
        raise Incomplete(f"{len(found)} answers instead of {end}")
    return found


def read(path):
    """The answers in a file."""
    with open(path, encoding="utf-8") as file:
        return parse(file.read().splitlines())


def parse_table(text):
    """Question to (simverbs, kernel) from the page's table; a row without a reason is refused."""
    begin, end = text.find(BEGIN_MARK), text.find(END_MARK)
    if begin < 0 or end < begin:
        raise Incomplete("no table of differences between its marks")
    listed = {}
    for row in text[begin:end].splitlines():
        if not row.startswith("| `"):
            continue
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        if len(cells) != 4 or not all(cells):
            raise Incomplete(f"not four filled cells: {row}")
        ours, theirs = (cell.strip("`") for cell in cells[1:3])
        for question in cells[0].replace("`", "").split():
            if question in listed:
                raise Incomplete(f"listed twice: {question}")
            listed[question] = (ours, theirs)
    return listed


def changes(recorded, now):
    """Lines about every answer that is not the recorded one."""
    return [
        f"{name}: recorded as {recorded.get(name)}, now {now.get(name)}"
        for name in sorted(set(recorded) | set(now))
        if recorded.get(name) != now.get(name)
    ]


def compare(ours, theirs, listed):
    """Lines about everything that is neither equal nor listed, or is listed and not so."""
    faults = []
    for name in sorted(set(ours) | set(theirs) | set(listed)):
        pair = (ours.get(name), theirs.get(name))
        if None in pair:
            faults.append(f"{name}: simverbs answers {pair[0]}, the kernel {pair[1]}")
        elif name in listed and pair[0] == pair[1]:
            faults.append(f"{name}: listed as a difference, but both answer {pair[0]}")
        elif name in listed and pair != listed[name]:
            faults.append(
                f"{name}: listed as {listed[name][0]} and {listed[name][1]}, "
                f"but simverbs answers {pair[0]} and the kernel {pair[1]}"
            )
        elif name not in listed and pair[0] != pair[1]:
            faults.append(f"{name}: simverbs answers {pair[0]}, the kernel {pair[1]}, not listed")
    return faults


def strange(answers, theirs, listed):
    """Lines about every answer that is neither the kernel's nor, where the table has a row, simverbs'."""
    faults = []
    for name in sorted(set(answers) | set(theirs)):
        right = {theirs.get(name), listed.get(name, (None,))[0]}
        if answers.get(name) not in right:
            faults.append(f"{name}: {answers.get(name)}, and not {' or '.join(map(str, right - {None}))}")
    return faults
