# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs, and the plugin, over the RoCE wire between two hosts in network namespaces, as
SIMVERBS_ROCE_MODE says."""

import json
import os
import subprocess
import tempfile
import time
import unittest

import namespaces

BUILD = os.environ["BUILD"]
SLACK = int(os.environ["SLACK"])
LIMIT_S = 20 * SLACK

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
BAD = ("rx_bad_icrc", "rx_malformed", "rx_unknown_opcode")


def traffic(seconds):
    """What faults are done to: some messages are always on their way."""
    return f"--op sendrecv --sizes 256K --chunk 64K -c 1 -w 1 --dev 0 --timeout 30 --seconds {seconds}".split()


class OverTheWire(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pair = namespaces.Pair()
        cls.addClassCleanup(cls.pair.close)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.processes = []
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def start(self, host, argv, env=None):
        env = {
            "LD_LIBRARY_PATH": os.path.join(BUILD, "simverbs"),
            "SIMVERBS_ROCE": "rail0,rail1",
            "SIMVERBS_ROCE_STATS": os.path.join(self.folder, f"stats.{host.name}"),
            **(env or {}),
        }
        out = open(os.path.join(self.folder, f"{host.name}.out"), "w+", encoding="utf-8")
        self.addCleanup(out.close)
        process = host.start(argv, env, stdout=out, stderr=subprocess.STDOUT)
        process.host, process.out = host, out
        self.processes.append(process)
        return process

    def wait_for_all(self, limit_s=LIMIT_S):
        until = time.monotonic() + limit_s
        for process in self.processes:
            try:
                status = process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                status = "not at its end"
            self.assertEqual(status, 0, self.said())

    def said(self):
        text = ""
        for process in self.processes:
            process.out.seek(0)
            text += "".join(f"{process.host.name}: {line}" for line in process.out.readlines()[-40:])
        return text

    def stats(self, name):
        """Of all devices that either host has had open."""
        total = 0
        for host in self.pair.hosts:
            with open(os.path.join(self.folder, f"stats.{host.name}"), encoding="utf-8") as file:
                total += sum(json.loads(line)[name] for line in file)
        return total

    def check_wire(self):
        for name in BAD:
            self.assertEqual(self.stats(name), 0, name)

    # ---- programs ----

    def run_program(self, program, options, gid, rail):
        flag = "-g" if program.startswith("ibv_") else "-x"
        server, client = self.pair.hosts
        argv = [program, "-d", f"sv_rail{rail}", flag, str(gid), "-p", "7000", *options.split()]
        self.start(server, argv)
        self.wait_listening(server, 7000)
        self.start(client, [*argv, server.address])
        self.wait_for_all()

    def wait_listening(self, host, port):
        """The namespace is the test's: nobody else listens there."""
        until = time.monotonic() + LIMIT_S
        wanted = f":{port:04X} "
        while time.monotonic() < until:
            for kind in ("tcp", "tcp6"):
                with open(f"/proc/net/{kind}", encoding="ascii") as file:
                    if any(wanted in line and " 0A " in line for line in file):
                        return
            time.sleep(0.02)
        self.fail(f"{host.name} does not listen: {self.said()}")

    def test_programs_run_on_both_rails(self):
        for number, (program, options, gid) in enumerate(PROGRAMS):
            rail = number % len(namespaces.RAILS)
            with self.subTest(program=program, rail=rail, gid=gid):
                self.run_program(program, options, gid, rail)
                self.assertGreater(self.stats("rx_datagrams"), 400)
                self.check_wire()
            self.kill_all()
            self.processes.clear()

    # ---- the interface ----

    def wait_for_line(self, process, text):
        until = time.monotonic() + LIMIT_S
        while text not in self.said():
            self.assertLess(time.monotonic(), until, f"no '{text}': {self.said()}")
            self.assertIsNone(process.poll(), self.said())
            time.sleep(0.02)

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

    # ---- the plugin ----

    def start_ranks(self, words, env=None):
        """nccl-net-perf on both hosts; env: {"a": …, "b": …}."""
        for rank, host in enumerate(self.pair.hosts):
            argv = [os.path.join(BUILD, "bin", "nccl-net-perf"), "--plugin", os.path.join(BUILD, "libnccl-net-ha.so")]
            argv += ["--rank", str(rank), "--nranks", "2", "--root", f"{self.pair.hosts[0].address}:7100"]
            argv += words
            self.start(host, argv, {
                "NCCL_SOCKET_IFNAME": "=sockets",
                "NCCL_IB_HCA": "=sv_rail0,sv_rail1",
                "HA_NCCL_EVENT_LOG": self.log_of(host),
                **(env or {}).get(host.name, {}),
            })  # fmt: skip

    def log_of(self, host):
        return os.path.join(self.folder, f"events.{host.name}")

    def events(self, kind):
        found = []
        for host in self.pair.hosts:
            try:
                with open(self.log_of(host), encoding="utf-8") as file:
                    found += [event for event in map(json.loads, file) if event["kind"] == kind]
            except FileNotFoundError:
                pass
        return found

    def wait_for_traffic(self):
        """Until both connections have a path in reserve: its recovery is in the log."""
        until = time.monotonic() + LIMIT_S
        while len(self.events("recovery")) < 2:
            self.assertLess(time.monotonic(), until, self.said())
            self.assertTrue(all(process.poll() is None for process in self.processes), self.said())
            time.sleep(0.05)

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
