#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-ibgda without a GPU: a program that says what it is told to; and threads of the host in the place of a GPU's.
BUILD in the environment is the build folder."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from loading import SCRIPTS

SCRIPT = os.path.join(SCRIPTS, "gpu-ibgda")
BUILD = os.environ["BUILD"]
# What it is run with is in $WORDS of the fake; the last part that is like it says what comes out.
FAKE = r"""#!/usr/bin/env python3
import json, os, sys, time
words = sys.argv[1:]
result = {"mode": words[0], "on": "a stand-in", "wrong": 0, "failovers": 10**6, "posted": 10**6, "watched": 10**6, "steps": 16,
          "generations_least": 3, "returned_ms": 5.0, "latched_ms": 1050.0, "outage_ms": 1000}
if words[0] == "cuts":
    result["cuts"] = int(words[3])
    result.update({kind: {"n": 1, "p50_ms": 1.0, "p99_ms": 9.0} for kind in ("port", "peers_port", "switch")})
if words[0] == "paired":
    result.update({figure: {"on": 1, "off": 1, "ratio": 1.01} for figure in ("ns", "p50_ns", "p99_ns")})
for change in filter(None, os.environ.get("CHANGES", "").split(";")):
    mode, key, value = change.split("=")
    if mode == words[0] and key == "sleep":
        time.sleep(float(value))
    elif mode == words[0] and key == "exit":
        print("rig: it went wrong (7)", file=sys.stderr)
        sys.exit(int(value))
    elif mode == words[0] and key == "mistake":
        print("simverbs: a program that drives a send queue itself:", value, file=sys.stderr)
    elif mode == words[0]:
        *path, last = key.split(".")
        inside = result
        for name in path:
            inside = inside[name]
        inside[last] = float(value)
print(json.dumps(result))
"""


class GpuIbgda(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.program = os.path.join(self.folder.name, "fake")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(FAKE)
        os.chmod(self.program, 0o755)
        self.json = os.path.join(self.folder.name, "json")

    def run_script(self, *words, changes="", env=None):
        run = subprocess.run([SCRIPT, "--out", os.path.join(self.folder.name, "out"), "--json", self.json, *words], text=True,
                             check=False, timeout=100, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=dict(os.environ, CHANGES=changes, **(env or {})))
        report = None
        if os.path.exists(self.json):
            with open(self.json, encoding="utf-8") as file:
                report = json.load(file)
        return run, report

    def run_fake(self, *words, **options):
        return self.run_script("--build", BUILD, "--program", self.program, "--skip", "host8", *words, **options)

    def test_all_marks_are_met(self):
        run, report = self.run_fake()
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertEqual(len(report["parts"]), 10)
        self.assertTrue(all(mark["is_met"] for part in report["parts"].values() for mark in part["marks"]))
        self.assertEqual((report["on"], report["status"]), ("a stand-in", 0))
        self.assertEqual(report["parts"]["cuts8"]["command"], "cuts 8 16 1000 1000000 1")

    def test_each_mark_can_be_missed(self):
        for changes, part in (("paired=p50_ns.ratio=1.03", "latency"), ("paired=ns.ratio=1.03", "rate"), ("paired=ns.ratio=1.03", "throughput"),
                              ("cuts=port.p99_ms=30", "cuts8"), ("cuts=peers_port.p99_ms=31", "cuts64"), ("cuts=failovers=7999", "cuts8"),
                              ("cuts=posted=999999", "cuts64"), ("cuts=cuts=999", "cuts64"), ("late=steps=15", "late"), ("late=generations_least=2", "late"),
                              ("over=latched_ms=1101", "outage"), ("over=returned_ms=100", "outage"), ("over=returned_ms=100", "abort"),
                              ("order=watched=999999", "order"), ("order=watched=999999", "order-gpu")):  # fmt: skip
            run, report = self.run_fake("--only", part, changes=changes)
            self.assertEqual(run.returncode, 1, (changes, part, run.stdout))
            self.assertEqual(report["status"], 1)
            self.assertIn("missed", run.stdout)

    def test_what_is_wrong_is_worse_than_a_mark(self):
        for changes, said in (("late=wrong=1", "1.0 wrong"), ("late=exit=1", "it went wrong (7)")):
            run, report = self.run_fake(changes=changes + ";over=returned_ms=100")
            self.assertEqual(run.returncode, 3, run.stdout)
            self.assertIn(said, report["parts"]["late"]["error"])
            self.assertIn("marks", report["parts"]["cuts64"])  # the others were run

    def test_what_the_device_says_of_a_queue_is_wrong_but_for_a_sleeper(self):
        run, report = self.run_fake("--only", "late", changes="late=mistake=a work request was not there")
        self.assertEqual(run.returncode, 3, run.stdout)
        self.assertIn("not there", report["parts"]["late"]["error"])
        run, _ = self.run_fake("--only", "late", changes="late=mistake=the doorbell record went on, and the doorbell was not rung")
        self.assertEqual(run.returncode, 0, run.stdout)

    def test_a_program_that_does_not_end_is_ended(self):
        run, report = self.run_fake("--only", "late,abort", "--time-limit", "8.5", changes="late=sleep=60")
        self.assertEqual(run.returncode, 3, run.stdout)
        self.assertIn("NoEnd", report["parts"]["late"]["error"])
        self.assertIn("no time is left", report["parts"]["abort"]["error"])

    def test_without_a_gpu_it_says_so(self):
        with tempfile.TemporaryDirectory() as empty:
            os.symlink(sys.executable, os.path.join(empty, "python3"))
            run, _ = self.run_script("--build", BUILD, env={"PATH": f"{empty}:/bin"} if not os.path.exists("/bin/nvidia-smi") else {"PATH": empty})
        self.assertEqual(run.returncode, 77, run.stdout)
        self.assertIn("SKIP: no nvidia-smi", run.stdout)

    def test_what_makes_no_sense_is_refused(self):
        for words in (("--only", "nothing"), ("--cuts", "0"), ("--kernels", "none")):
            run, _ = self.run_script(*words)
            self.assertEqual(run.returncode, 2)

    def test_threads_of_the_host(self):
        run, report = self.run_script("--build", BUILD, "--kernels", "host", "--only", "latency,abort,order-gpu,cuts8", "--cuts", "3", "--signals", "2000",
                                      "--gpu-looks", "2000", "--rounds", "2", "--scale", "0.05")
        self.assertIn(run.returncode, (0, 1), run.stdout)  # marks of time are for a quiet machine
        self.assertEqual(report["parts"]["cuts8"]["result"]["wrong"], 0)
        self.assertGreaterEqual(report["parts"]["cuts8"]["result"]["failovers"], 24)
        self.assertGreaterEqual(report["parts"]["order-gpu"]["result"]["watched"], 2000)
        self.assertEqual(report["on"], "threads of the host")


if __name__ == "__main__":
    unittest.main()
