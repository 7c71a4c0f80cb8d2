# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu-bench makes of its runs: the goals and whether they are met, a table per operation,
the data of the plot, and the section of docs/performance.md. Works from the JSON that is kept, so that
everything can be written again from it."""

import json
import os
import shutil
import statistics
import subprocess

from benchlib import Estimate, markdown, plain, size_name, write_file, write_section
from gpulib import TRANSPORTS, BenchError

PROGRAMS = {"allreduce": "all_reduce_perf", "sendrecv": "sendrecv_perf", "alltoall": "alltoall_perf"}
BUS_FACTOR = {"allreduce": lambda n: 2 * (n - 1) / n, "sendrecv": lambda n: 1, "alltoall": lambda n: (n - 1) / n}


class Goal:
    """A wish about the time of `other` over that of `mine`: above 1, `mine` is the faster one."""

    def __init__(self, mine, other, text, middle, least, first=0):
        self.mine, self.other, self.text = mine, other, text
        self.middle = middle  # (least, most) of the median over all sizes; None: only told
        self.least = least  # of every single size; None: no wish
        self.first = first  # smallest size that it is about


GOALS = (
    Goal("plugin", "ib", "at least as fast as NCCL's IB transport", (1.0, None), 0.97),
    Goal("plugin", "haoff", "high availability costs nothing", (0.99, 1.01), None),
    Goal("plugin", "e2e", "what end-to-end completion costs", None, None),
    Goal("plugin", "timed", "timing queue pairs costs 1 % at most", (0.99, 1.01), None),
    Goal("plugin", "v8", "the same code with API v8: what noise does", None, None),
    Goal("ib", "socket", "the fabric is faster than sockets, from 64 KiB", (1.0, None), 1.0, 64 << 10),
)


# ---- several runs as one -----------------------------------------------------------------------------

# What must be the same for rounds of several runs to be rounds of one; of the others each says its own.
SAME = ("gpu", "ranks", "cpu_cores", "nccl", "rails", "rate_gbps", "env", "bands", "ops")
EACH = {"command": "\n    NCCL_TESTS_HOME=… ", "commit": " and ", "date": " and "}


def pool(documents):
    """One document with the rounds of all."""
    first, *others = documents
    pooled = dict(first)
    for other in others:
        unlike = [key for key in SAME if other[key] != first[key]]
        if unlike:
            raise BenchError(f"runs that differ in {', '.join(unlike)} cannot be taken for one")
        for key, between in EACH.items():
            if other[key] not in pooled[key].split(between):
                pooled[key] += between + other[key]
        past = max(run["round"] for run in pooled["runs"])
        pooled["runs"] = pooled["runs"] + [dict(run, round=past + run["round"]) for run in other["runs"]]
        pooled["transports"] = pooled["transports"] + [n for n in other["transports"] if n not in pooled["transports"]]
    return pooled


# ---- ratios ------------------------------------------------------------------------------------------


def times(document, op, transport):
    """{size: {round: us}}"""
    table = {}
    for run in document["runs"]:
        if run["op"] == op and run["transport"] == transport:
            for size, us in run["us"].items():
                table.setdefault(int(size), {})[run["round"]] = us
    return dict(sorted(table.items()))


def ratios(document, op, goal):
    """{size: one ratio per round in which both ran}"""
    mine, other = times(document, op, goal.mine), times(document, op, goal.other)
    table = {}
    for size in mine:
        both = sorted(mine[size].keys() & other.get(size, {}).keys())
        values = [other[size][n] / mine[size][n] for n in both if mine[size][n] and other[size][n]]
        if values and size >= goal.first:
            table[size] = values
    return table


def judge(document, goal):
    """What the rounds say of a goal, None if one side was not measured."""
    single, by_op = {}, {}
    for op in document["ops"]:
        table = ratios(document, op, goal)
        if not table:
            continue
        single.update({(op, size): Estimate(values) for size, values in table.items()})
        # One number per round, so that what the sizes of a run have in common counts as one deviation.
        full = min(len(values) for values in table.values())
        by_op[op] = Estimate([statistics.median(v[n] for v in table.values()) for n in range(full)])
    if not single:
        return None
    return {
        "single": single,
        "by_op": by_op,
        "middle": statistics.median(e.median for e in single.values()),
        "below": [key for key, e in single.items() if goal.least and e.median < goal.least],
        "proved_below": [key for key, e in single.items() if goal.least and e.high < goal.least],
    }


def names(keys):
    return ", ".join(f"{op} {size_name(size)}" for op, size in keys)


def verdict(goal, found):
    if not goal.middle:
        return "–"
    least, most = goal.middle
    wrong = []
    if found["middle"] < least:
        wrong.append(f"median below {least:.2f}")
    if most and found["middle"] > most:
        wrong.append(f"median above {most:.2f}")
    if found["proved_below"]:
        wrong.append(f"below {goal.least:.2f} beyond noise: {names(found['proved_below'])}")
    unsure = [key for key in found["below"] if key not in found["proved_below"]]
    if unsure:
        wrong.append(f"below {goal.least:.2f} but within noise: {names(unsure)}")
    return "; ".join(wrong) or "met"


def goal_table(document):
    header = ["time of", "over that of", "goal", "median over sizes"]
    header += [f"{op}, per round" for op in document["ops"]] + ["least size", "verdict"]
    rows = []
    for goal in GOALS:
        found = judge(document, goal)
        if not found:
            continue
        least = min(found["single"], key=lambda key: found["single"][key].median)
        row = [TRANSPORTS[goal.other].title, TRANSPORTS[goal.mine].title, goal.text, f"{found['middle']:.3f}"]
        row += [str(found["by_op"].get(op, "–")) for op in document["ops"]]
        row += [f"{names([least])}: {found['single'][least]}", verdict(goal, found)]
        rows.append(row)
    return header, rows


# ---- tables ------------------------------------------------------------------------------------------


def size_table(document, op):
    """Times and bandwidths of every transport, then the ratios that the goals are about."""
    measured = {name: times(document, op, name) for name in document["transports"]}
    measured = {name: table for name, table in measured.items() if table}
    if not measured:
        raise BenchError(f"{op} was not measured")
    factor = BUS_FACTOR[op](document["ranks"])
    goals = [(goal, ratios(document, op, goal)) for goal in GOALS]
    goals = [(goal, table) for goal, table in goals if table]
    header = ["size"]
    for name in measured:
        header += [f"{TRANSPORTS[name].title} us", "GB/s"]
    header += [f"{TRANSPORTS[goal.other].title} / {TRANSPORTS[goal.mine].title}" for goal, _ in goals]
    rows = []
    for size in next(iter(measured.values())):
        row = [size_name(size)]
        for table in measured.values():
            us = statistics.median(table[size].values()) if size in table else 0
            row += [f"{us:.1f}", f"{size * factor / us / 1000:.2f}"] if us else ["–", "–"]
        row += [str(Estimate(table[size])) if size in table else "–" for _, table in goals]
        rows.append(row)
    return header, rows


def plot_data(document):
    """For gnuplot, a block for each operation: bandwidth by size, then ratio, low and high of each goal."""
    blocks = []
    for op in document["ops"]:
        measured = {name: times(document, op, name) for name in document["transports"]}
        goals = [(goal, ratios(document, op, goal)) for goal in GOALS]
        columns = ["size"] + [f'"{TRANSPORTS[name].title}"' for name in measured]
        for goal, _ in goals:
            pair = f"{goal.other}/{goal.mine}"
            columns += [f'"{pair}"', f'"{pair} low"', f'"{pair} high"']
        lines = [f"# {op}, bus bandwidth in GB/s, ratios of times", " ".join(columns)]
        factor = BUS_FACTOR[op](document["ranks"])
        for size in next(iter(measured.values())):
            cells = [str(size)]
            for table in measured.values():
                us = statistics.median(table[size].values()) if size in table else 0
                cells.append(f"{size * factor / us / 1000:.4f}" if us else "?")
            for _, table in goals:
                estimate = Estimate(table[size]) if size in table else None
                cells += [f"{v:.4f}" for v in (estimate.median, estimate.low, estimate.high)] if estimate else ["?"] * 3
            lines.append(" ".join(cells))
        blocks.append("\n".join(lines))
    return "\n\n\n".join(blocks) + "\n"


def headline(document):
    rounds = len({run["round"] for run in document["runs"]})
    steal = statistics.median(run["steal"] for run in document["runs"])
    pinned = "each rank on cores of its own" if document["cores"] else "cores as the scheduler likes"
    return (
        f"{document['gpu']}, {document['cpu_cores']} cores, NCCL {document['nccl']}, {document['rails']} rails of the "
        f"simulated fabric that announce {document['rate_gbps']} Gb/s, {pinned}; {rounds} rounds, {len(document['runs'])} "
        f"runs, 0 wrong elements in every one; {100 * steal:.1f} % of the processors' time stolen in the middle run. "
        f"Sizes, iterations and cycles: {', '.join(document['bands'])}. {document['date']}, commit {document['commit']}."
    )


HOW_TO_READ = (
    "A ratio is the median over the rounds of the time of one transport over that of the other in the same round, "
    "with an interval that holds the true median with 95 % confidence (the range where there are fewer than six "
    "rounds). Above 1, nccl-ha is the faster one (in the last: NCCL's IB transport)."
)


def section(document):
    pieces = ["Measured by", f"    NCCL_TESTS_HOME=… {document['command']}", headline(document)]
    pieces += [markdown(*goal_table(document)), HOW_TO_READ]
    for op in document["ops"]:
        pieces += [f"#### {PROGRAMS[op]}", markdown(*size_table(document, op))]
    return "\n\n".join(pieces) + "\n"


def compact(document):
    """JSON with a run a line: kept in the repository, it must be small and its changes readable."""
    head = {key: value for key, value in document.items() if key != "runs"}
    runs = ",\n".join(json.dumps(run, separators=(",", ":")) for run in document["runs"])
    return json.dumps(head, indent=1)[:-2] + ',\n "runs": [\n' + runs + "\n]}\n"


def write(document, out, page=None):
    """Prints the tables; writes them and the plot's data into `out`, and the page's section, where given."""
    print("\n" + headline(document) + "\n\n" + plain(*goal_table(document)))
    for op in document["ops"]:
        print(f"\n{PROGRAMS[op]}\n{plain(*size_table(document, op))}")
    if out:
        os.makedirs(out, exist_ok=True)
        write_file(os.path.join(out, "results.md"), section(document))
        write_file(os.path.join(out, "results.dat"), plot_data(document))
        print(f"\nwritten: results.md and results.dat in {out}")
    if page:
        write_page(document, os.path.abspath(page))
        print(f"\nwritten: the section gpu-bench of {page}; data/gpu-bench.json and img/gpu-bench.* beside it")


def write_page(document, page):
    folder = os.path.dirname(page)
    for name in ("data", "img"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    write_section(page, "gpu-bench", section(document))
    write_file(os.path.join(folder, "data", "gpu-bench.json"), compact(document))
    write_file(os.path.join(folder, "img", "gpu-bench.dat"), plot_data(document))
    script = os.path.join(folder, "img", "gpu-bench.gp")
    if os.path.exists(script) and shutil.which("gnuplot"):
        subprocess.run(["gnuplot", script], cwd=os.path.dirname(script), check=True, timeout=60)
