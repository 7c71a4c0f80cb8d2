#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-failover without GPUs. NCCL is replaced by nccl-net-perf; the plugin, the fabric and
the cuts are real. BUILD in the environment is the build folder."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from loading import SCRIPTS, load_script, one_gpu, processes_with

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(SCRIPTS, "gpu-failover")
BUILD = os.environ["BUILD"]


class Parts(unittest.TestCase):
    def setUp(self):
        self.script = load_script("gpu-failover")
        self.fabric = self.script.Fabric.__new__(self.script.Fabric)
        self.fabric.error = None

    def samples(self, *moved):
        """One sample a second, of one device and of none."""
        self.fabric.samples = [(float(i), (bytes_, 0)) for i, bytes_ in enumerate(moved)]

    def test_a_pause_is_measured_from_the_cut_to_the_last_look_without_news(self):
        self.samples(10, 20, 30, 30, 30, 30, 40, 50)
        self.assertEqual(self.fabric.longest_pause(0, 7), 3.0)
        self.assertEqual(self.fabric.longest_pause(3.5, 7), 1.5)
        self.assertEqual(self.fabric.longest_pause(3.5, 4), 1.5)  # it outlasts what was asked for

    def test_a_pause_before_or_after_is_not_counted(self):
        self.samples(10, 10, 10, 20, 30, 40, 40, 40)
        self.assertEqual(self.fabric.longest_pause(3, 4.5), 0.0)

    def test_the_quiet_after_the_end_is_no_pause(self):
        self.samples(10, 20, 30, 30, 30, 40, 40, 40, 40, 40)
        self.assertEqual(self.fabric.longest_pause(1, 9, 5), 2.0)
        self.assertEqual(self.fabric.longest_pause(1, 9), 4.0)

    def test_time_in_which_nobody_looked_is_told(self):
        self.fabric.samples = [(0, (1, 0)), (1, (2, 0)), (4, (3, 0)), (5, (4, 0))]
        self.assertEqual(self.fabric.longest_pause(0, 5), 0.0)
        self.assertEqual(self.fabric.blind(0, 5), 3)
        self.assertEqual(self.fabric.blind(3.5, 5), 1)

    def test_a_cut_goes_where_the_traffic_is(self):
        drill = self.script.Drill.__new__(self.script.Drill)
        drill.options, drill.watched = type("Options", (), {"traffic": 10}), self.fabric
        # Host 0 receives on rail 0, host 1 on rail 1: a connection across the rails.
        self.fabric.samples = [(0, (5, 5, 5, 5)), (0.8, (10, 5, 5, 10)), (1.0, (90, 5, 5, 30))]
        self.assertEqual(self.fabric.traffic(), (85, 0, 0, 25))
        self.assertEqual(self.fabric.span(0), (0.8, 1.0))
        for last in (0, 1):
            drill.rail = last
            self.assertEqual(drill.rail_to_cut("link 0", 0), 0)
            self.assertEqual(drill.rail_to_cut("link 1", 1), 1)
            self.assertEqual(drill.rail_to_cut("switch", 0), 1 - last)
        self.fabric.samples = [(0, (5, 5, 5, 5)), (1.0, (5, 5, 5, 5))]
        self.assertEqual(drill.rail_to_cut("link 0", 0), None)

    def test_events_are_summed_up(self):
        event = {"reason": "heartbeats lost", "detection_ms": 600.0, "blackout_ms": 601.5}
        event.update(completed_without_resend=1, replayed_messages=2, replayed_bytes=3000)
        other = dict(event, reason="local port down", detection_ms=None, blackout_ms=2.0)
        found = self.script.summary([event, other])
        self.assertEqual(found["switches"], 2)
        self.assertEqual(found["reasons"], ["heartbeats lost", "local port down"])
        self.assertEqual(found["detection_ms"], [600.0, 600.0])
        self.assertEqual(found["blackout_ms"], [2.0, 601.5])
        self.assertEqual(found["replayed_bytes"], 6000)
        self.assertEqual(self.script.summary([])["blackout_ms"], None)


