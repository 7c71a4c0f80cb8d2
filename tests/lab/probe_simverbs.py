#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the probe of verbs on a live simverbs fabric: one host, two rails, a device on each.

With --record the answers are compared with what a kernel's devices answered; every difference must
be in the table of docs/simverbs.md, and everything in the table must be a difference.
"""
import argparse
import os
import subprocess
import sys

import probe_answers
import probe_run


class Simverbs:
    """A fabric for the probe, broken and mended with the simverbs tool."""

    COMMANDS = {
        "silence on": ["cut", "NAME", "0"],
        "silence off": ["cut", "NAME", "0", "--heal"],
        "link down": ["link", "NAME", "0", "0", "down"],
        "link up": ["link", "NAME", "0", "0", "up"],
    }

    def __init__(self, tool):
        self.tool = tool
        self.name = f"probe-{os.getpid()}"

    def __enter__(self):
        subprocess.run([self.tool, "up", self.name, "--hosts", "1", "--rails", "2"], check=True)
        return self

    def __exit__(self, *unused):
        subprocess.run([self.tool, "down", self.name], check=False)

    def do(self, what):
        """What the probe asks its driver for."""
        words = [self.name if word == "NAME" else word for word in self.COMMANDS[what]]
        subprocess.run([self.tool, *words], check=True)

    def run(self, probe, group):
        """The probe's answers, with the driver's part done on the way."""
        command = [self.tool, "run", self.name, "0", "--", probe, "sim0", "sim1", *group]
        return probe_run.ask(subprocess.Popen, command, self.do)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", required=True, help="the simverbs tool")
    parser.add_argument("--probe", required=True, help="the probe")
    parser.add_argument("--record", help="what a kernel answered, to compare with")
    parser.add_argument("--table", help="the page with the table of differences")
    parser.add_argument("group", nargs="*", help="only these questions; no comparison")
    options = parser.parse_args()
    with Simverbs(options.tool) as fabric:
        lines = fabric.run(options.probe, options.group)
    if not options.record:
        print("\n".join(lines))
        return
    ours = probe_answers.parse(lines)
    theirs = probe_answers.read(options.record)
    with open(options.table, encoding="utf-8") as file:
        listed = probe_answers.parse_table(file.read())
    faults = probe_answers.compare(ours, theirs, listed)
    print(f"{len(ours)} answers, {len(listed)} listed differences, {len(faults)} faults")
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
