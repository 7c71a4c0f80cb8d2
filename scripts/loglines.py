#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plugin's log lines against the table of them in docs/operations.md.

Every WARN of the plugin's source must be in the table, and every line of the table in the source. A
line of the table is the text as an operator sees it; a number, a name such as mlx5_0:1, a word such as
NAME or N, or an ellipsis stands for what varies.

    scripts/loglines.py             check; exit status 1 if something is missing
    scripts/loglines.py --list      the lines of the source: level, file, format
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARTS = (
    "admin", "base", "device", "event", "failover", "gin/verbs", "hints", "inc/coll", "instance", "liveness", "memory", "plugin", "progress", "transport")
TABLE = "docs/operations.md"

# What is logged, and at which argument the format is. ha_comm_fail latches an error of a connection.
CALLS = {
    "HA_WARN": ("WARN", 0, ""),
    "HA_ATTN": ("ATTN", 1, ""),
    "HA_INFO": ("INFO", 1, ""),
    "HA_INFO_LIMITED": ("INFO", 1, ""),
    "HA_INFO_LIMITED_BY": ("INFO", 2, ""),
    "ha_comm_fail": ("WARN", 2, "connection %s: "),
}

# Formats that say nothing by themselves, and the files whose strings their text is put together from.
# What events of devices are called is libibverbs' business; the names are simverbs' as well.
NAMES = "src/simverbs/abi/names.c"
OPEN = {
    ("src/transport/comm_event.c", "connection %s: %s"): ["src/event/event.c"],
    ("src/transport/comm.c", "connection %s: %s"): ["src/transport/wc_error.c", "src/transport/path_error.c"],
    ("src/transport/wc_error.c", "connection %s: %s"): ["src/transport/wc_error.c"],
    ("src/transport/no_failover.c", "connection %s: %s"): [
        "src/transport/async_event.c", "src/transport/path_error.c", "src/transport/path_msg.c", "src/transport/timeout.c",
        "src/transport/wc_error.c"],
    ("src/failover/notes.c", "connection %s: %s: %s"): ["src/event/reason.h"],
    ("src/admin/server.c", "%s"): ["src/admin/server.c"],
    ("src/device/events.c", "%s:%d: %s"): [NAMES],
    ("src/device/events.c", "%s: %s"): [NAMES],
}

HOLE = "\0"  # of a format: a conversion
VARIES = r"\b(?:mlx5_\d|eth\d|\d+|N|NAME|VALUE|VERSION|FILE|PORT|ADDRESS)\b"


