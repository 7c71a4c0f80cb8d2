#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of scripts/: docs/CONTRIBUTING.md names each, and no other, and each says from any folder how it is called,
for which nothing is installed, built or written."""

import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
SCRIPTS = os.path.join(ROOT, "scripts")
LIMIT_S = 60
STAND_INS = ("apt-get", "sudo", "cmake", "ninja", "dot", "gnuplot", "clang-format-14")  # of what installs, builds, draws or lays out


def programs():
    """Modules have a suffix, programs have none."""
    return sorted(entry.name for entry in os.scandir(SCRIPTS) if entry.is_file() and "." not in entry.name)


def named(page):
    """The programs in the rows for scripts/ of a page's table."""
    rows = re.findall(r"^\| `scripts/`, [^|]*\|([^|]*)\|", page, re.M)
    return sorted(re.findall(r"`([^`]+)`", " ".join(rows)))


class Programs(unittest.TestCase):
    def test_contributing_names_each(self):
        with open(os.path.join(ROOT, "docs", "CONTRIBUTING.md"), encoding="utf-8") as file:
            self.assertEqual(named(file.read()), programs())

    def test_each_can_be_executed(self):
        for name in programs():
            self.assertTrue(os.access(os.path.join(SCRIPTS, name), os.X_OK), f"scripts/{name}")

    def test_each_says_how_it_is_called(self):
        """What does more than say finds a stand-in, which tells."""
        with tempfile.TemporaryDirectory() as folder:
            told = os.path.join(folder, "told")
            for tool in STAND_INS:
                path = os.path.join(folder, tool)
                with open(path, "w", encoding="ascii") as file:
                    file.write(f'#!/bin/sh\necho "{tool} $*" >>"{told}"\nexit 1\n')
                os.chmod(path, 0o755)
            environment = {**os.environ, "PATH": folder + ":" + os.environ["PATH"], "TMPDIR": folder, "HA_INSTALL": "yes"}
            for name in programs():
                with self.subTest(name):
                    done = subprocess.run([os.path.join(SCRIPTS, name), "--help"], cwd=folder, env=environment, timeout=LIMIT_S, check=False,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertRegex(done.stdout, rf"usage: (scripts/)?{name}\b")
                    self.assertEqual(sorted(os.listdir(folder)), sorted(STAND_INS), "it called or wrote something")
                if os.path.exists(told):
                    os.unlink(told)  # the next one's own


if __name__ == "__main__":
    unittest.main()
