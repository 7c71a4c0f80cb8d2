#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/rails-bench: what its figures are made of, and what it refuses. The programs that it runs are doubles
that say what the test wants, so no time is measured; but in Real, of the build folder BUILD."""

import json
import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "scripts", "rails-bench")
MEASURES = ("equal_rails", "unequal_rails", "over_equal_split", "slow_rail", "small_latency")

# Writes the rows that it is given, and notes how it was called.
PERF = """#!/bin/sh
echo "$*" >>"$FAKE/calls"
while [ $# -gt 0 ]; do [ "$1" = --json ] && out=$2; shift; done
cat "$FAKE/rows" >"$out"
"""

# A fabric whose rails have carried so much more each time that somebody asks.
SIMVERBS = """#!/bin/sh
echo "simverbs $*" >>"$FAKE/calls"
[ "$1" = status ] || exit 0
n=$(cat "$FAKE/n") n=$((n + 1))
echo $n >"$FAKE/n"
read -r first second <"$FAKE/carried"
echo '{"devices": [{"rail": 0, "traffic": {"bytes_out": '$((n * first))'}},'
echo ' {"rail": 1, "traffic": {"bytes_out": '$((n * second))'}}]}'
"""


def rows(bundle_us, other_us, **more):
    row = {"wrong": 0, "checked": 1, **more}
    return {"rows": [{**row, "plugin": 0, "round_us": bundle_us}, {**row, "plugin": 1, "round_us": other_us}]}


class Doubles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.report = os.path.join(self.folder, "report.json")
        os.mkdir(self.path("bin"))
        for name, text in (("nccl-net-perf", PERF), ("simverbs", SIMVERBS)):
            self.write(os.path.join("bin", name), text)
            os.chmod(self.path("bin", name), 0o755)
        self.write("n", "0")
        self.carry(1 << 30, 1 << 28)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def carry(self, first, second):
        self.write("carried", f"{first} {second}\n")

    def bench(self, said, *arguments):
        self.write("rows", json.dumps(said))
        command = [SCRIPT, "--build", self.folder, "--json", self.report, *arguments]
        env = {**os.environ, "FAKE": self.folder}
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=env)

    def measured(self, said, *arguments):
        done = self.bench(said, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.report, encoding="utf-8") as file:
            return json.load(file), done.stdout

    def refused(self, said, why, *arguments):
        done = self.bench(said, *arguments)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(why, done.stderr)
        self.assertFalse(os.path.exists(self.report))

    def test_throughput_is_compared_with_that_of_the_neighbouring_block(self):
        report, text = self.measured(rows([100, 200, 100], [198, 396, 210]), "--only", "equal_rails")
        entry = report["equal_rails"]
        self.assertEqual(entry["p50"], 1.98)
        self.assertEqual((entry["cases"][0]["low"], entry["cases"][0]["high"]), (1.98, 2.1))
        self.assertEqual(entry["cases"][0]["bundle_us"], [100, 200, 100])
        self.assertEqual(entry["cases"][0]["rail_bytes"], [1 << 30, 1 << 28])
        self.assertTrue(entry["met"])
        self.assertRegex(text, r"equal_rails +1\.980 +>= 1\.950 +met")

    def test_of_latencies_the_time_is_compared(self):
        report, text = self.measured(rows([104, 52], [100, 50]), "--only", "small_latency")
        self.assertEqual(report["small_latency"]["p50"], 1.04)
        self.assertFalse(report["small_latency"]["met"])
        self.assertRegex(text, r"small_latency +1\.040 +<= 1\.030 +missed")
        self.assertEqual(report["small_latency"]["cases"][0]["n"], 10)  # of five pairs of processes

    def test_so_many_blocks_as_are_asked_for_can_be_had(self):
        """Of the program that is measured with, and the estimate is made of all of them."""
        several = rows([1, 2] * 150, [2, 4] * 150)
        for arguments in ((), ("--quick",)):
            report, _ = self.measured(several, "--only", "small_latency", *arguments)
            self.assertEqual(report["small_latency"]["cases"][0]["n"], 5 * 300)
        with open(self.path("calls"), encoding="utf-8") as file:
            asked = {word for line in file for word, before in zip(line.split()[1:], line.split()) if before == "--rounds"}
        self.assertEqual(asked, {"310", "70"})
        program = os.path.join(os.environ["BUILD"], "bin", "nccl-net-perf")
        for rounds in asked:
            subprocess.run([program, "--rounds", rounds, "--usage"], check=True, stdout=subprocess.DEVNULL, timeout=20)
        self.assertNotEqual(self.bench(several, "--rounds", "1002").returncode, 0)

    def test_what_is_measured_begins_when_every_connection_has_tried_each_rail(self):
        self.measured(rows([1], [2]), "--only", "equal_rails,over_equal_split")
        with open(self.path("calls"), encoding="utf-8") as file:
            calls = [line.split() for line in file if "--op sendrecv" in line]
        self.assertEqual(len(calls), 6)
        for call in calls:
            said = dict(zip(call, call[1:]))
            block, connections, size = (int(said[name]) for name in ("--sizes", "--channels", "--chunk"))
            messages = int(said["-w"]) * block // (connections * size)
            self.assertGreaterEqual(messages, 60, said)
            self.assertGreaterEqual(int(said["-w"]) * block, 768 << 20, said)
            self.assertEqual(int(said["--rounds"]), 31 * (32 << 20) // block, said)  # as long, whatever a block is

    def test_all_measures_are_in_the_report_with_what_they_were_compared_with(self):
        report, _ = self.measured(rows([1], [2]), "--quick", "--rounds", "1")
        for name in MEASURES:
            self.assertIn("p50", report[name])
        self.assertTrue(report["quick"])
        self.assertEqual([case["size"] for case in report["small_latency"]["cases"]], [8, 1024, 4096])
        with open(self.path("calls"), encoding="utf-8") as file:
            calls = file.read().splitlines()
        fabrics = [line for line in calls if line.startswith("simverbs up")]
        self.assertEqual([line.count("--pace") for line in fabrics], [1, 1, 1, 1, 0])
        self.assertEqual(sum(line.startswith("simverbs down") for line in calls), len(fabrics))
        compared = [line for line in calls if "--peer-plugin" in line]
        self.assertTrue(all("--env HA_NCCL_RAILS=sim0+sim1" in line for line in compared))
        # Over one rail, but where connections are spread over both.
        self.assertEqual(sum("--dev 0" not in line for line in compared), len(report["over_equal_split"]["cases"]))

    def test_wrong_data_is_no_measurement(self):
        self.refused(rows([1], [2], wrong=1), "equal_rails, 1M: not both sides were measured and checked")

    def test_data_that_nobody_checked_is_no_measurement(self):
        self.refused(rows([1], [2], checked=0), "not both sides were measured and checked")

    def test_a_bundle_that_left_the_second_rail_alone_is_no_measurement(self):
        self.carry(1 << 30, 1 << 10)
        self.refused(rows([1], [2]), "the second rail carried 1024", "--only", "slow_rail")

    def test_what_is_not_there_is_named(self):
        os.unlink(self.path("bin", "simverbs"))
        self.refused(rows([1], [2]), "bin/simverbs")
        done = self.bench(rows([1], [2]), "--only", "fast_rail")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'fast_rail' is none of equal_rails", done.stderr)


class Real(unittest.TestCase):
    def test_every_measure_is_taken_with_the_real_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            command = [SCRIPT, "--build", os.environ["BUILD"], "--json", path, "--quick", "--rounds", "2"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        for name in MEASURES:
            for case in report[name]["cases"]:
                self.assertEqual((len(case["bundle_us"]), len(case["other_us"])), (case["n"],) * 2, name)
                self.assertTrue(0 < case["low"] <= case["p50"] <= case["high"], case)


if __name__ == "__main__":
    unittest.main()
