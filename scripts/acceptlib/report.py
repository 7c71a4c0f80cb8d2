# SPDX-License-Identifier: Apache-2.0
"""What the acceptance found, as text and as JSON: sections with tables, and a verdict of lines that are PASS,
WARN or FAIL and say what to do."""

import json
import sys
import time

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"


class Report:
    def __init__(self, stream=sys.stdout):
        self.stream = stream
        self.began = time.time()
        self.lines = []  # of the verdict
        self.data = {}

    def say(self, text=""):
        print(text, file=self.stream, flush=True)

    def section(self, title):
        self.say(f"\n== {title}")

    def table(self, header, rows):
        """Columns of numbers to the right, words to the left."""
        rows = [[str(cell) for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        right = [all(row[i][:1].isdigit() or row[i] in ("-", "") for row in rows) for i in range(len(header))]
        for row in [header, *rows]:
            cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right)]
            self.say(("  " + "  ".join(cells)).rstrip())

    def verdict(self, grade, what, found, advice=None):
        """what: the thing judged; found: what is so; advice: what to do about it."""
        self.lines.append({"verdict": grade, "what": what, "found": found, "advice": advice if grade != PASS else None})

    def judge(self, good, what, found, advice, otherwise=FAIL):
        self.verdict(PASS if good else otherwise, what, found, advice)

    def count(self, grade):
        return sum(line["verdict"] == grade for line in self.lines)

    def summary(self):
        if self.count(FAIL):
            return "do not put the plugin under a job here before this is settled"
        if self.count(WARN):
            return "usable; read the warnings first"
        return "ready: put it under a job"

    def finish(self, path=None):
        """Prints the verdict and writes the JSON. Returns the exit status."""
        self.section("verdict")
        for line in self.lines:
            self.say(f"  {line['verdict']}  {line['what']}: {line['found']}")
            if line["advice"]:
                self.say(f"        -> {line['advice']}")
        counts = ", ".join(f"{self.count(grade)} {grade}" for grade in (PASS, WARN, FAIL))
        self.say(f"\n{counts}: {self.summary()}")
        if path:
            document = {
                "program": "scripts/acceptance",
                "layout": 1,
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
                "seconds": round(time.time() - self.began, 1),
                **self.data,
                "verdict": self.lines,
                "summary": self.summary(),
            }
            with open(path, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
                file.write("\n")
        return 1 if self.count(FAIL) else 0
