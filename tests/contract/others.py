#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plugins of others, by path in HA_OTHER_PLUGINS (a colon between two; "NAME=VALUE" in front of a path, with spaces, for its
environment): what every job needs of one is found to be kept by each, and data gets through. The rest is printed: it may be a
defect of theirs."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

CHECK, PERF, SIMVERBS = (os.environ[name] for name in ("CHECK", "PERF", "SIMVERBS"))
OTHERS = [entry for entry in os.environ.get("HA_OTHER_PLUGINS", "").split(":") if entry]
# Without these no job gets through its first collective.
NEEDED = {"vtable", "init", "every-device", "two-threads", "request-written", "data", "sizes", "size-zero", "sizes-null", "fifo", "iflush",
          "mr-use", "close-after-send"}
# Of these, what a plugin may be made so that there is nothing to look at: one that takes each isend at once never has to refuse one.
NOT_OF_ALL = {"request-written"}


class Others(unittest.TestCase):
    def setUp(self):
        self.fabric = f"others-{os.getpid()}"
        subprocess.run([SIMVERBS, "up", self.fabric, "--hosts", "1", "--rails", "2"], check=True, stdout=subprocess.DEVNULL)
        self.addCleanup(subprocess.run, [SIMVERBS, "down", self.fabric], check=True)

    def on_fabric(self, entry, program, *arguments):
        *settings, path = entry.split()
        environment = dict(os.environ, NCCL_SOCKET_IFNAME="lo", **dict(setting.split("=", 1) for setting in settings))
        return subprocess.run([SIMVERBS, "run", "--sysfs", self.fabric, "0", "--", program, "--plugin", path, *arguments], env=environment,
                              check=False, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip

    def test_what_every_job_needs_is_found_kept(self):
        for entry in OTHERS:
            with self.subTest(entry), tempfile.NamedTemporaryFile(suffix=".json") as answers:
                said = self.on_fabric(entry, CHECK, "--api", "newest", "--quick", "--json", answers.name)
                print(said.stdout)
                self.assertIn(said.returncode, (0, 1), said.stdout)
                found = {rule["rule"]: rule["outcome"] for rule in json.load(answers)["results"]}
                lacking = {rule for rule in NEEDED if found.get(rule) != "PASS"}
                self.assertEqual(lacking - {rule for rule in NOT_OF_ALL if found.get(rule) == "SKIP"}, set())

    def test_data_gets_through_between_two_ranks(self):
        for entry in OTHERS:
            with self.subTest(entry):
                said = self.on_fabric(entry, PERF, "--ranks", "2", "--op", "all", "--sizes", "1,1001,65537", "-n", "3", "--timeout", "30")
                self.assertEqual(said.returncode, 0, said.stdout)


if __name__ == "__main__":
    if not OTHERS:
        print("SKIP: HA_OTHER_PLUGINS names no plugin")
        sys.exit(77)
    unittest.main()
