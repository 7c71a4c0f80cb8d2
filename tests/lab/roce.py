# SPDX-License-Identifier: Apache-2.0
"""The kernel's soft RoCE talks to simverbs' RoCE wire, in lab `two`: host a has rdma_rxe, host b has no RDMA module
in its kernel and simverbs in its programs. Programs of others with either as the server, then the plugin with faults."""

import json
import os
import time
from dataclasses import dataclass
from functools import partial

from machine import LabError
from topology import RAILS, interface

LIMIT_S = 60
PORT = 20000
RETRIES = "6"  # 7 are "for ever" to rdma_rxe
MODULES = ("rdma_rxe", "rdma_ucm", "rdma_cm", "iw_cm", "ib_cm", "ib_uverbs", "ib_core")

# Program and its options for both ends. perftest takes each device's own limit of reads unless told.
PROGRAMS = [
    ("ibv_rc_pingpong", "-g 1 -s 20000 -n 50 -c"),
    ("ibv_rc_pingpong", "-g 1 -s 3000 -n 50 -m 1024 -c"),
    ("ibv_rc_pingpong", "-g 0 -s 5000 -n 50 -c"),  # IPv6
    ("ibv_ud_pingpong", "-g 1 -s 1000 -n 50 -c"),
    ("ib_write_bw", "-x 1 -s 65536 -n 50 -F"),
    ("ib_read_bw", "-x 1 -s 65536 -n 50 -o 16 -F"),
    ("ib_send_lat", "-x 1 -s 8 -n 100 -F"),
    ("ib_atomic_bw", "-x 1 -n 50 -o 16 -F"),
    ("ib_atomic_bw", "-x 1 -n 50 -A CMP_AND_SWAP -o 16 -F"),
]
MODES = ("udp", "packet")
BAD = ("rx_bad_icrc", "rx_malformed", "rx_unknown_opcode")


@dataclass(frozen=True)
class Fault:
    """What breaks under the plugin's traffic, and whether the traffic has to move."""

    name: str
    strike: object  # (lab) -> None
    moves: bool
    short: str = None  # the mode of the short form; None: not in it
    loses: str = ""  # hosts whose first rail has to have lost packets by it


FAULTS = [
    Fault("link-down-simverbs", lambda lab: lab.host("b").link(0, "down"), True, "packet"),
    Fault("link-down-kernel", lambda lab: lab.host("a").link(0, "down"), True),
    Fault("silent", lambda lab: lab.host("a").netem(0, "loss 100%"), True, "udp", "a"),
    Fault("loss", lambda lab: [lab.host(name).netem(0, "loss 1%") for name in "ab"], False, loses="ab"),
]


def unload(lab, name="b", rails=RAILS):
    """A host is left without RDMA. rails: those on which it has a device."""
    lines = [f"rdma link delete {interface(name, rail)}" for rail in rails]
    lines += [f"busybox rmmod {module} 2>/dev/null" for module in MODULES]
    # Modules that others still need go in a later round.
    lab.host(name).run("\n".join(lines + lines[len(rails) :] + ["true"]))
    left = lab.host(name).run("cat /proc/modules").out
    if any(line.split()[0] in MODULES for line in left.splitlines()):
        raise LabError(f"host {name} still has RDMA modules: {left}")


class Ends:
    """How each host runs a program."""

    def __init__(self, lab, build, mode, plugin):
        self.lab, self.build, self.mode, self.plugin = lab, build, mode, plugin
        self.stats_path = os.path.join(lab.folder.path, f"roce-stats.{mode}")

    def device(self, name, rail=0):
        return interface(name, rail) if name == "a" else f"sv_{interface(name, rail)}"

    def env(self, name):
        if name == "a":
            return {}
        return {
            "LD_LIBRARY_PATH": os.path.join(self.build, "simverbs"),
            "SIMVERBS_ROCE": ",".join(interface("b", rail) for rail in RAILS),
            "SIMVERBS_ROCE_MODE": self.mode,
            "SIMVERBS_ROCE_STATS": f"/run/lab/{os.path.basename(self.stats_path)}",
        }

    def inside(self, _name):
        """Words before a command that runs where the host's programs do."""
        return []

    def address(self, name):
        return self.lab.host(name).socket_address

    def start(self, name, argv, env=None):
        return self.lab.host(name).start([*self.inside(name), *argv], {**self.env(name), **(env or {})})

    def stats(self):
        """Summed over all devices that host b has had open."""
        sums = {}
        with open(self.stats_path, encoding="utf-8") as file:
            for line in file:
                for key, value in json.loads(line).items():
                    if isinstance(value, int):
                        sums[key] = sums.get(key, 0) + value
        return sums


def said_by(process):
    text = ""
    for path in (process.out, process.err):
        with open(path, encoding="utf-8", errors="replace") as file:
            text += file.read()
    return text


def wait_listening(ends, name, port):
    asks = [*ends.inside(name), "grep", "-qi", f":{port:04X} 0", "/proc/net/tcp", "/proc/net/tcp6"]
    until = time.monotonic() + LIMIT_S
    while ends.lab.host(name).run(asks, check=False).status != 0:
        if time.monotonic() > until:
            raise LabError(f"nobody listens on port {port} of host {name}")


def counted(lab, name):
    """What a host has counted: where a packet was lost that nobody sends again."""
    script = """grep -H . /sys/class/infiniband/*/ports/1/hw_counters/* 2>/dev/null | grep -v ':0$' | sed 's|.*infiniband/||'
        grep '^Udp:' /proc/net/snmp; ip neigh; tc -s qdisc | grep -E 'qdisc|dropped'"""
    return f"{name} counted: {' | '.join(lab.host(name).run(script, check=False).out.splitlines())}"


