#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`scripts/lint claims` notices a proof that is not there."""
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = """## What is claimed, and what proves it

| claim | proof |
|---|---|
| one | `tests/a.c`: `it_holds`, `it_holds_again`; `tests/b.py`: `test_it` |
%s
## What is not protected
"""


class Claims(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        for folder in ("scripts", "docs", "tests"):
            os.mkdir(os.path.join(self.root.name, folder))
        shutil.copy(os.path.join(ROOT, "scripts", "lint"), os.path.join(self.root.name, "scripts"))
        self.write("tests/a.c", "static void it_holds(void)\nstatic void it_holds_again(void)\n")
        self.write("tests/b.py", "def test_it():\n")

    def tearDown(self):
        self.root.cleanup()

    def write(self, path, text):
        with open(os.path.join(self.root.name, path), "w", encoding="utf-8") as file:
            file.write(text)

    def lint(self, row=""):
        self.write("docs/threat-model.md", PAGE % row)
        run = subprocess.run([os.path.join(self.root.name, "scripts", "lint"), "claims"], text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return run.returncode, run.stdout

    def test_proofs_that_are_there_are_counted(self):
        self.assertEqual(self.lint(), (0, "claims: 1, with 3 cases\n"))

    def test_what_is_not_there_is_named(self):
        for row, complaint in (("| two | `tests/a.c`: `it_hold` |", "tests/a.c has no it_hold: "),
                               ("| two | `tests/c.c`: `it_holds` |", "tests/c.c has no it_holds: "),
                               ("| two | `it_holds` |", "no file has no it_holds: "),
                               ("| two | trust us |", "nothing proves: ")):
            status, output = self.lint(row + "\n")
            self.assertEqual((status, output.startswith(complaint)), (1, True), output)

    def test_a_page_without_claims_is_none(self):
        self.write("docs/threat-model.md", "")
        run = subprocess.run([os.path.join(self.root.name, "scripts", "lint"), "claims"], check=False,
                             stdout=subprocess.DEVNULL)
        self.assertEqual(run.returncode, 1)


if __name__ == "__main__":
    unittest.main()
