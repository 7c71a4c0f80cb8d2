#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/soak --trace: every kind of failure is replayed under checked traffic and seen to have happened, the job
lives and every byte is right; without failover the same job dies. BUILD in the environment is the build folder."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BUILD = os.environ["BUILD"]
SLACK = os.environ.get("SLACK", "4")
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.dont_write_bytecode = True
from soaklib import failuretrace  # noqa: E402

EVERY_KIND = """trace 1
span 30d
cluster 100 8
1d  4   1 link-down     1h
2d  5   2 link-flap     10s
3d  6   3 silent-cut    2h
4d  7   1 one-way-cut   2h
5d  0-9 2 switch-down   1h
6d  -   3 switch-silent 1h
7d  9   - host-down     0s
8d  9   0 nic-down      4h
"""


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.trace = os.path.join(self.folder, "trace")

    def soak(self, *words, env=None):
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(ROOT, "scripts", "soaklib", "main.py"), "--build", BUILD, "--trace", self.trace, "--out", self.folder, "--slack", SLACK, *words],
            capture_output=True, text=True, timeout=150, check=False, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})},
        )  # fmt: skip
        document = None
        if os.path.exists(os.path.join(self.folder, "soak.json")):
            with open(os.path.join(self.folder, "soak.json"), encoding="utf-8") as file:
                document = json.load(file)
        return done, document

    def write(self, text):
        with open(self.trace, "w", encoding="utf-8") as file:
            file.write(text)

    def test_every_kind_takes_place_and_costs_no_data(self):
        self.write(EVERY_KIND)
        done, document = self.soak("--settle", "400", "--sample", "0", env={"HA_NCCL_HEARTBEAT_MS": "50", "HA_NCCL_COMPLETION": "e2e"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        measured = document["measured"]
        fired = {row["kind"] for row in measured["failures"] if row["fired"]}
        self.assertEqual(fired, set(failuretrace.NETWORK))
        self.assertEqual((measured["wrong"], measured["died"], measured["complaints"]), (0, 0, []))
        self.assertGreater(measured["checked"], 100)
        self.assertGreater(measured["switches"], 8)
        lives = {(life["plugin"], life["others"]): life for life in document["model"]}
        self.assertEqual(lives[True, False]["restarts"], 0)
        self.assertEqual(lives[True, True]["restarts"], 1)  # of the host
        self.assertEqual(lives[False, True]["restarts"], 7)  # all but the flap
        self.assertGreater(lives[True, False]["availability"], 0.999)
        self.assertIn("passed: 7 failures fired, 0 wrong elements", done.stdout)
        for name in ("soak.txt", "downtime.dat", "timeline.txt"):
            self.assertGreater(os.path.getsize(os.path.join(self.folder, name)), 50)

    def test_without_failover_the_job_dies(self):
        self.write("trace 1\nspan 1d\ncluster 100 8\n1h 4 1 link-down 1h\n")
        done, document = self.soak("--sample", "1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = document["measured"]["without_failover"]["link-down"]
        self.assertEqual((found["tried"], found["died"], found["wrong"]), (1, 1, 0))
        self.assertLess(found["median_error_ms"], 8000)
        self.assertIn("1 of 1 died", done.stdout)

    def test_a_trace_that_cannot_be_read_is_named_with_its_line(self):
        self.write("trace 1\nspan 1d\ncluster 100 8\n1h 4 1 link-broken 1h\n")
        done, _ = self.soak()
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{self.trace}:4: no kind is called 'link-broken'", done.stderr)


if __name__ == "__main__":
    unittest.main()
