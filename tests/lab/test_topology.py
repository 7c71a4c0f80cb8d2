#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each fault that a lab can make is one to the kernel: the state of the port, its GIDs, its device, the
packets that pass. What the plugin makes of faults is for the drills."""

import os
import sys
import time
import unittest

import image
import machine
import topology

BUILD = os.environ["BUILD"]
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT_S = 60
ACTIVE, DOWN, GONE = "4: ACTIVE", "1: DOWN", "gone"


class LabTest(unittest.TestCase):
    name = None

    @classmethod
    def setUpClass(cls):
        folder = os.path.join(BUILD, "lab")
        picture = image.get(folder)
        cls.lab = topology.Lab(cls.name, picture, BUILD, TREE, kvm=machine.kvm_works(picture, folder), cables="udp")
        cls.addClassCleanup(cls.lab.close)

    def wait_for(self, what, happened):
        deadline = time.monotonic() + LIMIT_S
        while not happened():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def wait_for_port(self, host, rail, state):
        host = self.lab.host(host)
        self.wait_for(f"{host.name}{rail} is {state}", lambda: host.port_state(rail) == state)

    def states(self):
        return {topology.interface(name, rail): host.port_state(rail)
                for name, host in self.lab.hosts.items() for rail in topology.RAILS}  # fmt: skip

    def gid(self, host, rail):
        """The address that a device has in its table, as RoCE v2 writes it: {index: last two bytes}."""
        gids = self.lab.host(host).gids(rail)
        return {index: gid[-4:] for index, gid in gids.items() if gid.startswith("0000:0000:0000:0000:0000:ffff")}

    def ping(self, rail, host="a"):
        """Whether an RDMA queue pair gets an answer over this rail, in a second or so."""
        peer = topology.peer_of(host)
        words = "-x 1 -n 5 -F"
        there, here = topology.interface(peer, rail), topology.interface(host, rail)
        server = self.lab.host(peer).start(["timeout", "20", "sh", "-c", f"ib_send_lat -d {there} {words}"])
        address = self.lab.host(peer).socket_address
        client = self.lab.host(host).run(
            f"for i in 1 2 3 4 5 6 7 8 9; do timeout 10 ib_send_lat -d {here} {words} {address} && exit; "
            "[ $? -eq 1 ] || exit 1; sleep 0.3; done; exit 1", check=False)  # fmt: skip
        if client.status != 0 and server.poll() is None:
            server.kill()
        return client.status == 0

    def assert_all_well(self):
        self.assertEqual(set(self.states().values()), {ACTIVE})
        self.assertTrue(self.ping(0) and self.ping(1))

    def new_address(self):
        before = self.gid("a", 1)
        self.assertEqual(list(before.values()), ["0101"])
        self.assertEqual(self.lab.address("a", 1), "10.77.1.3")
        self.wait_for("another GID", lambda: list(self.gid("a", 1).values()) == ["0103"])
        index = next(iter(self.gid("a", 1)))
        self.assertEqual(self.lab.address("a", 1, "10.77.1.1"), "10.77.1.1")
        self.wait_for("the old GID", lambda: list(self.gid("a", 1).values()) == ["0101"])
        return index

    def both_ends(self):
        """Down at once, by one order to each guest."""
        times = self.lab.link("ab", 0, "down")
        self.assertEqual(len(times), len(self.lab.machines))
        self.wait_for_port("a", 0, DOWN)
        self.wait_for_port("b", 0, DOWN)
        self.lab.link("a", 0, "up")
        self.wait_for_port("b", 0, DOWN)  # also where the other end's carrier is back
        self.lab.link("b", 0, "up")
        self.wait_for_port("a", 0, ACTIVE)
        self.wait_for_port("b", 0, ACTIVE)

    def lost_device(self):
        self.lab.unbind("a", 1)
        self.wait_for_port("a", 1, GONE)
        self.assertEqual(self.lab.host("b").port_state(0), ACTIVE)
        self.lab.bind("a", 1)
        self.wait_for_port("a", 1, ACTIVE)

    def sent(self, host, rail):
        return self.lab.host(host).counters(rail)["rdma.sent_pkts"]


class One(LabTest):
    name = "one"

    def test_everything(self):
        """In one run, because a boot takes longer than all of it."""
        self.assertEqual(len(self.states()), 4)
        self.assert_all_well()
        self.assertGreater(self.sent("a", 0), 5)

        before, after = self.lab.host("a").link(0, "down")
        self.assertLess(after - before, 5e9)
        self.wait_for_port("a", 0, DOWN)
        self.wait_for_port("b", 0, DOWN)  # a pair of veth has one cable
        self.assertEqual(self.lab.host("a").port_state(1), ACTIVE)
        self.lab.host("a").link(0, "up")
        self.wait_for_port("a", 0, ACTIVE)
        self.wait_for_port("b", 0, ACTIVE)

        self.both_ends()
        self.lab.host("b").netem(1, "loss 100%")
        self.assertFalse(self.ping(1))
        self.assertEqual(set(self.states().values()), {ACTIVE})
        self.lab.host("b").netem(1, None)

        self.new_address()
        self.lost_device()
        self.assert_all_well()
        with self.assertRaisesRegex(machine.LabError, "no machine of its own"):
            self.lab.set_link("a", 0, "off")
        with self.assertRaisesRegex(machine.LabError, "No such device"):
            self.lab.host("a").guest.call("link", names=["nosuch0"], up=True)
        with self.assertRaisesRegex(machine.LabError, "start nosuch: No such file"):
            self.lab.host("a").start(["nosuch"])


class Two(LabTest):
    name = "two"

    def a_card_that_stands_still(self):
        """QEMU takes no packet from it, and its queue is not full. What the lab does not know of it does not heal."""
        self.assertEqual(self.lab.stuck_cards(), [])
        self.lab.host("b").run("tc qdisc replace dev b1 root netem loss 100%")
        self.assertEqual(self.lab.stuck_cards(), ["a1 or b1"])
        self.lab.host("b").netem(1, None)
        self.lab.host("b").netem(0, "loss 100%")
        self.assertEqual(self.lab.stuck_cards(), [])  # what a drill broke is mended before

    def test_everything(self):
        self.assert_all_well()
        self.a_card_that_stands_still()

        self.lab.host("a").link(0, "down")
        self.wait_for_port("a", 0, DOWN)
        self.assertEqual(self.lab.host("b").port_state(0), ACTIVE)  # the other guest sees nothing
        self.lab.host("a").link(0, "up")
        self.wait_for_port("a", 0, ACTIVE)

        self.both_ends()
        self.lab.set_link("b", 1, "off")
        self.wait_for_port("b", 1, DOWN)
        self.assertEqual(self.lab.host("a").port_state(1), ACTIVE)
        self.lab.set_link("b", 1, "on")
        self.wait_for_port("b", 1, ACTIVE)

        began, _ = self.lab.host("b").guest.clock_ns()
        self.lab.freeze("b")
        with self.assertRaisesRegex(machine.LabError, "no answer to clock"):
            self.lab.host("b").guest.call("clock", limit_s=2)
        self.lab.thaw("b")
        self.lab.host("b").run("true")
        self.assertLess(self.lab.host("b").guest.clock_ns()[0] - began, -1e9, "a frozen guest's clock stands")

        self.new_address()
        self.lost_device()
        self.assert_all_well()


if __name__ == "__main__":
    try:
        machine.find_qemu()
    except machine.NoMachine as reason:
        print(f"SKIP: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
