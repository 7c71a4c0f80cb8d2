# SPDX-License-Identifier: Apache-2.0
"""Which lines and branches of src/failover and src/transport have run, by what gcov says of a build with --coverage.

`scripts/coverage` builds and runs; this counts. What lies in a header counts once, whoever includes it.
"""
import argparse
import collections
import glob
import json
import os
import subprocess
import sys
import tempfile

from benchlib import markdown, write_section

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("failover", "transport")
PAGE = os.path.join(ROOT, "docs", "search.md")


def gcov(objects):
    """What gcov says of some object files: a document for each."""
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", *objects], cwd=folder,
                              check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in said.splitlines() if line.strip()]


def add(known, lines):
    """To what is known of a file: how often each line ran, and each of its branches was taken."""
    for line in lines:
        now = known.setdefault(line["line_number"], [0, []])
        now[0] += line["count"]
        taken = [branch["count"] for branch in line["branches"]]
        longest = max(len(taken), len(now[1]))
        now[1] = [sum(pair) for pair in zip(now[1] + [0] * (longest - len(now[1])), taken + [0] * (longest - len(taken)))]


def count(build):
    """File (below src/) -> line -> [times it ran, how often each of its branches was taken]."""
    files = collections.defaultdict(dict)
    for folder in FOLDERS:
        objects = sorted(glob.glob(os.path.join(os.path.abspath(build), "src", folder, "**", "*.gcno"), recursive=True))
        if not objects:
            raise ValueError(f"{build} has nothing of src/{folder} that was built with --coverage")
        for document in gcov(objects):
            for file in document["files"]:
                name = os.path.normpath(file["file"]).rpartition("src/")[2]
                if name.split("/")[0] in FOLDERS:
                    add(files[name], file["lines"])
    return files


def sums(files, folder):
    """Of a folder: lines, those that ran, branches, those that were taken."""
    lines = [line for name, of in files.items() if name.startswith(folder + "/") for line in of.values()]
    branches = [n for _, taken in lines for n in taken]
    return len(lines), sum(n > 0 for n, _ in lines), len(branches), sum(n > 0 for n in branches)


def part(some, of):
    return f"{100 * some / of:.1f} %" if of else "–"


def table(explorer, stepped):
    """A line for each folder: what the explorer reaches, and with the stepped tests."""
    rows = []
    for folder in FOLDERS:
        lines, ran, branches, taken = sums(explorer, folder)
        _, ran_too, _, taken_too = sums(stepped, folder)
        rows.append([f"`src/{folder}`", f"{lines:,}", part(ran, lines), part(ran_too, lines), f"{branches:,}",
                     part(taken, branches), part(taken_too, branches)])
    return markdown(["folder", "lines", "the explorer", "and stepped tests", "branches", "the explorer",
                     "and stepped tests"], rows)


def missing(files, root):
    """Each line that never ran, or with a branch that was never taken, as it is written."""
    for name in sorted(files):
        with open(os.path.join(root, "src", name), encoding="utf-8") as file:
            text = file.read().splitlines()
        for number in sorted(files[name], key=int):
            ran, taken = files[name][number]
            never = sum(n == 0 for n in taken)
            if ran == 0 or never:
                what = f"{never} of {len(taken)} branches never" if ran else "never"
                yield f"src/{name}:{number}: {what}: {text[int(number) - 1].strip()}"


def report(args):
    with open(args.explorer, encoding="utf-8") as file:
        explorer = json.load(file)
    with open(args.stepped, encoding="utf-8") as file:
        stepped = json.load(file)
    if args.missing:
        print("\n".join(missing(stepped, ROOT)))
    print(table(explorer, stepped))
    if args.docs:
        write_section(args.page, "coverage", table(explorer, stepped))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    counting = commands.add_parser("count", help="what ran since the last time that *.gcda were removed")
    counting.add_argument("--build", required=True)
    counting.add_argument("--out", required=True)
    reporting = commands.add_parser("report", help="the table")
    reporting.add_argument("--page", default=PAGE)
    reporting.add_argument("--docs", action="store_true", help="into the page")
    reporting.add_argument("--missing", action="store_true", help="what never ran, line by line")
    reporting.add_argument("explorer")
    reporting.add_argument("stepped")
    args = parser.parse_args()
    try:
        if args.command == "count":
            with open(args.out, "w", encoding="utf-8") as file:
                json.dump(count(args.build), file)
        else:
            report(args)
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"scripts/coveragereport.py: {error}")


if __name__ == "__main__":
    main()