class Drill(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = os.path.join(self.dir, "out")
        programs = os.path.join(self.dir, "tests", "build")
        os.makedirs(programs)
        shutil.copy(os.path.join(HERE, "net_perf.py"), os.path.join(programs, "all_reduce_perf"))

    def drill(self, *arguments, **more_env):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "HA_NCCL_", "OMPI_", "CUDA_"))}
        env.update(NCCL_TESTS_HOME=os.path.join(self.dir, "tests"), **more_env)
        env["NET_PERF"] = os.path.join(BUILD, "bin", "nccl-net-perf")
        command = [SCRIPT, "--dry-run", "--mpirun", os.path.join(HERE, "fake_mpirun"), "--build", BUILD]
        command += ["--out", self.out, "--sizes", "256K:512K", "--iters", "50", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)

    def results(self):
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            return json.load(file)

    def text(self, *below):
        with open(os.path.join(self.out, *below), encoding="utf-8", errors="replace") as file:
            return file.read()

    def left_over(self):
        """Fabrics and processes of the drill that are still there."""
        left = [name for name in os.listdir("/dev/shm") if "gpufailover" in name]
        return left + processes_with(f"NCCL_TESTS_HOME={self.dir}")

    def warnings(self):
        """WARN lines of failovers in the logs of all runs."""
        found = 0
        for folder, _, names in os.walk(self.out):
            for name in names:
                if name.startswith("rank-") and name.endswith(".log"):
                    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                        found += file.read().count("failover from")
        return found

    def test_every_kind_of_cut_is_survived_and_reported(self):
        done = self.drill("--cuts", "5", "--hold", "1", "--gap", "1", "--run-seconds", "14", "--ib-kinds", "unplug")
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        results = self.results()
        self.assertEqual(results["failures"], [])
        self.assertGreaterEqual(results["cuts_that_hit"], 5)
        self.assertEqual(results["runs_right"], results["runs"])
        kinds = {stall["kind"] for stall in results["stalls"] if stall["switches"]}
        self.assertTrue({"link 0", "link 1", "switch", "flap", "kill"} <= kinds, said)
        silent = next(stall for stall in results["stalls"] if stall["kind"] == "switch" and stall["switches"])
        self.assertNotIn("local port down", silent["reasons"])
        self.assertEqual(self.warnings(), sum(stall["switches"] for stall in results["stalls"]), said)
        self.assertIn("ended with status", results["ib"][0]["fate"])
        self.assertIn("| link 0 |", self.text("results.md"))
        self.assertEqual(self.left_over(), [])

    def test_more_ranks_are_more_hosts_that_share_one_gpu_and_each_one_counts(self):
        journal = os.path.join(self.dir, "journal")
        done = self.drill("--ranks", "4", "--cuts", "2", "--hold", "1", "--gap", "1", "--run-seconds", "8", "--ib-kinds", "",
                          **one_gpu(os.path.join(self.dir, "programs")), FAKE_JOURNAL=journal)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(journal, encoding="utf-8") as file:
            begun, ended = (line.split() for line in file)
        self.assertEqual((begun[1], ended[1], ended[2:]), ("begin", "quit", begun[2:]))
        self.assertFalse(os.path.exists(begun[2]), "its folder was left")
        ranks = [re.search(r"^fake: (.*)$", self.text("plugin-1", f"rank-{rank}.log"), re.MULTILINE)[1] for rank in range(4)]
        self.assertEqual(ranks, [f"simulated-host-{rank} gpu=0 mps={begun[2]}" for rank in range(4)])
        results = self.results()
        self.assertEqual((results["ranks"], results["failures"]), (4, []))
        self.assertGreaterEqual(results["cuts_that_hit"], 2)
        self.assertEqual(self.warnings(), sum(stall["switches"] for stall in results["stalls"]), done.stdout)
        self.assertEqual(results["gpu"], "4 ranks on 1 x NVIDIA Fake, with MPS")
        table = self.text("results.md")
        self.assertRegex(table, r"(?m)^4 ranks on 1 x NVIDIA Fake, with MPS, .* right with 0 wrong elements; ")
        rows = [line.split(" | ") for line in table.splitlines() if re.match(r"\| \d+ \| ", line)]
        self.assertEqual([row[2] for row in rows], [stall["kind"] for stall in results["stalls"]])
        for row, stall in zip(rows, results["stalls"]):
            self.assertEqual((row[5], row[-1].rstrip("| ")), (str(stall["switches"]), ", ".join(stall["reasons"])))
        lines = [line for line in self.text("timeline.dat").splitlines() if not line.startswith("#")]
        self.assertEqual({len(line.split()) for line in lines}, {1 + 4 * 2})
        self.assertEqual(self.left_over(), [])

    def test_a_run_that_fails_fails_the_whole_and_is_reported(self):
        done = self.drill(
            "--cuts", "3", "--hold", "4", "--gap", "0.5", "--run-seconds", "6", "--ib-kinds", "",
            HA_NCCL_ENABLE_BACKUP="0", HA_NCCL_QP_TIMEOUT="14"
        )
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        # Mostly the first; a run that was faster than the one before is over before it is cut.
        failed = re.search(r"gpu-failover: FAILED: run (\d+): ended with status", done.stderr)
        self.assertTrue(failed, done.stdout + done.stderr)
        results = self.results()
        self.assertEqual((results["runs"], results["runs_right"]), (int(failed[1]), int(failed[1]) - 1))
        self.assertIn(f"plugin-{failed[1]}", {stall["run"] for stall in results["stalls"]})
        self.assertEqual(results["cuts_that_hit"], 0)
        self.assertEqual(self.left_over(), [])

    def test_what_is_missing_is_named(self):
        self.assertIn("--ranks must be 2 to 8", self.drill("--ranks", "9").stderr)
        done = self.drill("--nccl", self.dir)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has libnccl.so.2", done.stderr)
        os.remove(os.path.join(self.dir, "tests", "build", "all_reduce_perf"))
        done = self.drill()
        self.assertEqual(done.returncode, 1)
        self.assertIn("all_reduce_perf", done.stderr)


if __name__ == "__main__":
    unittest.main()
