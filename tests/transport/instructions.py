#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a message costs: instructions, work requests, doorbells and completions.

Runs bench_instructions once under callgrind and compares each of its cases with the figures in
instructions.json (not one instruction more, and no more of anything else) and with those of NCCL's
own IB transport, which must be higher. Instructions are those in user space from the entry of the
plugin's table on, libc included and the verbs left out, so they don't depend on the machine's speed
or load. They do depend on the compiler; for one that instructions.json does not know, only NCCL's
figures count.

    instructions.py [--update] [--case "n=1 8B HA"] PROGRAM

--update records what is measured: commit that with the reason why a message costs more, or less.
"""

import argparse
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import callgrind  # pylint: disable=wrong-import-position

BASELINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.json")
# The count is the same each time. Less than one instruction for eight messages is what is left of
# a start that another machine makes otherwise, and of rounding.
ROUNDING = 0.11

# What end to end may cost beside the same traffic without, both ends together. Of a send that nothing
# follows a copy is kept: nobody has told its sender yet that it was placed.
E2E_MORE = {"n=1 8B HA e2e last": 250}
E2E_MORE_ELSE = 20
# What a message on a bundle may cost, in parts of the same message on a port by itself.
BUNDLE_MOST = 1.10
CALLS = ("isend", "test_send", "irecv", "test_recv")
# HA_NCCL_LATENCY_MS: no instruction of a message is about it, and timing a queue pair, at both ends, costs no more than 1.25
# messages of 8 bytes. So where an interval has 125 messages it is at most 1 %, and where it has more it is less.
TIMING = "ha_latency_"
TIMED_EACH_MOST = 1.25

# NCCL 2.30.7's IB transport, counted in the same way: one message of 8 bytes.
NCCL = {
    "n=1 8B HA": {"send": 651, "recv": 568},
    "n=8 8B HA": {"send": 478, "recv": 94},
}


def collected(path):
    """Instructions below each counted_ function in one callgrind file, and whether functions that time were called."""
    sums, times = dict.fromkeys((*CALLS, "timing"), 0), False
    for function, is_call, numbers in callgrind.costs(path):
        times |= function.startswith(TIMING)
        if is_call and function.startswith("counted_"):
            sums[function[len("counted_"):]] += numbers[0]
    return sums, times


def measure(program, only):
    """The compiler, and a list of the program's cases, each with its counts per message."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        said = callgrind.run(program, out, "--collect-atstart=no", "--dump-after=case_ends", "--toggle-collect=counted_*",
                             "--toggle-collect=provider_*", arguments=[only] if only else [])
        about, *cases = [json.loads(line) for line in said.splitlines()]
        for number, case in enumerate(cases):
            # Two dumps a case: what came before it, and the case itself.
            (counts, case["times"]), messages = collected(f"{out}.{2 * number + 2}"), case.pop("messages")
            case["instructions"] = {call: round(counts[call] / messages, 2) for call in counts if call in CALLS or counts[call]}
    return about["compiler"], cases


def side(case, end):
    """Instructions of one end per message."""
    calls = ("isend", "test_send") if end == "send" else ("irecv", "test_recv")
    return sum(case["instructions"][call] for call in calls)


def compare(case, known, failures):
    """Adds to failures what is worse than the recorded figures of the same case."""
    for end in ("send", "recv"):
        now, before = side(case, end), side(known, end)
        if now > before + ROUNDING:
            failures.append(f"{case['case']}, {end}: {now:.1f} instructions a message, "
                            f"{before:.1f} are recorded")
        for verb, count in case[end].items():
            if count > known[end][verb]:
                failures.append(f"{case['case']}, {end}: {count} {verb} a message, "
                                f"{known[end][verb]} are recorded")


def main():
    """Measures, prints, compares."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="record what is measured")
    parser.add_argument("--case", help="this one alone, and no comparison")
    parser.add_argument("program", help="bench_instructions")
    options = parser.parse_args()
    compiler, cases = measure(options.program, options.case)
    print("Per message:           isend   test = send   irecv   test = receive")
    for case in cases:
        i = case["instructions"]
        print(f"{case['case']:20} {i['isend']:7.1f} {i['test_send']:6.1f} {side(case, 'send'):6.1f} "
              f"{i['irecv']:7.1f} {i['test_recv']:6.1f} {side(case, 'recv'):6.1f}")
        for end in ("send", "recv"):
            print("    " + end + ": " + ", ".join(f"{count:g} {verb.replace('_', ' ')}"
                                                  for verb, count in case[end].items()))
    if options.case:
        return 0
    return judge(compiler, cases, options.update)


def compare_modes(cases, failures):
    """Adds to failures where end-to-end completion costs more than it may beside the same traffic without."""
    sums = {case["case"]: side(case, "send") + side(case, "recv") for case in cases}
    for name, cost in sums.items():
        without = sums.get(name.replace(" e2e", ""), cost)
        limit = E2E_MORE.get(name, E2E_MORE_ELSE)
        if cost - without > limit:
            failures.append(f"{name}: {cost - without:.1f} instructions a message more than without, "
                            f"{limit} are allowed")
    for name, cost in sums.items():
        alone = sums.get(name.removesuffix(" bundle"), cost)
        if cost > BUNDLE_MOST * alone:
            failures.append(f"{name}: {cost:.1f} instructions a message, {alone:.1f} without a bundle: {BUNDLE_MOST} times are allowed")


def compare_timing(cases, failures):
    """Adds to failures where timing costs messages anything, or a queue pair that is timed too much."""
    found = {case["case"]: case for case in cases}
    never, elsewhen, each = (found["n=1 8B HA" + suffix] for suffix in ("", " timed", " timed each"))
    for case in cases:
        if case["times"] != (case is each):
            failures.append(f"{case['case']}: functions that time were {'' if case['times'] else 'not '}called")
    if elsewhen["instructions"] != never["instructions"]:
        failures.append(f"timed: {elsewhen['instructions']} and not {never['instructions']}")
    message, timed = (sum(case["instructions"].values()) for case in (never, each))
    print(f"Timing a queue pair of both ends: {timed - message:.1f} instructions; a message: {message:.1f}")
    if not 0 < timed - message <= TIMED_EACH_MOST * message:
        failures.append(f"timing both ends costs {timed - message:.1f} instructions, a message {message:.1f}")


def judge(compiler, cases, update):
    """Compares with NCCL's transport and with what is recorded, or records. The exit status."""
    failures = []
    for case in cases:
        for end, limit in NCCL.get(case["case"], {}).items():
            if side(case, end) >= limit:
                failures.append(f"{case['case']}, {end}: {side(case, end):.1f} instructions a "
                                f"message, NCCL's own transport takes {limit}")
    compare_modes(cases, failures)
    compare_timing(cases, failures)
    for case in cases:
        del case["times"]
    with open(BASELINE, encoding="utf-8") as file:
        recorded = json.load(file)
    if update:
        recorded[compiler] = {case.pop("case"): case for case in cases}
        with open(BASELINE, "w", encoding="utf-8") as file:
            json.dump(recorded, file, indent=1, sort_keys=True)
            file.write("\n")
    elif compiler in recorded:
        for case in cases:
            compare(case, recorded[compiler][case["case"]], failures)
    else:
        print(f"{compiler} is not in {BASELINE}: compared with NCCL's figures only; "
              "--update records it")
    for failure in failures:
        print("FAILED: " + failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
