# SPDX-License-Identifier: Apache-2.0
"""What scripts/rto-calibrate makes of its figures: rates with intervals, the recommendation, tables, the
section of docs/tuning.md and the data of its plot, all of them from the JSON that is kept."""

import json
import os
import shutil
import statistics
import subprocess

from benchlib import ROOT, Proportion, Rate, markdown, plain, write_file, write_section

DOCS = os.path.join(ROOT, "docs")
LIMIT = 0.01  # of the pauses may be taken for a failure
OFF_MS = 10000  # a timer that is out of the way


def window_ms(entry):
    """How long a queue pair of this point tries."""
    return 4.096e-3 * 2 ** entry["qp_timeout"] * (entry["retry_cnt"] + 1)


def proportion(entry):
    return Proportion(entry["switched"], entry["episodes"])


def is_rare(entry):
    """Below the limit, whichever of the values in its interval is the true one."""
    return proportion(entry).high < LIMIT


# ---- what follows from it ----------------------------------------------------------------------------------


def smallest_rto(points):
    """The smallest RTO of these points, which differ in nothing else, from which on false switches are
    rare; None if they never are."""
    found = None
    for entry in sorted(points, key=lambda entry: entry["rto_ms"], reverse=True):
        if not is_rare(entry):
            break
        found = entry
    return found


def smallest_window(points):
    """Likewise the shortest time that queue pairs may try, of points whose RTO is out of the way."""
    found = None
    for entry in sorted(points, key=window_ms, reverse=True):
        if not is_rare(entry):
            break
        found = entry
    return found


def alone(points):
    """Points at which the RTO alone decides."""
    return [p for p in points if window_ms(p) >= OFF_MS]


def profiles(document):
    """(mean pause, points) of all profiles, the shortest pauses first. Where no point has its RTO out of the
    way, those with the largest one stand for it."""
    longest = max(p["rto_ms"] for p in document["points"])
    main = [p for p in document["points"] if window_ms(p) >= OFF_MS or (p["rto_ms"] == longest and p["retry_cnt"] == 7)]
    everyone = [(document["pause_ms"], main)] + [(p["pause_ms"], p["points"]) for p in document["profiles"]]
    return sorted(everyone, key=lambda profile: profile[0])


def queue_pairs(points):
    """Points at which the queue pairs' own timeout is looked at."""
    return [p for p in points if window_ms(p) < OFF_MS and p["rto_ms"] >= 2000]


def shipped(document):
    """The points of the queue pairs as we ship them."""
    return [p for p in document["points"] if (p["qp_timeout"], p["retry_cnt"]) == (14, 7)]


def number(value):
    return f"{value:g}"


def recommendations(document):
    """A sentence each."""
    for pause_ms, points in profiles(document):
        rto, qp = smallest_rto(alone(points)), smallest_window(queue_pairs(points))
        text = f"Pauses of {number(pause_ms)} ms in the mean: "
        text += f"HA_NCCL_RTO_MS={rto['rto_ms']}" if rto else "no RTO that was tried"
        text += f" is the smallest with less than {100 * LIMIT:g} % false switches"
        if qp:
            text += (
                f"; queue pairs may give up after {window_ms(qp):.0f} ms "
                f"(HA_NCCL_QP_TIMEOUT={qp['qp_timeout']}, {qp['retry_cnt']} retries)."
            )
        else:
            text += "; queue pairs give up too early at every timeout that was tried."
        yield text
    here = shipped(document)
    if here:
        best = smallest_rto(here)
        text = f"Queue pairs as shipped (timeout 14, 7 retries: {window_ms(here[0]):.0f} ms), pauses of {number(document['pause_ms'])} ms: "
        yield text + (f"the smallest RTO is {best['rto_ms']} ms." if best else "no RTO helps: the queue pairs give up first.")


# ---- tables -----------------------------------------------------------------------------------------------


def span(values):
    return f"{statistics.median(values):.0f}, {max(values):.0f}"


def main_reason(entry):
    return max(entry["reasons"], key=entry["reasons"].get) if entry["reasons"] else "–"


def grid_table(document):
    header = ["timeout", "retries", "queue pair gives up", "RTO", "false switches", "noticed by", "silent path", "wedged NIC"]
    rows = []
    for p in document["points"]:
        rows.append(
            [str(p["qp_timeout"]), str(p["retry_cnt"]), f"{window_ms(p):.0f} ms", f"{p['rto_ms']} ms", str(proportion(p))]
            + [main_reason(p), span(p["silent_ms"]), span(p["wedged_ms"])]
        )
    return header, rows


def profile_table(document):
    header = ["mean pause", "one in 100 is longer than", "smallest RTO", "false switches", "shortest queue pair retries", "false switches"]
    rows = []
    for pause_ms, points in profiles(document):
        rto, qp = smallest_rto(alone(points)), smallest_window(queue_pairs(points))
        row = [f"{number(pause_ms)} ms", f"{4.605 * pause_ms:.0f} ms"]
        row += [f"{rto['rto_ms']} ms", str(proportion(rto))] if rto else ["none tried", "–"]
        row += [f"timeout {qp['qp_timeout']}, {qp['retry_cnt']} retries: {window_ms(qp):.0f} ms", str(proportion(qp))] if qp else ["none tried", "–"]
        rows.append(row)
    return header, rows


