#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench_streams with threads of the host in the place of a GPU's: what they see is right whatever is cut, whoever sleeps,
and they end. BUILD in the environment is the build folder."""
import json
import os
import subprocess
import sys
import unittest

BUILD = os.environ["BUILD"]
SLACK = int(os.environ.get("SLACK", "1"))
FOLDER = os.path.join(BUILD, "tests", "ibgda")


def streams(*words, program="ibgda-streams-host-1", limit=15 * SLACK, **variables):
    return subprocess.run([os.path.join(FOLDER, program), *map(str, words)], text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=limit + 5, env=dict(os.environ, BENCH_STREAMS_S=str(limit), HA_NCCL_STATS="0", **variables))


class Streams(unittest.TestCase):
    def result(self, *words, **options):
        run = streams(*words, **options)
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(run.stdout)
        self.assertEqual((result["mode"], result["wrong"], result["on"]), (words[0], 0, "threads of the host"))
        return result

    def test_cuts_cost_no_signal_and_who_watches_sees_each_put(self):
        cuts = self.result("cuts", 4, 2, 6, 1000, 1)
        self.assertEqual((cuts["cuts"], cuts["streams"], cuts["threads"]), (6, 4, 8))
        self.assertGreaterEqual(cuts["failovers"], 6 * 4)
        self.assertGreaterEqual(cuts["posted"], 1000)
        self.assertGreater(cuts["watched"], 0)
        self.assertEqual([cuts[kind]["n"] for kind in ("port", "peers_port", "switch")], [8, 8, 8])

    def test_a_put_is_there_before_its_signal(self):
        for of_threads, memory in enumerate(("host", "threads")):
            order = self.result("order", of_threads, 2, 2, 4096, 2000, 20)
            self.assertTrue(order["is_complete"])
            self.assertGreaterEqual(order["watched"], 2000)
            self.assertEqual(order["memory"], memory)

    def test_what_was_not_seen_in_time_is_said(self):
        order = self.result("order", 0, 1, 1, 8, 10**12, 1)
        self.assertFalse(order["is_complete"])

    def test_a_thread_sleeps_at_each_step_for_three_generations(self):
        late = self.result("late", 2, 2, 3)
        self.assertEqual(late["steps"], 16)
        self.assertGreaterEqual(late["generations_least"], 3)
        self.assertGreaterEqual(late["failovers"], 2 * 3 * 16)

    def test_threads_return_where_no_path_is_left(self):
        outage_ms = 125 * SLACK  # streams must come up in it, too
        over = self.result("over", 2, 2, outage_ms)
        self.assertGreaterEqual(over["latched_ms"], outage_ms - 100)
        self.assertLess(over["latched_ms"], 1.1 * outage_ms * SLACK)
        self.assertLess(over["returned_ms"], 100 * SLACK)

    def test_threads_return_where_their_program_ends_streams(self):
        over = self.result("over", 4, 2, 0)
        self.assertLess(over["returned_ms"], 100 * SLACK)

    def test_both_kinds_in_turn(self):
        paired = self.result("paired", 8, 1, 0, 1, 1, 100, 3)
        self.assertEqual((paired["rounds"], paired["posted"]), (3, 100 * (2 * 3 + 2)))
        for figure in ("ns", "p50_ns", "p99_ns", "post_p50_ns"):
            self.assertGreater(paired[figure]["on"], 0)
            self.assertGreater(paired[figure]["off"], 0)
            self.assertLessEqual(paired[figure]["ratio_p25"], paired[figure]["ratio"])
        self.assertGreaterEqual(paired["p99_ns"]["on"], paired["p50_ns"]["on"])
        self.assertGreaterEqual(paired["p50_ns"]["off"], paired["post_p50_ns"]["off"])

    def test_one_kind_of_each_program(self):
        for backup in (0, 1):
            post = self.result("post", 64, 8, 1, 2, 2, 100, program=f"ibgda-streams-host-{backup}")
            self.assertEqual((post["backup"], post["posted"]), (backup, 400))

    def test_threads_without_a_gate_are_left_alone_however_slow_they_are(self):
        """Each of these limits would move a stream under them: of its silence, and of the NIC's patience with its peer."""
        for limit in {"HA_NCCL_RTO_MS": "1"}, {"NCCL_IB_TIMEOUT": "1", "NCCL_IB_RETRY_CNT": "1"}:
            post = self.result("post", 64, 32, 1, 32, 2, 200, program="ibgda-streams-host-0", **limit)
            self.assertEqual((post["posted"], post["failovers"]), (64 * 200, 0))

    def test_a_limit_ends_all(self):
        run = streams("cuts", 1, 1, 0, 10**12, limit=7)
        self.assertEqual(run.returncode, 1)
        self.assertIn("it takes too long", run.stderr)

    def test_what_makes_no_sense_is_refused(self):
        for words in ((), ("nothing",), ("cuts", 1), ("over", 1, 1, 1, 1)):
            run = streams(*words)
            self.assertEqual(run.returncode, 2)
            self.assertIn("usage: ", run.stderr)
        run = streams("cuts", 65, 1, 1, 1)
        self.assertEqual(run.returncode, 1)
        self.assertIn("1 to 64 streams", run.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
