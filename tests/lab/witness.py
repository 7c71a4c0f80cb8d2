# SPDX-License-Identifier: Apache-2.0
"""Witnesses in the guest that know nothing of the plugin (guest/lab-witness.c), and what they prove.

Late packets: a sender that gives up on a slow link leaves packets on their way, which arrive when its
messages have long been sent again over another rail. Three things must hold together. Packets with data
did come for queue pairs that were fenced before: the packets on the wire are seen. None of them changed
memory: nccl-net-perf's canaries. And without a fence they would have: queue pairs of the witness's own,
on the same link at the same time, half of them fenced and half not."""

import json
import os
import signal
import time

from machine import LabError
from topology import interface

READY_S = 20
POLL_S = 0.05
DATA_BYTES = 1000  # packets with more carry a message's data, with less what the protocol says


class Witness:
    """A lab-witness that runs on a host of the lab."""

    def __init__(self, host, build, words):
        self.words = words
        path = os.path.join(build, "tests", "lab", "lab-witness")
        self.process = host.start([path, *words])
        self.wait(lambda: any(line.get("kind") == "ready" for line in self.lines()), "to be ready", READY_S)

    def lines(self):
        with open(self.process.out, encoding="utf-8", errors="replace") as file:
            whole = [line for line in file if line.endswith("\n")]
        return [json.loads(line) for line in whole]

    def wait(self, condition, what, limit_s):
        until = time.monotonic() + limit_s
        while not condition():
            if self.process.poll() is not None or time.monotonic() > until:
                with open(self.process.err, encoding="utf-8", errors="replace") as file:
                    raise LabError(f"lab-witness {' '.join(self.words)}: waited in vain for it {what}: {file.read()}")
            time.sleep(POLL_S)

    def go_on(self):
        self.process.kill(signal.SIGUSR1)

    def result(self, kind, limit_s=20):
        """The line that ends it."""
        self.wait(lambda: any(line.get("kind") == kind for line in self.lines()), "to end", limit_s)
        self.process.wait()
        return next(line for line in self.lines() if line.get("kind") == kind)

    def stop(self):
        """What it has seen."""
        if self.process.poll() is None:
            self.process.kill(signal.SIGTERM)
            self.process.wait()
        return self.lines()


def watch_packets(lab, host, rail, build):
    return Witness(lab.host(host), build, ["packets", interface(host, rail)])


def write_late(lab, rail, build):
    """From host a to host b, which must be one guest."""
    return Witness(lab.host("a"), build, ["late", interface("a", rail), interface("b", rail)])


def late_packets(packets, fault_ns, fenced_ns):
    """Those with data for a queue pair that had traffic before the fault, after the time at which all such
    queue pairs were fenced."""
    old = {p["qpn"] for p in packets if "qpn" in p and p["at_ns"] < fault_ns}
    return [
        p
        for p in packets
        if "qpn" in p and p["qpn"] in old and p["at_ns"] > fenced_ns and p["bytes"] > DATA_BYTES
    ]


def fenced_since(events, host, fault_ns):
    """When the receivers on this host had all gone on elsewhere after the fault, which each does when both
    ends have confirmed their fences; None: they have not all."""
    names = {e["name"] for e in events if e["end"] == host and e["name"].startswith("recv ")}
    first = {}
    for e in events:
        if e["end"] == host and e["name"] in names and e["kind"] == "switch" and e["monotonic_ns"] > fault_ns:
            first.setdefault(e["name"], e["monotonic_ns"])
    return max(first.values()) if names and set(first) == names else None


def came_late(seen, events, host, fault_ns):
    """The packets that were late, of what two witnesses saw; none where not every receiver has moved."""
    fenced_ns = fenced_since(events, host, fault_ns)
    return late_packets(seen["packets"], fault_ns, fenced_ns) if fenced_ns else []


def judge_late(row, host, seen, events, report, fault_ns, gave_up):
    """seen: {"packets": [...], "late": {...}} of a drill whose fault delayed what comes to this host. gave_up: how
    many of this host's queue pairs the kernel put into ERR by itself, where no fence is needed."""
    late = came_late(seen, events, host, fault_ns)
    control = seen["late"]
    last = seen["packets"][-1]
    if last.get("kind") != "packets" or last["seen"] >= last["room"]:
        row.complain("lab-witness did not see all packets")
    if not late:
        row.complain(f"no packet came to {host} for a queue pair that was fenced before: nothing was proved")
    if gave_up:
        row.complain(f"{gave_up} queue pairs of {host} gave up by themselves: it was not the fence that kept packets out")
    if "late" not in report:
        row.complain("nccl-net-perf ran without canaries")
    elif report["late"]["seen"]:
        row.complain(f"{report['late']['bytes']} bytes were written late: {report['late']['events'][0]['text']}")
    if not control["landed_unfenced"]:
        row.complain("without a fence nothing landed late either: was the link slow enough?")
    if control["landed_fenced"]:
        row.complain(f"{control['landed_fenced']} writes landed through a queue pair in ERR: the kernel breaks its word")
    last_ns = max((p["at_ns"] - fenced_since(events, host, fault_ns) for p in late), default=0)
    row.notes.append(
        f"{len(late)} packets with {sum(p['bytes'] for p in late)} bytes came up to {last_ns / 1e6:.0f} ms after the fence "
        f"and changed nothing; of writes through queue pairs without a fence {control['landed_unfenced']} landed late, with one "
        f"{control['landed_fenced']}"
    )
