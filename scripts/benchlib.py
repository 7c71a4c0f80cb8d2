# SPDX-License-Identifier: Apache-2.0
"""What the scripts that measure share: statistics, tables, and the sections of pages in docs that are
written by a command."""

import math
import os
import shlex
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIDENCE = 0.95


class Estimate:
    """The median of one number per round, and an interval that holds the true median."""

    def __init__(self, values):
        if not values:
            raise ValueError("no value to estimate from")
        ordered = sorted(values)
        skip = outside(len(ordered))
        self.rounds = len(ordered)
        self.median = statistics.median(ordered)
        self.low = ordered[skip]
        self.high = ordered[-1 - skip]

    def __str__(self):
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def outside(count):
    """How many of the ordered values may be left out at each end so that the rest still holds the
    median with CONFIDENCE. By the binomial distribution: nothing is assumed about the noise. With fewer
    than 6 values not even all of them do; then it is 0, and the interval is the range."""
    skip, missed = 0, 1  # of 2^count equally likely cases: those in which the median lies below all that is kept
    while True:
        missed += math.comb(count, skip + 1)
        if 2 * missed / 2**count > 1 - CONFIDENCE:
            return skip
        skip += 1


class Proportion:
    """How often something happened in so many independent trials, with an interval that holds the true
    probability (Wilson's score interval: right also where it happened never, or always)."""

    def __init__(self, happened, trials):
        if not 0 <= happened <= trials or trials < 1:
            raise ValueError(f"{happened} of {trials} is no proportion")
        self.happened, self.trials = happened, trials
        z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        self.part = happened / trials
        centre = (happened + z * z / 2) / (trials + z * z)
        half = z / (trials + z * z) * math.sqrt(happened * (1 - self.part) + z * z / 4)
        self.low = max(0.0, centre - half) if happened else 0.0
        self.high = min(1.0, centre + half) if happened < trials else 1.0

    def __str__(self):
        return f"{100 * self.part:.2f} % [{100 * self.low:.2f}, {100 * self.high:.2f}]"


class Rate:
    """How often something happened in so much time, by the hour, with an interval that holds the true rate
    of a Poisson process (the exact one)."""

    def __init__(self, happened, hours):
        if happened < 0 or hours <= 0:
            raise ValueError(f"{happened} in {hours} hours is no rate")
        tail = (1 - CONFIDENCE) / 2
        self.happened, self.hours = happened, hours
        self.rate = happened / hours
        self.low = mean_with_chance(happened - 1, 1 - tail) / hours if happened else 0.0
        self.high = mean_with_chance(happened, tail) / hours

    def __str__(self):
        return f"{self.rate:.2f} [{self.low:.2f}, {self.high:.2f}]"


def mean_with_chance(most, chance):
    """The mean of the Poisson distribution that gives at most this many with this chance."""
    low, high = 0.0, 10.0 * (most + 10)
    for _ in range(100):
        mean = (low + high) / 2
        term = total = math.exp(-mean)
        for k in range(1, most + 1):
            term *= mean / k
            total += term
        low, high = (mean, high) if total > chance else (low, mean)
    return (low + high) / 2


# ---- tables ------------------------------------------------------------------------------------------


def plain(header, rows):
    widths = [max(len(row[i]) for row in [header] + rows) for i in range(len(header))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths)) for row in [header] + rows)


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---:|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def size_name(size):
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


# ---- what is kept --------------------------------------------------------------------------------------


def write_file(path, text):
    """All of it or nothing: a page is never left half written."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def replace_section(page, name, text):
    """The page with what stands between the marks of a section replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page has no section between '{begin}' and '{end}'")
    head, rest = page.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n{text.strip()}\n{end}{tail}"


def write_section(path, name, text):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    write_file(path, replace_section(page, name, text))


def command_line(script, arguments):
    """What repeats a measurement and writes its page: without what concerns this machine alone."""
    kept, words = [], iter(arguments)
    for word in words:
        if word in ("--out", "--build", "--jobs", "--from"):
            next(words, None)
        elif word != "--docs" and not word.startswith(("--out=", "--build=", "--jobs=", "--from=")):
            kept.append(shlex.quote(word))
    return " ".join([f"scripts/{script}", *kept, "--docs"])


def commit():
    """Of the tree that was measured; a tree without git is "unknown"."""
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"
