# SPDX-License-Identifier: Apache-2.0
"""Jobs of unmodified NCCL that scripts/gpu-gin, gpu-inc and gpu-rails start, watch while the network breaks under them, and judge."""

import argparse
import json
import os
import re
import tempfile
import time

from gpulib import (
    START,
    BenchError,
    Mps,
    Nccl,
    add_nccl_option,
    check_gpus,
    closed_well,
    count_rows,
    end,
    find_gpus,
    parse_perf,
    preflight,
    rank_script,
    say,
    share_cores,
    start,
)
from gpumarks import Mark, Report, facts_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOOK_S = 0.05
LEAST_S = 8  # a job that has less is not begun


class Job:
    """A program on some ranks, each a host of the fabric, from its start to its end. It has an MPS daemon of its own: one that lost a
    client to a kill may refuse the next ones."""

    def __init__(self, bench, fabric, ranks, name, transport, command, env=None, per_rank=()):
        self.build, self.nccl, self.simverbs = bench.build, bench.nccl, bench.simverbs
        self.name, self.fabric, self.ranks = name, fabric, ranks
        self.gpus = find_gpus(ranks, bench.options.dry_run)
        self.logs = os.path.join(bench.out, name)
        os.makedirs(self.logs)
        self.output = os.path.join(self.logs, "output")
        env = {**(env or {}), "HA_NCCL_EVENT_LOG": os.path.join(self.logs, "events.%p")}
        script = rank_script(self, transport, self.logs, env, share_cores(ranks), per_rank)
        self.command = [bench.options.mpirun, "--bind-to", "none", "-np", str(ranks), script, *map(str, command)]
        self.seconds = None

    def __enter__(self):
        self.mps = Mps(self.gpus)
        self.mps.__enter__()
        try:
            self.began = time.monotonic()
            self.process = start(self.command, self.output)
        except BaseException:
            self.mps.__exit__()
            raise
        return self

    def __exit__(self, *_reason):
        try:
            self.stop()
        finally:
            self.mps.__exit__()

    def stop(self):
        """Its exit status; None: it had to be ended."""
        status = self.process.poll()
        end(self.process)
        self.seconds = self.seconds or round(time.monotonic() - self.began, 1)
        return status

    def runs(self):
        return self.process.poll() is None

    def until(self, happened, seconds):
        """Whether that happened within this time, and while it ran."""
        deadline = time.monotonic() + seconds
        while self.runs() and time.monotonic() < deadline:
            if happened():
                return True
            time.sleep(LOOK_S)
        return happened()

    def finish(self, seconds):
        """The exit status of a job that ends by itself; None: it did not within this time of its start."""
        self.until(lambda: False, self.began + seconds - time.monotonic())
        return self.stop()

    def goes_on(self, seconds):
        """Whether another row comes within this time."""
        before = sum(self.rows())
        return self.until(lambda: sum(self.rows()) > before, seconds) and self.runs()

    # ---- what it says --------------------------------------------------------------------------------

    def text(self):
        return read(self.output)

    def rows(self):
        """(right, wrong)"""
        return count_rows(self.text())

    def log(self, rank):
        return read(os.path.join(self.logs, f"rank-{rank}.log"))

    def all_logs(self):
        return "".join(map(self.log, range(self.ranks)))

    def ranks_that_say(self, pattern):
        return sum(bool(re.search(pattern, self.log(rank))) for rank in range(self.ranks))

    def events(self, *kinds, since=0.0):
        """Lines of the plugin's event logs, of all ranks, since a time.monotonic()."""
        found = []
        for name in sorted(os.listdir(self.logs)):
            if name.startswith("events."):
                lines = read(os.path.join(self.logs, name)).splitlines(keepends=True)
                found += [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in found if event["kind"] in kinds and seconds_of(event) >= since]

    def complaint(self):
        warned = re.findall(r"WARN (.*)", self.all_logs())
        said = warned or [line for line in self.text().splitlines() if re.search("rror|ailed", line)]
        return (said[0] if said else "nothing was said")[:170]

    # ---- what became of it ---------------------------------------------------------------------------

    def result(self, status):
        """"ok", or what was wrong with a job that was to end by itself."""
        right, wrong = self.rows()
        if wrong:
            return f"WRONG DATA in {wrong} rows"
        if status is None:
            return f"no end within {self.seconds:.0f} s, {right} rows right: {self.complaint()}"
        if status != 0:
            return f"status {status}: {self.complaint()}"
        return "ok" if right and closed_well(self.text()) else "no row, or no closing line 'Out of bounds values : 0 OK'"

    def entry(self, result, **more):
        """For the report."""
        right, wrong = self.rows()
        entry = {"name": self.name, "ranks": self.ranks, "result": result, "rows": right, "wrong": wrong, "seconds": self.seconds, **more}
        say(f"{self.name}: {result}; {right} rows right, {wrong} wrong, {self.seconds:.1f} s")
        return entry

    def bandwidth(self):
        """GB/s of each size."""
        return {size: row["gbps"] for size, row in parse_perf(self.text()).items()}


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def seconds_of(event):
    return event["monotonic_ns"] / 1e9


