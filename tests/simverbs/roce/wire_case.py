# SPDX-License-Identifier: Apache-2.0
"""Processes of two hosts in network namespaces that talk over the RoCE wire, as SIMVERBS_ROCE_MODE says, and what becomes
of them."""

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

BAD = ("rx_bad_icrc", "rx_malformed", "rx_unknown_opcode")


def traffic(seconds):
    """What faults are done to: some messages are always on their way."""
    return f"--op sendrecv --sizes 256K --chunk 64K -c 1 -w 1 --dev 0 --timeout 30 --seconds {seconds}".split()


class WireCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pair = namespaces.Pair()
        cls.addClassCleanup(cls.pair.close)

    def setUp(self):
        self.pair.wait_up()  # what the last test has broken, too
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

    def wait_for_line(self, process, text):
        until = time.monotonic() + LIMIT_S
        while text not in self.said():
            self.assertLess(time.monotonic(), until, f"no '{text}': {self.said()}")
            self.assertIsNone(process.poll(), self.said())
            time.sleep(0.02)

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
