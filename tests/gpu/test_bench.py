#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/bench and what its figures are made of: the interval of a median, tables and pages from kept
JSON, and one short measurement with the real programs. BUILD in the environment is the build folder."""

import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "..", "..", "scripts")
SCRIPT = os.path.join(SCRIPTS, "bench")
BUILD = os.environ["BUILD"]

sys.path.insert(0, SCRIPTS)
sys.dont_write_bytecode = True
benchlib = importlib.import_module("benchlib")
benchreport = importlib.import_module("benchreport")


class Statistics(unittest.TestCase):
    def test_the_interval_holds_the_median_as_often_as_it_says(self):
        chance = random.Random(1)
        for count in (6, 9, 15):
            held = 0
            for _ in range(2000):
                estimate = benchlib.Estimate([chance.lognormvariate(0, 1) for _ in range(count)])
                held += estimate.low <= 1 <= estimate.high
            self.assertGreater(held, 2000 * 0.94, count)

    def test_the_interval_leaves_out_what_it_can(self):
        estimate = benchlib.Estimate([1, 2, 3, 4, 5, 6, 7, 8, 100])
        self.assertEqual((estimate.low, estimate.median, estimate.high), (2, 5, 8))

    def test_few_values_give_their_range(self):
        estimate = benchlib.Estimate([3, 1, 2])
        self.assertEqual((estimate.low, estimate.median, estimate.high), (1, 2, 3))

    def test_no_value_is_an_error(self):
        with self.assertRaises(ValueError):
            benchlib.Estimate([])


class Pages(unittest.TestCase):
    def test_only_the_section_changes(self):
        page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n"
        self.assertEqual(
            benchlib.replace_section(page, "x", "\nnew\n"), "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb\n"
        )

    def test_a_page_without_the_section_is_an_error(self):
        for page in ("", "<!-- begin x -->", "<!-- end x --><!-- begin x -->", "<!-- begin x -->" * 2 + "<!-- end x -->"):
            with self.assertRaises(ValueError):
                benchlib.replace_section(page, "x", "new")

    def test_the_documentation_is_what_its_data_say(self):
        data = os.path.join(benchlib.ROOT, "docs", "data", "bench.json")
        with open(data, encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(benchlib.ROOT, "docs", "performance.md"), encoding="utf-8") as file:
            page = file.read()
        document = json.loads(text)
        self.assertEqual(page, benchlib.replace_section(page, "bench", benchreport.section(document)))
        self.assertEqual(text, benchreport.compact(document))


class Measurement(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = os.path.join(self.dir, "bench.json")

    def bench(self, *arguments):
        command = [SCRIPT, "--build", BUILD, "--out", self.out, "--repeats", "1", "--blocks", "2", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    def test_both_sides_are_measured_in_turn(self):
        done = self.bench("--parts", "ha")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.out, encoding="utf-8") as file:
            document = json.load(file)
        (comparison,) = document["comparisons"]
        self.assertEqual(len(comparison["cases"]), 7)
        for case in comparison["cases"]:
            self.assertEqual((len(case["a_us"]), len(case["b_us"])), (2, 2))
            self.assertTrue(all(us > 0 for us in case["a_us"] + case["b_us"]))
        self.assertRegex(done.stdout, r"time of . over that as shipped +HA off")

    def test_what_is_missing_is_named(self):
        done = self.bench("--parts", "peer", "--peer", "/nowhere/libnccl-net-other.so")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/libnccl-net-other.so", done.stderr)


if __name__ == "__main__":
    unittest.main()
