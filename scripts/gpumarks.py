# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu-gin, gpu-ibgda, gpu-inc and gpu-rails make of their parts: marks, met or missed, a table of them, and a file that
has what was measured even if the rest failed."""

import json
import os
import platform
import shlex
import subprocess
import sys
import time

from benchlib import commit, plain
from benchrun import Failed
from gpulib import BenchError, say

NO_RESULT = (BenchError, Failed, OSError, ValueError, LookupError, subprocess.SubprocessError)


class Mark:
    def __init__(self, what, value, bound, limit):
        self.what, self.value, self.bound, self.limit = what, value, bound, limit
        self.is_met = {"at most": value <= limit, "below": value < limit, "at least": value >= limit}[bound]

    def verdict(self):
        return "met" if self.is_met else "missed"

    def __str__(self):
        return f"{self.what} {self.value:.4g}, {self.bound} {self.limit:.4g}: {self.verdict()}"


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))] if values else None


def times_of(values):
    """What is kept of times in ms."""
    return {"n": len(values), "p50_ms": percentile(values, 0.5), "p99_ms": percentile(values, 0.99), "longest_ms": max(values, default=None)}


class Report:
    """Parts of a measurement one after the other."""

    HEADER = ["part", "what", "measured", "asked", ""]

    def __init__(self, path, facts):
        self.path = path  # of the file; None: there is none
        self.document = {**facts, "parts": {}}
        self.rows = []
        self.missed = self.failed = 0

    def measure(self, name, does, entry=None):
        """does(entry) notes there what it finds, and returns its marks."""
        entry = self.document["parts"].setdefault(name, {} if entry is None else entry)
        try:
            marks = does(entry)
            entry["marks"] = [vars(mark) for mark in marks]
            for mark in marks:
                say(f"{name}: {mark}")
                self.missed += not mark.is_met
                self.rows.append([name, mark.what, f"{mark.value:.4g}", f"{mark.bound} {mark.limit:.4g}", mark.verdict()])
        except NO_RESULT as error:
            self.fail(name, f"{type(error).__name__}: {error}")
        finally:
            self.write()

    def fail(self, name, text, entry=None):
        """A part without a result."""
        self.document["parts"].setdefault(name, {} if entry is None else entry)["error"] = text
        self.failed += 1
        self.rows.append([name, text.splitlines()[0], "–", "–", "no result"])
        say(f"{name}: {text}")
        self.write()

    def is_met(self):
        return not self.missed and not self.failed and bool(self.rows)

    def table(self):
        return plain(self.HEADER, self.rows)

    def write(self):
        if self.path:
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump(self.document, file, indent=1)
                file.write("\n")


def facts_of(script):
    """What a report begins with."""
    return {"command": f"scripts/{script} " + shlex.join(sys.argv[1:]), "commit": commit(), "date": time.strftime("%Y-%m-%d"),
            "cpu_cores": os.cpu_count(), "kernel": platform.release()}  # fmt: skip
