#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-train without GPUs: PyTorch is a stand-in, NCCL is nccl-net-perf; the plugin, the fabric, the cuts and the comparison
are real. BUILD in the environment is the build folder."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from loading import SCRIPTS, load_script

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(SCRIPTS, "gpu-train")
BUILD = os.environ["BUILD"]


class Comparison(unittest.TestCase):
    def setUp(self):
        self.script = load_script("gpu-train")
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)

    def training(self, losses=(1.5, 1.25), state=None, steps=2, other_rank=None):
        for rank in range(2):
            with open(os.path.join(self.dir, f"losses-{rank}"), "w", encoding="utf-8") as file:
                file.writelines(f"{(loss + rank).hex()} {10.0 * (number + 1)}\n" for number, loss in enumerate(losses))
            mine = state or {"a": "1", "b": "2"}
            with open(os.path.join(self.dir, f"end-{rank}.json"), "w", encoding="utf-8") as file:
                json.dump({"steps": steps, "state": other_rank if rank and other_rank else mine}, file)
        return self.script.Training(self.dir)

    def test_the_same_bits_are_equal(self):
        self.assertIsNone(self.training().differs(self.training()))

    def test_one_bit_of_a_loss_is_a_difference_and_is_named(self):
        said = self.training().differs(self.training(losses=(1.5, 1.2500000000000002)))
        self.assertEqual(said, "rank 0, step 1: loss 1.2500000000000002, not 1.25")

    def test_a_parameter_that_differs_or_is_not_there_is_named(self):
        self.assertIn("1 of 2 parameters and states differ at the end, b first", self.training().differs(self.training(state={"a": "1", "b": "3"})))
        self.assertIn("b first", self.training().differs(self.training(state={"a": "1"})))

    def test_fewer_steps_are_a_difference(self):
        self.assertEqual(self.training().differs(self.training(losses=(1.5,), steps=1)), "rank 0 made 1 steps, not 2")

    def test_ranks_that_disagree_are_no_training(self):
        with self.assertRaisesRegex(self.script.BenchError, "different parameters"):
            self.training(other_rank={"a": "9", "b": "2"})

    def test_a_training_that_recorded_too_little_is_none(self):
        for losses, steps in ((1.5,), 2), ((), 0):
            with self.assertRaisesRegex(self.script.BenchError, "losses were recorded"):
                self.training(losses=losses, steps=steps)

    def test_the_longest_step_is_that_of_the_slower_rank(self):
        self.assertEqual(self.training().step_ms(), (20.0, 20.0))


class Train(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = os.path.join(self.dir, "out")

    def train(self, *arguments, fault="", seconds=3, **more_env):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "HA_NCCL_", "OMPI_", "CUDA_"))}
        env.update(PYTHONPATH=os.path.join(HERE, "fake_torch"), PYTHONDONTWRITEBYTECODE="1", FAULT=fault, FAKE_TRAFFIC_S=str(seconds + 1), **more_env)
        env["NET_PERF"] = os.path.join(BUILD, "bin", "nccl-net-perf")
        command = [SCRIPT, "--dry-run", "--python", sys.executable, "--build", BUILD, "--out", self.out, "--seconds", str(seconds)]
        command += ["--hold", "0.8", "--gap", "0.6", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)

    def left_over(self):
        """Fabrics, meeting places and processes that are still there."""
        left = [name for name in os.listdir("/dev/shm") if "gputrain" in name or os.path.basename(self.dir) in name]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    if self.dir in file.read():
                        left.append(pid)
            except OSError:
                pass
        return left

    def warnings(self):
        """WARN lines of failovers in the logs of all runs."""
        found = 0
        for run in os.listdir(self.out):
            for rank in range(2):
                path = os.path.join(self.out, run, f"rank-{rank}.log")
                if os.path.exists(path):
                    with open(path, encoding="utf-8", errors="replace") as file:
                        found += file.read().count("failover from")
        return found

    def test_trainings_with_cuts_have_every_bit_of_the_one_without(self):
        done = self.train("--cuts", "4", "--json", seconds=9)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual((result["verdict"], result["failures"]), ("EQUAL", []))
        self.assertGreaterEqual(result["cuts_that_hit"], 4)
        self.assertEqual((result["runs_equal"], result["torch"], result["nccl"]), (result["runs"], "2.99.0+fake", "2.28.9+cuda13.0"))
        self.assertEqual(result["states_compared"], 3)
        self.assertGreaterEqual(result["failovers"], result["cuts_that_hit"])
        self.assertEqual(self.warnings(), result["failovers"], done.stderr)
        self.assertGreater(result["alone"]["steps"], 100)
        self.assertEqual(result["alone"]["switches"], 0)
        self.assertLess(result["alone"]["loss"][1], result["alone"]["loss"][0])
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("EQUAL: ", text)
        self.assertIn("| link 0 |", text)
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), result)
        self.assertEqual(self.left_over(), [])

    def test_other_bits_fail(self):
        for fault, message in ("loss", "run 1: DIFFERENT BITS: rank 1, step 25: loss"), ("weight", "3 of 3 parameters and states differ"):
            with self.subTest(fault):
                done = self.train("--cuts", "1", fault=fault)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn("FAILED: 0 of 1 trainings", done.stdout)
                self.assertIn(message, done.stderr)
                self.assertEqual(self.left_over(), [])
                shutil.rmtree(self.out)

    def test_a_job_that_the_cut_ends_fails(self):
        done = self.train("--cuts", "1", "--hold", "4", seconds=4, HA_NCCL_ENABLE_BACKUP="0", HA_NCCL_QP_TIMEOUT="14")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("gpu-train: FAILED: run 1: ended with status", done.stderr)
        self.assertEqual(self.left_over(), [])

    def test_what_is_missing_is_named(self):
        for fault, message in (
            ("absent", "no PyTorch for "),
            ("no gpu", "PyTorch 2.99.0+fake sees no GPU"),
            ("no nccl", "PyTorch 2.99.0+fake was built without NCCL"),
        ):
            with self.subTest(fault):
                done = self.train(fault=fault)
                self.assertEqual(done.returncode, 1)
                self.assertIn("gpu-train: FAILED: " + message, done.stderr)
        done = self.train("--python", "/nowhere/python3")
        self.assertIn("/nowhere/python3 is not there: --python names one that has PyTorch", done.stderr)
        done = self.train("--build", self.dir)
        self.assertIn("missing: ", done.stderr)
        done = self.train(CUDA_VISIBLE_DEVICES="0", PATH="/usr/bin:/bin")
        self.assertIn("2 ranks on 1 GPUs, and nvidia-cuda-mps-control is not there", done.stderr)
        self.assertEqual(self.left_over(), [])


if __name__ == "__main__":
    unittest.main()
