# SPDX-License-Identifier: Apache-2.0
"""scripts/acceptance as a user runs it, on the kernel's own RDMA stack: in lab `two` each guest has a half of
it, which speak over the network for sockets; in `one` both halves are in the guest, each with its devices.

Emulation is slow, so the measurements are short, and a pause may be longer than on hardware."""

import json
import os
import sys
import time

from machine import LabError
from topology import RAILS, interface

TOKEN = "of-the-lab"
PORT = 19000
LIMIT_S = 420
# 7 retries are "for ever" to rdma_rxe.
ENV = {"HA_NCCL_QP_RETRY_CNT": "6", "HA_ACCEPTANCE_TOKEN": TOKEN}
OPTIONS = ("--quick", "--rounds", "2", "--drill", "ip", "--yes", "--hold", "1", "--pause-limit", "1500")


def devices(host):
    return "NCCL_IB_HCA==" + ",".join(interface(host, rail) for rail in RAILS)


def commands(lab, script, build, out):
    """What host b starts first, if anything, and what host a starts."""
    common = [script, "--build", build, *OPTIONS, "--json", out]
    if lab.name == "one":
        return None, [*common, "--here", f"env {devices('a')}", "--exec", f"env {devices('b')}"]
    place = f"{lab.host('b').socket_address}:{PORT}"
    return [script, "--listen", place], [*common, "--connect", place]


def run(lab, tree, build, extra=()):
    """Prints what it prints. Returns the report, or raises LabError."""
    out = os.path.join(lab.folder.path, "acceptance.json")
    script = os.path.join(tree, "scripts", "acceptance")
    listening, conducting = commands(lab, script, build, "/run/lab/acceptance.json")
    other = lab.host("b").start(["python3", *listening], ENV, name="acceptance-b") if listening else None
    process = lab.host("a").start(["python3", *conducting, *extra], ENV, name="acceptance")
    shown = 0
    until = time.monotonic() + LIMIT_S
    while True:
        ended = process.poll() is not None
        with open(process.out, encoding="utf-8", errors="replace") as file:
            text = file.read()
        sys.stdout.write(text[shown:])
        sys.stdout.flush()
        shown = len(text)
        if ended:
            break
        if time.monotonic() > until:
            raise LabError(f"scripts/acceptance still runs after {LIMIT_S} s")
        time.sleep(0.3)
    with open(process.err, encoding="utf-8", errors="replace") as file:
        sys.stderr.write(file.read())
    if other is not None:
        other.wait(60)
    if not os.path.exists(out):
        raise LabError(f"scripts/acceptance ended with status {process.status} and left no report")
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def complaints(lab, report):
    """What of the report is not as the lab is."""
    wrong = [f"{line['what']}: {line['found']}" for line in report["verdict"] if line["verdict"] == "FAIL"]
    reached = {(pair["from"], pair["to"]): pair["reached"] for pair in report["pairs"]}
    for rail in RAILS:
        pair = tuple(f"{interface(host, rail)}:1" for host in "ab")
        if not reached.get(pair):
            wrong.append(f"{pair} is not among the pairs that reach each other: {reached}")
    for row in report["standbys"]:
        if row["standby"] != f"{row['node']}{1 - int(row['port'][1])}:1":
            wrong.append(f"the standby of {row['port']} is {row['standby']}")
    if {drill["node"] for drill in report["drills"]} != {"a", "b"}:
        wrong.append(f"drills were done at {[drill['node'] for drill in report['drills']]}")
    for drill in report["drills"]:
        if not (drill["state_down"] == "down" and drill["moved"] and drill["restored"] and drill["wrong"] == 0 and drill["checked"] > 0):
            wrong.append(f"the drill on {drill['port']} was none: {drill}")
    for host in "ab":
        for rail in RAILS:
            if "ACTIVE" not in lab.host(host).port_state(rail):
                wrong.append(f"{interface(host, rail)} is left {lab.host(host).port_state(rail)}")
    return wrong


def check(lab, tree, build, extra=()):
    """Whether all is as it must be; says what is not. With options of the caller's only FAIL counts."""
    report = run(lab, tree, build, extra)
    wrong = [line["what"] for line in report["verdict"] if line["verdict"] == "FAIL"] if extra else complaints(lab, report)
    for line in wrong:
        print(f"acceptance in lab {lab.name}: {line}")
    return not wrong
