# SPDX-License-Identifier: Apache-2.0
"""scripts/inc-bench: that switches bring in virtual time what they promise, which is exact; and what it refuses."""

import json
import os
import subprocess
import sys
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


if __name__ == "__main__":
    unittest.main()
