#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What of a machine can be tested without one: its folder goes away with its owner, KVM is asked once, a
command line is taken apart as it should."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import conduct
import judge
import machine
import main
import topology

OWNER = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import machine
folder = machine.Folder()
# Like a QEMU: names the folder on its command line, and outlives us if nobody kills it.
user = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", "path=" + folder.path], start_new_session=True)
print(folder.path, user.pid, folder.guard.pid, flush=True)
sys.stdin.read()
"""


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class StuckCards(unittest.TestCase):
    def test_are_those_whose_queue_timed_out(self):
        console = (
            "[   12.9] virtio_net virtio4 a0: NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 5392 ms\r\n"
            "[   17.8] virtio_net virtio4 a0: TX timeout on queue: 0, sq: output.0, vq: 0x1, name: output.0\r\n"
            "[   17.8] NETDEV WATCHDOG: b1 (virtio_net): transmit queue 0 timed out\r\n"
            "[   17.8] virtio_net virtio4 a0: NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 10256 ms\r\n"
        )
        self.assertEqual(machine.stuck_cards(console), ["a0", "b1"])
        self.assertEqual(machine.stuck_cards("rdma_rxe: qp#85 Failed allocating skb\r\n"), [])

    def test_excuse_a_drill_that_failed_but_no_wrong_byte(self):
        well, failed, wrong = judge.Row("x", "two", wrong=0), judge.Row("y", "two"), judge.Row("z", "two", wrong=1)
        failed.complain("nothing arrived")
        wrong.complain("wrong bytes")
        self.assertTrue(conduct.may_be_the_lab([well, failed]))
        self.assertFalse(conduct.may_be_the_lab([well]))
        self.assertFalse(conduct.may_be_the_lab([failed, wrong]))


class KernelLog(unittest.TestCase):
    """Its clock is 2 s behind the guest's here."""

    LOG = (
        "[    9.000000] lab mark 3\n[    9.100000] lab mark 4\n[   10.000100] infiniband a1: set down\n"
        "[   10.020000] infiniband b1: set down\n[   11.000000] infiniband a1: set active\n"
        "[   12.500000] infiniband a1: set down\n[   20.000000] lab mark 17\n[   20.100500] lab mark 18\n"
    )

    def test_says_when_ports_went_down(self):
        marks = {"lab mark 17": (21_990_000_000, 22_030_000_000), "lab mark 18": (22_100_400_000, 22_100_600_000)}
        found = machine.ports_down(self.LOG, marks)
        self.assertEqual(found, {"a1": [12_000_100_000, 14_500_000_000], "b1": [12_020_000_000]})

    def test_goes_by_the_mark_that_was_set_fastest(self):
        marks = {"lab mark 17": (22_000_000_000, 22_000_000_000), "lab mark 18": (22_000_000_000, 23_000_000_000)}
        self.assertEqual(machine.ports_down(self.LOG, marks)["b1"], [12_020_000_000])

    def test_without_the_mark_says_nothing(self):
        with self.assertRaises(KeyError):
            machine.ports_down(self.LOG, {"lab mark 99": (0, 1)})


class FolderOfAnOwner(unittest.TestCase):
    def setUp(self):
        here = os.path.dirname(os.path.abspath(__file__))
        self.owner = subprocess.Popen([sys.executable, "-B", "-c", OWNER, here], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.path, *self.processes = self.owner.stdout.readline().split()

    def tearDown(self):
        self.owner.kill()
        self.owner.communicate()

    def test_goes_with_it_and_so_do_a_machine_and_the_guard(self):
        self.assertTrue(os.path.isdir(self.path))
        with open(os.path.join(self.path, "file"), "w", encoding="utf-8") as file:
            file.write("text")
        self.owner.kill()
        deadline = time.monotonic() + 20
        while os.path.exists(self.path) or any(map(lives, self.processes)):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_that_nobody_uses_any_more_goes_at_once(self):
        folder = machine.Folder()
        folder.close()
        self.assertEqual(folder.guard.returncode, 0)
        self.assertFalse(os.path.exists(folder.path))


class Kvm(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="nccl-ha-labtest.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.image = mock.Mock(fingerprint="one")
        patch = mock.patch.object(os, "access", lambda path, how: True)
        patch.start()
        self.addCleanup(patch.stop)

    def test_is_asked_once_for_an_image(self):
        with mock.patch.object(machine, "probe_kvm", return_value=False) as probe:
            self.assertFalse(machine.kvm_works(self.image, self.folder))
            self.assertFalse(machine.kvm_works(self.image, self.folder))
            self.assertEqual(probe.call_count, 1)
            self.image.fingerprint = "two"
            probe.return_value = True
            self.assertTrue(machine.kvm_works(self.image, self.folder))
            self.assertTrue(machine.kvm_works(self.image, self.folder))
            self.assertEqual(probe.call_count, 2)

    def test_is_asked_again_when_the_answer_is_damaged(self):
        with mock.patch.object(machine, "probe_kvm", return_value=True) as probe:
            for text in ["", "[]", "{}", "nonsense"]:
                with open(os.path.join(self.folder, "kvm.json"), "w", encoding="utf-8") as file:
                    file.write(text)
                self.assertTrue(machine.kvm_works(self.image, self.folder))
            self.assertEqual(probe.call_count, 4)

    def test_a_device_that_nobody_may_use(self):
        with mock.patch.object(os, "access", lambda path, how: False), mock.patch.object(machine, "probe_kvm") as probe:
            self.assertFalse(machine.kvm_works(self.image, self.folder))
            probe.assert_not_called()


class NoMachineHere(unittest.TestCase):
    def test_is_a_skip_with_its_reason(self):
        for missing, reason in [("qemu", "SKIP: qemu-system-x86_64 is not installed"), ("x86", "SKIP: the lab's guests are x86_64")]:
            said = io.StringIO()
            uname = mock.Mock(machine="aarch64" if missing == "x86" else "x86_64")
            with mock.patch.object(shutil, "which", lambda name: None), mock.patch.object(os, "uname", lambda: uname), \
                    contextlib.redirect_stdout(said):  # fmt: skip
                self.assertEqual(main.main(["one", "shell", "--", "true"]), 77)
            self.assertIn(reason, said.getvalue())


class Cables(unittest.TestCase):
    def test_each_end_hears_the_other_and_nobody_else(self):
        for kind in ["unix", "udp"]:
            with mock.patch.object(machine, "has_netdev", lambda name: True):
                a, b = topology.cable(kind)
            with a, b:
                b.settimeout(10)
                a.send(b"x" * 4218)
                self.assertEqual(len(b.recv(65536)), 4218, kind)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