def converse(program, options, server, ends, port):
    """Complaints, and what the client said."""
    client = "b" if server == "a" else "a"
    words = [*options.split(), "-p", str(port)]
    listening = ends.start(server, [program, "-d", ends.device(server), *words])
    wait_listening(ends, server, port)
    asking = ends.start(client, [program, "-d", ends.device(client), *words, ends.address(server)])
    wrong = []
    for process in (asking, listening):
        try:
            if process.wait(LIMIT_S) != 0:
                wrong.append(f"status {process.status}: {said_by(process)[-600:]}")
        except LabError as error:
            process.kill()
            wrong += [f"{error}: {said_by(process)[-600:]}", *(counted(ends.lab, name) for name in "ab")]
    return wrong, said_by(asking)


def run_program(program, options, server, ends, port):
    """Complaints."""
    return converse(program, options, server, ends, port)[0]


def run_fault(fault, ends, port):
    """The plugin's traffic, checked byte for byte, and what breaks under it. Complaints."""
    processes = {}
    for rank, name in enumerate("ab"):
        argv = [os.path.join(ends.build, "bin", "nccl-net-perf"), "--plugin", ends.plugin, "--rank", str(rank), "--nranks", "2"]
        argv += ["--root", f"{ends.lab.host('a').socket_address}:{port}", "--seconds", "600", "--timeout", "30"]
        argv += ["--op", "sendrecv", "--sizes", "128K", "--chunk", "16K", "--dev", "0", "-c", "1", "-w", "1"]
        processes[name] = ends.start(name, argv, {
            "NCCL_SOCKET_IFNAME": "=" + ends.lab.host(name).socket_interface,
            "NCCL_IB_HCA": "=" + ",".join(ends.device(name, rail) for rail in RAILS),
            "HA_NCCL_QP_RETRY_CNT": RETRIES,
            "HA_NCCL_EVENT_LOG": log_of(fault, ends, name),
        })  # fmt: skip
    try:
        return strike(ends, fault, processes)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
        ends.lab.heal()


def log_of(fault, ends, name):
    return f"/run/{fault.name}.{ends.mode}.{name}.events"


def events(ends, fault, kind):
    found = []
    for name in "ab":
        text = ends.lab.host(name).run(f"cat {log_of(fault, ends, name)} 2>/dev/null", check=False).out
        found += [event for event in map(json.loads, text.splitlines()) if event["kind"] == kind]
    return found


def wait_for(ends, fault, processes, kind, number):
    until = time.monotonic() + LIMIT_S
    while len(events(ends, fault, kind)) < number:
        if time.monotonic() > until or any(process.poll() is not None for process in processes.values()):
            return False
        time.sleep(0.2)
    return True


def strike(ends, fault, processes):
    wrong = []
    if not wait_for(ends, fault, processes, "recovery", 2):
        return ["the connections do not come up: " + " ".join(said_by(process)[-600:] for process in processes.values())]
    time.sleep(1)
    fault.strike(ends.lab)
    if fault.moves and not wait_for(ends, fault, processes, "switch", 4):
        wrong.append("the traffic did not move")
    time.sleep(2)
    processes["a"].kill(10)  # SIGUSR1: its time is up
    for name, process in processes.items():
        try:
            if process.wait(LIMIT_S) != 0:
                wrong.append(f"{name}: status {process.status}: {said_by(process)[-600:]}")
        except LabError as error:
            wrong.append(f"{name}: {error}")
    moved = events(ends, fault, "switch")
    if not fault.moves and moved:
        wrong.append(f"the traffic moved: {[event['reason'] for event in moved]}")
    wrong += [f"host {name} lost nothing" for name in fault.loses if not ends.lab.host(name).netem_packets(0).get("netem_dropped")]
    return wrong


def jobs_of(short):
    """What is to be done, by mode: (what, how). The short form does each thing once, and not in all ways."""
    found = {mode: [] for mode in MODES}
    for number, (program, options) in enumerate(PROGRAMS):
        for mode in MODES:
            for server in "ab":
                if not short or (MODES.index(mode), "ab".index(server)) == (number % 2, number // 2 % 2):
                    found[mode].append((f"{program} {options}, server {server}", partial(run_program, program, options, server)))
    for fault in FAULTS:
        for mode in MODES:
            if not short or mode == fault.short:
                found[mode].append((f"plugin, {fault.name}", partial(run_fault, fault)))
    return found


def check(lab, build, plugin, short):
    """Does everything and prints a line each. Whether all was right."""
    unload(lab)
    failed, number = 0, 0
    for mode, jobs in jobs_of(short).items():
        ends = Ends(lab, build, mode, plugin)
        for what, job in jobs:
            number += 1
            wrong = job(ends, PORT + number)
            failed += bool(wrong)
            print(f"{'FAILED' if wrong else 'ok'}: {mode}: {what}{''.join(f'{os.linesep}    {line}' for line in wrong)}", flush=True)
        sums = ends.stats()
        print(f"{mode}: simverbs counted {sums}")
        for name in BAD:
            if sums[name]:
                failed += 1
                print(f"FAILED: {mode}: {name} is {sums[name]}")
    kernel = [line for line in lab.host("a").run("dmesg").out.splitlines() if "ICRC" in line]
    if kernel:
        failed += 1
        print(f"FAILED: the kernel says {kernel[:3]}")
    print(f"{number} conversations, {failed} failed")
    return not failed
