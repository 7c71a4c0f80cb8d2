#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/test --dev: its target builds every program that its tests start, so that none is run as it was before the
edit, and whoever names its labels names the same ones. BUILD in the environment is the build folder."""

import json
import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.path.realpath(os.environ["BUILD"])


def output(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=60, text=True).stdout


def labels_of(*path):
    """Those in the pattern that the file hands to ctest."""
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        (pattern,) = set(re.findall(r"\^\((unit[a-z|]*)\)\$", re.sub(r".*gate/clang.*", "", file.read())))
    return pattern.split("|")


class Dev(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
            self.labels = re.search(r"set\(HA_DEV_LABELS ([a-z ]+)\)", file.read()).group(1).split()

    def test_all_who_name_the_labels_agree(self):
        self.assertEqual(labels_of("scripts", "test"), self.labels)
        self.assertEqual(labels_of("CMakePresets.json"), self.labels)

    def test_the_target_builds_what_the_tests_start(self):
        # From a folder of its own: in that of the tests, ctest would begin the log anew that it is writing.
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(os.path.join(folder.name, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            file.write(f"subdirs({json.dumps(BUILD)})\n")
        described = output("ctest", "--test-dir", folder.name, "--show-only=json-v1", "-L", f"^({'|'.join(self.labels)})$", "-LE", "^full$")
        tests = json.loads(described)["tests"]
        self.assertGreater(len(tests), 40)
        made = re.findall(r" -o (\S+)", output("ninja", "-C", BUILD, "-t", "commands", "dev_tests"))
        made = {os.path.realpath(os.path.join(BUILD, path)) for path in made}
        for test in tests:
            program = os.path.realpath(test["command"][0])
            with self.subTest(test["name"]):
                self.assertIn(program, made, "dev_tests does not build it")


if __name__ == "__main__":
    unittest.main()
