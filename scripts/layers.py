#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The order of the source's folders, and whether the page about it is true.

    scripts/layers.py layers       scripts/layers.txt says which folder of src/ may include which, and
                                   no file includes another; each folder is in the picture and in the
                                   page of the architecture, and the files and functions that it and
                                   the walk through the code name exist
    scripts/layers.py glossary     the words that open the page are words of the source

`--root DIR` looks at another tree. Exit status 1 if something is wrong, each with the file and line.
"""
import argparse
import os
import re
import sys

TABLE = "scripts/layers.txt"
PAGE = "docs/architecture.md"
WALK = "docs/code-walk.md"
PICTURE = "docs/img/architecture.dot"
PUBLIC = "include"  # headers for others: a room below the ground floor

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
# A file of C in a page: `comm.c`, `base/usdt.h`, `request.[ch]`, `src/base/log.c`.
FILE = re.compile(r"`([\w./-]+\.)([ch]|\[ch\])`")
# A function, a type, a constant: a word with an underscore.
NAME = re.compile(r"`([A-Za-z]+_\w+)`")
MIN_WORDS = 15


class Tree:
    def __init__(self, root):
        self.root = root
        self.complaints = []

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def complain(self, file, line, text):
        self.complaints.append(f"{file}:{line}: {text}")

    def lines(self, file):
        """Lines of a file with their numbers, from 1. A file that is missing is a complaint."""
        try:
            with open(self.path(file), encoding="utf-8") as f:
                return list(enumerate(f.read().splitlines(), 1))
        except FileNotFoundError:
            self.complain(file, 1, "no such file")
            return []

    def folders(self):
        """Of src/, those that have C in them."""
        found = {file.split("/")[1] for file in self.sources("src") if file.count("/") > 1}
        return sorted(found)

    def sources(self, top):
        """Files of C below `top`, as paths from the root."""
        for folder, folders, files in os.walk(self.path(top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), self.root)


# ---- who may include whom ------------------------------------------------------------------------


def read_table(tree):
    """What each folder may include: {folder: {folders}}."""
    allowed = {PUBLIC: set()}
    for number, line in tree.lines(TABLE):
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, colon, below = line.partition(":")
        name, below = name.strip(), below.split()
        if not colon or len(name.split()) != 1:
            tree.complain(TABLE, number, 'a line is "folder: folders it may include"')
            continue
        for other in below:
            if other not in allowed:
                tree.complain(TABLE, number, f"{other} is on no line above this one")
        if name in allowed:
            tree.complain(TABLE, number, f"{name} has a line already")
        elif not os.path.isdir(tree.path("src", name)):
            tree.complain(TABLE, number, f"src/{name} is no folder: take the line out")
        allowed[name] = {PUBLIC, *below}
    return allowed


def room_of(allowed, path):
    """The line that a file comes under, the longest that fits; None outside src/ and include/."""
    folder = os.path.dirname(path)
    if folder.split("/")[0] == PUBLIC:
        return PUBLIC
    if not folder.startswith("src/"):
        return None
    folder = top = folder.removeprefix("src/")
    while folder not in allowed and "/" in folder:
        folder = os.path.dirname(folder)
    return folder if folder in allowed else top.split("/")[0]


def find_header(tree, file, name, quoted):
    """Where the compiler finds it: beside the file, in its folder of src/, in include/ and src/."""
    beside = [os.path.dirname(file), "/".join(file.split("/")[:2])] if quoted else []
    for folder in (*beside, PUBLIC, "src"):
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(tree.path(path)):
            return path
    return None


def check_file(tree, allowed, file):
    """Returns how many of its includes are the project's."""
    room, n = room_of(allowed, file), 0
    for number, line in tree.lines(file):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted = match.group(1) is not None
        header = find_header(tree, file, match.group(1) or match.group(2), quoted)
        if not header:
            if quoted:
                tree.complain(file, number, f"no such header: {match.group(1)}")
            continue
        n += 1
        target = room_of(allowed, header)
        if target != room and target not in allowed.get(room, {PUBLIC}):
            tree.complain(file, number, f"{room} may not include {header} ({TABLE})")
    return n


def check_includes(tree):
    allowed = read_table(tree)
    for folder in tree.folders():
        if folder not in allowed:
            tree.complain(TABLE, 1, f"src/{folder} has no line")
    files = [file for top in ("src", PUBLIC) for file in tree.sources(top) if room_of(allowed, file)]
    return len(files), sum(check_file(tree, allowed, file) for file in files)


