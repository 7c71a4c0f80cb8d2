#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/bench-failover --json: the report says all marks of events that took place, or there is none. BUILD in the
environment is the build folder."""

import json
import os
import re
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BUILD = os.environ["BUILD"]
BENCH = os.path.join(BUILD, "bin", "ha-failover-bench")
SLACK = "100"  # how long things take is not looked at here
# Of the marks, in ms: what failovers may take. The rest of each is what it takes by design to notice the fault.
GOALS = {
    "port_down_ms": [("p50", 1, 0), ("p99", 3, 0)],
    "silent_cut_ms": [("p99", 100, 80)],
    "qp_error_ms": [("p99", 2, 0)],
    "peer_death_ms": [("p99", 100, 50)],
    "all_512_ms": [("max", 50, 0)],
}
MARKS = {"port_down_ms": 4, "silent_cut_ms": 2, "qp_error_ms": 2, "peer_death_ms": 2, "all_512_ms": 2}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "marks.json")

    def run_program(self, *words, env=None):
        return subprocess.run(words, capture_output=True, text=True, timeout=200, check=False, stdin=subprocess.DEVNULL,
                              env={**os.environ, **(env or {})})  # fmt: skip

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
            with self.subTest(mark):
                limits = [(of, notice + (ms - notice) * float(SLACK)) for of, ms, notice in GOALS[mark]]
                self.assertEqual([(goal["of"], goal["limit"]) for goal in figures["goals"]], limits)
                self.judged(figures, done.stdout, mark)
        self.assertRegex(report["commit"], r"^([0-9a-f]{7,}(\.dirty)?|unknown)$")
        self.assertEqual(report["profile"], os.environ.get("SIMVERBS_PROFILE", "exact"))
        self.assertEqual(report["machine"]["processors"], os.sysconf("SC_NPROCESSORS_ONLN"))

    def judged(self, figures, said, mark):
        """What is met is what the figures say, in the report and on the mark's line of the output."""
        words = []
        for goal in figures["goals"]:
            self.assertEqual(goal["is"], figures[goal["of"]])
            self.assertEqual(goal["met"], goal["is"] <= goal["limit"])
            words.append("met" if goal["met"] else "missed")
        self.assertEqual(figures["met"], "missed" not in words)
        line = re.search(rf"^{mark} .*", said, re.MULTILINE)
        self.assertTrue(line, said)
        self.assertEqual(re.findall(r": (met|missed)", line[0]), words)

    def test_a_mark_that_is_missed_is_reported_and_the_status_says_so(self):
        """Marks without slack, of one fault each on a fabric that tells of a lost carrier late."""
        done = self.run_program(BENCH, "--marks", self.path, "-n", "1", "-C", "4", env={"SIMVERBS_PROFILE": "mlx5"})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        with open(self.path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual((report["slack"], report["profile"]), (1, "mlx5"))
        for mark, goals in GOALS.items():
            self.assertEqual([(goal["of"], goal["limit"]) for goal in report[mark]["goals"]], [(of, ms) for of, ms, _ in goals])
            self.judged(report[mark], done.stdout, mark)
        # A carrier that is lost is told of up to a second later there.
        self.assertFalse(report["port_down_ms"]["met"])
        self.assertIn("MISSED: p", done.stdout)

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
