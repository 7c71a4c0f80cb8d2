# SPDX-License-Identifier: Apache-2.0
"""nccl-ha beside jobs on a live fabric, with rails that are cut under them."""

import concurrent.futures
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
import urllib.error
import urllib.request

from job import SLACK, TOOL, Job, document, nccl_ha, text, wait_for

# Heartbeats each 200 ms declare a path dead after three; then the tool has a second. On a quiet machine.
SEEN_LIMIT_S = (3 * 0.2 + 1.0) * max(1.0, SLACK / 4)


def samples(page, name):
    """{labels: value} of a metric."""
    found = re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


class Lines:
    """The lines of a program that runs, until the test is over at the latest."""

    def __init__(self, test, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        test.addCleanup(self.process.kill)  # does nothing to one that has ended
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode())

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(20)
        self.reader.join(20)
        self.process.stdout.close()
        return status


class BesideAJob(unittest.TestCase):
    """A job and a folder for all tests of a class, which begins them."""

    @classmethod
    def tearDownClass(cls):
        if cls.job.process.poll() is not None:
            print(f"the job has ended by itself, status {cls.job.process.returncode}:", cls.job.said()[-4000:], file=sys.stderr)
        cls.job.end()
        shutil.rmtree(cls.dir)


class OneJob(BesideAJob):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        cls.job = Job("--op", "allreduce", "--sizes", "64K", "--chunk", "16K", "-C", "2", "--seconds", "300",
                      # A slow look at an outage must not find the job at its deadline, and ended.
                      env={"HA_NCCL_EVENT_LOG": os.path.join(cls.dir, "%h.%p"), "HA_NCCL_OUTAGE_MS": "60000"})  # fmt: skip
        try:
            cls.job.wait_until_protected(4)
        except BaseException:
            cls.tearDownClass()
            raise

    def tearDown(self):
        for rail in "0", "1":
            self.job.simverbs("cut", rail, "--heal")
        self.job.wait_until_protected(4)
        wait_for("heartbeats everywhere", lambda: not any(
            port["silent"] for process in self.job.status()["processes"] for port in process["ports"]))  # fmt: skip

    def ports(self, name):
        return [port for process in self.job.status()["processes"] for port in process["ports"] if port["port"] == name]

    def test_a_healthy_job_is_described(self):
        done = nccl_ha("status", "--job", self.job.id)
        self.assertEqual(done.returncode, 0, done.stdout)
        shown = done.stdout.decode()
        self.assertEqual(shown.count(f"job {self.job.id} pid"), 2)
        self.assertIn("2 processes, 8 connections: 8 protected", shown)
        each = self.job.status("-v")["processes"][0]
        self.assertEqual(len(each["connections"]), 4)
        for connection in each["connections"]:
            self.assertEqual(connection["state"], "active")
            self.assertTrue(connection["protected"])
            self.assertEqual([path["health"] for path in connection["paths"] if path["active"]], ["good"])
            self.assertIn("good", [path["health"] for path in connection["paths"] if not path["active"]])
            self.assertGreater(connection["counters"]["messages"], 0)
        for port in each["ports"]:
            self.assertEqual((port["state"], port["silent"], port["speed_mbps"]), ("active", False, 400000))
            self.assertGreater(port["heartbeat_rtt"]["samples"], 0)
            self.assertGreater(port["heartbeat_rtt"]["p50_ms"], 0)
            self.assertGreater(port["counters"]["bytes"], 0)

    def test_a_cut_rail_is_seen_within_a_second_and_so_is_its_mending(self):
        follower = Lines(self, TOOL, "events", "--follow", "--json", "--job", self.job.id)
        top = Lines(self, TOOL, "top", "--json", "--interval", "0.3", "--job", self.job.id)
        before = text("metrics", "--job", self.job.id)

        def left(what):
            groups = [group for process in what["processes"] for group in process["groups"]]
            return all(group["port"] == "sim1:1" and group["state"] == "active" for group in groups) and all(
                not group["protected"] for group in groups)  # fmt: skip

        def shown():
            status = self.job.status()
            silent = [port["silent"] for p in status["processes"] for port in p["ports"] if port["port"] == "sim0:1"]
            return all(silent) and left(status)

        def cut():
            began = time.monotonic()
            self.job.simverbs("cut", "0")
            wait_for("the cut rail in the status", shown)
            seen_s = time.monotonic() - began
            print(f"the cut rail was shown after {seen_s:.3f} s")
            return seen_s

        # A machine that has something else to do for a second is no fault of the tool's: it has three tries.
        seen_s = cut()
        for _ in range(2):
            if seen_s >= SEEN_LIMIT_S:
                self.job.simverbs("cut", "0", "--heal")
                self.job.wait_until_protected(4)
                seen_s = cut()
        self.assertLess(seen_s, SEEN_LIMIT_S)
        done = nccl_ha("status", "--job", self.job.id)
        self.assertEqual(done.returncode, 1)
        self.assertIn("sim0:1  400 Gb/s  active, SILENT", done.stdout.decode())
        self.assertRegex(done.stdout.decode(), "heartbeats lost|error completion|told by the peer")

        def departures():
            return sum(samples(text("metrics", "--job", self.job.id), "nccl_ha_port_departures_total").values())

        # The records of ports are written a moment after those of the connections that leave them.
        left_before = sum(samples(before, "nccl_ha_port_departures_total").values())
        wait_for("all that left in the records of ports", lambda: departures() >= left_before + 4)
        after = text("metrics", "--job", self.job.id)
        self.assertEqual(set(samples(after, "nccl_ha_port_silent").values()), {0.0, 1.0})

        wait_for("the cut rail in top", lambda: any(
            port["silent"] for line in list(top.lines) for port in json.loads(line)["ports"]))  # fmt: skip

        self.job.simverbs("cut", "0", "--heal")
        self.job.wait_until_protected(4)
        self.assertEqual(nccl_ha("status", "--job", self.job.id).returncode, 0)

        # What the job wrote down, what was counted and what was shown are the same story. It is written down
        # a moment after it is counted.
        wait_for("the last recovery in the log", lambda: sum('"recovery"' in line for line in list(follower.lines)) >= 4)
        self.assertEqual(follower.end(), 0)
        events = [json.loads(line) for line in follower.lines]
        switches = [event for event in events if event["kind"] == "switch"]
        self.assertGreaterEqual(len(switches), 4)  # two connections, both ends
        self.assertTrue(all(event["to"]["port"] == "sim1:1" for event in switches))
        self.assertGreaterEqual(len([event for event in events if event["kind"] == "recovery"]), 4)

        def grew(name):
            return sum(samples(after, name).values()) - sum(samples(before, name).values())

        self.assertEqual(grew("nccl_ha_conn_failovers_total"), len(switches))
        self.assertEqual(grew("nccl_ha_conn_blackout_seconds_count"), len(switches))
        self.assertEqual(grew("nccl_ha_port_departures_total"), len(switches))
        self.assertGreater(grew("nccl_ha_port_heartbeats_lost_total"), 0)
        top.end()
        frames = [json.loads(line) for line in top.lines]
        rates = [port["bytes_per_s"] or 0 for frame in frames for port in frame["ports"] if port["port"] == "sim1:1"]
        self.assertGreater(max(rates), 0)

    def test_a_rail_that_goes_again_at_once_is_shown_again(self):
        """Its paths are proved before its heartbeats are back."""
        for _ in range(3):
            self.job.simverbs("cut", "0")
            wait_for("the cut rail in the status", lambda: self.job.status()["summary"]["protected"] == 0)
            self.job.simverbs("cut", "0", "--heal")
            self.job.wait_until_protected(4)

    def test_a_total_outage_is_shown_as_failing_over(self):
        self.job.simverbs("cut", "0")
        self.job.simverbs("cut", "1")

        # Until heartbeats say otherwise, a path that fell silent is tried.
        def shown():
            done = nccl_ha("status", "--job", self.job.id)
            return done.returncode == 1 and b"8 failing over" in done.stdout

        wait_for("connections that fail over", shown)
        wait_for("the mark in top", lambda: "FAILING OVER" in text("top", "--count", "1", "--job", self.job.id))

    def test_a_port_that_is_down_is_shown_so(self):
        self.job.simverbs("link", "0", "1", "down")
        wait_for("a port that is down", lambda: "down" in [port["state"] for port in self.ports("sim1:1")])
        page = text("metrics", "--job", self.job.id)
        self.assertEqual(sorted(samples(page, "nccl_ha_port_up").values()), [0.0, 1.0, 1.0, 1.0])
        self.job.simverbs("link", "0", "1", "up")

    def test_without_files_events_are_those_of_the_job(self):
        wanted = {process["event_log"] for process in self.job.status()["processes"]}
        self.assertEqual({os.path.dirname(path) for path in wanted}, {self.dir})
        wait_for("an event", lambda: text("events", "--job", self.job.id, "--json"))
        pids = {json.loads(line)["pid"] for line in text("events", "--job", self.job.id, "--json").splitlines()}
        self.assertLessEqual(pids, {process["pid"] for process in self.job.status()["processes"]})

    def test_the_values_in_effect_are_published(self):
        processes = document("config", "--job", self.job.id)["processes"]
        self.assertEqual(len(processes), 2)
        for process in processes:
            values = {v["name"]: v for v in process["variables"]}
            self.assertEqual(values["HA_NCCL_EVENT_LOG"]["value"], os.path.join(self.dir, "%h.%p"))
            self.assertEqual(values["HA_NCCL_EVENT_LOG"]["origin"], "environment")
            self.assertEqual(values["HA_NCCL_HEARTBEAT_MS"], {"name": "HA_NCCL_HEARTBEAT_MS", "value": "200", "origin": "default"})
        self.assertEqual(text("config", "--job", self.job.id, "--changed").count("HA_NCCL_EVENT_LOG"), 1)  # both alike

    def test_top_gives_the_terminal_back(self):
        for end in b"q", b"\x03", signal.SIGTERM:
            master, slave = pty.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
            before = termios.tcgetattr(slave)
            top = subprocess.Popen([TOOL, "top", "--interval", "0.3", "--job", self.job.id], stdin=slave, stdout=slave,
                                   stderr=slave, start_new_session=True, env={**os.environ, "TERM": "xterm"},
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # fmt: skip
            shown = b""
            while shown.count(b"\033[H") < 3:
                self.assertTrue(select.select([master], [], [], 20)[0], shown)
                shown += os.read(master, 65536)
            self.assertNotEqual(termios.tcgetattr(slave)[3], before[3])
            if isinstance(end, bytes):
                os.write(master, end)
            else:
                top.send_signal(end)
            self.assertEqual(top.wait(20), 0)
            while not shown.endswith(b"\033[?25h\033[?1049l"):
                self.assertTrue(select.select([master], [], [], 20)[0], shown)
                shown += os.read(master, 65536)
            self.assertTrue(shown.startswith(b"\033[?1049h\033[?25l"))
            self.assertEqual(termios.tcgetattr(slave), before)
            rows = re.split(rb"\r\n", shown.split(b"\033[H")[2])
            self.assertLessEqual(len(rows), 10)
            for row in rows:
                self.assertLessEqual(len(re.sub(rb"\033\[[0-9;?]*[A-Za-z]", b"", row).decode()), 60)
            os.close(master)
            os.close(slave)

    # ---- metrics over HTTP --------------------------------------------------------------------

    def serve(self, *words):
        server = Lines(self, TOOL, "metrics", "--listen", "0", "--job", self.job.id, *words)
        wait_for("the server's address", lambda: server.lines)
        url = server.lines[0].strip()
        self.assertRegex(url, r"^http://127\.0\.0\.1:\d+/metrics$")
        return server, url

    @staticmethod
    def raw(url, request, close=True):
        """What the server answers to these bytes."""
        host, port = re.match(r"http://(.*):(\d+)/", url).groups()
        with socket.create_connection((host, int(port)), 20) as s:
            got = b""
            try:
                s.sendall(request)
                if close:
                    s.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # enough of it; there may be an answer
            try:
                while chunk := s.recv(65536):
                    got += chunk
            except ConnectionResetError:
                pass
            return got

    @staticmethod
    def is_dropped(s):
        try:
            return s.recv(1, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    @staticmethod
    def dribble(sockets, enough):
        while not enough.wait(0.3):
            for s in sockets:
                try:
                    s.send(b"y")
                except OSError:
                    pass  # dropped already

    def test_scrapes_over_http(self):
        server, url = self.serve()
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
                page = answer.read().decode()
            self.assertEqual(sum(samples(page, "nccl_ha_job_connections_open").values()), 8)
            pages = []
            scrapers = [threading.Thread(target=lambda: pages.append(urllib.request.urlopen(url, timeout=30).read()))
                        for _ in range(40)]  # fmt: skip
            for scraper in scrapers:
                scraper.start()
            for scraper in scrapers:
                scraper.join()
            self.assertEqual(len([page for page in pages if b"nccl_ha_processes 2\n" in page]), 40)
            head = urllib.request.Request(url, method="HEAD")
            with urllib.request.urlopen(head, timeout=20) as answer:
                self.assertGreater(int(answer.headers["Content-Length"]), 1000)
                self.assertEqual(answer.read(), b"")
        finally:
            self.assertEqual(server.end(), 0)

    def test_hostile_requests_get_an_answer_or_nothing_and_scrapes_go_on(self):
        server, url = self.serve()
        try:
            for request, status in [
                (b"GET /metrics HTTP/1.0\r\n\r\n", b"200"), (b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
                (b"GET / HTTP/1.1\r\n\r\n", b"200"), (b"GET /etc/passwd HTTP/1.1\r\n\r\n", b"404"),
                (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"404"), (b"POST /metrics HTTP/1.1\r\n\r\nbody", b"405"),
                (b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nbody", b"405"),
                (b"GET /metrics SPDY/3\r\n\r\n", b"400"), (b"GET /" + b"a" * 5000, b"414"),
                (b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 100000, b"431"),
            ]:  # fmt: skip
                answer = self.raw(url, request, close=False)
                self.assertTrue(answer.startswith(b"HTTP/1.1 " + status), (request[:40], answer[:40]))
            # What is no HTTP at all: releases of libmicrohttpd differ in whether they say so.
            garbage = [b"", b"GET /met", b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"]
            with concurrent.futures.ThreadPoolExecutor() as clients:
                for answer in clients.map(lambda request: self.raw(url, request), garbage):
                    self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 400"), answer[:40])
            self.clients_that_do_not_ask_are_dropped(url)
        finally:
            self.assertEqual(server.end(), 0)

    def clients_that_do_not_ask_are_dropped(self, url):
        """More than there are places; half of them say nothing, half a byte now and then. Who asks is answered."""
        host, port = re.match(r"http://(.*):(\d+)/", url).groups()
        began = time.monotonic()
        idle = [socket.create_connection((host, int(port)), 20) for _ in range(30)]
        enough = threading.Event()
        dribbling = threading.Thread(target=self.dribble, args=(idle[::2], enough))
        dribbling.start()
        try:
            self.assertIn(b"nccl_ha_processes 2\n", urllib.request.urlopen(url, timeout=40).read())
            self.assertLess(time.monotonic() - began, 11 + SLACK)
            wait_for("the end of all who do not ask", lambda: all(self.is_dropped(s) for s in idle))
            self.assertLess(time.monotonic() - began, 16 + SLACK)
        finally:
            enough.set()
            dribbling.join()
            for s in idle:
                s.close()

    def test_an_address_that_cannot_be_used_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = nccl_ha("metrics", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"Address already in use", done.stderr)
        for wrong in "127.0.0.1:many", "127.0.0.1:65536", "65536", "[::1]:-1", "":
            done = nccl_ha("metrics", "--listen", wrong)
            self.assertEqual(done.returncode, 1, wrong)
            self.assertIn(f"'{wrong}' is not [ADDRESS:]PORT".encode(), done.stderr)

    def test_a_textfile_is_replaced_at_once(self):
        path = os.path.join(self.dir, "nccl-ha.prom")
        writer = Lines(self, TOOL, "metrics", "--textfile", path, "--interval", "0.1", "--job", self.job.id)
        try:
            wait_for("the file", lambda: os.path.exists(path))
            inodes = set()
            for _ in range(200):
                with open(path, encoding="utf-8") as file:
                    inodes.add(os.fstat(file.fileno()).st_ino)
                    page = file.read()
                self.assertIn("nccl_ha_processes 2\n", page)
                self.assertTrue(page.endswith("\n"))
                time.sleep(0.005)
            self.assertGreater(len(inodes), 1)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)
        finally:
            self.assertEqual(writer.end(), 0)
        self.assertEqual([name for name in os.listdir(self.dir) if name.startswith("nccl-ha.prom")], ["nccl-ha.prom"])
        done = nccl_ha("metrics", "--textfile", "/nonexistent/x.prom")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"/nonexistent/x.prom: No such file", done.stderr)


class ABundle(BesideAJob):
    """A job whose connections go over two rails at once, three quarters of each message over the first one."""

    SHARES = [0.75, 0.25]
    BYTES = 100_000_000  # enough to tell what part of them each rail carried

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        cls.job = Job("--op", "allreduce", "--sizes", "4M", "--chunk", "1M", "-C", "1", "--seconds", "300",
                      env={"HA_NCCL_RAILS": "sim0+sim1", "HA_NCCL_RAIL_SHARE": "3,1", "HA_NCCL_OUTAGE_MS": "60000",
                           "HA_NCCL_EVENT_LOG": os.path.join(cls.dir, "%h.%p")})  # fmt: skip

    def setUp(self):
        """The test before may have left a rail that is about to come back."""
        self.job.wait_until_protected(2)
        wait_for("shares of both rails", lambda: self.shares() == [self.SHARES] * 2)

    def share_of_the_second(self):
        first, second = self.carries()
        return second / (first + second)

    @classmethod
    def connections(cls, direction=None):
        return [connection for process in cls.job.status("-v")["processes"] for connection in process["connections"]
                if direction in (None, connection["direction"])]  # fmt: skip

    @classmethod
    def shares(cls):
        return [[rail["share"] for rail in connection["rails"]] for connection in cls.connections("send")]

    @classmethod
    def sums(cls, member):
        """By rail, over connections."""
        rails = [rail for connection in cls.connections() for rail in connection["rails"]]
        return [sum(rail[member] for rail in rails if rail["rail"] == which) for which in (0, 1)]

    def sent(self):
        """Bytes that senders had sent in all; and those of cut messages by rail, at the same time: a job that waits for
        a processor may send nothing for longer than the tool takes."""
        senders = self.connections("send")
        return (sum(connection["counters"]["bytes"] for connection in senders),
                [sum(connection["rails"][which]["bytes"] for connection in senders) for which in (0, 1)])  # fmt: skip

    def carries(self):
        """Bytes of cut messages that senders have over each rail from now on, while they send so many in all."""
        before, by_rail_before = self.sent()

        def are_sent():
            now, by_rail = self.sent()
            return now >= before + self.BYTES and [now - then for now, then in zip(by_rail, by_rail_before)]

        return wait_for("messages", are_sent)

    def test_its_rails_are_described(self):
        self.assertEqual([connection["direction"] for connection in self.connections()].count("send"), 2)
        for process in self.job.status("-v")["processes"]:
            self.assertEqual([(port["port"], port["nccl_device"], port["rail"], port["rails"]) for port in process["ports"]],
                             [("sim0:1", 0, 0, 2), ("sim1:1", 0, 1, 2)])  # fmt: skip
            for port in process["ports"]:
                self.assertGreater(port["counters"]["stripe_bytes"], 0)
        for connection in self.connections():
            self.assertEqual([rail["rail"] for rail in connection["rails"]], [0, 1])
            for rail in connection["rails"]:
                self.assertGreater(rail["stripes"], 0)
                self.assertGreater(rail["bytes"], 0)
        # Who receives gives nothing a share.
        self.assertEqual([[rail["share"] for rail in connection["rails"]] for connection in self.connections("receive")], [[0, 0]] * 2)
        self.assertEqual(self.shares(), [self.SHARES] * 2)
        self.assertAlmostEqual(self.share_of_the_second(), self.SHARES[1], delta=0.02)
        done = nccl_ha("status", "--job", self.job.id)
        self.assertEqual(done.returncode, 0, done.stdout)
        lines = re.findall(r"NCCL's device 0 is a bundle of 2 ports: sim0:1 (\d+) % sim1:1 (\d+) %", done.stdout.decode())
        self.assertEqual([int(a) + int(b) for a, b in lines], [100, 100])
        page = text("metrics", "-v", "--job", self.job.id)
        told = samples(page, "nccl_ha_connection_rail_share")
        self.assertEqual(sorted((re.search('rail="(.)"', labels).group(1), share) for labels, share in told.items()),
                         [("0", 0.75)] * 2 + [("1", 0.25)] * 2)  # fmt: skip
        self.assertEqual(len(samples(page, "nccl_ha_port_stripe_bytes_total")), 4)
        self.assertEqual(nccl_ha("health", "--job", self.job.id).returncode, 0)

    def test_a_rail_that_is_lost_and_comes_back_is_no_failover(self):
        follower = Lines(self, TOOL, "events", "--follow", "--json", "--job", self.job.id)
        self.addCleanup(follower.end)
        epochs = [connection["epoch"] for connection in self.connections()]
        sheds = self.sums("sheds")[1]

        def whole():
            return self.sums("sheds")[1] >= sheds + 4 and self.sums("sheds") == self.sums("mends")

        self.job.simverbs("cut", "1")
        self.addCleanup(self.job.simverbs, "cut", "1", "--heal")
        wait_for("a rail that each end of both connections shed and mended", whole)
        wait_for("all of each message over the other rail", lambda: self.shares() == [[1, 0]] * 2)
        wait_for("messages that nothing cuts", lambda: self.carries() == [0, 0])  # some had been begun
        wait_for("connections without protection", lambda: nccl_ha("status", "--job", self.job.id).returncode == 1)
        wait_for("a degraded port", lambda: nccl_ha("health", "--job", self.job.id).returncode == 1)
        # The line of the bundle, ports and connections have counted alike.
        shown = re.findall(r"a rail was lost without a failover (\d+) times, mended (\d+)", text("status", "--job", self.job.id, status=1))
        page = text("metrics", "--job", self.job.id)
        self.assertEqual(len(shown), 2, "both processes")
        for column, member in enumerate(("sheds", "mends")):
            ports = [port["counters"][member] for process in self.job.status()["processes"] for port in process["ports"]]
            self.assertEqual(sum(int(counts[column]) for counts in shown), sum(self.sums(member)))
            self.assertEqual(sum(ports), sum(self.sums(member)))
            self.assertEqual(sum(samples(page, f"nccl_ha_port_{member}_total").values()), sum(ports))

        self.job.simverbs("cut", "1", "--heal")
        self.job.wait_until_protected(2)
        wait_for("the shares of before", lambda: self.shares() == [self.SHARES] * 2)
        wait_for("the bytes of before", lambda: abs(self.share_of_the_second() - self.SHARES[1]) < 0.02)  # some had been begun
        wait_for("good health", lambda: nccl_ha("health", "--job", self.job.id).returncode == 0)
        self.assertEqual([connection["epoch"] for connection in self.connections()], epochs)
        self.assertEqual({connection["counters"]["failovers"] for connection in self.connections()}, {0})
        wait_for("the last mending in the log", lambda: sum('"mended"' in line for line in list(follower.lines)) >= 4)
        self.assertEqual(follower.end(), 0)
        kinds = [json.loads(line)["kind"] for line in follower.lines]
        self.assertGreaterEqual(kinds.count("shed"), 4)  # two connections, both ends
        self.assertEqual(kinds.count("shed"), kinds.count("mended"))
        self.assertNotIn("switch", kinds)


class SeveralJobs(unittest.TestCase):
    def start(self, *words, **more):
        job = Job("--sizes", "4K", *words, **more)
        self.addCleanup(job.end)
        return job

    def test_two_jobs_are_told_apart_and_a_killed_rank_is_no_longer_there(self):
        first, second = self.start("--seconds", "120"), self.start("--seconds", "120")
        for job in first, second:
            job.wait_until_protected(2)
        ids = [process["job"] for process in document("status", status=None)["processes"]]
        self.assertEqual((ids.count(first.id), ids.count(second.id)), (2, 2))
        pids = [process["pid"] for process in second.status()["processes"]]
        alone = document("status", "--pid", str(pids[0]))["processes"]
        self.assertEqual([process["pid"] for process in alone], pids[:1])
        done = nccl_ha("events", "--job", second.id)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"the event log is off: start the job with HA_NCCL_EVENT_LOG=", done.stderr)
        os.kill(pids[0], signal.SIGKILL)
        wait_for("the end of the killed rank", lambda: pids[0] not in [p["pid"] for p in second.status()["processes"]])
        second.process.wait(60)
        wait_for("the end of the job", lambda: nccl_ha("status", "--job", second.id).returncode == 3)
        self.assertEqual(nccl_ha("status", "--job", first.id).returncode, 0)

    def test_sums_over_connections_that_come_and_go_only_grow(self):
        # In this version of the API the plugin is never finalized, so that counting goes on.
        job = self.start("--cycles", "100000", "--seconds", "0.05", "--api", "v8")
        names = ["nccl_ha_conn_messages_total", "nccl_ha_conn_bytes_total", "nccl_ha_port_messages_total",
                 "nccl_ha_job_connections_total"]  # fmt: skip
        last, opened = {}, []

        def looked():
            page = text("metrics", "--job", job.id)
            for name in names:
                for labels, value in samples(page, name).items():
                    self.assertGreaterEqual(value, last.get((name, labels), 0), (name, labels))
                    last[name, labels] = value
            opened.append(sum(samples(page, "nccl_ha_job_connections_total").values()))
            return opened[-1] >= 40

        wait_for("forty connections that came and went", looked)
        self.assertGreater(len(set(opened)), 3)
        messages = sum(value for (name, _), value in last.items() if name == names[0])
        by_port = sum(value for (name, _), value in last.items() if name == names[2])
        self.assertGreater(messages, 0)
        self.assertGreater(by_port, 0.5 * messages)


if __name__ == "__main__":
    unittest.main()
