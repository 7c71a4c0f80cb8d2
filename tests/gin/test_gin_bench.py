#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gin-bench measures what it says, and nccl-gin-perf refuses what makes no sense and outlives ports."""
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ["BUILD"]


def perf(*words, **env):
    return subprocess.run(
        [os.path.join(BUILD, "bin", "nccl-gin-perf"), *words], text=True, check=False, timeout=150, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=dict(os.environ, HA_NCCL_STATS="0", **env))


class GinBench(unittest.TestCase):
    plugin = ("--plugin", os.path.join(BUILD, "libnccl-net-ha.so"))

    def test_a_report_has_all_keys_and_ratios_of_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "json")
            run = subprocess.run([os.path.join(ROOT, "scripts", "gin-bench"), "--build", BUILD, "--rounds", "1", "--count", "100",
                                  "--json", out], text=True, check=False, timeout=200, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(run.returncode, 0, run.stdout)
            with open(out, encoding="utf-8") as file:
                report = json.load(file)
        for key in ("put_quiet_8", "rate_8", "throughput_64k"):
            self.assertAlmostEqual(report[key]["ratio"], report[key]["on"] / report[key]["off"], places=3)
        if shutil.which("nvcc"):
            for figures in report["sass_more"].values():
                for figure in figures.values():
                    self.assertEqual(figure["more"], figure["with"] - figure["without"])
            self.assertNotIn("sass_more_missing", report)
        else:
            self.assertIsNone(report["sass_more"])
            self.assertEqual(report["sass_more_missing"], "nvcc is not installed")
        self.assertIn("iput_test_instructions", report)

    def test_threads_of_the_host_in_the_place_of_a_gpus(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "json")
            run = subprocess.run([os.path.join(ROOT, "scripts", "gin-bench"), "--build", BUILD, "--rounds", "1", "--count", "40",
                                  "--kernels", "host", "--only-kernels", "--cuts", "4", "--json", out],
                                 text=True, check=False, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(run.returncode, 0, run.stdout)
            with open(out, encoding="utf-8") as file:
                report = json.load(file)["kernels"]
        for key in ("put_quiet_8", "rate_8", "throughput_64k"):
            self.assertAlmostEqual(report[key]["ratio"], report[key]["on"] / report[key]["off"], places=3)
        cuts = report["cuts"]
        self.assertEqual((cuts["wrong"], cuts["cuts"], cuts["streams"]), (0, 4, 64))
        self.assertGreaterEqual(cuts["posted"], 4000)
        self.assertGreaterEqual(cuts["failovers"], 4 * 64)
        self.assertEqual(cuts["port"]["n"], 128)

    def test_cuts_go_with_kernels(self):
        run = subprocess.run([os.path.join(ROOT, "scripts", "gin-bench"), "--cuts", "3"], text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(run.returncode, 2)
        self.assertIn("go with --kernels", run.stderr)

    def test_figures_of_a_gpu_are_missing_with_a_reason(self):
        loader = importlib.machinery.SourceFileLoader("gin_bench", os.path.join(ROOT, "scripts", "gin-bench"))
        bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("gin_bench", loader))
        sys.dont_write_bytecode = True
        loader.exec_module(bench)
        with tempfile.TemporaryDirectory() as folder:
            with unittest.mock.patch.dict(os.environ, PATH=folder):
                os.symlink(sys.executable, os.path.join(folder, "python3"))
                self.assertEqual(bench.sass(), (None, "nvcc is not installed"))
                with open(os.path.join(folder, "nvcc"), "w", encoding="utf-8") as file:
                    file.write("#!/bin/sh\nexit 1\n")
                os.chmod(os.path.join(folder, "nvcc"), 0o755)
                figures, why = bench.sass()
        self.assertIsNone(figures)
        self.assertIn("nvcc", why)

    def test_ports_that_go_down_cost_no_signal(self):
        run = perf(*self.plugin, "--what", "rate", "-n", "300000", "--cut", "--size", "64", NCCL_DEBUG="INFO")
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        self.assertGreater(json.loads(run.stdout.splitlines()[-1])["per_s"], 0)
        self.assertIn("goes on over", run.stdout + run.stderr)
        self.assertRegex(run.stderr, r"a port went down [1-9]\d* times")

    def test_a_round_trip_of_each_table(self):
        for table in ("ncclGinPlugin_v12", "ncclGinPlugin_v13", "ncclRmaPlugin_v14"):
            run = perf(*self.plugin, "--table", table, "--what", "signal", "-n", "100")
            self.assertEqual(run.returncode, 0, run.stderr[-2000:])
            self.assertEqual(json.loads(run.stdout)["table"], table)

    def test_what_makes_no_sense_is_refused(self):
        for words in (("--what", "put"), (*self.plugin, "--what", "nothing"), (*self.plugin, "--size", "0"),
                      (*self.plugin, "--table", "ncclGinPlugin_v99"), (*self.plugin, "word")):
            run = perf(*words)
            self.assertEqual(run.returncode, 2, words)
            self.assertIn("usage:", run.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
