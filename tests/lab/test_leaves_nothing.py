#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A lab that is interrupted at any time leaves no process and no folder, whatever ends it; a lab without
a terminal and without input works, also beside another one."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest

import image
import machine

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["BUILD"]
LIMIT_S = 150
MARK = "LAB_TEST_MARK"


def processes(mark):
    """Those that carry the mark of a test in their environment, as {pid: command line}."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                ours = f"{MARK}={mark}".encode() in file.read().split(b"\0")
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if ours:
            found[int(entry)] = command
    return found


class LabTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """So that what each test starts is a machine, rather than the making of its image."""
        machine.kvm_works(image.get(os.path.join(BUILD, "lab")), os.path.join(BUILD, "lab"))

    def setUp(self):
        own = machine.Folder()  # which goes also if this test is killed
        self.addCleanup(own.close)
        self.folder = own.path
        self.mark = os.path.basename(self.folder)
        self.env = {**os.environ, MARK: self.mark, "TMPDIR": self.folder}

    def tearDown(self):
        for pid in processes(self.mark):
            os.kill(pid, signal.SIGKILL)

    def command(self, *words):
        return [*machine.die_with_parent(), sys.executable, "-B", os.path.join(HERE, "main.py"), "--build", BUILD, *words]

    def lab(self, *words, **options):
        return subprocess.Popen(self.command(*words), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **options)  # fmt: skip

    def left(self):
        return processes(self.mark), os.listdir(self.folder)

    def wait_for(self, what, happened):
        deadline = time.monotonic() + LIMIT_S
        while not happened():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def qemus(self):
        return [command for command in processes(self.mark).values() if command.startswith(shutil.which("qemu-system-x86_64"))]

    def assert_gone(self):
        """At once, but for the moment that a process which was killed takes to be gone."""
        deadline = time.monotonic() + 5
        while any(self.left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.left(), ({}, []))


class LeavesNothing(LabTest):
    def interrupt(self, number, when_up):
        lab = self.lab("one" if when_up else "two", "-v", "shell", "--", "sh", "-c", "echo started >/run/lab/up; sleep 1000")
        self.wait_for("its machines", lambda: len(self.qemus()) == (1 if when_up else 2))
        if when_up:
            self.wait_for("the guest's command", lambda: any("up" in names for _, _, names in os.walk(self.folder)))
        self.assertIsNone(lab.poll())
        lab.send_signal(number)
        out, err = lab.communicate(timeout=LIMIT_S)
        self.assertNotIn("Traceback", err)
        self.assertEqual(lab.returncode, -number if number == signal.SIGKILL else 128 + number, out + err)
        self.assert_gone()

    def test_terminated_while_it_boots(self):
        self.interrupt(signal.SIGTERM, False)

    def test_killed_while_it_boots(self):
        self.interrupt(signal.SIGKILL, False)

    def test_interrupted_while_a_command_runs(self):
        self.interrupt(signal.SIGINT, True)

    def test_machine_that_dies_is_named_with_its_console(self):
        lab = self.lab("one", "shell", "--", "sh", "-c", "echo c >/proc/sysrq-trigger; sleep 1000")
        out, err = lab.communicate(timeout=LIMIT_S)
        self.assertEqual(lab.returncode, 1, out + err)
        self.assertIn("QEMU ended", err)
        self.assertIn("sysrq triggered crash", err)
        self.assert_gone()


class Shell(LabTest):
    def test_killed_while_a_command_runs_beside_another_lab(self):
        other = self.lab("one", "shell", "--", "sh", "-c", "sleep 2; echo out; echo err >&2; exit 3")
        self.wait_for("a machine", lambda: len(self.qemus()) == 1)
        lab = self.lab("one", "shell", "--", "sh", "-c", "sleep 1000")
        self.wait_for("two machines", lambda: len(self.qemus()) == 2)
        lab.kill()
        lab.communicate(timeout=LIMIT_S)
        out, err = other.communicate(timeout=LIMIT_S)
        self.assertEqual((other.returncode, out, err), (3, "out\n", "err\n"))
        self.assert_gone()

    def test_shell_on_a_terminal(self):
        ours, theirs = pty.openpty()
        lab = subprocess.Popen(self.command("shell"), env=self.env, stdin=theirs, stdout=theirs, stderr=theirs,
                               start_new_session=True)  # fmt: skip
        os.close(theirs)
        said = b""

        def hear(text):
            nonlocal said
            try:
                if select.select([ours], [], [], 0)[0]:
                    said += os.read(ours, 4096)
            except OSError:
                pass  # the other end is closed
            return text in said

        self.wait_for("a prompt", lambda: hear(b"lab:"))
        os.write(ours, b"echo $((6 * 7)) in $(hostname); tty\n")
        self.wait_for("its answer", lambda: hear(b"42 in") and hear(b"/dev/hvc0"))
        os.write(ours, b"echo asl''eep; sleep 1000\n")
        self.wait_for("sleep", lambda: hear(b"asleep"))
        time.sleep(0.5)
        os.write(ours, b"\x03")  # is for the guest, not for us
        os.write(ours, b"exit 5\n")
        self.wait_for("its end", lambda: hear(b"never") or lab.poll() is not None)
        self.assertEqual(lab.wait(), 5, said)
        os.close(ours)
        self.assert_gone()


if __name__ == "__main__":
    try:
        machine.find_qemu()
    except machine.NoMachine as reason:
        print(f"SKIP: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
