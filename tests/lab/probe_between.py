# SPDX-License-Identifier: Apache-2.0
"""The probe of verbs between two stacks, in lab `two`: host a has the kernel's soft RoCE, host b simverbs' RoCE wire.
Each asks the other, over UDP and by packet sockets.

Each end is to behave as it does among its own kind: an answer is right if it is the recorded one of the kernel, or what
the table of differences says of simverbs."""

import os
import time

import probe_answers
import probe_kernel
import roce
import topology

RAIL = 0
LIMIT_S = 60


class Driver:
    """Breaks and mends what the probe asks for: its own link, or what leaves by either end."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name

    def do(self, what):
        word, state = what.split()
        if word == "link":
            self.lab.host(self.name).link(RAIL, state)
        elif word == "silence":
            for host in self.lab.hosts.values():
                host.netem(RAIL, "loss 100%" if state == "on" else None)
        else:
            raise probe_kernel.ProbeError(f"the probe asks for '{what}', which nobody here can do")


def port_of(process):
    """Where it serves, as it says in its first line."""
    until = time.monotonic() + LIMIT_S
    while True:
        with open(process.out, encoding="utf-8") as file:
            line = file.readline()
        if line.endswith("\n"):
            return line.split()[1]
        if process.poll() is not None or time.monotonic() > until:
            raise probe_kernel.ProbeError(f"nobody serves the second device: {roce.said_by(process)}")
        time.sleep(0.05)


def ask(lab, probe, ends, asks):
    """The lines of the probe on host `asks`, which asks the other."""
    serves = topology.peer_of(asks)
    host = lab.host(serves)
    serving = ends.start(serves, [probe, "serve", ends.device(serves), host.socket_address])
    try:
        peer = f"{host.socket_address}:{port_of(serving)}"
        lines = probe_kernel.ask(lab.host(asks).guest, [probe, ends.device(asks), peer], ends.env(asks),
                                 Driver(lab, asks))  # fmt: skip
        if serving.wait(LIMIT_S) != 0:
            raise probe_kernel.ProbeError(f"who served ended with status {serving.status}: {roce.said_by(serving)}")
        return lines
    finally:
        if serving.poll() is None:
            serving.kill()
        lab.heal()


def check(lab, build, plugin, table):
    """Asks everything in four ways and prints what is not as it is to be. Whether all is."""
    probe = os.path.join(build, "tests", "lab", "probe", "lab-probe")
    recorded = probe_answers.read(os.path.join(probe_kernel.RECORDS, "kernel-6.1.answers"))
    with open(table, encoding="utf-8") as file:
        listed = probe_answers.parse_table(file.read())
    roce.unload(lab)
    # Addresses that come and go with the link are events, too.
    lab.host("b").run("ip link set {0} addrgenmode none; ip -6 addr flush dev {0}".format(topology.interface("b", RAIL)))
    failed = 0
    for mode in roce.MODES:
        ends = roce.Ends(lab, build, mode, plugin)
        for asks, who in (("a", "the kernel asks simverbs"), ("b", "simverbs asks the kernel")):
            answers = probe_answers.parse(ask(lab, probe, ends, asks))
            faults = probe_answers.strange(answers, recorded, listed)
            print("\n".join([f"# {mode}: {who}: {len(answers)} answers, {len(faults)} faults", *faults]), flush=True)
            failed += len(faults)
    return not failed
