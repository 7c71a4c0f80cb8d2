#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bundle as NCCL meets it, on a live fabric: properties in every version of the interface, and the rules of the contract."""
import os
import subprocess
import unittest

CHECK, SIMVERBS, PLUGIN, PROPERTIES, FUSED = (os.environ[name] for name in ("CHECK", "SIMVERBS", "PLUGIN", "PROPERTIES", "FUSED"))
# One connection or more on each device, their data, and what is said of them.
RULES = ("devices-stable", "properties", "properties-sysfs", "every-device", "data", "fifo", "iflush", "mr-use", "close-after-send")


class Bundle(unittest.TestCase):
    def setUp(self):
        self.fabric = f"bundle-{os.getpid()}"
        subprocess.run([SIMVERBS, "up", self.fabric, "--hosts", "1", "--rails", "3"], check=True, stdout=subprocess.DEVNULL)
        self.addCleanup(subprocess.run, [SIMVERBS, "down", self.fabric], check=True)

    def on_fabric(self, *command, rails="sim0+sim1"):
        environment = dict(os.environ, NCCL_SOCKET_IFNAME="lo", HA_NCCL_RAILS=rails)
        return subprocess.run([SIMVERBS, "run", "--sysfs", self.fabric, "0", "--", *command], env=environment, check=False, timeout=100,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip

    def test_each_version_is_told_of_one_device_for_two_ports(self):
        said = self.on_fabric(PROPERTIES, PLUGIN)
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assertIn("5 test(s)", said.stdout)

    def test_each_version_makes_a_device_of_two_ports_when_nccl_asks(self):
        said = self.on_fabric(FUSED, PLUGIN, rails="nccl")
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assertIn("4 test(s)", said.stdout)

    def test_a_bundle_keeps_the_contract(self):
        for api in ("v8", "v12"):
            with self.subTest(api):
                said = self.on_fabric(CHECK, "--plugin", PLUGIN, "--api", api, "--quick", *(f"--rule={rule}" for rule in RULES))
                self.assertEqual(said.returncode, 0, said.stdout)
                self.assertRegex(said.stdout, r"PASS +\S* *every-device.* 2 devices|every-device .*PASS.*2 devices|2 devices", said.stdout)


if __name__ == "__main__":
    unittest.main()