def wrong_rows(entries):
    """The mark that no part goes without."""
    return Mark("wrong rows", sum(entry["wrong"] for entry in entries), "at most", 0)


def right_runs(entries, asked):
    return Mark("runs that were right", sum(entry["result"] == "ok" for entry in entries), "at least", asked)


class Bench:
    """A script's parts, and what all its jobs have in common. A script's own one has parts(): (name, does) of each, what says most first."""

    NAME = LIBRARIES = PROGRAMS = None  # of the script; of the build; of nccl-tests
    RANKS_MOST = 2

    def __init__(self, options):
        self.options = options
        self.build = os.path.abspath(options.build)
        self.nccl = options.nccl and Nccl(options.nccl)
        self.simverbs = os.path.join(self.build, "bin", "simverbs")
        self.fabric = f"{self.NAME.replace('-', '')}{os.getpid()}"
        self.out = os.path.abspath(options.out)
        self.programs = preflight(options.mpirun, self.PROGRAMS, [os.path.join(self.build, name) for name in ("bin/simverbs", *self.LIBRARIES)])
        Mps(find_gpus(self.RANKS_MOST, options.dry_run))  # what is missing there is said before anything is begun
        self.until = START + options.time_limit
        self.report = Report(options.json or os.path.join(self.out, "results.json"), facts_of(self.NAME))

    def left(self):
        return self.until - time.monotonic()

    def time_for(self, seconds):
        """How long a job may take that is given so long."""
        if self.left() < LEAST_S:
            raise BenchError("no time is left")
        return min(seconds, self.left())

    def note(self, job):
        """What a job that was right says of GPUs and NCCL."""
        said = re.search(r"NCCL version (\S+)", job.all_logs())
        if self.nccl:
            self.nccl.check(said and said[1])
        self.report.document.setdefault("gpus", {})[str(job.ranks)] = check_gpus(job.text(), job.gpus)
        self.report.document["nccl"] = said and said[1]

    def run(self):
        """Whether all marks are met."""
        say(f"logs in {self.out}")
        for name, does in self.parts():
            if name in self.options.only:
                if self.left() < LEAST_S:
                    self.report.fail(name, "not run: no time is left")
                else:
                    self.report.measure(name, does)
        print(f"\n{self.report.table()}\n\nwritten: {self.report.path}")
        return self.report.is_met()


# ---- of the scripts themselves -------------------------------------------------------------------------


def names_of(parts):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in parts:
                raise argparse.ArgumentTypeError(f"there is no part '{name}': {', '.join(parts)}")
        return names

    return parse


def add_options(parser, parts, time_limit_s, patience_s, quick):
    """Those that all have. quick: options and their values of a run that only looks whether it works."""
    add = parser.add_argument
    add("--only", type=names_of(parts), default=parts, metavar="PART,…", help="these parts (" + ",".join(parts) + ")")
    add("--quick", action="store_true", help="whether it works, in a minute or two: " + " ".join(f"--{name.replace('_', '-')} {value}" for name, value in quick.items()))
    add("--time-limit", type=float, default=time_limit_s, metavar="S", help=f"of the whole; a part that does not fit has no result ({time_limit_s})")
    add("--run-limit", type=float, default=60, metavar="S", help="one job may take this long (60)")
    add("--patience", type=float, default=patience_s, metavar="S", help=f"what has to follow on a failure may take this long ({patience_s})")
    add("--build", default=os.path.join(ROOT, "build"), metavar="DIR", help="the release build folder")
    add_nccl_option(add)
    add("--mpirun", default="mpirun", help="the MPI launcher")
    add("--out", metavar="DIR", help="where logs go (a new folder in the build folder)")
    add("--json", metavar="FILE", help="all figures, and what became of each mark (results.json in --out)")
    add("--dry-run", action="store_true", help="do not count GPUs (for the test)")


def parse(parser, name, quick):
    """The options, of which --quick sets those that were not given."""
    options = parser.parse_args()
    if options.quick:
        parser.set_defaults(**quick)
        options = parser.parse_args()
    if not options.out:
        folder = os.path.join(options.build, name)
        os.makedirs(folder, exist_ok=True)
        options.out = tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=folder)
    os.makedirs(options.out, exist_ok=True)
    return options