def live_table(document):
    header = ["timeout", "retries", "RTO", "seconds", "connections", "switches", "an hour"]
    rows = []
    for p in document["live"]:
        if "switched" not in p:
            continue
        rate = Rate(p["switched"], p["seconds"] / 3600)
        rows.append([str(p[name]) for name in ("qp_timeout", "retry_cnt", "rto_ms", "seconds", "connections", "switched")] + [str(rate)])
    return header, rows


def headline(document):
    count = document["points"][0]["episodes"]
    failures = len(document["points"][0]["silent_ms"])
    return (
        f"{count} pauses for each point, exponential with a mean of {number(document['pause_ms'])} ms, each packet "
        f"{document['jitter_us']} us late in the mean and {100 * document['loss']:g} % lost meanwhile; {failures} real "
        f"failures of each kind, median and longest in ms. Seed {document['seed']}, {document['date']}, commit {document['commit']}."
    )


def text(document):
    if "live" in document:
        return "\n" + plain(*live_table(document))
    pieces = [headline(document), plain(*grid_table(document)), plain(*profile_table(document)), "\n".join(recommendations(document))]
    return "\n" + "\n\n".join(pieces)


# ---- what is kept ------------------------------------------------------------------------------------------


def compact(document):
    """JSON with a line for each point."""

    def rows(points, indent):
        return "[\n" + ",\n".join(indent + json.dumps(p, separators=(",", ":")) for p in points) + "]"

    if "live" in document:
        head = json.dumps({k: v for k, v in document.items() if k != "live"}, indent=1)[:-2]
        return head + ',\n "live": ' + rows(document["live"], "  ") + "\n}\n"
    head = json.dumps({k: v for k, v in document.items() if k not in ("points", "profiles")}, indent=1)[:-2]
    parts = [f'  {{"pause_ms":{json.dumps(p["pause_ms"])},"points":{rows(p["points"], "   ")}}}' for p in document["profiles"]]
    return head + ',\n "points": ' + rows(document["points"], "  ") + ',\n "profiles": [\n' + ",\n".join(parts) + "\n ]\n}\n"


def curve(title, points):
    lines = [f'"{title}"']
    for p in sorted(points, key=lambda p: p["rto_ms"]):
        rate = proportion(p)
        line = [p["rto_ms"], 100 * rate.part, 100 * rate.low, 100 * rate.high]
        if "silent_ms" in p:
            line += [statistics.median(p["silent_ms"]), statistics.median(p["wedged_ms"])]
        lines.append(" ".join(f"{value:.4f}" for value in line))
    return "\n".join(lines)


def plot_data(document):
    """A block for each timeout with the most retries, then for each profile: RTO, % of false switches, low, high;
    of the first ones also milliseconds after a silent and a wedged failure."""
    blocks = []
    retries = max(p["retry_cnt"] for p in document["points"])
    for timeout in sorted({p["qp_timeout"] for p in document["points"]}):
        points = [p for p in document["points"] if (p["qp_timeout"], p["retry_cnt"]) == (timeout, retries)]
        blocks.append(curve(f"timeout {timeout}: {window_ms(points[0]) / 1000:.2g} s", points))
    for pause_ms, points in profiles(document):
        blocks.append(curve(f"pauses of {number(pause_ms)} ms", alone(points)))
    return f"# {len(document['profiles']) + 1} profiles\n" + "\n\n\n".join(blocks) + "\n"


def draw(document, folder):
    """The plot, beside the JSON; says where."""
    data, picture = os.path.join(folder, "rto-calibrate.dat"), os.path.join(folder, "rto-calibrate.svg")
    write_file(data, plot_data(document))
    if not shutil.which("gnuplot"):
        return f"written: {data}; no plot: gnuplot is not installed (package gnuplot-nox)"
    settings = f"data = '{data}'; picture = '{picture}'; profiles = {len(document['profiles']) + 1}"
    subprocess.run(["gnuplot", "-e", settings, os.path.join(DOCS, "img", "rto-calibrate.gp")], check=True, timeout=60)
    return f"written: {picture}"


def section(document):
    pieces = [document["command"], headline(document), markdown(*profile_table(document))]
    pieces += ["\n".join(f"* {text}" for text in recommendations(document)), "Every point:", markdown(*grid_table(document))]
    return "\n\n".join(pieces)


def write_docs(document):
    os.makedirs(os.path.join(DOCS, "data"), exist_ok=True)
    write_file(os.path.join(DOCS, "data", "rto-calibrate.json"), compact(document))
    draw(document, os.path.join(DOCS, "img"))
    write_section(os.path.join(DOCS, "tuning.md"), "rto-calibrate", section(document))
    print("\nwritten: docs/data/rto-calibrate.json, docs/img/rto-calibrate.dat and .svg, the section 'rto-calibrate' of docs/tuning.md")
