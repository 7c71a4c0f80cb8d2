#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/acceptance: a link that is held down comes up again whatever happens, strangers have
nothing done, what must stay up is not taken down, standbys are explained as the plugin ranks them."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "..", "..", "scripts")
sys.path.insert(0, SCRIPTS)
sys.dont_write_bytecode = True
from acceptlib import agent, breakers, drill, environment, eventlog, facts, hold, job_key, measure, report, standby, traffic, wire  # noqa: E402
from benchlib import Estimate  # noqa: E402


def wait_for(condition, limit_s=10):
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class Holding(unittest.TestCase):
    """The "link" is a file: down when it is there."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.link = os.path.join(folder.name, "down")
        self.down, self.up = [["touch", self.link]], [["rm", self.link]]

    def is_down(self):
        return os.path.exists(self.link)

    def test_it_is_down_until_it_is_released(self):
        held = hold.Hold(self.down, self.up, 60)
        self.assertFalse(self.is_down())
        before, after = held.down()
        self.assertTrue(self.is_down())
        self.assertLessEqual(before, after)
        held.release()
        self.assertFalse(self.is_down())
        self.assertEqual(held.release(), held.released)  # twice does no harm

    def test_it_comes_up_when_its_time_is_over(self):
        held = hold.Hold(self.down, self.up, 2)
        held.down()
        self.assertTrue(self.is_down())
        self.assertTrue(wait_for(lambda: not self.is_down()))
        held.release()

    def test_signals_do_not_leave_it_down(self):
        held = hold.Hold(self.down, self.up, 60)
        held.down()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(held.holder.pid, number)
        time.sleep(0.2)
        self.assertIsNone(held.holder.poll())
        held.release()
        self.assertFalse(self.is_down())

    def test_it_comes_up_when_who_asked_is_killed(self):
        program = "import sys; sys.path.insert(0, sys.argv[1]); from acceptlib import hold; import json, time\n"
        program += "h = hold.Hold(json.loads(sys.argv[2]), json.loads(sys.argv[3]), 60); h.down(); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-B", "-c", program, SCRIPTS, json.dumps(self.down), json.dumps(self.up)])
        self.addCleanup(child.kill)
        self.assertTrue(wait_for(self.is_down))
        child.kill()
        child.wait()
        self.assertTrue(wait_for(lambda: not self.is_down()))

    def test_it_comes_up_when_even_the_holder_is_killed(self):
        held = hold.Hold(self.down, self.up, 60)
        held.down()
        held.holder.kill()
        held.holder.wait()
        self.assertTrue(self.is_down())
        held.release()
        self.assertFalse(self.is_down())

    def test_what_must_be_undone_is_tried_until_it_works(self):
        flag = self.link + ".ready"
        held = hold.Hold(self.down, [["sh", "-c", f"[ -e {flag} ] && rm {self.link}"]], 0.1)
        held.down()
        time.sleep(0.8)
        self.assertTrue(self.is_down())
        open(flag, "w").close()
        self.assertTrue(wait_for(lambda: not self.is_down()))
        held.release()
        os.unlink(flag)

    def test_a_command_that_fails_is_named_and_the_rest_undone(self):
        held = hold.Hold([["touch", self.link], ["false"]], self.up, 60)
        with self.assertRaisesRegex(hold.HoldError, "false: status 1"):
            held.down()
        held.release()
        self.assertFalse(self.is_down())


class Key(unittest.TestCase):
    """By the plugin's rules: tests/unit/base/test_job_key.c."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "key")

    def load(self, content=b"", mode=0o400, **environ):
        with open(os.open(self.path, os.O_WRONLY | os.O_CREAT), "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        try:
            return job_key.load({"HA_NCCL_JOB_KEY_FILE": self.path, **environ})
        finally:
            os.unlink(self.path)

    def test_a_good_one_is_taken_unless_it_is_off(self):
        key = os.urandom(32)
        self.assertEqual(self.load(key), key)
        self.assertEqual(self.load(key, HA_NCCL_AUTH="required"), key)
        self.assertIsNone(self.load(key, HA_NCCL_AUTH="off"))
        self.assertIsNone(job_key.load({}))

    def test_a_bad_one_is_never_passed_over(self):
        key = os.urandom(32)
        for content, mode in (key, 0o440), (key, 0o404), (key[:31], 0o400), (key + b"\n", 0o400), (b"\0" * 32, 0o400):
            with self.assertRaisesRegex(job_key.JobKeyError, "no job key from"):
                self.load(content, mode)
        os.symlink("/etc/hostname", self.path)
        for environ in {"HA_NCCL_JOB_KEY_FILE": self.path}, {"HA_NCCL_JOB_KEY_FILE": "/nowhere/key"}, {"HA_NCCL_AUTH": "required"}, \
                {"HA_NCCL_AUTH": "maybe"}, {"HA_NCCL_JOB_KEY_FD": "3"}:  # fmt: skip
            with self.assertRaises(job_key.JobKeyError):
                job_key.load(environ)


class Talking(unittest.TestCase):
    def pair(self, token_a="secret", token_b="secret"):
        a, b = socket.socketpair()
        self.ours, out = a, {}

        def other():
            try:
                out["stream"] = wire.of_socket(b, token_b, "node", "conductor")
            except (wire.NodeError, OSError) as error:
                out["error"] = error
                b.close()

        thread = threading.Thread(target=other)
        thread.start()
        try:
            return wire.of_socket(a, token_a, "conductor", "node"), out, thread
        finally:
            thread.join()
            self.addCleanup(a.close)
            self.addCleanup(b.close)

    def test_calls_are_answered_and_errors_told(self):
        stream, out, _ = self.pair()
        handlers = {"add": lambda a, b: a + b, "fail": lambda: int("x")}
        server = threading.Thread(target=wire.serve, args=(out["stream"], handlers))
        server.start()
        caller = wire.Caller(stream)
        self.assertEqual(caller.call("add", a=1, b=2), 3)
        with self.assertRaisesRegex(wire.NodeError, "fail: "):
            caller.call("fail")
        with self.assertRaisesRegex(wire.NodeError, "knows no 'sing'"):
            caller.call("sing")
        self.ours.shutdown(socket.SHUT_RDWR)
        server.join()

    def test_a_wrong_token_is_refused(self):
        with self.assertRaisesRegex(wire.NodeError, "token"):
            self.pair("secret", "guess")

    def test_a_line_that_was_changed_or_repeated_is_refused(self):
        stream, out, _ = self.pair()
        inner, sent = stream.stream, []
        real = inner.send
        inner.send = sent.append
        stream.send(b'{"op": "x"}')
        inner.send = real
        inner.send(sent[0])
        self.assertEqual(out["stream"].receive(1), b'{"op": "x"}')
        inner.send(sent[0])  # again
        with self.assertRaisesRegex(wire.NodeError, "wrong code"):
            out["stream"].receive(1)

    def test_strangers_do_not_keep_the_conductor_out(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            place = f"127.0.0.1:{listener.getsockname()[1]}"
            turned = []
            thread = threading.Thread(target=lambda: turned.append(wire.accept(listener, "t", turned.append)))
            thread.start()
            with socket.create_connection(wire.parse_place(place)) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n@ha zz\n")
            stream, mine, _ = wire.connect(place, "t")
            thread.join()
            self.assertEqual(mine, "127.0.0.1")
            self.assertRegex(turned[0], "turned away 127.0.0.1")
            stream.close()
            turned[-1][0].close()

    def test_until_the_token_is_proved_lines_are_short(self):
        a, b = socket.socketpair()
        self.addCleanup(a.close)
        told = []

        def other():
            try:
                wire.of_socket(b, "t", "node", "conductor")
            except (wire.NodeError, OSError) as error:
                told.append(str(error))
            b.close()

        thread = threading.Thread(target=other)
        thread.start()
        try:
            for _ in range(64):
                a.sendall(b"x" * 1024)  # no end of line
        except OSError:
            pass  # enough
        thread.join(20)
        self.assertRegex(told[0], "without an end|too long")
        stream, out, _ = self.pair()
        stream.send(b"y" * 100000)  # who has proved it may say more
        self.assertEqual(len(out["stream"].receive(5)), 100000)

    def test_who_comes_from_elsewhere_is_not_heard(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            place = f"127.0.0.1:{listener.getsockname()[1]}"
            turned = []
            thread = threading.Thread(target=lambda: turned.append(wire.accept(listener, "t", turned.append, "127.0.0.2")))
            thread.start()
            with self.assertRaises((wire.NodeError, OSError)):
                wire.connect(place, "t")
            with socket.create_connection(wire.parse_place(place), source_address=("127.0.0.2", 0)) as sock:
                wire.of_socket(sock, "t", "conductor", "node")
                thread.join()
            self.assertRegex(turned[0], "turned away 127.0.0.1: it is not 127.0.0.2")
            turned[-1][0].close()

    def test_banners_of_a_launcher_are_passed_over(self):
        read_fd, write_fd = os.pipe()
        os.write(write_fd, b"Warning: stuff\n@ha {}\n")
        stream = wire.Stream(read_fd, write_fd)
        self.assertEqual(stream.receive(1), b"{}")
        self.assertEqual(stream.banners, ["Warning: stuff"])
        os.close(read_fd)
        os.close(write_fd)

    def test_bad_places_are_named(self):
        for bad in ("host", "host:", "host:x", "host:70000"):
            with self.assertRaisesRegex(ValueError, f"'{bad}' is not HOST:PORT"):
                wire.parse_place(bad)
        self.assertEqual(wire.parse_place("[::1]:7"), ("::1", 7))


class FakeNode:
    """What the breakers look at."""

    def __init__(self, root="root", tools=("ip", "mlxlink"), fabric=None):
        self.name, self.host, self.interface, self.address = "a", "host-a", "eth0", "10.0.0.1"
        self.about = {"simverbs": None}
        interface = {"upper": [], "lower": [], "addresses": []}
        self.facts = {
            "root": root, "ssh": "10.9.0.7 4711 10.9.0.1 22", "default_routes": ["eth1"], "fabric": fabric, "fabric_host": None,
            "tools": {name: f"/sbin/{name}" if name in tools else None for name in facts.TOOLS},
            "interfaces": [{**interface, "name": name, "upper": ["bond1"] if name == "roce5" else []} for name in
                           ("eth0", "eth1", "eth2", "eth3", "roce0", "roce5")] + [{**interface, "name": "bond0", "lower": ["roce4"]}],
            "devices": [{"name": f"mlx5_{i}", "ports": [{"port": 1, "gids": [{"index": 3, "netdev": name}], "netdevs": [name]}]}
                        for i, name in enumerate(["roce0", "eth0", "eth1", "eth2", "roce4", "roce5"])],
        }  # fmt: skip
        self.said = {("-6", "addr"): "[]"}

    def call(self, op, **more):
        if op == "route":
            return {"10.0.0.2": "eth0", "10.9.0.7": "eth2", "10.8.0.2": "bond0"}.get(more["address"])
        argv = more["argv"]
        if argv[1] == "-j":
            addresses = [{"local": "2001:db8::5", "prefixlen": 64, "scope": "global"}, {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
                         {"local": "2001:db8::6", "prefixlen": 64, "scope": "global", "dynamic": True}]  # fmt: skip
            return {"status": 0, "out": json.dumps([{"addr_info": addresses}])}
        routes = {"-4": "10.1.0.0/16 via 10.0.5.1 table 105 metric 10\n10.0.5.0/24 proto kernel scope link src 10.0.5.2\n"
                        "local 10.0.5.2 table local proto kernel scope host\n", "-6": "fe80::/64 proto kernel metric 256\n"}  # fmt: skip
        return {"status": 0, "out": routes[argv[1]]}


def port(number, layer="RoCE"):
    return {"name": f"mlx5_{number}", "port": 1, "full": f"mlx5_{number}:1", "layer": layer, "gid_index": 3, "index": number}


class Breaking(unittest.TestCase):
    def setUp(self):
        self.node, self.other = FakeNode(), FakeNode()
        self.other.address = "10.0.0.2"

    def refuse(self, way, node, which, why):
        with self.assertRaisesRegex(breakers.Refused, why):
            breakers.BREAKERS[way](node, self.other, which)

    def test_ip_undoes_what_the_kernel_forgets_when_a_link_goes_down(self):
        breaker = breakers.BREAKERS["ip"](self.node, self.other, port(0))
        self.assertEqual(breaker.down, [["/sbin/ip", "link", "set", "dev", "roce0", "down"]])
        self.assertEqual(breaker.up, [
            ["/sbin/ip", "link", "set", "dev", "roce0", "up"],
            ["/sbin/ip", "-6", "addr", "replace", "2001:db8::5/64", "dev", "roce0"],
            ["/sbin/ip", "-4", "route", "replace", "10.1.0.0/16", "via", "10.0.5.1", "table", "105", "metric", "10", "dev", "roce0"],
        ])  # fmt: skip

    def test_what_must_stay_up_is_refused(self):
        for way in ("ip", "mlxlink"):
            self.refuse(way, self.node, port(1), "eth0 of node a stays up: the bootstrap sockets")
            self.refuse(way, self.node, port(2), "eth1 of node a stays up: a default route")
            self.refuse(way, self.node, port(3), "eth2 of node a stays up: ssh comes in")
            self.refuse(way, self.node, port(5), "roce5 of node a has bond1 on top")
            self.other.address = "10.8.0.2"
            self.refuse(way, self.node, port(4), "roce4 of node a stays up: bond0 is on top")
            self.other.address = "10.0.0.2"

    def test_a_way_that_does_nothing_is_refused(self):
        self.refuse("ip", self.node, port(0, "InfiniBand"), "use --drill mlxlink|Use --drill mlxlink")
        self.refuse("ip", FakeNode(tools=()), port(0), "no ip on node")
        self.refuse("mlxlink", FakeNode(tools=("ip",)), port(0), "neither mlxlink nor mstlink")
        self.refuse("ip", FakeNode(root=None), port(0), "needs root on node a")
        self.refuse("simverbs", self.node, port(0), "no simulated fabric")

    def test_sudo_is_used_where_there_is_no_root(self):
        breaker = breakers.BREAKERS["mlxlink"](FakeNode(root="sudo"), self.other, port(0))
        self.assertEqual(breaker.down, [["sudo", "-n", "/sbin/mlxlink", "-d", "mlx5_0", "-p", "1", "--port_state", "DN"]])
        self.assertEqual(breaker.up[0][-1], "UP")

    def test_the_automatic_way_suits_the_port(self):
        self.assertEqual(breakers.automatic(self.node, port(0)), "ip")
        self.assertEqual(breakers.automatic(self.node, port(0, "InfiniBand")), "mlxlink")
        self.assertEqual(breakers.automatic(FakeNode(fabric="f"), port(0)), "simverbs")


def nic(name, pci, numa, mbps=400000, layer="RoCE"):
    return {"name": name, "full": f"{name}:1", "pci": pci, "numa": numa, "mbps": mbps, "layer": layer}


BELOW = "/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/"


class Explaining(unittest.TestCase):
    def setUp(self):
        self.primary = nic("m0", BELOW + "0000:19:00.0/0000:1a:00.0", 0)
        self.neighbour = nic("m1", BELOW + "0000:19:01.0/0000:1b:00.0", 0)
        self.card = nic("m2", "/sys/devices/pci0000:17/0000:17:01.0/0000:1c:00.0", 0)
        self.numa = nic("m3", "/sys/devices/pci0000:30/0000:30:01.0/0000:31:00.0", 0)
        self.far = nic("m4", "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1)
        self.slow = nic("m5", BELOW + "0000:19:02.0/0000:1d:00.0", 0, 25000)
        self.ib = nic("m6", BELOW + "0000:19:03.0/0000:1e:00.0", 0, layer="InfiniBand")

    def test_distance_is_as_docs_devices_says(self):
        ports = (self.primary, self.neighbour, self.card, self.numa, self.far)
        self.assertEqual([standby.DISTANCES[standby.distance(self.primary, p)] for p in ports], list(standby.DISTANCES))

    def test_the_ranking_is_speed_chip_distance(self):
        guids = {f"m{i}": i for i in range(7)} | {"m1": 0}
        ports = [self.slow, self.far, self.numa, self.ib, self.neighbour, self.card, self.primary]
        ranked = [c.port["name"] for c in standby.candidates(self.primary, ports, guids)]
        self.assertEqual(ranked, ["m2", "m3", "m4", "m1", "m5"])

    def test_a_better_one_that_was_passed_over_is_noticed(self):
        guids = {f"m{i}": i for i in range(7)}
        why, note = standby.explain(self.primary, "m4:1", [self.primary, self.neighbour, self.far], guids)
        self.assertIn("on another NUMA node", why)
        self.assertIn("m1:1 ranks higher and was passed over", note)
        why, note = standby.explain(self.primary, "m1:1", [self.primary, self.neighbour, self.far], guids)
        self.assertIn("behind the same PCI switch", why)
        self.assertIn("before m4:1: near", why)
        self.assertIsNone(note)
        why, note = standby.explain(self.primary, "m6:1", [self.primary, self.ib], guids)
        self.assertIn("disagree", note)


class Understanding(unittest.TestCase):
    def test_the_plugins_log_says_which_devices_there_are(self):
        node = object.__new__(traffic.Node)
        node.unused = []
        node.take_devices(
            "h:1:2 NCCL INFO NET/HA : nccl-ha 0.1.0: 2 device(s): [0]mlx5_0:1/RoCE\n"
            "h:1:2 NCCL INFO NET/HA : [0] mlx5_0:1 RoCE 400000 Mb/s, LID 0, GID 3 ::ffff:10.0.0.1 (RoCE v2), NUMA node -1, /sys/devices/pci0/x\n"
            "h:1:2 NCCL INFO NET/HA : [1] mlx5_1:1 InfiniBand 200000 Mb/s, LID 5, GID 0 fe80::1, NUMA node 1, /sys/devices/pci0/y\n"
            "h:1:2 NCCL INFO NET/HA : mlx5_2:1 is not used: filtered\n"
        )
        self.assertEqual([d["full"] for d in node.devices], ["mlx5_0:1", "mlx5_1:1"])
        self.assertEqual((node.devices[0]["numa"], node.devices[0]["roce"], node.devices[1]["gid"]), (-1, "2", "fe80::1"))
        self.assertEqual(node.unused, ["mlx5_2:1 is not used: filtered"])
        self.assertEqual(node.plugin_version, "0.1.0")

    def test_a_standby_is_a_proved_path_with_neither_port_in_use(self):
        c = eventlog.Connection()

        def tell(end, kind, path, own, to=None):
            name = f"{end} 1 (h:1 x0:1 {'->' if end == 'send' else '<-'} h:2 y0:1)"
            c.take("a", {"name": name, "kind": kind, "from": {"path": path, "port": own}, "to": to or {"path": path, "port": own}})

        for end, letter in (("send", "x"), ("recv", "y")):
            for path, rail in ((0, 0), (1, 1)):
                tell(end, "rebuild", path, f"{letter}{rail}:1")
        self.assertFalse(c.is_protected())
        tell("recv", "recovery", 0, "y0:1")
        self.assertEqual(c.standbys(), [])
        tell("recv", "recovery", 1, "y1:1")
        self.assertEqual(c.standbys(), [1])
        self.assertTrue(c.is_protected())
        tell("recv", "failure", 1, "y1:1")
        self.assertFalse(c.is_protected())

    def verdict_of(self, values, **more):
        out = report.Report(io.StringIO())
        measure.judge_ratio(out, "x", Estimate(values), **more)
        return out.lines[0]["verdict"]

    def test_a_ratio_is_judged_by_its_interval(self):
        self.assertEqual(self.verdict_of([0.99] * 11), "PASS")
        self.assertEqual(self.verdict_of([0.9] * 11), "WARN")
        self.assertEqual(self.verdict_of([0.5] * 11), "FAIL")
        self.assertEqual(self.verdict_of([0.5] * 3), "WARN")  # too few rounds to be sure
        self.assertEqual(self.verdict_of([0.5, 1.5] * 6), "WARN")  # noise
        self.assertEqual(self.verdict_of([0.92] * 11, least=0.9), "PASS")

    def drill_row(self, **more):
        row = {"port": "p", "node": "a", "restored": True, "trouble": None, "wrong": 0, "checked": 5, "moved": True,
               "blackout_ms": 10.0, "protected_again": True, "state_down": "down", **more}  # fmt: skip
        out = report.Report(io.StringIO())
        drill.verdict(out, row, type("Options", (), {"pause_limit": 1000.0}))
        return out.lines[0]["verdict"], out.lines[0]["found"]

    def test_a_drill_is_judged(self):
        self.assertEqual(self.drill_row()[0], "PASS")
        self.assertEqual(self.drill_row(blackout_ms=1500.0)[0], "WARN")
        self.assertEqual(self.drill_row(protected_again=False)[0], "WARN")
        for more, says in (({"wrong": 1}, "1 wrong"), ({"checked": 0}, "0 rounds checked"), ({"moved": False}, "did not move"),
                           ({"restored": False}, "did not come back"), ({"trouble": "boom"}, "boom")):  # fmt: skip
            grade, found = self.drill_row(**more)
            self.assertEqual(grade, "FAIL", more)
            self.assertIn(says, found)

    def test_the_exit_status_follows_the_verdict(self):
        for grades, status in (((), 0), (("PASS", "WARN"), 0), (("PASS", "FAIL"), 1)):
            out = report.Report(io.StringIO())
            for grade in grades:
                out.verdict(grade, "x", "y", "z")
            self.assertEqual(out.finish(), status)

    def test_sizes_and_kernels_are_read(self):
        self.assertEqual([environment.size(n) for n in (None, 8 << 20, 3 << 30, 2048)], ["unlimited", "8 MiB", "3.0 GiB", "2 KiB"])
        self.assertTrue(environment.kernel_at_least("6.1.0-13-amd64", 5, 12))
        self.assertFalse(environment.kernel_at_least("5.4.0", 5, 12))

    def test_a_named_plugin_that_is_missing_is_not_replaced(self):
        self.assertIsNone(agent.find_plugin("/nowhere/libnccl-net-ha.so"))


NCCL_TESTS = """#!/bin/sh
echo "h:1:1 [0] NCCL INFO Using network ${USES:-$NCCL_NET}"
[ "$NCCL_NET" = HA ] && us=10.0 || us=12.0
[ "$NCCL_NET" = HA ] && [ "$NCCL_NET_PLUGIN" != /x/libnccl-net-ha.so ] && exit 9
echo "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
echo "1024 256 float sum -1 $us 1.0 1.0 ${WRONG:-0} $us 1.0 1.0 0"
echo "# Out of bounds values : 0 OK"
"""


class OnGpus(unittest.TestCase):
    """nccl-tests, with a program in its place."""

    def setUp(self):
        half = agent.Agent()
        self.addCleanup(half.close)
        handlers = half.handlers()
        self.node = type("Node", (), {"about": {"plugin": "/x/libnccl-net-ha.so"}, "call": staticmethod(lambda op, **more: handlers[op](**more))})()
        self.program = os.path.join(half.folder, "all_reduce_perf")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(NCCL_TESTS)
        os.chmod(self.program, 0o755)

    def test_the_ratio_is_that_of_ncclib_over_ours(self):
        found = measure.nccl([self.node], self.program, 3)
        self.assertEqual({size: e.median for size, e in found.items()}, {1024: 1.2})

    def test_a_run_over_another_network_does_not_count(self):
        with self.assertRaisesRegex(wire.NodeError, "did not say 'Using network HA'"):
            measure.nccl([self.node], f"env USES=Socket {self.program}", 3)

    def test_wrong_elements_do_not_count_as_a_figure(self):
        with self.assertRaisesRegex(measure.BenchError, "WRONG DATA"):
            measure.nccl([self.node], f"env WRONG=3 {self.program}", 3)


if __name__ == "__main__":
    unittest.main()
