# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs, and the plugin, over the RoCE wire between two hosts in network namespaces, as
SIMVERBS_ROCE_MODE says."""

import os
import time
import unittest

import namespaces
from wire_case import BUILD, LIMIT_S, WireCase, traffic

# Program, its options for both ends, and the GID index: 1 is the IPv4 address, 2 the IPv6 one.
PROGRAMS = [
    ("ibv_rc_pingpong", "-s 20000 -n 200 -c", 1),
    ("ibv_rc_pingpong", "-s 20000 -n 200 -c", 2),
    ("ibv_ud_pingpong", "-s 1000 -n 200 -c", 1),
    ("ib_write_bw", "-s 65536 -n 300 -F", 1),
    ("ib_read_bw", "-s 65536 -n 300 -F", 2),
    ("ib_send_lat", "-s 8 -n 300 -F", 1),
    ("ib_atomic_bw", "-n 300 -F", 1),
]


class OverTheWire(WireCase):
    # ---- programs ----

    def run_program(self, program, options, gid, rail):
        flag = "-g" if program.startswith("ibv_") else "-x"
        server, client = self.pair.hosts
        argv = [program, "-d", f"sv_rail{rail}", flag, str(gid), "-p", "7000", *options.split()]
        self.start(server, argv)
        self.assertTrue(namespaces.wait_listening(7000, LIMIT_S), self.said())
        self.start(client, [*argv, server.address])
        self.wait_for_all()

    def test_programs_run_on_both_rails(self):
        for number, (program, options, gid) in enumerate(PROGRAMS):
            rail = number % len(namespaces.RAILS)
            with self.subTest(program=program, rail=rail, gid=gid):
                self.run_program(program, options, gid, rail)
                self.assertGreater(self.stats("rx_datagrams"), 400)
                self.check_wire()
            self.kill_all()
            self.processes.clear()

    def test_hundreds_of_queue_pairs_send_to_one_receiver(self):
        """32 MiB might be under way, which no socket has room for."""
        self.run_program("ib_write_bw", "-q 256 -s 4096 -n 64 -F", 1, 0)
        self.check_wire()

    def test_the_first_datagram_to_a_neighbour_that_is_not_known_arrives(self):
        """Nobody sends a datagram again."""
        for number in (1, 2):  # IPv4, IPv6
            for host in self.pair.hosts:
                host.ip("neigh", "flush", "dev", "rail0")
            with self.subTest(gid=number):
                self.run_program("ibv_ud_pingpong", "-s 1000 -n 20 -c", number, 0)
                self.check_wire()
            self.kill_all()
            self.processes.clear()

    # ---- the interface ----

    def test_what_becomes_of_the_interface_is_told_by_events(self):
        host = self.pair.hosts[0]
        watch = self.start(host, ["stdbuf", "-oL", "ibv_asyncwatch", "-d", "sv_rail0"])
        self.wait_for_line(watch, "async event FD")
        host.ip("addr", "add", "10.99.0.77/24", "dev", "rail0")
        self.addCleanup(host.ip, "addr", "del", "10.99.0.77/24", "dev", "rail0")
        self.wait_for_line(watch, "GID_CHANGE")
        host.ip("link", "set", "rail0", "down")
        self.wait_for_line(watch, "PORT_ERR")
        host.set_up_rail(0)
        self.wait_for_line(watch, "PORT_ACTIVE")

    def processor_s(self, process):
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def test_an_idle_device_whose_link_is_down_takes_no_processor_time(self):
        """Its socket has an error to tell, until somebody asks."""
        host = self.pair.hosts[0]
        watch = self.start(host, ["stdbuf", "-oL", "ibv_asyncwatch", "-d", "sv_rail0"])
        self.wait_for_line(watch, "async event FD")
        self.addCleanup(host.set_up_rail, 0)
        host.ip("link", "set", "rail0", "down")
        self.wait_for_line(watch, "PORT_ERR")
        before_s = self.processor_s(watch)
        time.sleep(1)
        self.assertLess(self.processor_s(watch) - before_s, 0.1)

    # ---- the plugin ----

    def test_every_operation_of_the_plugin_is_right(self):
        """Sizes from nothing on, odd ones among them, over both rails at once."""
        words = "--op all --sizes 0,1,3,1001,65537,1M -C 2 --chunk 50000 -n 2 -w 1 -c 3 --flush --reg-churn --timeout 30"
        self.start_ranks(words.split())
        self.wait_for_all()
        self.check_wire()

    def test_a_link_that_goes_down_is_left_for_the_other(self):
        self.start_ranks(traffic(4))
        self.wait_for_traffic()
        time.sleep(0.5)
        self.pair.hosts[0].ip("link", "set", "rail0", "down")
        self.addCleanup(self.pair.hosts[0].set_up_rail, 0)
        self.wait_for_all()
        self.assertGreaterEqual(len(self.events("switch")), 2, self.said())
        self.check_wire()

    def test_a_rail_that_falls_silent_is_left_for_the_other(self):
        self.start_ranks(traffic(4))
        self.wait_for_traffic()
        time.sleep(0.5)
        self.addCleanup(self.pair.hosts[1].hear_again, 0)
        self.pair.hosts[1].silence(0)
        self.wait_for_all()
        self.assertGreater(self.pair.hosts[1].lost_in_silence(0), 0)
        self.assertGreaterEqual(len(self.events("switch")), 2, self.said())
        self.check_wire()

    def test_one_packet_in_a_hundred_is_lost_and_nobody_notices(self):
        loss = {"SIMVERBS_FAULTS": "drop prob=0.01"}
        self.start_ranks(traffic(3), {"a": loss, "b": loss})
        self.wait_for_traffic()
        self.wait_for_all()
        self.assertGreater(self.stats("lost_fault"), 10)
        self.assertEqual(self.events("switch"), [])
        self.check_wire()


if __name__ == "__main__":
    namespaces.go_inside()
    unittest.main(verbosity=2)
