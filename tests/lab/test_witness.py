# SPDX-License-Identifier: Apache-2.0
"""What is made of late packets, without a machine: each of the proofs can be missing."""

import unittest

from judge import Row
from witness import fenced_since, judge_late, late_packets

FAULT, FENCED = 1000, 2000


def packet(at_ns, qpn, size=4096):
    return {"at_ns": at_ns, "qpn": qpn, "bytes": size}


def switch(name, at_ns, end="b", kind="switch"):
    return {"end": end, "name": name, "kind": kind, "monotonic_ns": at_ns}


EVENTS = [
    switch("recv 1 (x b0:1 <- y a0:1)", FAULT - 500),  # of an earlier drill
    switch("recv 1 (x b0:1 <- y a0:1)", FENCED),
    switch("send 2 (x b0:1 -> y a0:1)", FENCED + 700),
    switch("recv 3 (y a0:1 <- x b0:1)", FENCED + 900, end="a"),
    switch("recv 1 (x b0:1 <- y a0:1)", FENCED + 5000),  # failing back
]
PACKETS = [packet(500, 17), packet(2500, 17), {"kind": "packets", "seen": 2, "room": 10}]
CONTROL = {"landed_unfenced": 3, "landed_fenced": 0}
REPORT = {"late": {"seen": 0, "bytes": 0, "events": []}}


class LatePackets(unittest.TestCase):
    def test_only_data_for_an_old_queue_pair_after_its_fence_is_late(self):
        seen = [packet(500, 17), packet(1500, 17), packet(2500, 17), packet(2500, 17, 64), packet(2500, 18), {"kind": "ready"}]
        self.assertEqual(late_packets(seen, FAULT, FENCED), [seen[2]])

    def test_the_receivers_of_a_host_are_fenced_when_the_last_has_moved(self):
        self.assertEqual(fenced_since(EVENTS, "b", FAULT), FENCED)
        other = switch("recv 4 (x b0:1 <- y a0:1)", FENCED + 100)
        self.assertEqual(fenced_since(EVENTS + [other], "b", FAULT), FENCED + 100)
        waiting = switch("recv 4 (x b0:1 <- y a0:1)", FENCED, kind="failure")
        self.assertIsNone(fenced_since(EVENTS + [waiting], "b", FAULT))

    def complaints(self, packets=None, control=None, report=None, gave_up=0):
        row = Row("late", "one")
        seen = {"packets": PACKETS if packets is None else packets, "late": {**CONTROL, **(control or {})}}
        judge_late(row, "b", seen, EVENTS, REPORT if report is None else report, FAULT, gave_up)
        return row.complaints

    def test_all_proofs_are_enough(self):
        self.assertEqual(self.complaints(), [])

    def test_each_proof_is_needed(self):
        written = {"late": {"seen": 1, "bytes": 9, "events": [{"text": "there"}]}}
        for missing in (
            self.complaints(packets=[packet(500, 17), PACKETS[-1]]),
            self.complaints(packets=PACKETS[:-1] + [{"kind": "packets", "seen": 10, "room": 10}]),
            self.complaints(packets=PACKETS[:-1]),
            self.complaints(control={"landed_unfenced": 0}),
            self.complaints(control={"landed_fenced": 1}),
            self.complaints(report={}),
            self.complaints(gave_up=1),
            self.complaints(report=written),
        ):
            self.assertEqual(len(missing), 1)


if __name__ == "__main__":
    unittest.main()
