#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/coverage counts: lines and branches of the failover and the transport, a header's once."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import coveragereport  # noqa: E402

HEADER = """static inline int larger(int a, int b)
{
	if (a > b)
		return a;
	return b;
}
"""
SOURCE = """#include "header.h"

int NAME(int a)
{
	if (a == 7)
		return 8;
	return larger(a, 1);
}
"""
MAIN = """int first(int), second(int);

int main(void)
{
	return !(first(7) == 8 && first(2) == 2 && second(0) == 1);
}
"""


class Coverage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, text in (("failover/header.h", HEADER), ("failover/first.c", SOURCE.replace("NAME", "first")),
                           ("transport/second.c", SOURCE.replace("NAME", "second").replace("header", "../failover/header")),
                           ("base/main.c", MAIN)):
            path = os.path.join(self.folder, "src", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        self.run_in("src", "gcc", "-O0", "--coverage", "-c", "failover/first.c", "-o", "failover/first.c.o")
        self.run_in("src", "gcc", "-O0", "--coverage", "-c", "transport/second.c", "-o", "transport/second.c.o")
        self.run_in("src", "gcc", "--coverage", "base/main.c", "failover/first.c.o", "transport/second.c.o", "-o", "program")

    def run_in(self, folder, *words):
        subprocess.run(words, cwd=os.path.join(self.folder, folder), check=True)

    def counted(self):
        return coveragereport.count(self.folder)

    def test_what_ran_is_counted_and_a_header_once(self):
        self.run_in("src", "./program")
        files = self.counted()
        self.assertEqual(sorted(files), ["failover/first.c", "failover/header.h", "transport/second.c"])
        header = files["failover/header.h"]
        # first has 2 of it and second 0: each takes one branch, and all have run.
        self.assertEqual({number: header[number] for number in (3, 4, 5)}, {3: [2, [1, 1]], 4: [1, []], 5: [1, []]})
        lines, ran, branches, taken = coveragereport.sums(files, "failover")
        self.assertEqual((ran, taken, branches), (lines, 4, 4))
        self.assertEqual(coveragereport.sums(files, "transport"), (4, 3, 2, 1))

    def test_what_never_ran_is_named(self):
        self.run_in("src", "./program")
        self.assertEqual(list(coveragereport.missing(self.counted(), self.folder)),
                         ["src/transport/second.c:5: 1 of 2 branches never: if (a == 7)",
                          "src/transport/second.c:6: never: return 8;"])

    def test_nothing_ran(self):
        files = self.counted()
        self.assertEqual(coveragereport.sums(files, "transport"), (4, 0, 2, 0))
        self.assertIn("0.0 %", coveragereport.table(files, files))

    def test_another_build_is_refused(self):
        with self.assertRaisesRegex(ValueError, "nothing of src/failover that was built with --coverage"):
            coveragereport.count(os.path.join(self.folder, "src", "base"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
