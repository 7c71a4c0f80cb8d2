# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench makes of its figures: tables, the section of docs/performance.md and the data of
its plot, all of them from the JSON that is kept."""

import json
import os
import shutil
import statistics
import subprocess

from benchlib import ROOT, Estimate, markdown, plain, size_name, write_file, write_section

DOCS = os.path.join(ROOT, "docs")


def ratio(cell):
    """Of the other side's time over ours, block by block."""
    return Estimate([b / a for a, b in zip(cell["a_us"], cell["b_us"])])


def fabric_ratio(entry):
    """The plugin's time over that of the program of perftest."""
    pairs = zip(entry["fabric"], entry["plugin"])
    if entry["kind"] == "latency":
        return Estimate([plugin / fabric for fabric, plugin in pairs])
    return Estimate([fabric / plugin for fabric, plugin in pairs])


# ---- tables ----------------------------------------------------------------------------------------------


def case_name(cell):
    text = f"{cell['kind']}, {size_name(cell['size'])}B"
    return text + (f", {cell['connections']} connections" if cell["connections"] > 1 else "")


def comparison_table(document, part):
    """A row per case; a column for each thing that we are compared with."""
    chosen = [c for c in document["comparisons"] if c["part"] == part]
    names = list(dict.fromkeys(case_name(cell) for c in chosen for cell in c["cases"]))
    header = ["time of … over that as shipped"] + [c["other"] for c in chosen]
    rows = []
    for name in names:
        row = [name]
        for comparison in chosen:
            cells = [cell for cell in comparison["cases"] if case_name(cell) == name]
            row.append(str(ratio(cells[0])) if cells else "–")
        rows.append(row)
    return header, rows


def fabric_table(document):
    header = ["", "perftest", "nccl-ha", "time of nccl-ha / perftest's"]
    rows = []
    for entry in document["fabric"]:
        unit = "us" if entry["kind"] == "latency" else "MiB/s"
        middle = [f"{statistics.median(entry[side]):.1f} {unit}" for side in ("fabric", "plugin")]
        rows.append([f"{entry['program']}, {size_name(entry['size'])}B", *middle, str(fabric_ratio(entry))])
    return header, rows


def idle_table(document):
    header = ["connections", "HA", "CPU ms per second", "of a core"]
    rows = []
    for point in document["idle"]:
        percent = point["idle_process_percent"]
        rows.append([str(point["connections"]), "on" if point["ha"] else "off", f"{10 * percent:.1f}", f"{percent:.2f} %"])
    return header, rows


PARTS = (
    ("ha", "High availability on and off"),
    ("e2e", "Completion by the hardware's acknowledgement and end to end"),
    ("polling", "Who polls"),
    ("peer", "Another plugin"),
)


def tables(document):
    """(title, header, rows)"""
    for part, title in PARTS:
        if any(c["part"] == part for c in document["comparisons"]):
            yield (title, *comparison_table(document, part))
    if document["fabric"]:
        yield ("What the fabric itself can do", *fabric_table(document))
    if document["idle"]:
        yield ("Idle", *idle_table(document))


def headline(document):
    return (
        f"{document['processors']} processors ({document['model']}), Linux {document['kernel']}; {document['repeats']} "
        f"starts of the processes with {document['blocks']} blocks of each side. {document['date']}, commit {document['commit']}."
    )


def text(document):
    pieces = [headline(document)] + [f"{title}\n{plain(header, rows)}" for title, header, rows in tables(document)]
    return "\n" + "\n\n".join(pieces)


# ---- what is kept -------------------------------------------------------------------------------------------


def compact(document):
    """JSON that does not take a line for each number."""
    lists = ("comparisons", "fabric", "idle")
    head = json.dumps({k: v for k, v in document.items() if k not in lists}, indent=1)[:-2]
    for name in lists:
        rows = []
        for item in document[name]:
            rows.append(json.dumps(item, separators=(",", ":")).replace('{"kind"', '\n   {"kind"'))
        head += f',\n "{name}": [\n  ' + ",\n  ".join(rows) + "\n ]"
    return head + "\n}\n"


def plot_data(document):
    """A block for each comparison by message size: size, ratio, low, high."""
    blocks = []
    for comparison in document["comparisons"]:
        for kind in ("latency", "bandwidth"):
            cells = [c for c in comparison["cases"] if c["kind"] == kind and c["connections"] == 1]
            if comparison["part"] not in ("ha", "e2e", "peer") or not cells:
                continue
            lines = [f'"{comparison["other"]}, {kind}"']
            for cell in cells:
                estimate = ratio(cell)
                lines.append(f"{cell['size']} {estimate.median:.4f} {estimate.low:.4f} {estimate.high:.4f}")
            blocks.append("\n".join(lines))
    return "\n\n\n".join(blocks) + "\n"


def section(document):
    pieces = [headline(document)]
    for title, header, rows in tables(document):
        pieces += [f"### {title}", markdown(header, rows)]
    return "\n\n".join(pieces)


def write_docs(document):
    os.makedirs(os.path.join(DOCS, "data"), exist_ok=True)
    write_file(os.path.join(DOCS, "data", "bench.json"), compact(document))
    write_file(os.path.join(DOCS, "img", "bench.dat"), plot_data(document))
    write_section(os.path.join(DOCS, "performance.md"), "bench", section(document))
    if shutil.which("gnuplot"):
        subprocess.run(["gnuplot", "bench.gp"], cwd=os.path.join(DOCS, "img"), check=True, timeout=60)
    print("\nwritten: docs/data/bench.json, docs/img/bench.dat and .svg, the section 'bench' of docs/performance.md")
