#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/bench-failover --json: the report says all marks of events that took place, or there is none. BUILD in the
environment is the build folder."""

import json
import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BUILD = os.environ["BUILD"]
BENCH = os.path.join(BUILD, "bin", "ha-failover-bench")
SLACK = "100"  # how long things take is not looked at here
MARKS = {"port_down_ms": 4, "silent_cut_ms": 2, "qp_error_ms": 2, "peer_death_ms": 2, "all_512_ms": 2}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "marks.json")

    def run_program(self, *words):
        return subprocess.run(words, capture_output=True, text=True, timeout=200, check=False, stdin=subprocess.DEVNULL)

    def test_every_mark_of_proved_events(self):
        few = ["-n", "2", "-C", "16", "--slack", SLACK]
        if os.path.realpath(os.path.join(ROOT, "build")) == os.path.realpath(BUILD):
            done = self.run_program(os.path.join(ROOT, "scripts", "bench-failover"), "--no-build", "--out", self.folder, "--json", self.path, *few)
        else:  # the script runs that folder's alone
            done = self.run_program(BENCH, "--marks", self.path, *few)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.path, encoding="utf-8") as file:
            report = json.load(file)
        for mark, events in MARKS.items():
            figures = report[mark]
            self.assertEqual(figures["events"], events, mark)
            self.assertGreaterEqual(figures["n"], events, mark)
            self.assertTrue(0 < figures["p50"] <= figures["p95"] <= figures["p99"] <= figures["max"], figures)
        self.assertRegex(report["commit"], r"^([0-9a-f]{7,}(\.dirty)?|unknown)$")
        self.assertEqual(report["profile"], os.environ.get("SIMVERBS_PROFILE", "exact"))
        self.assertEqual(report["machine"]["processors"], os.sysconf("SC_NPROCESSORS_ONLN"))

    def test_an_event_that_did_not_take_place_is_refused(self):
        refusals = {
            "port-down-sender": "nothing is broken",
            "silent-cut": "nothing is broken",
            "512-connections": "nothing is broken",
            "qp-error": "no queue pair was broken",
            "peer-death": "was not killed",
        }
        for scenario, why in refusals.items():
            with self.subTest(scenario):
                raw = os.path.join(self.folder, scenario)
                done = self.run_program(BENCH, "--lie", "-n", "1", "-C", "4", "--json", raw, scenario)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertRegex(done.stdout, f"MISSED: refused: .*{why}")
                with open(raw, encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["scenarios"][0]["samples_ms"], [])

    def test_a_report_with_a_mark_that_is_missing_is_not_written(self):
        done = self.run_program(BENCH, "--slack", SLACK, "--marks", self.path, "-n", "1", "qp-error")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no port_down_ms: its scenario did not run", done.stderr)
        self.assertFalse(os.path.exists(self.path))
        done = self.run_program(BENCH, "--marks", self.path, "-n", "1", "--lie", "port-down-sender")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no port_down_ms: refused", done.stderr)
        self.assertFalse(os.path.exists(self.path))


if __name__ == "__main__":
    unittest.main()