def tokens(text):
    """Strings of C that stand beside each other become one; comments go."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r'"\s*(?:PRI\w+\s*)?"', lambda m: "%s" if "PRI" in m.group() else "", text)


def arguments(text, start):
    """The arguments of the call whose parenthesis opens at start."""
    depth, quoted, begin, found = 0, False, start + 1, []
    i = start
    while i < len(text):
        c = text[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if not depth:
                return found + [text[begin:i].strip()]
        elif c == "," and depth == 1:
            found.append(text[begin:i].strip())
            begin = i + 1
        i += 1
    return found


def sources():
    for part in PARTS:
        folder = os.path.join(ROOT, "src", part)
        for name in sorted(os.listdir(folder)):
            if name.endswith(".c"):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    yield f"src/{part}/{name}", tokens(f.read())


def log_calls():
    """(level, file, format) of each call; both sides of a choice between two formats."""
    for path, text in sources():
        for match in re.finditer(r"\b(%s)\(" % "|".join(CALLS), text):
            level, position, before = CALLS[match.group(1)]
            args = arguments(text, match.end() - 1)
            if len(args) <= position or args[position] == "const char *fmt":
                continue
            for fmt in re.findall(r'"((?:[^"\\]|\\.)*)"', args[position]):
                yield level, path, before + fmt


def holes(fmt):
    fmt = re.sub(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]", HOLE, fmt)
    return fmt.replace("%%", "%").replace('\\"', '"').replace("\\\\", "\\").replace("\\n", "")


def documented():
    """(level, text) of each line of the table."""
    rows, inside = [], False
    with open(os.path.join(ROOT, TABLE), encoding="utf-8") as f:
        for line in f:
            if line.startswith("| line | level |"):
                inside = True
            elif not line.startswith("|"):
                inside = False
            elif inside and not line.startswith("|---"):
                cells = [cell.strip() for cell in line.split("|")]
                for text in re.findall(r"`([^`]+)`", cells[1]):
                    for level in cells[2].split(", "):
                        rows.append((level, text))
    return rows


def parts_of(text):
    """A line of the table as characters, "…", and words that stand for what varies."""
    return [part for part in re.split(rf"({VARIES}|.)", text) if part]


def fits(shown, fmt):
    """Could the line of the table come from the format? "…" stands for anything, a word that varies
    for one conversion, or for itself."""
    shown = parts_of(shown)
    reach, seen = {(0, 0)}, set()
    while reach:
        i, j = reach.pop()
        if (i, j) == (len(shown), len(fmt)):
            return True
        if (i, j) in seen or i == len(shown):
            continue
        seen.add((i, j))
        part = shown[i]
        if part == "…":
            reach.add((i + 1, j))
            if j < len(fmt):
                reach.add((i, j + 1))
        elif fmt.startswith(part, j):
            reach.add((i + 1, j + len(part)))
        if fmt.startswith(HOLE, j) and re.fullmatch(VARIES, part):
            reach.add((i + 1, j + 1))
    return False


def letters(fmt):
    return len(re.findall(r"[A-Za-z]", fmt))


def fragments(text):
    """What of a line does not vary, after the name of the connection or the device."""
    text = re.sub(r"^(connection NAME|mlx5_0(:1)?): ", "", text)
    parts = re.split(rf"…|{VARIES}", text)
    return [part for part in (p.strip(" ()[],;:") for p in parts) if letters(part) >= 4]


def strings_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return "\n".join(re.findall(r'"((?:[^"\\]|\\.)*)"', tokens(f.read())))


def is_open(fmt):
    return letters(re.sub(r"^connection %s", "", fmt).replace("%s", "").replace("%d", "")) < 4


def check():
    wrong = []
    table = documented()
    formats = [(level, path, fmt) for level, path, fmt in log_calls() if not is_open(fmt)]
    for level, path, fmt in log_calls():
        if is_open(fmt) and (path, fmt) not in OPEN:
            wrong.append(f"{path}: what does \"{fmt}\" say? Add it to OPEN in scripts/loglines.py")
        elif level == "WARN" and not is_open(fmt):
            if not any(l == level and fits(text, holes(fmt)) for l, text in table):
                wrong.append(f"{path}: not in {TABLE}: {fmt}")
    pieces = {path: strings_of(path) for path in {place for places in OPEN.values() for place in places}}
    for level, text in table:
        if not fragments(text):
            wrong.append(f"{TABLE}: says too little to be found: {text}")
        elif not any(l == level and fits(text, holes(fmt)) for l, _, fmt in formats):
            parts = fragments(text)
            if not any(all(p in said for p in parts) for said in pieces.values()):
                wrong.append(f"{TABLE}: no {level} in the source says: {text}")
    for line in wrong:
        print(line)
    warnings = sum(level == "WARN" for level, _, _ in log_calls())
    print(f"log lines: {warnings} warnings in the source, {len(table)} lines in {TABLE}, {len(wrong)} wrong")
    return not wrong and warnings > 50 and len(table) > 50


def main():
    if sys.argv[1:] == ["--list"]:
        for level, path, fmt in log_calls():
            print(level, path, fmt, sep="\t")
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    return 0 if check() else 1


if __name__ == "__main__":
    sys.exit(main())
