#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/test --resume, in a project of five tests that compiles nothing: what has passed before the run was cut off
is not run again and counts, what has failed is, and only in the very tree that passed. --full goes on where the gate
ended."""

import os
import signal
import time
import unittest

from project import Project

# A test leaves a line in `ran`. One fails until there is `mended`, one waits for `go`. In turn, for they lock each other.
# The last one is of the full tier alone.
FIVE = """
cmake_minimum_required(VERSION 3.16)
project(five NONE)
enable_testing()
function(one name cost labels)
  add_test(NAME ${name} COMMAND sh -c "echo ${name} >>$FOLDER/ran; ${ARGN}")
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" COST ${cost} RESOURCE_LOCK all TIMEOUT 60)
endfunction()
one(passes 40 script "true")
one(fails 30 script "test -e $FOLDER/mended")
one(waits 20 script "until test -e $FOLDER/go; do sleep 0.1; done")
one(comes_late 10 script "true")
one(at_length 5 "script;full" "true")
"""


class Resume(Project):
    PROJECT = FIVE
    PRESETS = ("release",)

    def setUp(self):
        super().setUp()
        self.results = os.path.join(self.tree, "build", "results-gate")

    def ran(self):
        """What has run since this was asked last."""
        path = os.path.join(self.folder, "ran")
        with open(path, encoding="utf-8") as file:
            names = file.read().split()
        os.remove(path)
        return names

    def cut_off(self):
        """A run that crashes while `waits` waits, after one test has passed and one has failed."""
        before = set(os.listdir("/dev/shm"))
        with self.start() as run:
            until = time.monotonic() + 90
            while not self.waits():
                self.assertLess(time.monotonic(), until, "the run does not get to the test that waits")
                time.sleep(0.1)
            self.fabrics = set(os.listdir("/dev/shm")) - before
            self.crash()
            run.communicate(timeout=20)
        self.assertEqual(run.returncode, -signal.SIGKILL)
        self.assertEqual(self.ran(), ["passes", "fails", "waits"])

    def waits(self):
        """The third test runs, and the results of the first two are kept."""
        texts = []
        for path in self.results, os.path.join(self.folder, "ran"):
            try:
                with open(path, encoding="utf-8") as file:
                    texts.append(file.read())
            except FileNotFoundError:
                return False
        return "\tfailed\t" in texts[0] and "waits" in texts[1]

    def test_what_passed_before_the_crash_counts_and_only_the_rest_runs(self):
        self.cut_off()
        # Of what passed once and failed later the last word counts; the crash may have cut a line short.
        with open(self.results, encoding="utf-8") as file:
            lines = file.readlines()
        lines.insert(2, "release\tfails\tpassed\t2026-01-01 00:00:00\n")
        with open(self.results, "w", encoding="utf-8") as file:
            file.write("".join(lines) + "release\twaits\tpas")
        self.touch("mended")
        self.touch("go")
        status, text = self.finished("--resume")
        self.assertEqual(sorted(self.ran()), ["comes_late", "fails", "waits"], text)
        self.assertRegex(text, r"passed before, in this tree:\n  release: 1, from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d to ")
        self.assertRegex(text, r"release +4 +0 +0 ")
        self.assertEqual((status, text.splitlines()[-1]), (0, "4 passed, 0 failed"), text)
        # Another tree has not passed, nor has one that nobody can name.
        self.write("CMakeLists.txt", FIVE + "# other\n")
        status, text = self.finished("--resume")
        self.assertEqual(status, 1)
        self.assertIn("the working tree is not a clean checkout", text)
        self.commit()
        status, text = self.finished("--resume")
        self.assertEqual(status, 1)
        self.assertRegex(text, r"the earlier run was of tree [0-9a-f]{40}, this is [0-9a-f]{40}")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "ran")), text)

    def test_the_full_tier_runs_what_the_gate_has_not_shown_in_that_tree(self):
        self.touch("go")
        status, text = self.finished()
        self.assertEqual((status, text.splitlines()[-1]), (1, "3 passed, 1 failed"), text)
        self.assertEqual(self.ran(), ["passes", "fails", "waits", "comes_late"])
        status, text = self.finished("--full", "--resume", "-R", "^at_length$")
        self.assertEqual(self.ran(), ["at_length"], text)
        # Whatever is left out by name: ctest counts without those.
        status, text = self.finished("--full", "--resume", "-E", "^passes$")
        self.assertEqual(self.ran(), ["fails"], text)
        self.touch("mended")
        status, text = self.finished("--full", "--resume")
        self.assertEqual(self.ran(), ["fails"], text)
        self.assertEqual((status, text.splitlines()[-1]), (0, "5 passed, 0 failed"), text)
        # Without --resume it runs all; the gate of another tree shows nothing.
        status, text = self.finished("--full")
        self.assertEqual((status, len(self.ran())), (0, 5), text)
        self.write("CMakeLists.txt", FIVE + "# other\n")
        self.commit()
        os.remove(os.path.join(self.tree, "build", "results-full"))
        status, text = self.finished("--full", "--resume")
        self.assertEqual((status, len(self.ran())), (0, 5), text)


if __name__ == "__main__":
    unittest.main()
