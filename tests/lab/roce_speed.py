# SPDX-License-Identifier: Apache-2.0
"""How fast simverbs' RoCE wire is beside the kernel's soft RoCE: in lab `one`, so in the same guest, between virtual
interfaces of the same kind and MTU, in turn. simverbs has two hosts in network namespaces there, where UDP port 4791
is not the kernel's.

Under emulation every instruction takes many times as long as on a processor: what counts are the ratios. No figure is
wrong; a program that does not end well is."""

import statistics
from dataclasses import dataclass

import roce
from topology import MTU

ROUNDS = 5
PORT = 21000
SETUP = f"""set -e
    ip netns add a; ip netns add b
    ip link add s0 netns a mtu {MTU} type veth peer name s0 netns b mtu {MTU}
    ip -n a addr add 10.88.0.1/24 dev s0; ip -n b addr add 10.88.0.2/24 dev s0
    for host in a b; do ip -n $host link set lo up; ip -n $host link set s0 up; done"""


@dataclass(frozen=True)
class Figure:
    """What a program of perftest's measures, and in which column of its line."""

    name: str
    program: str
    options: str
    bytes: int
    column: int
    more_is_better: bool

    def ratio(self, ours, kernels):
        """How many times as good simverbs is."""
        return ours / kernels if self.more_is_better else kernels / ours


FIGURES = [
    Figure("8 B, half a round trip, us", "ib_send_lat", "-n 300", 8, 4, False),
    Figure("64 KiB writes, MB/s", "ib_write_bw", "-n 200", 65536, 3, True),
    Figure("64 KiB reads, MB/s", "ib_read_bw", "-n 200 -o 16", 65536, 3, True),
]


class Kernel(roce.Ends):
    """rdma_rxe at both ends."""

    def device(self, name, rail=0):
        return f"{name}{rail}"

    def env(self, name):
        return {}


class Simverbs(roce.Ends):
    """simverbs at both ends."""

    def device(self, name, rail=0):
        return "sv_s0"

    def inside(self, name):
        return ["ip", "netns", "exec", name]

    def address(self, name):
        return {"a": "10.88.0.1", "b": "10.88.0.2"}[name]

    def env(self, name):
        return {**super().env("b"), "SIMVERBS_ROCE": "s0"}


def measure(figure, ends, port):
    """The figure, and complaints."""
    wrong, said = roce.converse(figure.program, f"-x 1 -F -s {figure.bytes} {figure.options}", "a", ends, port)
    for line in said.splitlines():
        words = line.split()
        if not wrong and words[:1] == [str(figure.bytes)] and len(words) > figure.column:
            return float(words[figure.column]), []
    return None, wrong or [f"{figure.program} says no figure: {said[-600:]}"]


def rounds_of(figure, all_ends, port, rounds):
    """Figures of each that has ended well every time, and complaints."""
    found, wrong = {who: [] for who in all_ends}, {}
    for _ in range(rounds):
        for who, ends in all_ends.items():
            port += 1
            value, complaints = (None, []) if who in wrong else measure(figure, ends, port)
            if complaints:
                wrong[who] = complaints
            found[who].append(value)
    return {who: values for who, values in found.items() if who not in wrong}, wrong


def say(figure, found):
    kernels = found["kernel"]
    print(f"{figure.name}: kernel {statistics.median(kernels)}", flush=True)
    for mode, ours in found.items():
        if mode != "kernel":
            ratios = [figure.ratio(*pair) for pair in zip(ours, kernels)]
            print(f"    simverbs by {mode} {statistics.median(ours)}: {statistics.median(ratios):.2f} times as good in the median of {len(ratios)} "
                  f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)  # fmt: skip


def check(lab, build, rounds=ROUNDS):
    """Measures in turn and prints a line for each figure and mode. Whether all programs have ended well."""
    lab.host("a").run(SETUP)
    all_ends = {"kernel": Kernel(lab, build, "kernel", None)}
    all_ends.update((mode, Simverbs(lab, build, mode, None)) for mode in roce.MODES)
    failed = 0
    for number, figure in enumerate(FIGURES):
        found, wrong = rounds_of(figure, all_ends, PORT + 1000 * number, rounds)
        if "kernel" in found:
            say(figure, found)
        for who, complaints in wrong.items():
            failed += 1
            print(f"FAILED: {figure.name}, {who}: {complaints}", flush=True)
    return not failed
