# SPDX-License-Identifier: Apache-2.0
"""nccl-ha metrics --listen among clients who mean it harm: a scrape is answered at once, whoever sits there, an hour
without descriptors costs no processor, and a name that is not this host's reads nothing."""

import http.client
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from job import SLACK, TOOL, Held, wait_for


class Http(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        self.addCleanup(shutil.rmtree, self.dir)

    def serve(self, *words):
        """Its port."""
        self.server = subprocess.Popen([TOOL, "metrics", "--listen", "0", "--dir", self.dir, *words], stdout=subprocess.PIPE)
        self.addCleanup(self.end)
        return int(self.server.stdout.readline().rsplit(b":", 1)[1].split(b"/")[0])

    def end(self):
        self.server.send_signal(signal.SIGTERM)
        status = self.server.wait(30)
        self.server.stdout.close()
        self.assertEqual(status, 0)

    @staticmethod
    def scrape(port, host=None):
        """The status and the page."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/metrics", headers={"Host": host} if host else {})
        answer = connection.getresponse()
        page = answer.read().decode()
        connection.close()
        return answer.status, page

    def test_among_80_who_say_nothing_and_come_again_a_scrape_takes_less_than_a_second(self):
        port = self.serve()
        stop = threading.Event()
        came = [0]

        def sit():
            while not stop.is_set():
                with socket.socket() as s:
                    s.settimeout(0.2)
                    try:
                        s.connect(("127.0.0.1", port))
                        came[0] += 1
                        while not stop.is_set():
                            try:
                                if not s.recv(1):
                                    break
                            except TimeoutError:
                                pass
                    except OSError:
                        pass

        idle = [threading.Thread(target=sit) for _ in range(80)]
        for each in idle:
            each.start()
        try:
            wait_for("80 of them", lambda: came[0] >= 80)
            took = []
            for _ in range(5):
                began = time.monotonic()
                self.assertEqual(self.scrape(port)[0], 200)
                took.append(time.monotonic() - began)
                time.sleep(0.3)
            self.assertLess(sorted(took)[2], 1, took)
            self.assertLess(max(took), 1 * SLACK, took)
            wait_for("those who were dropped to come again", lambda: came[0] >= 160)
        finally:
            stop.set()
            for each in idle:
                each.join()

    def processor_s(self):
        with open(f"/proc/{self.server.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_without_descriptors_it_waits_and_goes_on_when_there_are_some(self):
        port = self.serve()
        self.assertEqual(self.scrape(port)[0], 200)
        time.sleep(0.3)  # it has closed that connection
        used = len(os.listdir(f"/proc/{self.server.pid}/fd"))
        before = resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE, (used, before[1]))
        with socket.create_connection(("127.0.0.1", port)) as waiting:
            time.sleep(0.3)
            began = self.processor_s()
            time.sleep(1.5)
            self.assertLess(self.processor_s() - began, 0.15)
            waiting.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            waiting.settimeout(0.2)
            self.assertRaises(TimeoutError, waiting.recv, 1)  # it has none
            resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE, before)
            waiting.settimeout(20)
            self.assertEqual(waiting.recv(12), b"HTTP/1.1 200")

    def test_a_page_is_made_once_a_second(self):
        port = self.serve()
        first = self.scrape(port)[1]
        self.assertIn("nccl_ha_unreadable_files 0\n", first)
        began = time.monotonic()
        path = os.path.join(self.dir, f"nccl-ha.{os.getuid()}.1")
        with open(path, "wb") as file:
            file.write(b"x" * 4096)
        with Held(path):
            second = self.scrape(port)[1]
            if time.monotonic() - began < 0.9:
                self.assertEqual(first, second)
            wait_for("a new page", lambda: "nccl_ha_unreadable_files 1\n" in self.scrape(port)[1], 10, 0.2)
            self.assertGreater(time.monotonic() - began, 0.5)

    def test_only_names_of_this_host_are_answered(self):
        port = self.serve("--host", "metrics.example.org")
        for host in "127.0.0.1", f"127.0.0.1:{port}", "[::1]:80", "LocalHost", socket.gethostname(), "Metrics.Example.Org:9911":
            self.assertEqual(self.scrape(port, host)[0], 200, host)
        for host in "evil.example.org", f"evil.example.org:{port}", "127.0.0.1.evil.example.org", "localhost.evil":
            status, page = self.scrape(port, host)
            self.assertEqual(status, 421, host)
            self.assertIn("--host", page)
            self.assertNotIn("nccl_ha", page)

    def test_any_name_is_answered_where_that_was_asked_for(self):
        self.assertEqual(self.scrape(self.serve("--host", "*"), "anything.example.org")[0], 200)


class Textfile(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        self.addCleanup(shutil.rmtree, self.dir)
        self.file = os.path.join(self.dir, "nccl-ha.prom")

    def start(self, *words):
        return subprocess.Popen([TOOL, "metrics", "--dir", self.dir, "--textfile", self.file, *words], stderr=subprocess.PIPE)

    def test_writers_that_are_killed_leave_no_more_than_one_file(self):
        for i in range(30):
            writer = self.start("--interval", "0.1")
            wait_for("a page", lambda: os.path.exists(self.file))
            time.sleep(0.002 * (i % 10))
            writer.kill()
            writer.wait()
            writer.stderr.close()
            # As one that was killed in the middle leaves it.
            with open(self.file + ".new", "w", encoding="ascii") as file:
                file.write("half")
            os.unlink(self.file)
        with self.start() as last:
            self.assertEqual(last.wait(20), 0, last.stderr.read())
        self.assertEqual(os.listdir(self.dir), ["nccl-ha.prom"])
        with open(self.file, encoding="utf-8") as file:
            self.assertIn("nccl_ha_unreadable_files 0\n", file.read())

    def test_nobody_elses_file_or_link_is_written_into(self):
        target = os.path.join(self.dir, "target")
        for put in (lambda: os.symlink(target, self.file + ".new"), lambda: os.link(target, self.file + ".new")):
            with open(target, "w", encoding="ascii") as file:
                file.write("mine")
            put()
            with self.start() as writer:
                self.assertEqual(writer.wait(20), 1)
                self.assertIn(self.file.encode(), writer.stderr.read())
            with open(target, encoding="ascii") as file:
                self.assertEqual(file.read(), "mine")
            os.unlink(self.file + ".new")


if __name__ == "__main__":
    unittest.main()
