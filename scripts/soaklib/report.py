# SPDX-License-Identifier: Apache-2.0
"""What a replay has shown: a table, JSON and a plot."""

import json
import os
import shutil
import statistics
import subprocess

from . import account, failuretrace


def share(part):
    return f"{100 * part:.4f} %"


def hours(seconds):
    return f"{seconds / 3600:.2f} h" if seconds >= 360 else f"{seconds:.2f} s"


def plain(header, rows):
    rows = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return "\n".join("  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip() for row in rows)


def kind_rows(trace, replayed, without):
    for kind in failuretrace.NETWORK:
        rows = [row for row in replayed if row["failure"].kind == kind]
        if not rows:
            continue
        pauses = [row["pause_ms"] for row in rows]
        entry = without.get(kind)
        died = "ridden out" if not entry else f"{entry['died']} of {entry['tried']} died" if entry["tried"] else "not tried"
        error = f"{entry['median_error_ms']:.0f}" if entry and entry["median_error_ms"] is not None else "-"
        yield [kind, trace.count(kind), len(rows), sum(row["fired"] for row in rows), sum(row["killed"] for row in rows),
               f"{statistics.median(pauses):.1f}", f"{max(pauses):.1f}", died, error]  # fmt: skip


KIND_HEADER = ["kind", "in trace", "replayed", "fired", "killed job", "pause ms, median", "longest", "without failover", "error after ms"]


class Result:
    """Everything of one replay."""

    def __init__(self, trace, name, options, replayed, totals, homeless, without):
        self.trace, self.name, self.options = trace, name, options
        self.replayed, self.totals, self.homeless, self.without = replayed, totals, homeless, without
        by_kind = {}
        for row in replayed:
            by_kind.setdefault(row["failure"].kind, []).append(row["pause_ms"])
        self.costs = account.Costs(
            options.restart, options.rides_out, {id(row["failure"]): row["pause_ms"] for row in replayed},
            {id(row["failure"]) for row in replayed if row["killed"]},
            {kind: statistics.median(pauses) for kind, pauses in by_kind.items()}, without,
        )  # fmt: skip
        self.lives = {(arm, others): account.live(trace, cost, others) for others in (False, True)
                      for arm, cost in (("with", self.costs.with_plugin), ("without", self.costs.without_plugin))}  # fmt: skip

    # ---- verdict ----

    def complaints(self):
        wrong = list(self.totals["complaints"])
        if self.totals["wrong"] or any(entry["wrong"] for entry in self.without.values()):
            wrong.append(f"WRONG DATA: {self.totals['wrong']} elements with the plugin")
        idle = [row for row in self.replayed if not row["fired"]]
        wrong += [f"line {row['failure'].line}: the {row['failure'].kind} did not take place" for row in idle]
        if self.replayed and not self.totals["checked"]:
            wrong.append("nothing was checked")
        return wrong

    # ---- text ----

    def text(self):
        t, totals, span = self.trace, self.totals, failuretrace.format_time(self.trace.span_s)
        lines = [f"trace {self.name}: {len(t.failures)} failures in {span}, {t.hosts} hosts of {t.rails} rails", ""]
        if self.replayed:
            lines += [plain(KIND_HEADER, kind_rows(t, self.replayed, self.without)), ""]
        if self.homeless:
            lines += [f"  {len(self.homeless)} found no place on the small fabric beside others, and were not replayed", ""]
        lines += self.measured_lines() if self.replayed else ["nothing to replay: the trace has no failure of the network"]
        lines += ["", *self.model_lines()]
        lines.append("")
        lines += [f"FAILED: {text}" for text in self.complaints()] or [f"passed: {len(self.replayed)} failures fired, {totals['wrong']} wrong elements"]
        return "\n".join(lines)

    def measured_lines(self):
        """Of both arms."""
        totals = self.totals
        moved = 1 - totals["paused_s"] / totals["seconds"] if totals["seconds"] else 0.0
        tried, died = sum(e["tried"] for e in self.without.values()), sum(e["died"] for e in self.without.values())
        return [
            "measured on the replay (two simulated hosts)",
            f"  with the plugin: {totals['runs']} runs of {totals['seconds']:.0f} s in all, {totals['died']} died; data moved in {share(moved)} of that time, with failures "
            f"{len(self.replayed) / max(totals['seconds'], 1) * 3600:.0f} an hour",
            f"  {totals['switches']} switches, {totals['replayed']} messages replayed, {totals['bytes'] / 1e9:.1f} GB, {totals['wrong']} wrong elements",
            f"  failover off: {died} of {tried} jobs died",
        ]

    def model_lines(self):
        o = self.options
        lines = [f"model, not measured: one job on the whole cluster for {failuretrace.format_time(self.trace.span_s)}; a restart costs {hours(o.restart)}, and without "
                 f"the plugin hardware rides out what is shorter than {o.rides_out:g} s"]  # fmt: skip
        rows = []
        for others, title in ((False, "failures of the network"), (True, "all failures of the trace")):
            if others and not self.trace.count("host-down"):
                continue
            for arm in ("without", "with"):
                life = self.lives[arm, others]
                rows.append([f"{title}, {arm} the plugin", share(life.availability()), hours(life.down_s), life.restarts, life.paused])
        return [*lines, plain(["", "availability", "down", "restarts", "pauses"], rows)]

    # ---- JSON ----

    def document(self):
        lives = [{"plugin": arm == "with", "others": others, "availability": life.availability(), "down_s": life.down_s, "restarts": life.restarts,
                  "pauses": life.paused, "while_down": life.missed} for (arm, others), life in self.lives.items()]  # fmt: skip
        rows = [{"line": row["failure"].line, "kind": row["failure"].kind, "at_s": row["failure"].at_s, "ports": row["ports"], "run": row["run"],
                 "fired": row["fired"], "killed": row["killed"], "pause_ms": row["pause_ms"]} for row in self.replayed]  # fmt: skip
        return {
            "program": "scripts/soak", "layout": 1, "trace": self.name, "span_s": self.trace.span_s, "hosts": self.trace.hosts, "rails": self.trace.rails,
            "failures": {kind: self.trace.count(kind) for kind in failuretrace.KINDS},
            "options": {name: getattr(self.options, name) for name in ("accelerate", "settle", "restart", "rides_out", "fabric_rails", "sample")},
            "measured": {**self.totals, "replayed": len(self.replayed), "messages_replayed": self.totals["replayed"], "without_place": len(self.homeless),
                         "failures": rows, "without_failover": self.without},
            "model": lives, "complaints": self.complaints(), "passed": not self.complaints(),
        }  # fmt: skip

    # ---- files ----

    def write(self, folder):
        """Names of the files."""
        os.makedirs(folder, exist_ok=True)
        files = {"soak.txt": self.text() + "\n", "soak.json": json.dumps(self.document(), indent=1) + "\n", "downtime.dat": self.plot_data()}
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        names = [os.path.join(folder, name) for name in files]
        if shutil.which("gnuplot"):
            here = os.path.dirname(os.path.abspath(__file__))
            done = subprocess.run(["gnuplot", "-e", f"data='{folder}'", os.path.join(here, "downtime.gp")], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                names.append(os.path.join(folder, "downtime.png"))
            else:
                names.append(f"gnuplot failed: {done.stderr.strip()[:200]}")
        return names

    def plot_data(self):
        """A block per life: days, and hours down so far."""
        blocks = []
        for others, title in ((False, "network failures"), (True, "all failures")):
            if others and not self.trace.count("host-down"):
                continue
            for arm in ("without", "with"):
                points = "\n".join(f"{at / 86400:.6f} {down / 3600:.8f}" for at, down in self.lives[arm, others].curve)
                blocks.append(f'"{title}, {arm} the plugin"\n{points}')
        return "\n\n\n".join(blocks) + "\n"
