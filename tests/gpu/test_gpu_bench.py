#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-bench with the GPUs, MPI and the fabric replaced: what it starts, what it proves, what it
refuses, and that it leaves nothing behind."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import types
import unittest

from loading import load_script, one_gpu, processes_with

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "scripts", "gpu-bench")

def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


class GpuBench(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        build = os.path.join(self.dir, "ha", "build")
        self.mpirun = os.path.join(HERE, "fake_mpirun")
        self.journal = os.path.join(self.dir, "journal")
        self.out = os.path.join(self.dir, "out")
        os.makedirs(os.path.join(build, "bin"))
        shutil.copy(os.path.join(HERE, "fake_simverbs"), os.path.join(build, "bin", "simverbs"))
        for library in ("libnccl-net-ha.so", "libnccl-net-ha-v8.so"):
            write(os.path.join(build, library), "")
        for name in ("all_reduce_perf", "sendrecv_perf", "alltoall_perf"):
            write(os.path.join(self.dir, "tests", "build", name), "")
            shutil.copy(os.path.join(HERE, "fake_perf.py"), os.path.join(self.dir, "tests", "build", name))
        self.build = build

    def bench(self, *arguments, fault="", env=None):
        changed = env or {}
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "OMPI_", "CUDA_"))}
        env.update(NCCL_TESTS_HOME=os.path.join(self.dir, "tests"), FAKE_JOURNAL=self.journal, FAULT=fault, **changed)
        command = [SCRIPT, "--dry-run", "--ranks", "2", "--mpirun", self.mpirun, "--build", self.build]
        command += ["--out", self.out, "--no-warm-up-run", "--bands", "8:1K:5x3,2K:64K:4x1", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)

    def refused(self, fault, message, *arguments):
        done = self.bench("--rounds", "1", "--ops", "allreduce", *arguments, fault=fault)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(message, done.stderr)
        with open(self.journal, encoding="utf-8") as file:
            self.assertTrue(file.read().splitlines()[-1].startswith("down "), "the fabric was left up")

    def results(self):
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            return json.load(file)

    def text(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return file.read()

    def with_one_gpu(self, mps=True, status=0):
        return one_gpu(os.path.join(self.dir, "programs"), mps, status)

    def journal_of(self, word):
        with open(self.journal, encoding="utf-8") as file:
            return [line.split() for line in file if line.startswith(word)]

    def test_ranks_share_one_gpu_with_mps(self):
        """One daemon around all runs, in a folder of its own, and gone afterwards, also after a run that failed."""
        for fault, status in ("shared", 0), ("shared,wrong", 1):
            with self.subTest(fault=fault):
                done = self.bench("--rounds", "1", "--ops", "allreduce", "--only", "plugin,ib", "--ranks", "4", fault=fault,
                                  env=self.with_one_gpu())
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                begun, ended = self.journal_of("mps")
                self.assertEqual((begun[1], ended[1]), ("begin", "quit"))
                self.assertEqual(begun[2:], ended[2:])
                self.assertFalse(os.path.exists(begun[2]), "its folder was left")
                ranks = self.journal_of("run ")
                self.assertEqual({line[-2] for line in ranks}, {"gpu=0"})
                self.assertEqual({line[-1] for line in ranks}, {"mps=" + begun[2]})
                self.assertEqual(len({line[-3] for line in ranks}), 4, "each is a host of its own")
                if status == 0:
                    self.assertEqual(self.results()["gpu"], "4 ranks on 1 x NVIDIA Fake, with MPS")
                    self.assertIn("4 ranks on 1 x NVIDIA Fake, with MPS", self.text("results.md"))
            os.unlink(self.journal)
            shutil.rmtree(self.out)

    def test_without_mps_it_says_what_is_missing(self):
        done = self.bench("--rounds", "1", env={**self.with_one_gpu(mps=False), "PATH": "/usr/bin:/bin"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("2 ranks on 1 GPUs, and nvidia-cuda-mps-control is not there", done.stderr)

    def test_mps_that_does_not_start_is_an_error(self):
        done = self.bench("--rounds", "1", env=self.with_one_gpu(status=7))
        self.assertEqual(done.returncode, 1)
        self.assertIn("nvidia-cuda-mps-control -d: status 7", done.stderr)

    def another_nccl(self, version):
        folder = os.path.join(self.dir, "nccl-" + version)
        write(os.path.join(folder, "lib", "libnccl.so." + version), "")
        os.symlink("libnccl.so." + version, os.path.join(folder, "lib", "libnccl.so.2"))
        return folder

    def test_another_nccl_is_what_ranks_load_and_what_the_log_says(self):
        folder = self.another_nccl("2.28.3")
        done = self.bench("--rounds", "1", "--ops", "allreduce", "--nccl", folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        libraries = {word for line in self.journal_of("run ") for word in line if word.startswith("libraries=")}
        self.assertEqual({word.split(":")[1] for word in libraries}, {os.path.join(folder, "lib")})
        self.assertTrue(all(word.startswith(f"libraries={self.build}:") for word in libraries), libraries)
        self.assertEqual(self.results()["nccl"], "2.28.3+cuda13.0")

    def test_another_nccl_that_was_not_loaded_is_no_measurement(self):
        self.refused("", "NCCL 2.28.3+cuda13.0 was loaded, not 2.30.7 of ", "--nccl", self.another_nccl("2.30.7"))

    def test_a_folder_without_nccl_is_refused(self):
        done = self.bench("--nccl", self.dir)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"--nccl {self.dir}: neither {self.dir}/lib, ", done.stderr)

    def test_measures_every_transport_in_turn(self):
        done = self.bench("--rounds", "2", "--every", "e2e:2,socket:3", "--only", "plugin,v8,ib,haoff,e2e,socket", "--ops", "allreduce", "--bands", "8:1K:5x3")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = self.results()
        ran = [(run["round"], run["transport"]) for run in results["runs"]]
        self.assertEqual(ran, [(1, name) for name in ("plugin", "v8", "ib", "haoff", "e2e", "socket")] +
                         [(2, name) for name in ("plugin", "haoff", "ib", "v8")])  # fmt: skip
        self.assertEqual(results["nccl"], "2.28.3+cuda13.0")
        self.assertIn("(v8)", results["loaded"]["v8"])
        self.assertIn("(v11)", results["loaded"]["plugin"])
        us = {run["transport"]: run["us"]["8"] for run in results["runs"]}
        self.assertEqual(us["ib"], 12.01, "the median of the cycles, in place and out of place")
        self.assertEqual(us["e2e"], 11.01, "the variable has reached the rank")

    def test_the_table_says_what_was_measured_and_what_it_means(self):
        done = self.bench("--rounds", "1", "--every", "")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ran = [(run["op"], run["band"]) for run in self.results()["runs"]]
        self.assertEqual(ran, [(op, band) for op in ("allreduce", "sendrecv") for band in ("8:1K:5x3", "2K:64K:4x1") for _ in range(5)])
        text = self.text("results.md")
        self.assertIn("#### sendrecv_perf", text)
        row = "| 8 | 10.0 | 0.00 | 12.0 | 0.00 | 10.0 | 0.00 | 11.0 | 0.00 | 40.0 | 0.00 | 1.200 [1.200, 1.200] |"
        self.assertIn(row + " 1.000 [1.000, 1.000] | 1.100 [1.100, 1.100] | – |", text)
        goals = [line.split(" | ") for line in text.splitlines() if line.startswith("| NCCL ")]
        self.assertEqual([cells[0] for cells in goals], ["| NCCL IB", "| NCCL sockets"])
        self.assertTrue(all(cells[-1] == "met |" for cells in goals), goals)
        blocks = self.text("results.dat").split("\n\n\n")
        self.assertEqual([block.split(",")[0] for block in blocks], ["# allreduce", "# sendrecv"])
        self.assertTrue(blocks[0].splitlines()[1].startswith('size "nccl-ha" "NCCL IB" "nccl-ha, HA off"'))

    def test_a_round_has_each_size_of_each_operation_and_each_round_another_order(self):
        script = load_script("gpu-bench")
        bench = script.Bench.__new__(script.Bench)
        every, only = script.parse_every("e2e:2,socket:3"), ["plugin", "v8", "ib", "haoff", "e2e", "socket"]
        bench.options = types.SimpleNamespace(only=only, every=every, ops=["allreduce", "sendrecv"], bands=["small", "large"])
        plans = [bench.plan(number) for number in (1, 2, 3)]
        for plan, due in zip(plans, (only, ["plugin", "haoff", "ib", "v8"], ["ib", "haoff", "e2e", "plugin", "v8"])):
            self.assertEqual(plan, [(op, band, name) for op in bench.options.ops for band in bench.options.bands for name in due])

    def test_a_goal_that_is_missed_is_named(self):
        done = self.bench("--rounds", "6", "--ops", "allreduce", "--only", "plugin,ib", "--bands", "8:1K:5x1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = self.results()
        for run in results["runs"]:
            if run["transport"] == "ib" and "64" in run["us"]:
                run["us"]["64"] = 9.0  # beyond doubt
                run["us"]["128"] = 9.0 if run["round"] % 3 else 11.0  # not
        kept = os.path.join(self.out, "changed.json")
        write(kept, json.dumps(results))
        page = os.path.join(self.dir, "docs", "performance.md")
        write(page, "before\n<!-- begin gpu-bench -->\nstale\n<!-- end gpu-bench -->\nafter\n")
        done = subprocess.run(
            [SCRIPT, "--from", kept, "--docs", page], capture_output=True, text=True, timeout=100, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("below 0.97 beyond noise: allreduce 64; below 0.97 but within noise: allreduce 128 |", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n") and "stale" not in text)
        self.assertTrue(os.path.exists(os.path.join(self.dir, "docs", "img", "gpu-bench.dat")))
        with open(os.path.join(self.dir, "docs", "data", "gpu-bench.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), results)

    def test_rounds_of_several_runs_are_taken_together_if_the_runs_are_alike(self):
        done = self.bench("--rounds", "2", "--ops", "allreduce", "--only", "plugin,ib", "--bands", "8:1K:5x1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = self.results()
        kept = [os.path.join(self.out, name) for name in ("one.json", "two.json", "unlike.json")]
        other = json.loads(json.dumps(results))
        other.update(commit="later", transports=["plugin", "ib", "socket"])
        for run in other["runs"]:
            if run["transport"] == "ib":
                run["us"]["64"] = 24.0
        for path, document in zip(kept, (results, other, dict(results, nccl="another"))):
            write(path, json.dumps(document))
        done = subprocess.run([SCRIPT, "--from", *kept[:2]], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("4 rounds, 8 runs", done.stdout)
        self.assertIn(f"commit {results['commit']} and later.", done.stdout)
        self.assertRegex(done.stdout, r"\n +64 .* 1\.792 \[1\.199, 2\.386\]")
        done = subprocess.run([SCRIPT, "--from", kept[0], kept[2]], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("runs that differ in nccl cannot be taken for one", done.stdout + done.stderr)

    def test_nccls_own_transport_is_told_what_it_needs_here_and_nobody_else(self):
        """That ports are not fused, and for NCCL 2.28.7 to 2.28.9, which would crash, that GIN goes through the proxy. Others do
        not ask for it, so it is always there: which version is loaded is known when it has been."""
        needs = {"NCCL_NET_MERGE_LEVEL": "LOC", "NCCL_GIN_TYPE": "2"}
        done = self.bench("--rounds", "1", "--ops", "allreduce", "--only", "plugin,ib,haoff,socket", "--every", "", "--bands", "8:1K:5x1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for transport, told in {"plugin": {}, "ib": needs, "haoff": {}, "socket": {}}.items():
            for rank in range(2):
                text = self.text(os.path.join(f"allreduce-8-{transport}-round1", f"rank-{rank}.log"))
                found = dict(re.findall(r"NCCL INFO (\w+) set by environment to (\S+)\.", text))
                self.assertEqual({name: found[name] for name in needs if name in found}, told, transport)

    def test_ranks_have_cores_of_their_own(self):
        done = self.bench("--rounds", "1", "--ops", "allreduce", "--only", "plugin", "--env", "NCCL_PROTO=Simple")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(self.out, "allreduce-8-plugin-round1", "rank.sh"), encoding="utf-8") as file:
            script = file.read()
        self.assertIn("export NCCL_PROTO=Simple", script)
        self.assertEqual(bool(self.results()["cores"]), "taskset" in script)
        self.assertEqual(bool(self.results()["cores"]), len(os.sched_getaffinity(0)) >= 4)

    def test_each_rank_is_a_host_with_its_own_gpu(self):
        done = self.bench("--rounds", "1", "--ops", "allreduce", "--only", "plugin", "--bands", "8:1K:5x1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.journal, encoding="utf-8") as file:
            journal = file.read().splitlines()
        self.assertRegex(journal[0], r"^up \w+ --hosts 2 --rails 2 --rate 25 ")
        self.assertRegex(journal[-1], r"^down ")
        runs = sorted(line for line in journal if line.startswith("run "))
        self.assertRegex(runs[0], r"^run \w+ 0 -- .*id=simulated-host-0 gpu=0 mps=$")
        self.assertRegex(runs[1], r"^run \w+ 1 -- .*id=simulated-host-1 gpu=1 mps=$")

    def test_sockets_need_no_fabric(self):
        done = self.bench("--rounds", "1", "--ops", "sendrecv", "--only", "socket", "--every", "")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertFalse(os.path.exists(self.journal))

    def test_wrong_data_fails(self):
        self.refused("wrong", "WRONG DATA at size 1024", "--only", "ib")

    def test_unchecked_data_fails(self):
        self.refused("unchecked", "the data was not checked", "--only", "ib")

    def test_missing_table_fails(self):
        self.refused("table", "no result table", "--only", "ib")

    def test_falling_back_to_sockets_fails(self):
        self.refused("fallback", "no 'Using network HA' (Using network Socket)", "--only", "plugin")

    def test_a_channel_over_another_network_fails(self):
        self.refused("channel", "channels went via ['Socket'], not HA", "--only", "plugin")

    def test_another_api_version_than_v8_fails(self):
        self.refused("api", "API v8", "--only", "v8")

    def test_a_plugin_that_says_nothing_fails(self):
        self.refused("silent", "of the plugin itself")

    def test_two_ranks_on_one_gpu_fail(self):
        self.refused("shared", "ranks shared one GPU")

    def test_a_failing_program_fails(self):
        self.refused("status", "ended with status 3")

    def test_a_hanging_program_is_killed_with_its_children(self):
        self.refused("hang", "no end within 2 s", "--run-limit", "2")
        self.assertEqual(processes_with(f"FAKE_JOURNAL={self.journal}"), [])

    def test_the_time_limit_ends_the_rounds(self):
        done = self.bench("--rounds", "1000", "--time-limit", "10", "--ops", "allreduce", "--only", "plugin,ib", "--bands", "8:1K:5x1",
                          fault="slow")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("time limit: stopping after", done.stdout)

    def test_a_run_that_the_time_limit_cuts_off_ends_the_rounds_and_is_no_error(self):
        done = self.bench("--rounds", "9", "--time-limit", "8", "--ops", "allreduce", "--only", "plugin", "--bands", "8:1K:5x1",
                          fault="slow later")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("time limit: stopping after 4 of 9 rounds", done.stdout)
        self.assertEqual({run["round"] for run in self.results()["runs"]}, {1, 2, 3, 4})

    def test_a_run_that_takes_longer_than_a_run_may_is_an_error_whatever_the_time_limit(self):
        self.refused("slow later", "round 5: no end within 2 s", "--run-limit", "2", "--rounds", "9", "--only", "plugin",
                     "--bands", "8:1K:5x1")  # fmt: skip

    def test_what_is_missing_is_named(self):
        os.remove(os.path.join(self.build, "libnccl-net-ha-v8.so"))
        done = self.bench("--only", "plugin,v8")
        self.assertEqual(done.returncode, 1)
        self.assertIn("libnccl-net-ha-v8.so", done.stderr)


if __name__ == "__main__":
    unittest.main()
