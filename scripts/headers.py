#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A header is the face of one file: what X.h of a folder declares is defined in X.c of that folder.

    scripts/headers.py [--root DIR]

FACES lists the headers that speak for a whole folder instead: what those declare is defined in any file of the folder.
Exit status 1 if a function is declared by another file's header, each with where it is defined.
"""
import argparse
import glob
import os
import re
import sys

# What a folder shows to those above it, what its files share as one module, and tables of commands or rules, whose
# entries are a file each.
FACES = {
    "src/plugin/plugin.h",
    "src/simverbs/core.h",
    "src/simverbs/engine.h",
    "src/simverbs/live/wire.h",
    "src/simverbs/roce/wire.h",
    "src/simverbs/stepped.h",
    "src/tools/nccl-ha/tool.h",
    "src/tools/nccl-net-check/rules.h",
    "src/tools/simverbs/tool.h",
    "src/transport/transport.h",
}

NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
DEFINED = re.compile(r"^ *(?!static\b)[a-zA-Z_][^;{}=()]*?\b(\w+)\s*\([^;{}]*\)\s*\n\{", re.M)
DECLARED = re.compile(r"^(?!static\b|typedef\b|return\b)[a-zA-Z_][\w\s*]*?\b(\w+)\(", re.M)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")


def code_of(path):
    with open(path, encoding="utf-8") as source:
        return NO_CODE.sub(" ", source.read())


def outside_braces(text):
    """Statements at file scope; each block is one empty pair of braces."""
    depth, out = 0, []
    for part in re.split(r"([{}])", text):
        if part == "{":
            depth += 1
        elif part == "}":
            depth -= 1
            out.append("{}\n" if depth == 0 else "")
        elif depth == 0:
            out.append(part)
    return "".join(out)


def declared_in(path):
    text = ATTRIBUTE.sub(" ", outside_braces(code_of(path)))
    found = []
    for statement in re.split(r"[;}]", text):
        match = DECLARED.match(statement.strip())
        if match and "{" not in statement:
            found.append(match.group(1))
    return found


def defined_in(folder):
    """The files that define each function of a folder: {function: {file}}."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.c"))):
        for name in DEFINED.findall(ATTRIBUTE.sub(" ", code_of(path))):
            found.setdefault(name, set()).add(os.path.basename(path))
    return found


def complaint_of(header, name, defined):
    """None: it is where it should be."""
    where = defined.get(name, set())
    if not where:
        return f"{header}: {name} is defined in no file of the folder"
    if header in FACES or os.path.basename(header)[:-2] + ".c" in where:
        return None
    return f"{header}: {name} is defined in {', '.join(sorted(where))}: declare it in that file's header"


def check(root):
    """How many headers and functions there are, and what is wrong."""
    complaints, headers, functions = [], 0, 0
    for folder, _, files in sorted(os.walk(os.path.join(root, "src"))):
        defined = defined_in(folder)
        for file in sorted(file for file in files if file.endswith(".h")):
            path = os.path.join(folder, file)
            names, header = declared_in(path), os.path.relpath(path, root)
            headers, functions = headers + 1, functions + len(names)
            complaints += filter(None, (complaint_of(header, name, defined) for name in names))
    return headers, functions, complaints


def stale_faces(root):
    return [f"{face}: no such header: take it out of FACES" for face in sorted(FACES)
            if not os.path.exists(os.path.join(root, face))]  # fmt: skip


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    root = parser.parse_args(argv).root
    headers, functions, complaints = check(root)
    complaints += stale_faces(root)
    for complaint in complaints:
        print(complaint)
    if functions == 0:
        sys.exit("no function was found")
    if complaints:
        return 1
    print(f"headers: {headers}, {functions} functions, each defined in its header's file")
    return 0


if __name__ == "__main__":
    sys.exit(main())
