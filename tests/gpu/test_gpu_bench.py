#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-bench with the GPUs, MPI and the fabric replaced: what it starts, what it proves, what it
refuses, and that it leaves nothing behind."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "scripts", "gpu-bench")

SIMVERBS = """#!/usr/bin/env bash
echo "$* id=${NCCL_HOSTID:-} gpu=${CUDA_VISIBLE_DEVICES:-}" >>"$FAKE_JOURNAL"
[ "$1" = run ] || exit 0
shift 4
exec "$@"
"""


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
        write(os.path.join(build, "bin", "simverbs"), SIMVERBS)
        for library in ("libnccl-net-ha.so", "libnccl-net-ha-v8.so"):
            write(os.path.join(build, library), "")
        for name in ("all_reduce_perf", "sendrecv_perf", "alltoall_perf"):
            write(os.path.join(self.dir, "tests", "build", name), "")
            shutil.copy(os.path.join(HERE, "fake_perf.py"), os.path.join(self.dir, "tests", "build", name))
        self.build = build

    def bench(self, *arguments, fault=""):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "OMPI_", "CUDA_"))}
        env.update(NCCL_TESTS_HOME=os.path.join(self.dir, "tests"), FAKE_JOURNAL=self.journal, FAULT=fault)
        command = [SCRIPT, "--dry-run", "--ranks", "2", "--mpirun", self.mpirun, "--build", self.build]
        command += ["--out", self.out, "--sizes", "8:64K:4", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)

    def refused(self, fault, message, *arguments):
        done = self.bench("--rounds", "1", "--ops", "allreduce", *arguments, fault=fault)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(message, done.stderr)
        with open(self.journal, encoding="utf-8") as file:
            self.assertTrue(file.read().splitlines()[-1].startswith("down "), "the fabric was left up")

    def test_measures_every_transport_and_writes_the_table(self):
        done = self.bench("--rounds", "2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(len(results["results"]), 12)
        self.assertEqual(results["rounds"], 2)
        self.assertEqual(results["nccl"], "2.28.3+cuda13.0")
        self.assertIn("(v8)", results["loaded"]["v8"])
        self.assertIn("(v11)", results["loaded"]["plugin"])
        ib = next(r for r in results["results"] if r["op"] == "allreduce" and r["transport"] == "ib")
        self.assertAlmostEqual(ib["summary"]["8"]["us"], 12.01, places=2)
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("### alltoall_perf", text)
        with open(os.path.join(self.out, "results.dat"), encoding="utf-8") as file:
            blocks = file.read().split("\n\n\n")
        self.assertEqual([block.split(",")[0] for block in blocks], ["# allreduce", "# sendrecv", "# alltoall"])
        self.assertEqual(blocks[0].splitlines()[1], 'size "nccl-ha" "nccl-ha v8" "NCCL IB" "NCCL sockets"')
        self.assertIn("| 8 | 10.0 ±0% | 0.00 | 10.0 ±0% | 0.00 | 12.0 ±0% | 0.00 | 40.0 ±0% | 0.00 | 1.00 | 1.20 | 4.00 |", text)

    def test_each_rank_is_a_host_with_its_own_gpu(self):
        done = self.bench("--rounds", "1", "--ops", "allreduce", "--only", "plugin")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.journal, encoding="utf-8") as file:
            journal = file.read().splitlines()
        self.assertRegex(journal[0], r"^up \w+ --hosts 2 --rails 2 ")
        self.assertRegex(journal[-1], r"^down ")
        runs = sorted(line for line in journal if line.startswith("run "))
        self.assertRegex(runs[0], r"^run \w+ 0 -- .*id=simulated-host-0 gpu=0$")
        self.assertRegex(runs[1], r"^run \w+ 1 -- .*id=simulated-host-1 gpu=1$")

    def test_sockets_need_no_fabric(self):
        done = self.bench("--rounds", "1", "--ops", "sendrecv", "--only", "socket")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertFalse(os.path.exists(self.journal))

    def test_wrong_data_fails(self):
        self.refused("wrong", "WRONG DATA at size 2048", "--only", "ib")

    def test_unchecked_data_fails(self):
        self.refused("unchecked", "the data was not checked", "--only", "ib")

    def test_missing_table_fails(self):
        self.refused("table", "no result table", "--only", "ib")

    def test_falling_back_to_sockets_fails(self):
        self.refused("fallback", "no 'Using network HA' (Using network Socket)")

    def test_a_channel_over_another_network_fails(self):
        self.refused("channel", "channels went via ['Socket'], not HA")

    def test_another_api_version_than_v8_fails(self):
        self.refused("api", "API v8", "--only", "v8")

    def test_a_plugin_that_says_nothing_fails(self):
        self.refused("silent", "of the plugin itself")

    def test_two_ranks_on_one_gpu_fail(self):
        self.refused("shared", "two ranks shared one GPU")

    def test_a_failing_program_fails(self):
        self.refused("status", "ended with status 3")

    def test_a_hanging_program_is_killed_with_its_children(self):
        self.refused("hang", "no end within 2 s", "--run-limit", "2")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                    self.assertNotIn(f"FAKE_JOURNAL={self.journal}", file.read(), f"process {pid} was left")
            except OSError:
                pass

    def test_the_time_limit_ends_the_rounds(self):
        done = self.bench("--rounds", "1000", "--time-limit", "4", "--ops", "allreduce", "--only", "plugin,ib")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("time limit: stopping after", done.stdout)

    def test_what_is_missing_is_named(self):
        os.remove(os.path.join(self.build, "libnccl-net-ha-v8.so"))
        done = self.bench()
        self.assertEqual(done.returncode, 1)
        self.assertIn("libnccl-net-ha-v8.so", done.stderr)


if __name__ == "__main__":
    unittest.main()
