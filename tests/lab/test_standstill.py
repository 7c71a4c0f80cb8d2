#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What guests lose to the host is found where it was, and nowhere else; and read while a drill runs."""

import os
import sys
import time
import unittest

import machine
from standstill import STEP_NS, Record, Watch

MS = 1_000_000


def record_of(*readings):
    """Of (ms, {key: ms})."""
    (first, totals), *more = [(now * MS, {key: n * MS for key, n in totals.items()}) for now, totals in readings]
    record = Record(first, totals)
    for now, totals in more:
        record.read(now, totals)
    return record


class Loss(unittest.TestCase):
    def lost(self, record, first, last):
        return record.lost_ns(first * MS, last * MS) / MS

    def test_is_where_it_was(self):
        record = record_of((0, {("waited", 1): 50}), (10, {("waited", 1): 50}), (20, {("waited", 1): 55}), (30, {("waited", 1): 55}))
        self.assertEqual(self.lost(record, 0, 30), 5)
        self.assertEqual(self.lost(record, 10, 20), 5)
        self.assertEqual(self.lost(record, 0, 10), 0)
        self.assertEqual(self.lost(record, 20, 30), 0)
        self.assertEqual(self.lost(record, 15, 30), 2.5)

    def test_that_took_long_began_before_the_reading_that_tells_of_it(self):
        """The kernel tells of a wait when it is over."""
        record = record_of((0, {("waited", 1): 0}), (90, {("waited", 1): 0}), (100, {("waited", 1): 80}))
        self.assertEqual(self.lost(record, 0, 20), 0)
        self.assertEqual(self.lost(record, 20, 60), 40)
        self.assertEqual(self.lost(record, 40, 60), 20)
        self.assertEqual(self.lost(record, 0, 100), 80)

    def test_of_threads_counts_once_and_adds_to_what_the_host_lost(self):
        """Of two threads that wait at once the guest stands still no longer than the one that waits longer."""
        totals = {("waited", 1): 4, ("waited", 2): 3, ("stolen", "cpu0"): 2, ("stolen", "cpu1"): 1}
        record = record_of((0, dict.fromkeys(totals, 0)), (10, totals))
        self.assertEqual(self.lost(record, 0, 10), 6)

    def test_is_never_longer_than_the_time(self):
        record = record_of((0, {}), (10, {("waited", 1): 9, ("stolen", "cpu0"): 9}))
        self.assertEqual(self.lost(record, 0, 10), 10)

    def test_of_threads_that_come_and_go(self):
        record = record_of((0, {("waited", 1): 70}), (10, {("waited", 2): 3}), (20, {("waited", 2): 3}))
        self.assertEqual(self.lost(record, 0, 20), 3)

    def test_is_found_among_many(self):
        readings = [(0, {("waited", 1): 0})] + [(10 * i, {("waited", 1): i}) for i in range(1, 1001)]
        record = record_of(*readings)
        self.assertAlmostEqual(self.lost(record, 5000, 5100), 10)
        self.assertAlmostEqual(self.lost(record, 5003, 5008), 0.5)
        self.assertEqual(self.lost(record, 10_000, 11_000), 0)


class Readings(unittest.TestCase):
    def test_are_taken_until_the_end(self):
        taken = []

        def read():
            taken.append(time.monotonic_ns())
            return {("waited", 1): len(taken)}

        watch = Watch(read)
        deadline = time.monotonic() + 20
        while len(taken) < 5:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(STEP_NS / 1e9)
        record = watch.stop()
        number = len(taken)
        self.assertAlmostEqual(record.lost_ns(0, time.monotonic_ns()), number - 1, delta=0.01)
        time.sleep(3 * STEP_NS / 1e9)
        self.assertEqual(len(taken), number)

    def test_that_fail_do_not_pass_for_a_host_that_gave_all(self):
        def read():
            if watching:
                raise OSError("gone")
            return {}

        watching = []
        watch = Watch(read)
        watching.append(True)
        with self.assertRaises(OSError):
            watch.stop()

    def test_of_processors_that_another_machine_had(self):
        stat = "cpu  1 2 3 4 5 6 7 300 0 0\ncpu0 1 2 3 4 5 6 7 100 0 0\ncpu1 1 2 3 4 5 6 7 200 0 0\nintr 9\n"
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self.assertEqual(machine.stolen_ns(stat), {("stolen", "cpu0"): 100 * tick_ns, ("stolen", "cpu1"): 200 * tick_ns})
        self.assertTrue(machine.stolen_ns())

    def test_of_threads_that_waited(self):
        """Those of a process of our own, which is no QEMU."""
        guest = machine.Machine("a", None, machine.Folder(), None, None)
        self.addCleanup(guest.folder.close)
        guest.qemu = self
        self.pid = os.getpid()
        self.assertIn(("waited", f"a.{self.pid}"), guest.waited_ns())
        self.pid = 1 << 30  # which no process has
        self.assertEqual(guest.waited_ns(), {})


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
