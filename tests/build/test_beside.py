#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/test does beside the tests of a configuration, in a project of four tests whose second configuration
takes as long to build as it is let: it is built while tests run, stands still while one runs that must be alone, goes
on after, also beside the lab's, and nothing of it outlives a run that is ended."""

import os
import signal
import time
import unittest

from project import Project

# The build leaves a byte in `ticks` ten times a second, until both tests that run alone are over.
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(beside NONE)
enable_testing()
if(CMAKE_BINARY_DIR MATCHES asan)
  add_custom_target(slow ALL VERBATIM
    COMMAND sh -c "until test -e $FOLDER/was_in_lab; do printf . >>$FOLDER/ticks; sleep 0.1; done")
  add_test(NAME of_the_second COMMAND test -e $ENV{FOLDER}/was_in_lab)
else()
  add_test(NAME beside COMMAND sh -c "until test -s $FOLDER/ticks; do sleep 0.1; done")
  add_test(NAME alone COMMAND sh -c
    "until before=$(wc -c <$FOLDER/ticks) && sleep 1 && test $before = $(wc -c <$FOLDER/ticks); do :; done; touch $FOLDER/was_alone")
  add_test(NAME lab COMMAND sh -c
    "before=$(wc -c <$FOLDER/ticks); until test $before != $(wc -c <$FOLDER/ticks); do sleep 0.1; done; touch $FOLDER/was_in_lab")
  set_tests_properties(beside PROPERTIES COST 3)
  set_tests_properties(alone PROPERTIES RUN_SERIAL ON COST 2)
  set_tests_properties(lab PROPERTIES RUN_SERIAL ON COST 1 LABELS lab TIMEOUT 60)
endif()
"""


class Beside(Project):
    PROJECT = PROJECT
    PRESETS = ("release", "asan")

    def test_what_comes_next_is_built_beside_tests_but_not_beside_one_that_is_alone(self):
        status, text = self.finished()
        self.assertEqual((status, text.splitlines()[-1]), (0, "4 passed, 0 failed"), text)
        self.assertIn("beside the tests: asan", text)

    def test_nothing_of_it_outlives_a_run_that_is_ended(self):
        with self.start() as run:
            until = time.monotonic() + 60
            while not os.path.exists(os.path.join(self.folder, "ticks")):
                self.assertLess(time.monotonic(), until, "the second configuration is not built")
                time.sleep(0.1)
            run.send_signal(signal.SIGTERM)
            run.communicate(timeout=60)
        self.assertEqual(run.returncode, 143)
        self.assertEqual(list(self.processes()), [])


LINT = """#!/bin/sh
test "$1" = cppcheck && test "$HA_AHEAD" || exit 0
touch "$FOLDER/looking"
sleep 100
"""


class LintBeside(Project):
    PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(lint NONE)
enable_testing()
add_test(NAME beside COMMAND sh -c "until test -e $FOLDER/looking; do sleep 0.1; done")
"""
    PRESETS = ("release", "lint")

    def setUp(self):
        super().setUp()
        self.write("scripts/lint", LINT)
        os.chmod(os.path.join(self.tree, "scripts", "lint"), 0o755)
        self.commit()

    def test_a_check_that_is_not_through_in_time_is_looked_at_again_and_has_not_failed(self):
        status, text = self.finished()
        self.assertEqual((status, text.splitlines()[-1]), (0, "13 passed, 0 failed"), text)
        self.assertIn("beside the tests: lint", text)


if __name__ == "__main__":
    unittest.main()
