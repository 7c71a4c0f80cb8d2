#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The comparison of the probe's answers finds what it is there to find."""

import os
import subprocess
import tempfile
import unittest

import probe_answers
import probe_kernel

PAGE = f"""
{probe_answers.BEGIN_MARK}
| question | simverbs | kernel | why |
| --- | --- | --- | --- |
| `post` `poll` | `0` | `EINVAL` | because |
{probe_answers.END_MARK}
"""


class Parsing(unittest.TestCase):
    def test_answers(self):
        self.assertEqual(
            probe_answers.parse(["# a comment", "", "a.b = 1, 2", "c = d = e", "end of 2 answers"]),
            {"a.b": "1, 2", "c": "d = e"},
        )

    def test_lost_answers_are_noticed(self):
        for lines in (["a = 1"], ["a = 1", "end of 2 answers"], ["a = 1", "a = 1", "end of 1 answers"], ["a", "end of 0"]):
            with self.assertRaises(probe_answers.Incomplete):
                probe_answers.parse(lines)

    def test_a_row_may_list_several_questions(self):
        self.assertEqual(probe_answers.parse_table(PAGE), {"post": ("0", "EINVAL"), "poll": ("0", "EINVAL")})

    def test_a_row_needs_a_reason_and_a_question_one_row(self):
        for page in (PAGE.replace("because", ""), PAGE.replace("`poll`", "`post`"), PAGE.replace("begin", "start")):
            with self.assertRaises(probe_answers.Incomplete):
                probe_answers.parse_table(page)


class Comparing(unittest.TestCase):
    def test_what_is_equal_or_listed_is_right(self):
        faults = probe_answers.compare({"a": "1", "b": "2"}, {"a": "1", "b": "3"}, {"b": ("2", "3")})
        self.assertEqual(faults, [])

    def test_what_is_wrong_is_named(self):
        cases = (
            ({"a": "1"}, {"a": "2"}, {}, "not listed"),
            ({"a": "1"}, {"a": "1"}, {"a": ("1", "2")}, "but both"),
            ({"a": "1"}, {"a": "3"}, {"a": ("1", "2")}, "listed as"),
            ({"a": "1"}, {}, {}, "None"),
            ({}, {"a": "1"}, {}, "None"),
            ({}, {}, {"a": ("1", "2")}, "None"),
        )
        for ours, theirs, listed, words in cases:
            faults = probe_answers.compare(ours, theirs, listed)
            self.assertEqual(len(faults), 1)
            self.assertIn(words, faults[0])

    def test_between_two_stacks_either_s_answer_is_right_and_no_other(self):
        kernel, listed = {"a": "1", "b": "2"}, {"b": ("3", "2")}
        for answers in ({"a": "1", "b": "2"}, {"a": "1", "b": "3"}):
            self.assertEqual(probe_answers.strange(answers, kernel, listed), [])
        for answers in ({"a": "1", "b": "4"}, {"a": "3", "b": "2"}, {"a": "1"}, {"a": "1", "b": "2", "c": "5"}):
            self.assertEqual(len(probe_answers.strange(answers, kernel, listed)), 1, answers)

    def test_changes_against_a_record(self):
        self.assertEqual(len(probe_answers.changes({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"})), 2)
        self.assertEqual(probe_answers.changes({"a": "1"}, {"a": "1"}), [])


class LocalProcess:
    """What a guest's process looks like to the driver's side."""

    def __init__(self, folder, script):
        self.out, self.err = os.path.join(folder, "out"), os.path.join(folder, "err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=out, stderr=err)

    def poll(self):
        return self.process.poll()

    @property
    def status(self):
        return self.process.returncode

    def answer(self):
        self.process.stdin.write(b"done\n")
        self.process.stdin.flush()


class Driver:
    def __init__(self):
        self.done = []

    def do(self, what):
        self.done.append(what)


class Conversing(unittest.TestCase):
    def converse(self, script):
        with tempfile.TemporaryDirectory() as folder:
            process, driver = LocalProcess(folder, script), Driver()
            try:
                return probe_kernel.converse(process, process.answer, driver), driver.done
            finally:
                process.process.kill()
                process.process.wait()
                process.process.stdin.close()

    def test_requests_are_answered_one_by_one(self):
        script = "echo a = 1; echo '! link down'; read x; echo b = $x; echo '! link up'; read y; echo end"
        self.assertEqual(self.converse(script), (["a = 1", "b = done", "end"], ["link down", "link up"]))

    def test_a_line_written_in_two_parts_is_one(self):
        self.assertEqual(self.converse("printf 'a = '; sleep 0.1; echo 1")[0], ["a = 1"])

    def test_a_probe_that_gives_up_is_an_error_with_its_words(self):
        with self.assertRaisesRegex(probe_kernel.ProbeError, "no such device"):
            self.converse("echo a = 1; echo no such device >&2; exit 3")


if __name__ == "__main__":
    unittest.main()
