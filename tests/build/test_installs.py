#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/lib.sh installs what is missing without a terminal, as continuous integration needs it, asks at one, and does
neither when it is told not to. apt-get, sudo and the list of packages are stand-ins."""

import os
import pty
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

SCRIPT = """
set -u
source "$1"
ha_packages() { echo "build|some-package|some-package|has_it|what it is for"; }
has_it() { [ -e "$INSTALLED" ]; }
if need_packages build; then echo READY; else echo MISSING; fi
"""


class Installs(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.installed = os.path.join(self.dir.name, "installed")
        for name, does in ("apt-get", 'case "$*" in *some-package*) : >"$INSTALLED" ;; esac'), ("sudo", 'case $1 in -*) ;; *) exec "$@" ;; esac'):
            path = os.path.join(self.dir.name, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\n{does}\n")
            os.chmod(path, 0o755)

    def run_it(self, how, answer=None):
        """What it says; at a terminal if there is an answer."""
        environment = {**os.environ, "INSTALLED": self.installed, "PATH": self.dir.name + ":" + os.environ["PATH"], "TMPDIR": self.dir.name}
        environment.pop("HA_INSTALL", None)
        if how:
            environment["HA_INSTALL"] = how
        command = ["bash", "-c", SCRIPT, "bash", os.path.join(ROOT, "scripts", "lib.sh")]
        if answer is None:
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                                  check=False, env=environment, start_new_session=True, text=True).stdout  # fmt: skip
        pid, master = pty.fork()
        if pid == 0:
            os.execvpe("bash", command, environment)
        said, until = b"", time.monotonic() + 60
        while time.monotonic() < until:
            try:
                part = os.read(master, 4096)
            except OSError:
                break  # its end
            if not part:
                break
            said += part
            if b"[y/N] " in said and answer:
                os.write(master, answer.encode() + b"\n")
                answer = ""
        os.close(master)
        os.waitpid(pid, 0)
        return said.decode()

    def test_without_a_terminal_it_installs_unless_told_not_to(self):
        for how, installs in ("no", False), ("ask", False), ("yes", True), (None, True):
            said = self.run_it(how)
            self.assertEqual(os.path.exists(self.installed), installs, said)
            self.assertIn("READY" if installs else "MISSING", said)
            if installs:
                os.unlink(self.installed)
            else:
                self.assertIn("apt-get install -y --no-install-recommends some-package", said)
        self.assertIn("HA_INSTALL is yes, no or ask, not 'maybe'", self.run_it("maybe"))

    def test_what_apt_does_not_know_is_explained(self):
        with open(os.path.join(self.dir.name, "apt-get"), "w", encoding="ascii") as file:
            file.write('#!/bin/sh\ncase "$*" in *some-package*) echo "E: Unable to locate package some-package"; exit 100 ;; esac\n')
        said = self.run_it("yes")
        self.assertIn("MISSING", said)
        self.assertIn("add-apt-repository universe", said)

    def test_at_a_terminal_it_asks(self):
        for how, answer, asks, installs in (
            (None, "n", True, False), ("ask", "", True, False), (None, "y", True, True), ("yes", "n", False, True), ("no", "y", False, False),
        ):  # fmt: skip
            said = self.run_it(how, answer or "no")
            self.assertEqual("[y/N]" in said, asks, said)
            self.assertEqual(os.path.exists(self.installed), installs, said)
            if installs:
                os.unlink(self.installed)


if __name__ == "__main__":
    unittest.main()
