# SPDX-License-Identifier: Apache-2.0
"""scripts/inc-bench: that switches bring in virtual time what they promise, which is exact; what it refuses; and what its report has.
That is asked of doubles of the programs that it runs, which say what the test wants, so no time is measured; and in Real of the programs."""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["BUILD"]
SCRIPT = os.path.join(HERE, "..", "..", "scripts", "inc-bench")
STEPPED = os.path.join(BUILD, "bin", "inc-bench-stepped")
MiB = 1 << 20


def stepped(*words):
    done = subprocess.run([STEPPED, *map(str, words)], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


class Gains(unittest.TestCase):
    def gain(self, hosts, way, size=16 * MiB):
        return stepped(hosts, size, 1, "ring")["ns"] / stepped(hosts, size, 1, way)["ns"]

    def test_switches_are_as_much_faster_than_rings_as_they_can_be(self):
        """The bounds are 2 (N - 1) / N."""
        self.assertGreaterEqual(self.gain(8, "switch"), 1.70)
        self.assertGreaterEqual(self.gain(16, "switch"), 1.80)
        self.assertGreaterEqual(self.gain(16, "levels"), 1.75)
        self.assertGreaterEqual(self.gain(2, "switch"), 0.97)

    def test_hosts_that_add_for_each_other_are_not_much_slower_than_a_ring(self):
        self.assertGreaterEqual(self.gain(8, "hosts"), 0.85)

    def test_each_host_sends_its_data_once(self):
        one = stepped(8, 8 * MiB, 1, "switch")
        self.assertLessEqual(max(one["out"], one["in"]), 1.02 * 8 * MiB)
        self.assertGreaterEqual(min(one["out"], one["in"]), 8 * MiB)
        self.assertGreaterEqual(stepped(8, 8 * MiB, 1, "ring")["out"], 1.74 * 8 * MiB)

    def test_few_bytes_take_two_steps(self):
        for hosts in (8, 16):
            ring, switch = stepped(hosts, 8, 10, "ring")["ns"], stepped(hosts, 8, 10, "switch")["ns"]
            self.assertLessEqual(switch / ring, 0.20)

    def faulty_gain(self, *rules):
        """With rules, which act; sums are right."""
        ring, switch = (stepped(8, 4 * MiB, 2, way, *rules) for way in ("ring", "switch"))
        self.assertGreater(min(ring["faults"], switch["faults"]), 100)
        return ring["ns"] / switch["ns"]

    def test_doubled_and_overtaken_packets_cost_a_switch_no_more_than_a_ring(self):
        """1 % of all, each. With as many lost as well a switch waits for the slowest of all timeouts: docs/inc.md has that figure."""
        gain = self.faulty_gain("dup prob=0.01", "reorder prob=0.01")
        print(f"a ring's time over a switch's: {gain:.2f}")
        self.assertGreaterEqual(gain, 0.7)

    def test_a_group_that_sleeps_costs_others_nothing(self):
        """Of a second group of the same hosts at the same switch seven of eight have sent what they may."""
        for size, repeat in ((8 * MiB, 1), (8, 20)):
            alone, beside = (stepped(8, size, repeat, way)["ns"] for way in ("switch", "beside"))
            print(f"{size} bytes beside a group that sleeps: {beside / alone:.4f} times as long")
            self.assertLessEqual(beside / alone, 1.05)

    def test_what_is_lost_last_waits_for_no_timeout(self):
        """A timeout is 67 ms, and of eight hosts one loses something in every sixth all-reduce of 8 bytes. Not all is lost last."""
        switch, ring = (stepped(8, 8, 200, way, "drop prob=0.01") for way in ("switch", "ring"))
        print(f"8 bytes with losses: {switch['ns'] / 1e3:.0f} us, a ring {ring['ns'] / 1e3:.0f} us")
        self.assertGreater(switch["faults"], 20)
        self.assertLessEqual(switch["ns"], 2e6)

    def test_what_lets_a_switch_die_costs_next_to_nothing(self):
        """Words and copies, against a switch that has neither: nothing but data comes down."""
        for size, most, repeat in ((16 * MiB, 1 / 0.98, 1), (8, 1.05, 10)):
            safe, unsafe = stepped(8, size, repeat, "switch"), stepped(8, size, repeat, "unsafe")
            print(f"{size} bytes: {safe['ns'] / unsafe['ns']:.4f} times as long")
            self.assertEqual(unsafe["in"], size)
            self.assertGreater(safe["in"], size)
            self.assertLessEqual(safe["ns"] / unsafe["ns"], most)

    def test_a_run_is_a_function_of_its_arguments(self):
        self.assertEqual(stepped(4, 100000, 2, "switch"), stepped(4, 100000, 2, "switch"))


class Refusals(unittest.TestCase):
    def run_script(self, *words):
        return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=60, check=False)

    def test_wrong_calls_are_told_what_is_wrong(self):
        for words, said in ((["--rounds", "-1"], "must be positive"), (["--rate", "0"], "must be positive"), (["--build", "/nonexistent"], "missing in /nonexistent/bin")):
            done = self.run_script(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(said, done.stderr)


# Figures of its marks, by key and, where there are several, by what they are of.
MARKS = {
    "stepped_8_hosts": ">= 1.7",
    "bytes_per_host": "<= 1.02",
    "bytes_per_host_of_ring": ">= 1.74",
    "price_of_safety": ">= 0.98",
    "price_of_safety_8_bytes": "<= 1.05",
    "live_8_hosts": ">= 1.7",
    ("latency_8_hosts", "stepped"): "<= 0.2",
    ("latency_8_hosts", "live"): "<= 0.4",
}
CASES = [("switch", 8), ("switch", 2), ("switch", 16), ("levels", 16), ("hosts", 8)]

DOUBLES = {
    # HOSTS BYTES REPEAT WAY. A ring's host sends 7/4 of the data.
    "inc-bench-stepped": """#!/bin/sh
out=$2
[ "$4" = ring ] && out=$(($2 * 7 / 4))
[ "$2" = 8 ] && few=.8
echo '{"ns": '$(cat "$FAKE/ns.$4$few")', "out": '$out', "in": '$2', "faults": 0}'
""",
    "simverbs": """#!/bin/sh
echo "simverbs $1" >>"$FAKE/calls"
[ "$1" = run ] || exit 0
shift 4
exec "$@"
""",
    "nccl-ha-ctrld": "#!/bin/sh\necho nccl-ha-ctrld: listening at 127.0.0.1:1\nexec sleep 600\n",
    "nccl-ha-switchd": "#!/bin/sh\necho nccl-ha-switchd: s adds at sim0\nexec sleep 600\n",
    # Says its handle, and waits for all.
    "inc-collnet": """#!/bin/sh
echo devices 1
echo handle 00
read -r handles
while [ $# -gt 0 ]; do [ "$1" = --bytes ] && [ "$2" = 8 ] && few=.8; shift; done
echo '{"ns": '$(cat "$FAKE/live$few")'}'
exit $(cat "$FAKE/status")
""",
    "nccl-net-perf": """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --json ] && out=$2; [ "$1" = --sizes ] && [ "$2" = 8 ] && few=.8; shift; done
echo '{"rows": [{"wrong": '$(cat "$FAKE/wrong")', "checked": 1, "time_us": '$(cat "$FAKE/ring$few")'}]}' >"$out"
""",
}

# What they say. Virtual ns by way, of much and of few bytes; live: ns of all operations, and a ring's us of one.
FIGURES = {"ns.ring": 7200, "ns.switch": 4000, "ns.levels": 4050, "ns.hosts": 8000, "ns.unsafe": 3990, "ns.ring.8": 700, "ns.switch.8": 101, "ns.unsafe.8": 100,
           "live": 8000000, "live.8": 40000000, "ring": 7000, "ring.8": 1000, "wrong": 0, "status": 0}  # fmt: skip


class Reports(unittest.TestCase):
    """What every report has to be, whatever was measured."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "report.json")

    def run_bench(self, build, *words, limit_s=60):
        command = [sys.executable, SCRIPT, "--build", build, "--json", self.path, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env={**os.environ, "FAKE": self.folder})

    def report_of(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.path, encoding="utf-8") as file:
            report = json.load(file)
        self.expect_head(report)
        for key, bound in MARKS.items():
            with self.subTest(key):
                self.expect_mark(report[key] if isinstance(key, str) else report[key[0]][key[1]], bound, done.stdout, key)
        self.assertEqual(len(re.findall(r"(?m) (met|missed)$", done.stdout)), len(MARKS), done.stdout)
        self.expect_stepped(report)
        self.expect_live(report)
        return report

    def expect_head(self, report):
        self.assertEqual(set(report), {"commit", "quick", "machine"} | {key if isinstance(key, str) else key[0] for key in MARKS})
        self.assertRegex(report["commit"], r"^([0-9a-f]{7,}|.*-g[0-9a-f]{7,})(-dirty)?$|^unknown$")
        self.assertIs(type(report["quick"]), bool)
        types = {"processors": int, "model": str, "kernel": str, "load": float}
        self.assertEqual({name: type(value) for name, value in report["machine"].items()}, types)

    def expect_mark(self, figure, bound, said, key):
        """The value, what it was to be, and whether it is; the same in the table."""
        self.assertIn(type(figure["value"]), (int, float))
        self.assertEqual(figure["mark"], bound)
        limit = float(bound.split()[1])
        self.assertIs(figure["met"], figure["value"] >= limit if bound.startswith(">=") else figure["value"] <= limit)
        name = key if isinstance(key, str) else ", ".join(key)
        row = rf"(?m)^ *{re.escape(name)} +{re.escape(str(figure['value']))} +{re.escape(bound)} +{'met' if figure['met'] else 'missed'}$"
        self.assertEqual(len(re.findall(row, said)), 1, (row, said))

    def expect_stepped(self, report):
        cases = report["stepped_8_hosts"]["cases"]
        self.assertEqual([(case["way"], case["hosts"]) for case in cases], CASES)
        for case in cases:
            self.assertEqual({type(case[name]) for name in ("bytes", "ring_ns", "ns")}, {int})
            self.assertEqual(case["gain"], round(case["ring_ns"] / case["ns"], 4))
            self.assertGreater(min(case["out"], case["in"], case["ring_out"]), 0)
        self.assertEqual(report["stepped_8_hosts"]["value"], cases[0]["gain"])
        self.assertEqual(report["bytes_per_host"]["value"], max(cases[0]["out"], cases[0]["in"]))
        self.assertEqual(report["bytes_per_host_of_ring"]["value"], cases[0]["ring_out"])
        large, small = report["price_of_safety"], report["price_of_safety_8_bytes"]
        self.assertEqual(large["value"], round(large["unsafe_ns"] / large["ns"], 4))
        self.assertEqual(small["value"], round(small["ns"] / small["unsafe_ns"], 4))
        self.assertEqual((large["bytes"], small["bytes"]), (64 * MiB, 8))
        for name, hosts in (("stepped", 8), ("stepped_16", 16)):
            latency = report["latency_8_hosts"][name]
            self.assertEqual((latency["hosts"], latency["of_ring"]), (hosts, round(latency["ns"] / latency["ring_ns"], 4)))
        self.assertEqual(report["latency_8_hosts"]["stepped"]["value"], report["latency_8_hosts"]["stepped"]["of_ring"])

    def expect_live(self, report):
        """Of neighbouring rounds: the ring's time over the switch's, and of few bytes the other way round."""
        large, few = report["live_8_hosts"], report["latency_8_hosts"]["live"]
        self.assertIs(type(large["gbps"]), float)
        self.assertEqual(few["bytes"], 8)
        for entry, ratios in ((large, [ring / us for ring, us in zip(large["ring_us"], large["us"])]), (few, [us / ring for ring, us in zip(few["ring_us"], few["us"])])):
            self.assertEqual((len(entry["us"]), len(entry["ring_us"])), (entry["rounds"],) * 2)
            self.assertGreater(min(entry["us"] + entry["ring_us"]), 0)
            self.assertEqual(entry["value"], round(statistics.median(ratios), 4))
            self.assertTrue(min(ratios) <= entry["low"] <= statistics.median(ratios) <= entry["high"] <= max(ratios), entry)


class Doubles(Reports):
    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.folder, "bin"))
        for name, text in DOUBLES.items():
            self.say(os.path.join("bin", name), text)
            os.chmod(os.path.join(self.folder, "bin", name), 0o755)
        for name, said in FIGURES.items():
            self.say(name, said)

    def say(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def measured(self, *words):
        return self.report_of(self.run_bench(self.folder, *words))

    def test_a_report_has_every_key_and_its_table_says_the_same(self):
        report = self.measured("--quick", "--rate", "0.25", "--size", "2")
        self.assertEqual(report["stepped_8_hosts"]["value"], 1.8)
        self.assertEqual((report["bytes_per_host"]["value"], report["bytes_per_host_of_ring"]["value"]), (1, 1.75))
        self.assertEqual((report["price_of_safety"]["value"], report["price_of_safety_8_bytes"]["value"]), (0.9975, 1.01))
        self.assertEqual(report["latency_8_hosts"]["stepped"]["value"], 0.1443)
        live, few = report["live_8_hosts"], report["latency_8_hosts"]["live"]
        self.assertEqual((live["value"], live["us"], live["ring_us"]), (1.75, [4000] * 3, [7000] * 3))
        self.assertEqual((few["value"], few["us"], few["ring_us"]), (0.2, [200] * 3, [1000] * 3))
        self.assertEqual((live["bytes"], live["gbps"], report["quick"]), (2 * MiB, 0.25, True))
        self.assertTrue(all(entry["met"] for entry in report.values() if isinstance(entry, dict) and "met" in entry))

    def test_marks_that_are_missed_are_so_in_the_report_and_in_the_table(self):
        for name, said in (("ns.switch", 7200), ("ns.unsafe", 6000), ("ns.switch.8", 700), ("live", 16000000), ("live.8", 200000000)):
            self.say(name, said)
        report = self.measured("--rounds", "2")
        missed = {key for key in MARKS if not (report[key] if isinstance(key, str) else report[key[0]][key[1]])["met"]}
        self.assertEqual(missed, set(MARKS) - {"bytes_per_host", "bytes_per_host_of_ring"})
        self.assertFalse(report["quick"])

    def test_what_was_wrong_or_not_whole_is_no_report_and_leaves_nothing(self):
        for name, said, why in (("wrong", 1, "a ring's sums are wrong"), ("status", 3, "a rank of a collNet failed"), ("ns.hosts", "no number", "")):
            self.say(name, said)
            done = self.run_bench(self.folder, "--quick")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr, f"^inc-bench: FAILED: .*{why}")
            self.assertFalse(os.path.exists(self.path))
            self.say(name, FIGURES[name])
        with open(os.path.join(self.folder, "calls"), encoding="utf-8") as file:
            calls = file.read().split("\n")
        self.assertEqual(calls.count("simverbs up"), calls.count("simverbs down"))


class Real(Reports):
    def test_a_report_of_the_programs_themselves(self):
        report = self.report_of(self.run_bench(BUILD, "--quick", "--rounds", "1", "--size", "1", limit_s=800))
        self.assertTrue(report["stepped_8_hosts"]["met"] and report["bytes_per_host"]["met"] and report["price_of_safety"]["met"])


if __name__ == "__main__":
    unittest.main()
