# SPDX-License-Identifier: Apache-2.0
"""The ledger of scripts/explore: what was searched with seeds that nobody chose, and what it found.

A search is one line of docs/data/search.jsonl. What became of a wrong run is written there by hand, as
"became" of its entry; `scripts/explore --ledger` and `python3 scripts/searchledger.py page` write docs/search.md.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys

from benchlib import markdown, write_section

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEDGER = os.path.join(ROOT, "docs", "data", "search.jsonl")
PAGE = os.path.join(ROOT, "docs", "search.md")


def wrong_runs(text):
    """Each wrong run with its shortest command."""
    return [{"command": smaller or command, "verdict": last or verdict}
            for verdict, command, smaller, last in re.findall(
                r"^WRONG: (.*)\n  (explore .*)\n(?:  first warning: .*\n)?"
                r"(?:  smaller: (explore .*)\n  which is: (.*)\n)?", text, re.M)]


def read_ended(text):
    """What an explorer said that a run has ended: its wrong runs, and that one. How much it did, nobody knows."""
    last = re.search(r"^explore: (a run takes for ever|crashed in):?\n  (explore .*)$", text, re.M)
    if not last:
        raise ValueError("an explorer did not come to its end, and does not say in which run")
    return {"processor_s": 0, "walks": 0, "fired": 0, "healed": 0, "slowest_ms": 0, "ended": 1,
            "traces": 0, "trace_steps": 0, "unjudged": 0, "wrong": wrong_runs(text) + [{"command": last.group(2), "verdict": last.group(1).removesuffix(" in")}]}


def read_output(text):
    """What one explorer said: its sums, and each wrong run."""
    sums = re.search(r"^all +all +(.*)$", text, re.M)
    processor = re.search(r"^processor: ([0-9.]+) s$", text, re.M)
    if not sums or not processor:
        return read_ended(text)
    runs, fired, _, _, wrong, _, _, unfired = (int(word) for word in sums.group(1).split())
    healed = re.search(r"^healed: (\d+) runs, the slowest in (\d+) ms$", text, re.M)
    traces = re.search(r"^traces: (\d+) accepted, with (\d+) steps; (\d+) not judged$", text, re.M)
    accepted, steps, unjudged = (int(word) for word in traces.groups()) if traces else (0, 0, 0)
    found = wrong_runs(text)
    if len(found) != wrong:
        raise ValueError(f"{wrong} runs were wrong, and {len(found)} have a command")
    return {"processor_s": float(processor.group(1)), "walks": runs + unfired, "fired": fired,
            "healed": int(healed.group(1)) if healed else 0,
            "slowest_ms": int(healed.group(2)) if healed else 0, "ended": 0,
            "traces": accepted, "trace_steps": steps, "unjudged": unjudged, "wrong": found}


def merge(outputs):
    """The sums of several explorers."""
    return {"processor_s": round(sum(out["processor_s"] for out in outputs), 1),
            **{name: sum(out[name] for out in outputs) for name in ("walks", "fired", "healed", "ended", "traces", "trace_steps", "unjudged")},
            "slowest_ms": max(out["slowest_ms"] for out in outputs),
            "wrong": [run for out in outputs for run in out["wrong"]]}


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout.strip()


def searched(commit):
    """Which code it was: figures add up while the hash of src/ stays the same. No commit: what is checked out."""
    if not commit and git("status", "--porcelain", "--", "src"):
        raise ValueError("src/ is not what was committed: nobody could tell what was searched")
    commit = commit or "HEAD"
    return {"commit": git("rev-parse", "--short=10", commit), "src": git("rev-parse", "--short=10", f"{commit}:src")}


def records(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def hours(seconds):
    return f"{seconds / 3600:.2f}"


def explorers(record):
    """How many there were, and how many of them a run has ended: what those did is in no sum."""
    ended = record.get("ended", 0)
    return f"{record['explorers']}" + (f" ({ended} ended by a run)" if ended else "")


def traces_of(record):
    """How many connections did what the model allows. The searches of before traces have none."""
    return f"{record['traces']:,} of {record['trace_steps']:,} steps" if record.get("traces") else ""


def section(all_records):
    """The ledger as tables: by what was searched, by search, and each wrong run."""
    by_src = {}
    for record in all_records:
        by_src.setdefault(record["src"], []).append(record)
    def table(header, rows):
        return markdown(header, [[str(cell) for cell in row] for row in rows])

    sums = [[f"`{src}`", hours(sum(r["processor_s"] for r in of)), f"{sum(r['walks'] for r in of):,}",
             f"{sum(r['fired'] for r in of):,}", f"{sum(r['healed'] for r in of):,}",
             f"{sum(r.get('traces', 0) for r in of):,}",
             sum(len(r["wrong"]) for r in of)] for src, of in by_src.items()]
    searches = [[r["date"], f"`{r['commit']}`", f"`{r['src']}`", "not kept" if r["seed"] is None else r["seed"],
                 f"`{r['options']}`" if r["options"] else "", explorers(r), hours(r["processor_s"]), f"{r['walks']:,}",
                 f"{r['fired']:,}", f"{r['slowest_ms']} ms" if r["healed"] else "", traces_of(r), len(r["wrong"])] for r in all_records]
    became = {}
    for r in all_records:
        for run in r["wrong"]:
            became.setdefault((run.get("became", "open"), r["commit"]), []).append(run)
    wrong = [[of, len(runs), f"`{commit}`", runs[0]["verdict"], f"`{runs[0]['command']}`"]
             for (of, commit), runs in became.items()]
    what = ["processor-hours", "walks", "faults fired", "healed", "traces accepted", "wrong"]
    pieces = ["### By what was searched", table(["src/", *what], sums), "### Searches",
              table(["when", "commit", "src/", "seed", "options", "explorers", "processor-hours", "walks", "faults fired",
                     "slowest to heal", "traces accepted", "wrong"], searches)]
    if wrong:
        pieces += ["### Wrong runs", table(["what became of them", "runs", "found at", "such as", "command"], wrong)]
    return "\n\n".join(pieces)


def add(args):
    outputs = []
    for path in args.outputs:
        with open(path, encoding="utf-8", errors="replace") as file:
            outputs.append(read_output(file.read()))
    record = {"date": args.date, **searched(args.commit), "seed": args.seed,
              "options": args.options, "explorers": len(outputs), **merge(outputs)}
    with open(args.ledger, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", default=LEDGER)
    parser.add_argument("--page", default=PAGE)
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="a search, from what its explorers said; then the page")
    adding.add_argument("--seed", type=int, help="left out: it is not known any more")
    adding.add_argument("--commit", help="that was searched, if it is not what is checked out")
    adding.add_argument("--date", default=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"))
    adding.add_argument("--options", default="")
    adding.add_argument("outputs", nargs="+")
    commands.add_parser("page", help="the page alone")
    args = parser.parse_args()
    try:
        if args.command == "add":
            add(args)
        write_section(args.page, "search", section(records(args.ledger)))
    except (ValueError, OSError) as error:
        sys.exit(f"scripts/searchledger.py: {error}")


if __name__ == "__main__":
    main()
