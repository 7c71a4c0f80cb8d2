# SPDX-License-Identifier: Apache-2.0
"""nccl-ha-ctrld as it runs: hosts that speak its protocol by hand, well and badly, and die."""

import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

from conversation import (ALL_HERE, ASK, CHANGE, COUNTS, DRAIN, GO, IS_BACK, KNOW, LEAVE, NONE, OVER, PART, PLAN, RECEIPT, REFUSED, REPORT, SERVE, SLACK, STATUS, TIMEOUT_S, VERDICT, WAY,
                          Folder, Host, wait_for)  # fmt: skip

CTRLD, TOOL = (os.path.join(os.environ["BUILD"], "bin", name) for name in ("nccl-ha-ctrld", "nccl-ha"))
ENDED = int(os.environ.get("CTRLD_ENDED", "20"))

CLOS = """version: 1
switches: [{name: l0}, {name: l1}, {name: s0}, {name: s1}]
hosts:
- {name: a, ports: [{nic: n}]}
- {name: b, ports: [{nic: n}]}
- {name: c, ports: [{nic: n}]}
- {name: d, ports: [{nic: n}]}
links:
- {a: a, b: l0, gbps: 100}
- {a: b, b: l0, gbps: 100}
- {a: c, b: l1, gbps: 100}
- {a: d, b: l1, gbps: 100}
- {a: l0, b: s0, gbps: 400}
- {a: l0, b: s1, gbps: 400}
- {a: l1, b: s0, gbps: 400}
- {a: l1, b: s1, gbps: 400}
"""
STAR = """version: 1
switches: [{name: s, capacity: {groups: 1}}]
hosts: [{name: a, ports: [{nic: n}]}, {name: b, ports: [{nic: n}]}]
links: [{a: a, b: s, gbps: 1}, {a: b, b: s, gbps: 1}]
"""


