#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No function of the plugin is mutually recursive: what a connection reports never comes back to it from below.

    scripts/calls.py [--root DIR]

Calls are found by name. One through a member goes to every function that some initializer or assignment gives to a
member of that name, `ops->path_failed(...)` to those of tables of operations (`struct ha_failover_ops ... = {`), and
one through a variable to every function in a table of the same file. The end of a command is no call: its thread makes
it. A function that calls itself is no circle. Exit status 1 if there is one: each with its functions and their files.
"""
import argparse
import glob
import os
import re
import sys

FOLDERS = "base device progress event hints memory liveness transport failover admin instance plugin".split()

NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
# From the first column to the brace there.
FUNCTION = re.compile(r"^([a-zA-Z_][^;{}=]*?)\b(\w+)\s*\([^;{}]*?\)\s*\n\{\n(.*?)^\}", re.M | re.S)
CALL = re.compile(r"(?<![.>\w])(\w+)\s*\(")
MEMBER_CALL = re.compile(r"\b(ops)?(?:\.|->)(\w+)\s*\(")
OPERATIONS = re.compile(r"^(?:static )?const struct \w+_ops \w+ = \{.*?^\};", re.M | re.S)
ENDS = {"run", "abandoned"}  # of a command (progress/command.h)
GIVEN = re.compile(r"(?:\.|->)(\w+)\s*=\s*&?(\w+)\s*[,;}\n]")
TABLE = re.compile(r"^static const (\w+) \w+(?:\[[^\]]*\])+ = \{(.*?)^\};", re.M | re.S)


class Calls:
    def __init__(self, root):
        self.file_of, self.body_of = {}, {}  # by (file, or "" where it is seen everywhere; name)
        self.texts = {}
        for folder in FOLDERS:
            for path in sorted(glob.glob(os.path.join(root, "src", folder, "*.[ch]"))):
                self.read(os.path.relpath(path, root), path)
        self.operations, self.given = {}, {}  # member: functions
        for file, text in self.texts.items():
            for table in OPERATIONS.findall(text):
                self.note(self.operations, table, file)
            self.note(self.given, OPERATIONS.sub("", text), file)
        self.callees = {key: self.calls_of(key) for key in self.body_of}

    def read(self, file, path):
        with open(path, encoding="utf-8") as source:
            text = self.texts[file] = NO_CODE.sub(" ", source.read())
        for match in FUNCTION.finditer(text):
            own = file.endswith(".c") and "static" in match.group(1).split()
            key = (file if own else "", match.group(2))
            self.file_of[key], self.body_of[key] = file, match.group(3)

    def note(self, given, text, file):
        for member, name in GIVEN.findall(text):
            if member not in ENDS:
                given.setdefault(member, set()).update(self.named(name, file))

    def named(self, name, file):
        """The function that a name means in a file: its own before everybody's."""
        for key in ((file, name), ("", name)):
            if key in self.body_of:
                return {key}
        return set()

    def tables_of(self, file):
        """Functions in tables of a function type, of one file."""
        found = set()
        for _, entries in TABLE.findall(self.texts[file]):
            for name in re.findall(r"\b([a-z_]\w*)\b", entries):
                found |= self.named(name, file)
        return found

    def calls_of(self, key):
        file, body = self.file_of[key], self.body_of[key]
        found = set()
        for name in CALL.findall(body):
            found |= self.named(name, file)
        for ops, member in MEMBER_CALL.findall(body):
            found |= (self.operations if ops else self.given).get(member, set())
        if re.search(r"\)\(", body) or re.search(r"\bhandler\s+\w+\s*=", body):
            found |= self.tables_of(file)
        return found

    def circles(self):
        """Strongly connected components of more than one function (Tarjan)."""
        index, low, stack, on, found = {}, {}, [], set(), []

        def visit(key):
            index[key] = low[key] = len(index)
            stack.append(key)
            on.add(key)
            for callee in self.callees[key]:
                if callee not in index:
                    visit(callee)
                    low[key] = min(low[key], low[callee])
                elif callee in on:
                    low[key] = min(low[key], index[callee])
            if low[key] == index[key]:
                circle = []
                while not circle or circle[-1] != key:
                    circle.append(stack.pop())
                    on.discard(circle[-1])
                if len(circle) > 1:
                    found.append(sorted(circle))

        for key in self.body_of:
            if key not in index:
                visit(key)
        return found


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    calls = Calls(parser.parse_args(argv).root)
    sys.setrecursionlimit(10 * len(calls.body_of) + 1000)
    circles = calls.circles()
    for circle in circles:
        print(f"{len(circle)} functions call one another:")
        for key in circle:
            print(f"    {calls.file_of[key]}: {key[1]}")
    if not calls.body_of:
        sys.exit("no function was found")
    if circles:
        return 1
    print(f"calls: {len(calls.body_of)} functions, {sum(map(len, calls.callees.values()))} calls, no circle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
