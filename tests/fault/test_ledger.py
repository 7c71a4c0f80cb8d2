#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ledger of searches: it reads what explorers say, and docs/search.md is what its records say."""
import os
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import searchledger  # noqa: E402

SUMS = """all       all                                 188      922      163       25      {}       557      3649      512
healed: 156 runs, the slowest in 1750 ms
processor: 3.5 s
"""
SMALLER = """WRONG: it hangs
  explore --scenario one --seed 7 --fault link-s --at 3 --fault drop-r --at 5
  first warning: NET/HA : sim0:1: port error
  smaller: explore --scenario one --seed 0 --fault link-s --at 3
  which is: it hangs, too
its log:
WRONG is said here by a log line
"""
AS_IT_IS = """WRONG: not healed
  explore --scenario connect --heal --seed 0 --fault link-s --at 3
"""


class Ledger(unittest.TestCase):
    def test_an_explorer_is_understood(self):
        said = subprocess.run([os.environ["EXPLORE"], "--walks", "40", "--seed", "2", "--heal"],
                              capture_output=True, text=True, check=True).stdout
        read = searchledger.read_output(said)
        self.assertEqual((read["walks"], read["wrong"]), (40, []))
        self.assertTrue(read["fired"] > 0 and read["healed"] > 0 and read["slowest_ms"] > 0)
        self.assertTrue(read["traces"] >= 40 and read["trace_steps"] > read["traces"])

    def test_the_shortest_command_of_a_wrong_run_is_kept(self):
        read = searchledger.read_output(SMALLER + AS_IT_IS + SUMS.format(2))
        self.assertEqual(read["wrong"], [
            {"command": "explore --scenario one --seed 0 --fault link-s --at 3", "verdict": "it hangs, too"},
            {"command": "explore --scenario connect --heal --seed 0 --fault link-s --at 3", "verdict": "not healed"}])
        self.assertEqual((read["walks"], read["fired"], read["processor_s"]), (700, 922, 3.5))

    def test_a_run_that_ends_its_explorer_is_a_wrong_one_and_what_that_explorer_did_is_in_no_sum(self):
        for how, verdict in (("a run takes for ever:", "a run takes for ever"), ("crashed in", "crashed")):
            read = searchledger.read_output(f"{SMALLER}\nexplore: {how}\n  explore --scenario stream --seed 3\n")
            self.assertEqual(read["wrong"][1:],
                             [{"command": "explore --scenario stream --seed 3", "verdict": verdict}])
            self.assertEqual((read["walks"], read["processor_s"], read["ended"]), (0, 0, 1))
            whole = searchledger.merge([read, searchledger.read_output(AS_IT_IS + SUMS.format(1))])
            self.assertEqual((whole["walks"], whole["ended"], len(whole["wrong"])), (700, 1, 3))
            self.assertEqual(searchledger.explorers(dict(whole, explorers=2)), "2 (1 ended by a run)")

    def test_an_explorer_that_crashed_or_whose_wrong_runs_are_lost_is_no_search(self):
        for said in ("explore: crashed in\n", SMALLER, AS_IT_IS + SUMS.format(2)):
            with self.assertRaises(ValueError):
                searchledger.read_output(said)

    def test_traces_are_counted_where_there_were_any(self):
        said = "traces: 70 accepted, with 900 steps; 3 not judged\n"
        read = searchledger.merge([searchledger.read_output(said + SUMS.format(0)),
                                   searchledger.read_output(SUMS.format(0))])
        self.assertEqual((read["traces"], read["trace_steps"], read["unjudged"]), (70, 900, 3))
        self.assertEqual(searchledger.traces_of(read), "70 of 900 steps")
        self.assertEqual(searchledger.traces_of({"walks": 1}), "")

    def test_searches_of_the_same_code_add_up(self):
        one = {"date": "2026-01-01", "commit": "c", "src": "s", "seed": 1, "options": "--heal", "processor_s": 1800.0,
               "explorers": 2, "walks": 1000, "fired": 10, "healed": 5, "slowest_ms": 7, "wrong": []}
        other = dict(one, wrong=[{"command": "explore", "verdict": "it hangs", "became": "mended"}])
        page = searchledger.section([one, other])
        self.assertIn("| `s` | 1.00 | 2,000 | 20 | 10 | 0 | 1 |", page)
        self.assertIn("| mended | 1 | `c` | it hangs | `explore` |", page)

    def test_the_page_is_what_the_records_say(self):
        with open(searchledger.PAGE, encoding="utf-8") as file:
            page = file.read()
        self.assertIn(searchledger.section(searchledger.records(searchledger.LEDGER)).strip(), page)


if __name__ == "__main__":
    unittest.main()
