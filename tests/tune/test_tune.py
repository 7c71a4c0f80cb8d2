#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/rto-calibrate, scripts/resource-sweep and what their figures are made of: intervals, what is
recommended from given figures, pages from kept JSON, and the quick form of each on the real plugin. BUILD in the
environment is the build folder."""

import importlib.machinery
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SCRIPTS = os.path.join(ROOT, "scripts")
BUILD = os.environ["BUILD"]

sys.path.insert(0, SCRIPTS)
sys.dont_write_bytecode = True
benchlib = importlib.import_module("benchlib")
rtoreport = importlib.import_module("rtoreport")


def load(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), os.path.join(SCRIPTS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


sweep = load("resource-sweep")
calibrate = load("rto-calibrate")


class Intervals(unittest.TestCase):
    def test_a_proportion_against_figures_from_the_literature(self):
        # Wilson's interval of 10 in 100 and of none in 100, to three digits.
        p = benchlib.Proportion(10, 100)
        self.assertEqual((round(p.low, 3), round(p.high, 3)), (0.055, 0.174))
        p = benchlib.Proportion(0, 100)
        self.assertEqual((p.low, round(p.high, 3)), (0.0, 0.037))
        p = benchlib.Proportion(100, 100)
        self.assertEqual((round(p.low, 3), p.high), (0.963, 1.0))

    def test_the_interval_holds_the_probability_as_often_as_it_says(self):
        chance = random.Random(1)
        for probability in (0.01, 0.1, 0.5):
            held = 0
            for _ in range(1000):
                p = benchlib.Proportion(sum(chance.random() < probability for _ in range(300)), 300)
                held += p.low <= probability <= p.high
            self.assertGreater(held, 1000 * 0.93, probability)

    def test_what_is_no_proportion_is_an_error(self):
        for happened, trials in ((1, 0), (-1, 5), (6, 5)):
            with self.assertRaises(ValueError):
                benchlib.Proportion(happened, trials)

    def test_a_rate_against_figures_from_the_literature(self):
        # The exact interval of the mean of a Poisson variable that was 0, 1, 10.
        for happened, low, high in ((0, 0.0, 3.69), (1, 0.0253, 5.57), (10, 4.80, 18.39)):
            rate = benchlib.Rate(happened, 1)
            self.assertAlmostEqual(rate.low, low, 2)
            self.assertAlmostEqual(rate.high, high, 2)
        self.assertAlmostEqual(benchlib.Rate(10, 5).high, 18.39 / 5, 2)


def point(rto_ms, switched, episodes=2000, qp_timeout=20, retry_cnt=7):
    return {"qp_timeout": qp_timeout, "retry_cnt": retry_cnt, "rto_ms": rto_ms, "episodes": episodes, "switched": switched}


class Pages(unittest.TestCase):
    def test_the_command_on_a_page_concerns_no_machine(self):
        words = ["--out", "/tmp/x", "--episodes", "5", "--build=/y", "--docs", "--loss", "0"]
        self.assertEqual(benchlib.command_line("rto-calibrate", words), "scripts/rto-calibrate --episodes 5 --loss 0 --docs")

    def check(self, name, section, compact):
        with open(os.path.join(ROOT, "docs", "data", name + ".json"), encoding="utf-8") as file:
            kept = file.read()
        with open(os.path.join(ROOT, "docs", "tuning.md"), encoding="utf-8") as file:
            page = file.read()
        document = json.loads(kept)
        self.assertEqual(page, benchlib.replace_section(page, name, section(document)))
        self.assertEqual(kept, compact(document))

    def test_the_documentation_is_what_its_data_say(self):
        self.check("rto-calibrate", rtoreport.section, rtoreport.compact)
        self.check("resource-sweep", sweep.section, sweep.compact)

    def test_the_promise_was_kept(self):
        with open(os.path.join(ROOT, "docs", "data", "resource-sweep.json"), encoding="utf-8") as file:
            self.assertEqual(list(sweep.complaints(json.load(file))), [])


class Recommendation(unittest.TestCase):
    def test_the_smallest_rto_that_is_certainly_below_one_percent(self):
        points = [point(100, 400), point(300, 60), point(500, 9), point(1000, 2), point(2000, 0)]
        self.assertEqual(rtoreport.smallest_rto(points)["rto_ms"], 500)

    def test_the_interval_counts_and_not_the_rate_alone(self):
        # 0.8 % of 2000 may be 1.3 %; the same of 20000 may not.
        self.assertEqual(rtoreport.smallest_rto([point(500, 16), point(700, 5)])["rto_ms"], 700)
        self.assertEqual(rtoreport.smallest_rto([point(500, 160, 20000), point(700, 50, 20000)])["rto_ms"], 500)
        # None in 300 is not enough to say so, either.
        self.assertIsNone(rtoreport.smallest_rto([point(500, 0, 300)]))

    def test_a_larger_one_that_is_worse_spoils_the_smaller(self):
        points = [point(500, 2), point(700, 90), point(1000, 3)]
        self.assertEqual(rtoreport.smallest_rto(points)["rto_ms"], 1000)

    def test_none_that_does(self):
        self.assertIsNone(rtoreport.smallest_rto([point(500, 90), point(1000, 50)]))

    def test_the_shortest_retries_of_a_queue_pair(self):
        points = [point(60000, n, qp_timeout=t) for t, n in ((12, 400), (13, 100), (14, 9), (15, 1))]
        self.assertEqual(rtoreport.smallest_window(points)["qp_timeout"], 14)
        self.assertAlmostEqual(rtoreport.window_ms(points[2]), 536.87, 2)

    def test_what_is_shipped_follows_from_what_is_kept(self):
        """The defaults of the configuration, the page and the figures agree: or one of them must change."""
        with open(os.path.join(ROOT, "docs", "data", "rto-calibrate.json"), encoding="utf-8") as file:
            document = json.load(file)
        with open(os.path.join(ROOT, "src", "base", "config_table.c"), encoding="utf-8") as file:
            table = file.read()
        self.assertIn("INT(rto_ms, 1000,", table)
        self.assertIn("INT(qp_timeout, 14,", table)
        self.assertIn("INT(qp_retry_cnt, 7,", table)
        profiles = dict(rtoreport.profiles(document))
        # Queue pairs are for pauses of 100 ms, the RTO behind them for pauses twice as long.
        window = rtoreport.smallest_window(rtoreport.queue_pairs(profiles[100]))
        self.assertEqual((window["qp_timeout"], window["retry_cnt"]), (14, 7))
        self.assertEqual(rtoreport.smallest_rto(rtoreport.alone(profiles[200]))["rto_ms"], 1000)
        shipped = [p for p in rtoreport.shipped(document) if p["rto_ms"] == 1000]
        self.assertEqual(len(shipped), 1)
        self.assertTrue(rtoreport.is_rare(shipped[0]))


def result(**different):
    p = {"scarce": "queue pairs", "channels": 2, "in_flight": 64, "max_recvs": 8, "max_comms": 8, "promised": 16}
    p.update(kept=True, scarcest="queue pairs", allows={"queue pairs": 8}, promise_lacked="", opened=25)
    p.update(gave_out="queue pairs", lacked="a connection", message="")
    p.update(different)
    return {"points": [p]}


class Verdict(unittest.TestCase):
    def test_a_promise_that_is_kept_and_a_message_that_is_clear(self):
        self.assertEqual(list(sweep.complaints(result())), [])

    def test_a_promise_that_is_not_kept(self):
        (said,) = sweep.complaints(result(kept=False, promise_lacked="a path in reserve"))
        self.assertIn("16 were promised and not to be had: a path in reserve", said)

    def test_the_least_that_must_be_promised_may_be_too_much(self):
        self.assertEqual(list(sweep.complaints(result(kept=False, opened=1, allows={"queue pairs": 0}))), [])

    def test_a_message_that_names_nothing_or_something_else(self):
        self.assertEqual(len(list(sweep.complaints(result(gave_out="")))), 1)
        self.assertEqual(len(list(sweep.complaints(result(gave_out="memory regions")))), 1)

    def test_equal_results_make_a_row(self):
        document = {"points": [result(in_flight=w)["points"][0] for w in (32, 64)] + result(opened=9)["points"]}
        rows = sweep.table(document)[1]
        self.assertEqual([(row[2], row[5]) for row in rows], [("32×8, 64×8", "25"), ("64×8", "9")])
        self.assertEqual(sweep.table(result())[1][0][2], "all")


class Measurement(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = os.path.join(self.dir, "out.json")

    def run_script(self, name, *arguments):
        command = [os.path.join(SCRIPTS, name), "--build", BUILD, "--out", self.out, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)

    def document(self):
        with open(self.out, encoding="utf-8") as file:
            return json.load(file)

    def test_pauses_and_failures_are_told_apart_as_well_as_the_timers_allow(self):
        done = self.run_script("rto-calibrate", "--quick")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        points = {(p["qp_timeout"], p["rto_ms"]): p for p in self.document()["points"]}
        self.assertEqual(len(points), 6)
        pauses = calibrate.pauses(100, 100, 1)
        # Who notices is who waits less; a pause that is shorter than that is never taken for a failure, one that
        # is longer always (a soft timeout looks eight times in its time, and so may come a quarter later).
        for (_, rto_ms), p in points.items():
            least = min(rtoreport.window_ms(p), rto_ms)
            self.assertLessEqual(p["switched"], sum(pause > 0.9 * least for pause in pauses), p)
            self.assertGreaterEqual(p["switched"], sum(pause > 1.3 * least for pause in pauses), p)
            for milliseconds in p["silent_ms"] + p["wedged_ms"]:
                self.assertGreater(milliseconds, 0.9 * least, p)
                self.assertLess(milliseconds, 1.35 * least + 60, p)
        self.assertGreater(points[12, 1000]["switched"], 10)
        self.assertEqual(list(points[12, 1000]["reasons"]), ["error completion"])
        self.assertEqual(list(points[20, 200]["reasons"]), ["no completion in time"])
        self.assertTrue(os.path.exists(os.path.join(self.dir, "rto-calibrate.dat")))

        again = self.run_script("rto-calibrate", "--from", self.out)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(rtoreport.text(self.document()), again.stdout)

    def test_live_counts_what_the_plugin_counts(self):
        # Retries of 17 ms in all cannot bear a host that is paused: no failure, and a switch all the same.
        # Of either rail: on a busy machine the connections may have left the first one by then.
        arguments = ["--live", "--seconds", "4", "--timeouts", "10", "--retries", "3", "--rtos", "700", "--simverbs", "2x2"]
        paused = "hold host=0 at=1500ms until=1800ms op=write|ack"
        done = self.run_script("rto-calibrate", *arguments, "--fault", paused)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (p,) = self.document()["live"]
        self.assertEqual((p["qp_timeout"], p["retry_cnt"], p["rto_ms"]), (10, 3, 700))
        self.assertGreaterEqual(p["switched"], 1)
        self.assertRegex(done.stdout, r"switches +an hour")

    def test_devices_with_little_of_something(self):
        done = self.run_script("resource-sweep", "--quick")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        points = {p["scarce"]: p for p in self.document()["points"]}
        self.assertEqual(set(points), set(sweep.SCARCE))
        for p in points.values():
            self.assertTrue(p["kept"], p)
            self.assertGreaterEqual(p["opened"], p["promised"])
            self.assertLess(p["opened"], 4 * p["promised"], p)  # a promise that small would be no use

    def test_what_is_missing_is_named(self):
        for name in ("rto-calibrate", "resource-sweep"):
            done = self.run_script(name, "--build", self.dir)
            self.assertEqual(done.returncode, 1)
            self.assertIn(self.dir, done.stderr)


if __name__ == "__main__":
    unittest.main()