# ---- page and picture ----------------------------------------------------------------------------


def check_folders(tree):
    """Each folder is a node of the picture and named in the page."""
    picture = "\n".join(text.split("//")[0] for _, text in tree.lines(PICTURE))
    page = "\n".join(text for _, text in tree.lines(PAGE))
    for folder in tree.folders():
        if not re.search(rf'(?:^|[;{{])\s*"?{re.escape(folder)}"?\s*\[', picture, re.M):
            tree.complain(PICTURE, 1, f"the picture has no node {folder} for src/{folder}")
        if f"`src/{folder}`" not in page:
            tree.complain(PAGE, 1, f"the page does not name `src/{folder}`")


def check_names(tree):
    """Each file of C that the page names exists; in the table of a folder, in that folder."""
    known = [*tree.sources("src"), *tree.sources(PUBLIC), *tree.sources("tests")]
    folder = None
    for number, line in tree.lines(PAGE):
        if not line.startswith("|"):
            match = re.match(r"`(src/\w+)`, ", line)
            folder = match.group(1) if match else folder if not line else None
        # In the first column of a folder's table a name is that of a file in it.
        first = line.split("|")[1] if folder and line.startswith("|") else ""
        for stem, endings in FILE.findall(line):
            for ending in endings.strip("[]"):
                name = stem + ending
                here = f"`{stem}{endings}`" in first
                wanted = f"{folder}/{name}" if here else name
                if not any(file == wanted or (not here and file.endswith("/" + wanted)) for file in known):
                    tree.complain(PAGE, number, f"no such file: {wanted}")


def check_walk(tree):
    """The files of src/ and the names in it that the walk goes by."""
    words = set()
    for file in tree.sources("src"):
        words.update(re.findall(r"\w+", "\n".join(text for _, text in tree.lines(file))))
    for number, line in tree.lines(WALK):
        for stem, endings in FILE.findall(line):
            for ending in endings.strip("[]"):
                if not os.path.isfile(tree.path("src", stem + ending)):
                    tree.complain(WALK, number, f"no such file: src/{stem}{ending}")
        for name in NAME.findall(line):
            if name not in words:
                tree.complain(WALK, number, f"{name} is in no file of src/")


def check_layers(tree):
    files, includes = check_includes(tree)
    check_folders(tree)
    check_names(tree)
    check_walk(tree)
    return f"layers: {len(tree.folders())} folders, {files} files, {includes} includes"


# ---- the glossary ---------------------------------------------------------------------------------


def glossary(tree):
    """Words of the table that opens the page: (line, word)."""
    inside = False
    for number, line in tree.lines(PAGE):
        if line.startswith("#"):
            inside = line == "## Words"
        elif inside and line.startswith("|") and not re.match(r"\|[ -]+\|", line):
            cell = line.split("|")[1].strip()
            if cell != "word":
                for word in cell.split(","):
                    yield number, word.strip(" *`")


def check_glossary(tree):
    words = list(glossary(tree))
    text = []
    for file in tree.sources("src"):
        with open(tree.path(file), encoding="utf-8") as f:
            text.append(f.read().lower())
    for number, word in words:
        # As words of a comment or as parts of an identifier.
        spelt = re.compile(r"[ _-]".join(re.escape(part) for part in word.lower().split()))
        if not any(spelt.search(source) for source in text):
            tree.complain(PAGE, number, f'"{word}" is in no file of src/')
    if len(words) < MIN_WORDS:
        tree.complain(PAGE, 1, f'the table below "## Words" has {len(words)} words, {MIN_WORDS} are wanted')
    return f"glossary: {len(words)} words of the source"


def main(argv=None):
    parser = argparse.ArgumentParser(description="Looks at the order of the source's folders.")
    parser.add_argument("check", choices=["layers", "glossary"])
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--root", default=here, metavar="DIR", help="the tree to look at")
    args = parser.parse_args(argv)
    tree = Tree(args.root)
    if not os.path.isdir(tree.path("src")):
        parser.error(f"{args.root}: there is no src/ in it")
    summary = check_layers(tree) if args.check == "layers" else check_glossary(tree)
    if tree.complaints:
        print("\n".join(tree.complaints))
        return 1
    print(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