class Controller(Folder):
    def setUp(self):
        super().setUp()
        self.key = os.urandom(32)
        self.key_file = self.write("key", self.key, 0o400)
        self.ctrld = None
        self.addCleanup(self.stop)
        self.hosts = []
        self.addCleanup(lambda: [host.close() for host in self.hosts])

    def stop(self):
        if self.ctrld and self.ctrld.poll() is None:
            self.ctrld.kill()
        if self.ctrld:
            self.ctrld.wait()
            self.ctrld.stdout.close()

    def start(self, topology=CLOS, verdict_ms=60000 * SLACK, lease_ms=60000 * SLACK, errors="errors", serve=True):
        """serve: a program is there for each switch."""
        self.errors = os.path.join(self.top, errors)
        with open(self.errors, "wb") as file:
            self.ctrld = subprocess.Popen(
                [CTRLD, "--topology", self.write("net.yaml", topology), "--key-file", self.key_file, "--listen", "127.0.0.1:0",
                 "--verdict-ms", str(min(verdict_ms, 600000)), "--lease-ms", str(min(lease_ms, 600000))],
                stdout=subprocess.PIPE, stderr=file, text=True)
        line = self.ctrld.stdout.readline()
        self.address = ("127.0.0.1", int(re.fullmatch(r"nccl-ha-ctrld: listening at 127\.0\.0\.1:(\d+)\n", line).group(1)))
        names = re.findall(r"\{name: (\w+)", topology.split("hosts:")[0]) if serve else []
        self.switches = {name: self.serve(name, 7000 + number) for number, name in enumerate(names)}
        for switch in self.switches.values():
            self.assertEqual(switch.hear()[0], GO)

    def serve(self, name, port):
        host = self.host()
        host.say(SERVE, json.dumps({"switch": name, "listen": f"127.0.0.1:{port}"}).encode())
        return host

    def host(self, key=None, **more):
        host = Host(self.address, key or self.key, **more)
        self.hosts.append(host)
        return host

    def group(self, name, ports="abcd", **more):
        return [self.host().ask(name, rank, len(ports), port, **more) for rank, port in enumerate(ports)]

    def lines(self):
        with open(self.errors, encoding="utf-8") as file:
            return file.read().splitlines()

    def status(self):
        host = self.host()
        host.say(STATUS)
        kind, text, _ = host.hear()
        self.assertEqual(kind, REPORT)
        self.hosts.remove(host)
        host.close()
        return json.loads(text)

    def is_free(self):
        status = self.status()
        return status["groups"] == [] and all((one["groups"], one["bytes"]) == (0, 0) for one in status["switches"])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.ctrld.pid}/fd"))

    def expect_none(self, hosts, pattern):
        verdicts = {host.hear()[:2] for host in hosts}
        self.assertEqual(len(verdicts), 1, verdicts)
        kind, text = verdicts.pop()
        self.assertEqual(kind, NONE)
        self.assertRegex(json.loads(text)["why"], pattern)

    def expect_refused(self, host, said):
        kind, text, _ = host.hear()
        self.assertEqual(kind, REFUSED)
        self.assertIn(said, text)
        self.assertTrue(host.hear_no_more())

    # ---- one verdict

    def test_all_members_get_the_same_plan_and_key(self):
        self.start()
        hosts = self.group("g")
        heard = [host.hear() for host in hosts]
        self.assertEqual({kind for kind, _, _ in heard}, {PLAN})
        self.assertEqual(len({text for _, text, _ in heard}), 1)
        self.assertEqual(len({key for _, _, key in heard}), 1)
        self.assertNotEqual(heard[0][2], bytes(32))
        plan = json.loads(heard[0][1])
        self.assertEqual((plan["group"], plan["members"]), ("g", ["a/n", "b/n", "c/n", "d/n"]))
        self.assertEqual([tree["root"] for tree in plan["lanes"] + plan["spares"]], ["l0", "l1", "s0"])
        self.assertEqual(plan["lanes"][0]["parents"], [4, 4, 5, 5, None, 4, None])
        self.assertEqual([node["switch"] for node in plan["nodes"]], ["l0", "l1", "s0"])
        other = [host.hear() for host in self.group("h", "ac")]
        self.assertNotEqual(other[0][2], heard[0][2])
        status = self.status()
        self.assertEqual([(one["group"], one["state"], one["ranks"]) for one in status["groups"]], [("g", "held", 4), ("h", "held", 2)])

    def test_a_member_that_does_not_ask_is_named_to_all_and_to_itself(self):
        self.start(verdict_ms=1000)
        hosts = [self.host().ask("g", rank, 4, port) for rank, port in ((0, "a"), (1, "b"), (3, "d"))]
        # On a machine that takes a second for that it is as many as have not asked.
        self.expect_none(hosts, "^[1-3] of 4 members have not asked in 1000 ms; the first is member [12]$")
        self.expect_none([self.host().ask("g", 2, 4, "c")], "have not asked in 1000 ms")

    def test_a_member_that_dies_before_the_verdict_is_named_to_all(self):
        self.start()
        hosts = [self.host().ask("g", rank, 4, port) for rank, port in ((0, "a"), (2, "c"), (3, "d"))]
        hosts.pop(1).close()
        self.expect_none(hosts, "member 2 has gone")
        self.assertTrue(wait_for(lambda: self.status()["refusals"] == 1))

    def test_members_that_disagree_get_no_plan_all_of_them(self):
        self.start()
        self.expect_none([self.host().ask("g", 0, 4, "a"), self.host().ask("g", 1, 3, "b")], "member 1 says 3 ranks")
        self.expect_none([self.host().ask("h", 0, 2, "a", label="x"), self.host().ask("h", 1, 2, "b", label="y")], "label 'y'")
        self.expect_none(self.group("i", "aa"), "two members have the port a/n")

    def test_no_room_is_one_verdict_until_a_group_is_over(self):
        self.start(STAR)
        first = self.group("g", "ab")
        self.assertEqual({host.hear()[0] for host in first}, {PLAN})
        self.expect_none(self.group("h", "ab"), "no switch that reaches all members has room")
        first[1].say(LEAVE)  # is not for a member to say
        first[0].say(LEAVE)
        self.assertTrue(wait_for(lambda: [one["state"] for one in self.status()["groups"]] == ["refused"]))
        self.assertEqual({host.hear()[0] for host in self.group("i", "ab")}, {PLAN})

    def test_64_groups_are_held_and_the_65th_is_refused(self):
        self.start(STAR.replace(", capacity: {groups: 1}", ""))
        held = [self.group(f"g{number}", "ab") for number in range(64)]
        self.assertEqual({host.hear()[0] for hosts in held for host in hosts}, {PLAN})
        self.assertEqual(self.status()["switches"][0]["groups"], 64)
        self.expect_none(self.group("more", "ab"), "no switch that reaches all members has room")
        held[5][0].say(LEAVE)
        self.assertTrue(wait_for(lambda: self.status()["switches"][0]["groups"] == 63))
        self.assertEqual({host.hear()[0] for host in self.group("again", "ab")}, {PLAN})

    def test_quotas_are_for_those_who_have_one(self):
        self.start(CLOS + "quotas: [{label: x, groups: 1}]\n")
        self.assertEqual({host.hear()[0] for host in self.group("g", label="x")}, {PLAN})
        self.expect_none(self.group("h", label="x"), "the label x has its 1 groups already")
        self.expect_none(self.group("i"), "none for the label ''")

    def test_what_has_failed_is_in_no_plan(self):
        self.start()
        hosts = self.group("g", gone=["l1", "s0"])
        self.expect_none(hosts, "reaches all members")
        plan = json.loads(self.group("h", gone=["s0"])[0].hear()[1])
        self.assertNotIn("s0", [node["switch"] for node in plan["nodes"]])

    # ---- leases

    def test_a_group_whose_member_0_dies_gives_back_what_it_had(self):
        self.start(lease_ms=200)
        for number in range(ENDED):
            hosts = self.group(f"g{number}", "abcd" if number % 2 else "ad")
            self.assertEqual({host.hear()[0] for host in hosts}, {PLAN})
            for host in hosts:
                host.close()
                self.hosts.remove(host)
            if number % 20 == 19:  # each is held for its lease, and the switches have no room for hundreds
                self.assertTrue(wait_for(self.is_free))
        self.assertTrue(wait_for(self.is_free))
        before = self.descriptors()
        half = [self.host().ask(f"h{number}", 0, 2, "a") for number in range(min(ENDED, 200))]  # die half way
        for host in half:
            host.close()
            self.hosts.remove(host)
        self.assertTrue(wait_for(lambda: self.status()["refusals"] == len(half)))
        # Not equal: when they were counted, one that asked for the status may not have been closed yet.
        self.assertTrue(wait_for(lambda: self.descriptors() <= before))

    def test_member_0_may_come_back_and_others_need_not_stay(self):
        self.start()
        hosts = self.group("g")
        plan = [host.hear() for host in hosts][0]
        for host in hosts:
            host.close()
            self.hosts.remove(host)
        self.assertTrue(wait_for(lambda: [one["state"] for one in self.status()["groups"]] == ["orphaned"]))
        self.expect_refused(self.host().ask("g", 0, 4, "b"), "none of its members")
        self.expect_refused(self.host().ask("g", 0, 2, "a"), "none of its members")
        self.assertEqual(self.host().ask("g", 0, 4, "a").hear(), plan)
        self.assertEqual([one["state"] for one in self.status()["groups"]], ["held"])
        self.expect_refused(self.host().ask("g", 0, 4, "a"), "there already")

    def test_a_word_without_a_text_is_said_at_once(self):
        """Its head is all there is: the kernel is not to wait for more."""
        self.start()
        leader = self.group("g")[0]
        self.assertEqual([leader.hear_bytes()[0] for _ in range(3)], [PLAN, RECEIPT, PART])
        took = []
        for _ in range(8):
            begun = time.monotonic()
            leader.say(ALL_HERE)
            self.assertEqual(leader.hear()[0], GO)
            took.append(time.monotonic() - begun)
        self.assertLess(min(took), 0.1, took)

    def know(self, receipt, key):
        """Of a member 0 that dials again; who has proved nothing yet may not say as much."""
        host = self.host()
        host.say(IS_BACK)
        host.say(KNOW, receipt.encode(), key)
        return host

    def test_a_controller_that_is_started_again_is_told_of_its_groups(self):
        self.start()
        hosts = self.group("g", listen="127.0.0.1:9")
        plan = hosts[0].hear()
        _, receipt, key = hosts[0].hear()
        before = self.status()
        self.stop()
        self.start(errors="errors2", serve=False)
        self.assertEqual(self.status()["groups"], [])
        leader = self.know(receipt, key)
        self.assertEqual(leader.hear(), plan)
        self.assertEqual(leader.hear(), (RECEIPT, receipt, key))
        after = self.status()
        self.assertEqual([(one["groups"], one["bytes"]) for one in after["switches"]], [(one["groups"], one["bytes"]) for one in before["switches"]])
        self.assertEqual([(one["group"], one["state"], one["members"]) for one in after["groups"]], [("g", "held", ["a/n", "b/n", "c/n", "d/n"])])
        self.assertEqual(self.part(leader)[1:3], (4, (2, 1)))
        switch = self.serve("s0", 7009)  # comes after the group, and listens elsewhere now
        self.assertEqual(switch.hear()[0], GO)
        self.assertEqual(self.part(switch)[3:], ([(2, 6, 4, 65535, 0, 0)], key))
        self.expect_refused(self.know(receipt, key), "another group has that name by now")  # its member 0 is there
        self.expect_refused(self.know(receipt.replace('"a/n"', '"z/n"'), key), "no group of this topology")
        brief = self.host()
        brief.sock.sendall(brief.frame(KNOW, bytes(20000), key))
        self.expect_refused(brief, "its text is too long")
        leader.say(LEAVE)
        self.assertTrue(wait_for(self.is_free))

    # ---- switches

    def part(self, host):
        """The group's number, how many trees, and of each place: tree, node, children, parent, place, parent's port."""
        kind, text, key = host.hear_bytes()
        self.assertEqual(kind, PART)
        magic, n, group, unit, window, members, lanes, spares = struct.unpack_from("<IIQIHHBB", text)
        self.assertEqual((magic, unit, window, len(text)), (0x5041484E, 65536, 16, 64 + 32 * n))
        places = [struct.unpack_from("<BBHHHHHHH", text, 64 + 32 * i) for i in range(n)]
        return group, members, (lanes, spares), [(p[0], p[2], p[3], p[4], p[5], p[8]) for p in places], key

    def test_members_and_switches_hear_their_parts_with_one_key(self):
        self.start()
        hosts = self.group("g")
        key = hosts[0].hear()[2]
        self.assertEqual(hosts[0].hear()[::2], (RECEIPT, key))
        group, members, trees, places, part_key = self.part(hosts[0])
        self.assertEqual((members, trees, part_key), (4, (2, 1), key))
        self.assertEqual(places, [(0, 0, 0, 4, 0, 7000), (1, 0, 0, 4, 0, 7000), (2, 0, 0, 6, 0, 7002)])  # a is below l0, and in the spare below s0
        self.assertEqual(self.part(self.switches["l0"]), (group, 4, (2, 1), [(0, 4, 3, 65535, 0, 0), (1, 4, 2, 5, 0, 7001)], key))
        self.assertEqual(self.part(self.switches["l1"]), (group, 4, (2, 1), [(0, 5, 2, 4, 2, 7000), (1, 5, 3, 65535, 0, 0)], key))
        self.assertEqual(self.part(self.switches["s0"]), (group, 4, (2, 1), [(2, 6, 4, 65535, 0, 0)], key))
        hosts[0].say(LEAVE)
        for name in ("l0", "l1", "s0"):
            self.assertEqual(self.switches[name].hear_bytes()[:2], (OVER, struct.pack("<Q", group)))

    def test_a_switch_that_comes_late_hears_of_what_is_held(self):
        self.start(STAR)
        hosts = self.group("g", "ab")
        self.assertEqual({host.hear()[0] for host in hosts}, {PLAN})
        first = self.part(self.switches["s"])
        self.hosts.remove(self.switches["s"])
        self.switches["s"].close()
        self.assertTrue(wait_for(lambda: not self.status()["switches"][0]["served"]))
        again = self.serve("s", 7001)
        self.assertEqual(again.hear()[0], GO)
        self.assertEqual(self.part(again), first)

    def test_only_switches_that_a_program_serves_add(self):
        self.start(serve=False)
        self.expect_none(self.group("g"), "no switch of the fabric adds, .*that a program serves")
        self.assertEqual(self.serve("s1", 7000).hear()[0], GO)
        plan = json.loads(self.group("h")[0].hear()[1])
        self.assertEqual([node["switch"] for node in plan["nodes"]], ["s1"])

    def test_who_cannot_serve_a_switch_is_told_why(self):
        self.start(CLOS.replace("{name: s1}", "{name: s1, aggregate: false}"), serve=False)
        self.assertEqual(self.serve("l0", 7000).hear()[0], GO)
        for name, said in (("l0", "another program serves l0"), ("a", "a/n is no switch that adds"), ("s1", "s1 is no switch that adds"), ("x", "no x")):
            self.expect_refused(self.serve(name, 7000), said)
        for text, said in ((b"{}", "no service"), (b"x", "no service"), (b'{"switch": "l1", "listen": "here:1"}', "in numbers"), (b'{"switch": "l1", "listen": "1"}', "in numbers")):
            host = self.host()
            host.say(SERVE, text)
            self.expect_refused(host, said)

    # ---- strangers

    def test_another_key_is_refused_with_one_line(self):
        self.start()
        stranger = self.host(key=os.urandom(32)).ask("g", 0, 2, "a")
        head = stranger.exactly(56)
        self.assertEqual(head[4], REFUSED)
        self.assertIn(b"has another key", stranger.exactly(struct.unpack_from("<I", head)[0]))
        self.assertTrue(stranger.hear_no_more())
        self.assertTrue(wait_for(lambda: len(self.lines()) == 1))
        self.assertRegex(self.lines()[0], r"refused 127\.0\.0\.1:\d+: it has another key")
        self.assertEqual({host.hear()[0] for host in self.group("g")}, {PLAN})
        self.assertNotIn(self.key.hex(), "".join(self.lines()))

    def test_what_is_altered_replayed_or_too_long_is_refused(self):
        self.start()
        frame = self.host().frame(ASK, b'{"group": "g", "rank": 0, "ranks": 2, "port": "a"}')
        for at in range(len(frame)):  # each byte
            if at < 4:
                continue  # the length: another one is waited for, see the silent
            host = self.host()
            bad = bytearray(host.frame(ASK, frame[56:]))
            bad[at] ^= 1
            host.sock.sendall(bad)
            self.assertEqual(host.exactly(56)[4], REFUSED, at)
            host.close()
            self.hosts.remove(host)
        host = self.host()
        host.sock.sendall(frame)  # of another session
        self.assertEqual(host.exactly(56)[4], REFUSED)
        host = self.host()
        host.frame(STATUS)  # is lost, and the next one is not the next
        host.say(STATUS)
        self.expect_refused(host, "another key")
        twice = self.host()
        status = twice.frame(STATUS)
        twice.sock.sendall(status)
        self.assertEqual(twice.hear()[0], REPORT)
        twice.sock.sendall(status)
        self.expect_refused(twice, "another key")
        host = self.host()
        host.sock.sendall(struct.pack("<IB3x", 16385, ASK) + bytes(48))
        self.expect_refused(host, "too long")
        self.assertTrue(self.is_free())

    def test_another_version_is_told_so(self):
        self.start()
        self.expect_refused(self.host(version=1), "the controller speaks version 4, and this is 1")
        with socket.create_connection(self.address, timeout=TIMEOUT_S) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n....")
            data = b""
            while chunk := sock.recv(4096):
                data += chunk
        self.assertEqual(len(data), 40)

    def test_requests_that_make_no_sense_are_refused_and_told_why(self):
        self.start()
        right = {"group": "g", "rank": 0, "ranks": 2, "port": "a"}
        for wrong, said in (({"rank": 2}, "rank 2 of 2"), ({"rank": -1}, "rank -1"), ({"ranks": 0}, "rank 0 of 0"), ({"port": "l0"}, "l0 is a switch"),
                            ({"port": "x"}, "the topology has no x"), ({"group": "a b"}, "group and label"), ({"unit": 65}, "a unit has"),
                            ({"window": 33}, "a window 1 to 32"), ({"reproducible": 1}, "no request"), ({"gone": "l0"}, "gone is a list"), ({"gone": ["q"]}, "no q"),
                            ({"more": 1}, "no request"), ({"rank": "0"}, "no request"), ({"group": "g" * 64}, "group and label")):
            host = self.host()
            host.say(ASK, json.dumps({**right, **wrong}).encode())
            self.expect_refused(host, said)
        for text, said in ((b"", "no JSON"), (b"[" * 9000, "no JSON"), (b"{}", "no request"), (b'{"rank": 1, "rank": 2}', "no JSON"), (b"\xff", "no JSON")):
            host = self.host()
            host.say(ASK, text)
            self.expect_refused(host, said)
        host = self.host()
        host.say(99)
        self.expect_refused(host, "a host does not say this")
        self.assertTrue(self.is_free())

    def test_a_crowd_of_silent_strangers_keeps_nobody_out_and_is_shown_out(self):
        self.start()
        held = self.group("g", "ac")
        self.assertEqual({host.hear()[0] for host in held}, {PLAN})
        crowd = [socket.create_connection(self.address, timeout=TIMEOUT_S) for _ in range(600)]
        self.assertEqual({host.hear()[0] for host in self.group("h")}, {PLAN})
        for sock in crowd:
            while sock.recv(4096):
                pass
            sock.close()
        status = self.status()
        self.assertGreaterEqual(status["crowded_out_connections"], 600 - 256)
        self.assertEqual([one["state"] for one in status["groups"]], ["held", "held"])

    def test_who_asks_on_and_does_not_read_is_shown_out(self):
        self.start()
        host = self.host()
        host.sock.settimeout(0.2)
        try:
            while True:
                host.say(STATUS)
        except OSError:
            pass
        self.assertTrue(wait_for(lambda: self.status()["connections"] == 1 + len(self.switches)))

    # ---- nccl-ha inc

    def run_inc(self, *words, **more):
        at = "127.0.0.1:%d" % self.address[1]
        return subprocess.run([TOOL, "inc", *words, "--connect", at, "--key-file", more.get("key_file", self.key_file)],
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # fmt: skip

    def test_groups_are_told_with_members_way_epoch_and_lease(self):
        self.start()
        hosts = self.group("g")
        for host in hosts:
            self.assertEqual(host.hear()[0], PLAN)
        hosts[0].say(WAY, struct.pack("<II", 3, 1))
        self.host().ask("half", 1, 2, "b")
        self.assertTrue(wait_for(lambda: [one.get("epoch") for one in self.status()["groups"]] == [3, None]))
        done = self.run_inc("groups", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        g, half = json.loads(done.stdout)
        self.assertEqual((g["members"], g["epoch"], g["way"], g["lanes"], g["spares"]), (["a/n", "b/n", "c/n", "d/n"], 3, 1, ["l0", "l1"], ["s0"]))
        self.assertNotIn("left_ms", g)
        self.assertEqual(half["members"], [None, "b/n"])
        self.assertLessEqual(half["left_ms"], 60000 * SLACK)
        done = self.run_inc("groups")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^g +held +4 +held +3 +spare s0 +l0 l1 +s0$")
        self.assertRegex(done.stdout, r"(?m)^half +gathering +2 +[0-9.]+ s left +0 +- +- +-$")
        self.assertIn("g: a/n b/n c/n d/n\nhalf: (has not asked) b/n\n", done.stdout)
        for way, said in ((0, "lanes"), (2, "lane l0"), (3, "lane l1"), (4, "members")):
            hosts[0].say(WAY, struct.pack("<II", 4 + way, way))
            self.assertTrue(wait_for(lambda w=way: self.status()["groups"][0]["epoch"] == 4 + w))
            self.assertRegex(self.run_inc("groups").stdout, rf"(?m)^g +held +4 +held +{4 + way} +{said} +l0 l1 +s0$")
        hosts[0].close()
        self.assertTrue(wait_for(lambda: "left_ms" in self.status()["groups"][0]))
        self.assertRegex(self.run_inc("groups").stdout, r"(?m)^g +orphaned +4 +[0-9.]+ s left ")

    def test_a_plan_is_told_as_trees(self):
        self.start(CLOS.replace("{name: s0}, {name: s1}", "{name: s0, capacity: {max_fan_in: 3}}, {name: s1, capacity: {max_fan_in: 3}}"))
        plan = self.group("g")[0].hear()[1]
        done = self.run_inc("plan", "g", "--json")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, plan + "\n", ""))
        done = self.run_inc("plan", "g")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, """g: 4 members
lane 0, depth 2, streams 1:
  l0
    a/n
    b/n
    l1
      c/n
      d/n
lane 1, depth 2, streams 1:
  l1
    c/n
    d/n
    l0
      a/n
      b/n
spare 0, depth 2, streams 2:
  s0
    s0 (part 1)
      a/n
      b/n
    s0 (part 2)
      c/n
      d/n
""")

    def test_a_plan_as_yaml_has_each_edge_at_both_ends(self):
        self.start()
        plan = json.loads(self.group("g")[0].hear()[1])
        done = self.run_inc("plan", "g", "--yaml")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        head, *trees = done.stdout.split("- kind: ")
        self.assertEqual(head, 'group: "g"\nmembers:\n- "a/n"\n- "b/n"\n- "c/n"\n- "d/n"\ntrees:\n')
        self.assertEqual([text.split("\n")[0] for text in trees], ["lane", "lane", "spare"])
        names = plan["members"] + [node["switch"] for node in plan["nodes"]]
        for text, tree in zip(trees, plan["lanes"] + plan["spares"]):
            down, up, roots = {}, {}, []
            self.assertRegex(text, rf"^\w+\n  depth: {tree['depth']}\n  streams: {tree['streams']}\n  switches:\n  - id: ")
            for node, of, root, ends in re.findall(r'  - id: (\d+)\n    switch: "(\w+)"\n    part: 0\n    root: (\w+)\n    connections:\n((?:    - .*\n)+)', text):
                self.assertEqual(of, names[int(node)])
                roots += [of] if root == "true" else []
                for is_up, kind, peer, name in re.findall(r'    - \{up: (\w+), (\w+)_id: (\d+), peer: "([\w/]+)"\}\n', ends):
                    self.assertEqual((name, kind), (names[int(peer)], "host" if int(peer) < 4 else "switch"))
                    if is_up == "true":
                        up[int(node)] = int(peer)
                    else:
                        down[int(peer)] = int(node)
            self.assertEqual(roots, [tree["root"]])
            self.assertEqual(down, {child: parent for child, parent in enumerate(tree["parents"]) if parent is not None})
            self.assertEqual(up, {child: parent for child, parent in down.items() if child >= 4})

    def test_a_group_without_a_plan_is_told_why(self):
        self.start(STAR)
        self.assertEqual({host.hear()[0] for host in self.group("g", "ab")}, {PLAN})
        self.expect_none(self.group("h", "ab"), "no switch that reaches all members has room")
        self.host().ask("half", 0, 2, "a")
        self.assertTrue(wait_for(lambda: [one["state"] for one in self.status()["groups"]] == ["held", "refused", "gathering"]))
        for words, said in ((("h",), "no switch that reaches all members has room"), (("half",), "no group of this name has been told anything"),
                            (("i",), "no group of this name has been told anything"), (("g h",), "this is no name of a group")):
            done = self.run_inc("plan", *words)
            self.assertEqual((done.returncode, done.stdout), (1, ""), words)
            self.assertRegex(done.stderr, f"^nccl-ha inc plan: .*{said}")
        done = self.run_inc("plan", "h", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["group"]), (1, "h"))
        for words, said in ((("plan",), "plan which group"), (("plan", "g", "h"), "unexpected argument 'h'"), (("plan", "g", "--yaml", "--json"), "--yaml is of plan"),
                            (("groups", "--yaml"), "--yaml is of plan")):  # fmt: skip
            done = self.run_inc(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(said, done.stderr)
        for text in (b"", b"g" * 64, b"g" * 16384):
            host = self.host()
            host.say(VERDICT, text)
            self.expect_refused(host, "no group of this name")

    def test_a_switch_is_drained_and_used_again(self):
        self.start()
        done = self.run_inc("drain", "l0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, "^l0 is drained: nobody joins any more")
        self.assertEqual(self.switches["l0"].hear()[0], DRAIN)
        plan = json.loads(self.group("g")[0].hear()[1])
        self.assertNotIn("l0", [node["switch"] for node in plan["nodes"]])
        self.assertRegex(self.run_inc().stdout, r"(?m)^l0 +drained ")
        done = self.run_inc("undrain", "l0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.switches["l0"].hear()[0], GO)
        plan = json.loads(self.group("h")[0].hear()[1])
        self.assertIn("l0", [node["switch"] for node in plan["nodes"]])
        self.assertRegex(self.run_inc().stdout, r"(?m)^l0 +yes ")

    def begin_drain(self, *words):
        """Waits on: when it has asked for it, and the switch's program knows."""
        at = "127.0.0.1:%d" % self.address[1]
        drain = subprocess.Popen([TOOL, "inc", "drain", "l0", "--wait", str(TIMEOUT_S), *words, "--connect", at, "--key-file", self.key_file],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(drain.communicate)
        self.addCleanup(drain.kill)
        self.assertEqual(self.switches["l0"].hear()[0], DRAIN)
        return drain

    def count(self, trees):
        self.switches["l0"].say(COUNTS, struct.pack("<6Q", trees, 1, 0, 0, 0, 0))
        self.assertTrue(wait_for(lambda: self.status()["switches"][0].get("trees") == trees))

    def expect_drain(self, drain, status, said):
        out, err = drain.communicate(timeout=TIMEOUT_S)
        self.assertEqual((drain.returncode, err), (status, ""), out)
        self.assertRegex(out, said)

    def test_a_drain_is_waited_for_until_the_switch_says_that_it_adds_nothing(self):
        self.start()
        drain = self.begin_drain()
        self.count(2)
        self.assertIsNone(drain.poll())
        self.hosts.remove(self.switches["l0"])
        self.switches["l0"].close()  # has lost the controller for a moment
        self.assertTrue(wait_for(lambda: not self.status()["switches"][0]["served"]))
        time.sleep(0.5)  # it looks five times a second
        self.switches["l0"] = self.serve("l0", 7000)
        self.assertEqual([self.switches["l0"].hear()[0] for _ in range(2)], [GO, DRAIN])
        self.count(2)
        self.assertIsNone(drain.poll())
        self.count(0)
        self.expect_drain(drain, 0, "^l0 is drained, and adds nothing any more\n$")

    def test_a_drain_of_a_switch_that_has_gone_is_not_through(self):
        self.start()
        drain = self.begin_drain()
        self.count(2)
        self.switches["l0"].close()
        self.expect_drain(drain, 3, "^l0 is drained, and no program serves it: one that has lost the controller may add there still\n$")
        done = self.run_inc("drain", "l0", "--json")  # it is not waited for
        self.assertEqual((done.returncode, json.loads(done.stdout)["served"]), (0, False))

    def test_a_drain_that_is_taken_back_is_not_through(self):
        self.start()
        drain = self.begin_drain()
        self.count(2)
        self.assertEqual(self.run_inc("undrain", "l0").returncode, 0)
        self.expect_drain(drain, 1, "^l0 is not drained any more: somebody has taken that back\n$")

    def test_a_drain_of_a_switch_that_the_topology_has_no_more_is_not_through(self):
        """Its questions go to a controller that has l0, and then to one that has not, as if that had been started in its place."""
        self.start(STAR, serve=False)
        second, ctrld = self.address, self.ctrld
        self.addCleanup(ctrld.stdout.close)
        self.addCleanup(ctrld.wait)
        self.addCleanup(ctrld.kill)
        self.start(errors="errors2")
        first = self.address
        with socket.create_server(("127.0.0.1", 0)) as between:
            self.address = between.getsockname()
            relays = threading.Thread(target=self.relay, args=(between, [first, second]))
            relays.start()
            drain = self.begin_drain()
            self.expect_drain(drain, 3, "^l0 has gone: the controller's topology has no such switch any more\n$")
            relays.join(TIMEOUT_S)

    def relay(self, between, targets):
        """One connection for each target, from its beginning to its end."""
        for target in targets:
            near, _ = between.accept()
            with near, socket.create_connection(target, timeout=TIMEOUT_S) as far:
                while True:
                    ready = select.select([near, far], [], [], TIMEOUT_S)[0]
                    data = ready[0].recv(65536) if ready else b""
                    if not data:
                        break
                    (far if ready[0] is near else near).sendall(data)

    def test_what_cannot_be_drained_is_told_why(self):
        self.start()
        for words, said in ((("drain", "l7"), "the topology has no l7"), (("undrain", "a"), "a/n is no switch that adds: see the topology"),
                            (("drain", "l 0"), "this is no name of a switch")):
            done = self.run_inc(*words)
            self.assertEqual((done.returncode, done.stdout), (1, ""), words)
            self.assertRegex(done.stderr, f"^nccl-ha inc {words[0]}: .*{said}")
        for words, said in ((("drain",), "drain which switch"), (("groups", "x"), "unexpected argument 'x'"), (("drain", "l0", "l1"), "unexpected argument 'l1'"),
                            (("empty",), "unexpected argument 'empty'"), (("groups", "--metrics"), "--metrics goes with no command"),
                            (("undrain", "l0", "--wait", "1"), "--wait is of drain"), (("drain", "l0", "--wait", "0"), "--wait")):  # fmt: skip
            done = self.run_inc(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(said, done.stderr)
        done = self.run_inc("drain", "l0", key_file=self.write("other", os.urandom(32), 0o400))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("has another key", done.stderr)
        self.assertFalse(any(one["drained"] for one in self.status()["switches"]))
        for text in (b"{}", b'{"switch":"l0"}', b'{"switch":"l0","drained":1}', b'{"switch":"l0","drained":true,"more":1}', b"["):
            host = self.host()
            host.say(CHANGE, text)
            self.expect_refused(host, "this is no change")
        stranger = self.host()
        stranger.say(WAY, bytes(8))
        self.expect_refused(stranger, "no way of a group")

    # ---- the program

    def run_ctrld(self, *words):
        return subprocess.run([CTRLD, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def test_check_prints_the_plan_or_the_place_of_the_mistake(self):
        good, bad = self.write("good.yaml", CLOS), self.write("bad.yaml", CLOS.replace("b: s1, gbps: 400", "b: s2, gbps: 400"))
        done = self.run_ctrld("--check", good)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout)["groups"][0]["lanes"][0]["root"], "l0")
        for words, depth in (((), 2), (("--reproducible",), 1)):
            (group,) = json.loads(self.run_ctrld("--check", good, *words).stdout)["groups"]
            self.assertEqual({tree["depth"] for tree in group["lanes"]}, {depth})
        done = self.run_ctrld("--check", good, "b", "a/n")
        self.assertEqual(json.loads(done.stdout)["groups"][0]["members"], ["b/n", "a/n"])
        done = self.run_ctrld("--check", bad)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, f"{bad}:14:3: there is no switch, host or port s2; add it, or correct the name\n")
        apart = self.write("apart.yaml", CLOS.replace("- {a: d, b: l1, gbps: 100}\n", ""))
        done = self.run_ctrld("--check", apart)
        self.assertEqual((done.returncode, done.stderr), (1, f"{apart}:7:21: d/n has no link\n"))
        self.assertIn("not d/n", json.loads(done.stdout)["groups"][0]["none"])
        self.assertEqual(self.run_ctrld("--check", good, "a", "x").returncode, 2)
        self.assertIn("No such file", self.run_ctrld("--check", good + "x").stderr)

    def test_a_wrong_call_is_told_what_is_wrong(self):
        net = self.write("net.yaml", CLOS)
        for words in ((), ("--topology", net), ("--topology", net, "--key-file", self.key_file), ("--check", net, "--topology", net), ("status",),
                      ("--topology", net, "--key-file", self.key_file, "--listen", "127.0.0.1:0", "more"), ("--lease-ms", "0", "--check", net),
                      ("--reproducible", "--topology", net, "--key-file", self.key_file, "--listen", "127.0.0.1:0")):  # fmt: skip
            done = self.run_ctrld(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
        os.chmod(self.key_file, 0o644)
        done = self.run_ctrld("--topology", net, "--key-file", self.key_file, "--listen", "127.0.0.1:0")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"no job key from --key-file=.*: its mode is 0644")
        os.chmod(self.key_file, 0o400)
        done = self.run_ctrld("--topology", net, "--key-file", self.key_file, "--listen", "192.0.2.1:1")
        self.assertEqual((done.returncode, "cannot listen at 192.0.2.1:1" in done.stderr), (1, True))

    def test_status_asks_a_controller_and_says_what_is_in_the_way(self):
        self.start()
        at = "127.0.0.1:%d" % self.address[1]
        done = self.run_ctrld("status", "--connect", at, "--key-file", self.key_file)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(json.loads(done.stdout)["switches"]), 4)
        done = self.run_ctrld("status", "--connect", at, "--key-file", self.write("other", os.urandom(32), 0o400))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("has another key", done.stderr)
        self.ctrld.send_signal(signal.SIGTERM)
        self.assertEqual(self.ctrld.wait(TIMEOUT_S), 0)
        done = self.run_ctrld("status", "--connect", at, "--key-file", self.key_file)
        self.assertEqual((done.returncode, "nobody answers" in done.stderr), (1, True))


if __name__ == "__main__":
    unittest.main()
