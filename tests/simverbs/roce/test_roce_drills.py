# SPDX-License-Identifier: Apache-2.0
"""The plugin's drills that make sense on a network, over the RoCE wire between two hosts in network namespaces: what the
driver does on a fabric, and what breaks under its traffic, every byte checked. SIMVERBS_ROCE_MODE says by which sockets."""

import os
import signal
import time
import unittest

import namespaces
from wire_case import LIMIT_S, WireCase, traffic

RETRIES = {"HA_NCCL_QP_RETRY_CNT": "3"}


class Driver(WireCase):
    """Each of the driver's operations in shapes that the usual run has not."""

    def drive(self, words, env=None):
        """Not before v11 are devices closed in the end, and what they counted told."""
        self.start_ranks(f"-n 2 -w 1 -c 2 --timeout 30 {words}".split(), {"a": env or {}, "b": env or {}})
        self.wait_for_all()

    def test_each_version_of_the_interface(self):
        for version in range(8, 13):
            with self.subTest(version=version):
                self.drive(f"--op all --sizes 0,1001,300000 --api v{version}")
                if version >= 11:
                    self.check_wire()
            self.kill_all()
            self.processes.clear()

    def test_large_messages(self):
        self.drive("--op sendrecv,alltoall --sizes 16M --canary")
        self.check_wire()

    def test_several_queue_pairs_per_connection(self):
        self.drive("--op all --sizes 3,1M", {"NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_IB_SPLIT_DATA_ON_QPS": "1"})
        self.check_wire()

    def test_many_connections(self):
        self.drive("--op sendrecv --sizes 64K -C 16")
        self.check_wire()

    def test_connections_come_and_go(self):
        self.drive("--op allreduce --sizes 64K --cycles 10")
        self.check_wire()

    def test_one_packet_in_a_hundred_is_lost_doubled_late_or_overtaken(self):
        for rule in ("drop prob=0.01", "dup prob=0.01", "delay=2ms prob=0.01", "reorder prob=0.01"):
            with self.subTest(rule=rule):
                self.drive("--op all --sizes 1001,1M --canary", {"SIMVERBS_FAULTS": rule})
                self.check_wire()
                if rule.startswith("drop"):
                    self.assertGreater(self.stats("lost_fault"), 0)
            self.kill_all()
            self.processes.clear()


class Drills(WireCase):
    def begin(self):
        self.start_ranks(traffic(600), {"a": RETRIES, "b": RETRIES})
        self.wait_for_traffic()
        time.sleep(0.5)

    def end(self):
        """Traffic goes on for a while, and is right to its end."""
        time.sleep(0.5)
        self.processes[0].send_signal(signal.SIGUSR1)  # its time is up
        self.wait_for_all()
        self.check_wire()

    def down(self, host, rail):
        self.pair.hosts[host].ip("link", "set", f"rail{rail}", "down")
        self.addCleanup(self.pair.hosts[host].set_up_rail, rail)

    def silence(self, host, rail):
        self.pair.hosts[host].silence(rail)
        self.addCleanup(self.pair.hosts[host].hear_again, rail)

    def wait_for_events(self, kind, number):
        until = time.monotonic() + LIMIT_S
        while len(self.events(kind)) < number:
            self.assertLess(time.monotonic(), until, f"{len(self.events(kind))} of kind {kind}: {self.said()}")
            self.assertTrue(all(process.poll() is None for process in self.processes), self.said())
            time.sleep(0.05)

    def test_link_down_at_either_end(self):
        for host in (0, 1):
            with self.subTest(host=host):
                self.begin()
                self.down(host, 0)
                self.wait_for_events("switch", 2)
                self.end()
            self.doCleanups()
            self.setUp()

    def test_a_rail_that_is_silent_one_way_the_other_or_both(self):
        for hosts in ((0,), (1,), (0, 1)):
            with self.subTest(hosts=hosts):
                self.begin()
                for host in hosts:
                    self.silence(host, 0)
                self.wait_for_events("switch", 2)
                self.end()
            self.doCleanups()
            self.setUp()

    def test_rails_that_go_down_in_turn(self):
        """Each only when the other has recovered."""
        self.begin()
        for round_ in range(4):
            rail = round_ % 2
            before = len(self.events("recovery"))
            self.down(round_ // 2, rail)
            self.wait_for_events("switch", 2 * (round_ + 1))
            self.pair.hosts[round_ // 2].set_up_rail(rail)
            self.pair.wait_up()
            self.wait_for_events("recovery", before + 2)
        self.end()

    def test_a_peer_that_stands_still_for_a_while(self):
        self.begin()
        self.processes[1].send_signal(signal.SIGSTOP)
        time.sleep(1)
        self.processes[1].send_signal(signal.SIGCONT)
        self.end()

    def test_a_peer_that_is_killed_is_an_error_and_no_hang(self):
        self.begin()
        self.processes[1].kill()
        self.assertNotEqual(self.processes[0].wait(LIMIT_S), 0)
        self.assertIn("rank 1", self.said())


if __name__ == "__main__":
    namespaces.go_inside()
    unittest.main(verbosity=2)
