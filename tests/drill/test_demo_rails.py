# SPDX-License-Identifier: Apache-2.0
"""The picture of scripts/demo rails: gnuplot draws what each of two rails carried, and a run has that to draw."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "docs", "img", "demo.gp")
BUILD = os.environ["BUILD"]
SLACK = os.environ.get("SLACK", "1")


def draw(data, *words):
    """The picture of a folder with data, as text."""
    picture = os.path.join(data, "demo.svg")
    done = subprocess.run(["gnuplot", "-e", f"data='{data}'", "-e", f"picture='{picture}'", *words, DEMO], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)  # fmt: skip
    if done.returncode or done.stdout:
        raise AssertionError(f"gnuplot: status {done.returncode}: {done.stdout.decode()}")
    with open(picture, encoding="utf-8") as file:
        return file.read()


def heights(picture, curve):
    """At which heights of a picture of gnuplot's a curve is, without its sample in the key."""
    path = re.search(rf"<title>{curve}</title>.*?<path [^>]*d='([^']*)'", picture, re.DOTALL).group(1)
    return {float(y) for _, y in re.findall(r"([\d.]+),([\d.]+)", path.split("M")[-1])}


class Folder(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        self.addCleanup(shutil.rmtree, self.dir)

    def write(self, name, lines):
        with open(os.path.join(self.dir, name), "w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in lines)


class Picture(Folder):
    def setUp(self):
        super().setUp()
        self.write("throughput.dat", ["0.0 0.5", "0.1 0.5", "0.2 0.25", "0.3 0.5"])
        self.write("rails.dat", ["0.0 0.25 0.25", "0.1 0.25 0.25", "0.2 0.25 0.0", "0.3 0.25 0.25"])
        self.write("faults.gp", ["set object rectangle from 0.2, graph 0 to 0.3, graph 1", "set label 'cut 1' at 0.2, graph 0.95"])

    def test_each_rail_is_a_curve_and_the_loss_is_marked(self):
        picture = draw(self.dir, "-e", "size=16", "-e", "rails=2")
        for words in ">over rail 0<", ">over rail 1<", ">both ranks<", ">cut 1<", "16 MiB":
            self.assertIn(words, picture)
        first, second = heights(picture, "over rail 0"), heights(picture, "over rail 1")
        self.assertEqual((len(first), len(second)), (1, 2))
        self.assertEqual(len(second - first), 1)  # while it carried nothing

    def test_without_rails_it_is_the_picture_of_before(self):
        os.unlink(os.path.join(self.dir, "rails.dat"))
        picture = draw(self.dir)
        self.assertNotIn("over rail", picture)
        self.assertIn("cut 1", picture)


class Run(Folder):
    """As scripts/demo has it run."""

    def rates(self):
        """[(second, GB/s over rail 0, GB/s over rail 1)]"""
        with open(os.path.join(self.dir, "rails.dat"), encoding="ascii") as file:
            return [tuple(map(float, line.split())) for line in file]

    def lost(self):
        """[(from, to)]: when rail 1 was lost."""
        with open(os.path.join(self.dir, "faults.gp"), encoding="ascii") as file:
            return [tuple(map(float, each)) for each in re.findall(r"rectangle from ([\d.]+), graph 0 to ([\d.]+),", file.read())]

    def test_a_run_shows_a_rail_that_is_lost_twice_and_comes_back(self):
        done = subprocess.run([os.path.join(BUILD, "bin", "ha-drill"), "--slack", SLACK, "--out", self.dir, "demo-rails"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=320, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        rates, lost = self.rates(), self.lost()
        self.assertEqual(len(lost), 2)
        ends = [at for at, _, _ in rates[1:]] + [lost[-1][1] + 60]

        def carried(rail, begin, end):
            """GB, of those samples that lie between."""
            return sum(rate[1 + rail] * (until - rate[0]) for rate, until in zip(rates, ends) if rate[0] >= begin and until <= end)

        # Half a second for the last packets, and for a sample that was late.
        begin = 0.0
        for cut, healed in lost:
            self.assertGreater(carried(1, begin, cut), 0.001)
            self.assertGreater(carried(0, cut + 0.5, healed), 0.001)
            self.assertLess(carried(1, cut + 0.5, healed), 0.02 * carried(0, cut + 0.5, healed))
            begin = healed
        self.assertGreater(carried(1, begin, rates[-1][0]), 0.001)
        picture = draw(self.dir, "-e", "size=16", "-e", "rails=2")
        self.assertIn(">over rail 1<", picture)


if __name__ == "__main__":
    if shutil.which("gnuplot") is None:
        print("SKIP: gnuplot, which draws the picture, is not installed")
        sys.exit(77)
    unittest.main()
