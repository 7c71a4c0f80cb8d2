#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two islands of two hosts each, every host with every other one at once: within an island all bytes go over the
second rail, beyond it all over the first, and the second is not tried, which has no way there. Live."""

import json
import os
import subprocess
import tempfile
import unittest

PERF, SIMVERBS, PLUGIN = (os.environ[name] for name in ("PERF", "SIMVERBS", "PLUGIN"))
LIMIT_S = 60
ISLANDS = ((0, 1), (2, 3))
OVERHEAD = 0.02  # what is no payload: clear-to-sends, heartbeats
# Nothing fails here, and a process that waits for a processor must not look like it: that warns, and goes over other rails.
QUIET = {"HA_NCCL_HEARTBEAT_MS": "60000", "HA_NCCL_STALL_MS": "0"}


def address(host):
    return f"10.0.0.{host + 1}/32"


class Islands(unittest.TestCase):
    def setUp(self):
        self.fabric = f"islands{os.getpid()}"
        words = ["--hosts", "4", "--rails", "2", "--islands", ",".join(f"{first}-{last}" for first, last in ISLANDS)]
        subprocess.run([SIMVERBS, "up", self.fabric, *words], check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
        self.addCleanup(subprocess.run, [SIMVERBS, "down", self.fabric], check=False, timeout=LIMIT_S)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.report = os.path.join(folder.name, "report.json")

    def exchange(self, **env):
        """What nccl-net-perf reports of an exchange of everybody with everybody, and what it said."""
        env = {
            "HA_NCCL_RAILS": "sim0+sim1",
            "HA_NCCL_RAIL_MODE": "island",
            "HA_NCCL_ISLAND": ",".join(f"{address(host)}={name}" for name, hosts in zip("ab", ISLANDS) for host in hosts),
            "NCCL_DEBUG": "WARN",
            **QUIET,
            **env,
        }
        words = "--ranks 4 --op alltoall --sizes 4M -n 20 -w 2 -c 2 --timeout 30".split()
        done = subprocess.run(
            [PERF, "--plugin", PLUGIN, "--fabric", self.fabric, "--json", self.report, *words],
            env={**os.environ, **env}, timeout=LIMIT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)
        with open(self.report, encoding="utf-8") as file:
            return json.load(file), done.stdout

    def sent(self):
        """Bytes that left each host by each rail: {(host, rail): bytes}."""
        told = subprocess.run([SIMVERBS, "status", self.fabric, "--json"], check=True, timeout=LIMIT_S, stdout=subprocess.PIPE)
        devices = json.loads(told.stdout)["devices"]
        return {(device["host"], device["rail"]): device["traffic"]["bytes_out"] for device in devices}

    def check_shares(self, by_second):
        """That this part of every host's bytes left by its second rail."""
        sent = self.sent()
        for host in range(4):
            whole = sent[host, 0] + sent[host, 1]
            self.assertGreater(whole, 50 << 20)
            self.assertAlmostEqual(sent[host, 1] / whole, by_second, delta=OVERHEAD, msg=f"host {host}: {sent}")

    def test_each_pair_of_hosts_uses_the_rail_of_its_kind(self):
        report, said = self.exchange()
        self.assertEqual(report["wrong"], 0)
        self.assertEqual(report["counters"]["connections"]["failovers"], 0)
        self.assertNotIn(" NCCL WARN ", said)
        self.check_shares(1 / 3)  # to one of three peers

    def test_islands_of_one_host_use_the_first_rail_alone(self):
        """What the other test sees is the islands' doing."""
        islands = ",".join(f"{address(host)}={name}" for host, name in enumerate("abcd"))
        report, said = self.exchange(HA_NCCL_ISLAND=islands)
        self.assertEqual(report["wrong"], 0)
        self.assertNotIn(" NCCL WARN ", said)
        self.check_shares(0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
