# SPDX-License-Identifier: Apache-2.0
"""All-reduces in the network over the kernel's soft RoCE, in lab `three`: hosts a and b have rdma_rxe, and what adds for
them is nccl-ha-switchd at s, which has no RDMA module in its kernel and simverbs' RoCE wire in its programs. The switch is
lost in the middle, and the hosts go on without one. Every byte is compared."""

import json
import os
import re
import time
from dataclasses import dataclass

import roce
from machine import LabError
from topology import HOSTS, interface

SUMS = 1000  # at least, half of them before the switch is lost
LIMIT_S = 240
PORT = 9912
KEY = "/run/site.key"
# Guests whose processors are emulated by busy ones stand still for longer than an edge, or a result, would be waited for.
PATIENCE = {"NCCL_IB_TIMEOUT": "19", "HA_NCCL_INC_RTO_MS": "8000"}
TOPOLOGY = """version: 1
switches: [{name: s}]
hosts: [{name: a, ports: [{nic: a0}]}, {name: b, ports: [{nic: b0}]}]
links: [{a: a, b: s, gbps: 1}, {a: b, b: s, gbps: 1}]
"""


@dataclass(frozen=True)
class Loss:
    """How the switch is lost, and how its programs speak RoCE until then."""

    name: str
    mode: str
    strike: object  # (lab, the switch's process) -> None
    halts: bool  # its machine: what simverbs has counted there is lost, too


LOSSES = [
    Loss("switchd-ends", "udp", lambda lab, switch: switch.kill(15), False),
    Loss("guest-halts", "packet", lambda lab, switch: lab.halt("s"), True),
]


class Job:
    """Controller, switch and two ranks: each where it belongs."""

    def __init__(self, lab, build, plugin, loss, number):
        self.lab, self.build, self.plugin, self.loss, self.number = lab, build, plugin, loss, number
        self.controller = f"{lab.host('a').socket_address}:{PORT + number}"
        self.stats = f"inc-stats.{loss.name}"
        self.processes = {}

    def program(self, name):
        return os.path.join(self.build, "bin", name)

    def log_of(self, name):
        return f"/run/{self.loss.name}.{name}.events"

    def begin(self):
        site = ["--key-file", KEY]
        self.start("controller", "a", ["nccl-ha-ctrld", "--topology", "/run/lab/net.yaml", "--listen", self.controller, *site])
        self.says("controller", "listening at")
        self.start("switch", "s", ["nccl-ha-switchd", "--switch", "s", "--connect", self.controller, *site], {
            **PATIENCE,
            "LD_LIBRARY_PATH": os.path.join(self.build, "simverbs"),
            "SIMVERBS_ROCE": interface("s", 0),
            "SIMVERBS_ROCE_MODE": self.loss.mode,
            "SIMVERBS_ROCE_STATS": f"/run/lab/{self.stats}",
        })  # fmt: skip
        self.says("switch", "s adds at")
        for rank, name in enumerate(HOSTS):
            self.start(name, name, self.rank(rank), {
                **PATIENCE,
                "NCCL_SOCKET_IFNAME": "=" + self.lab.host(name).socket_interface,
                "NCCL_IB_HCA": "=" + interface(name, 0),
                "HA_NCCL_QP_RETRY_CNT": roce.RETRIES,
                "HA_NCCL_EVENT_LOG": self.log_of(name),
                "HA_NCCL_INC": "1",
                "HA_NCCL_INC_MIN_RANKS": "2",
                "HA_NCCL_INC_HOST": name,
                "HA_NCCL_INC_CONTROLLER": self.controller,
                "HA_NCCL_INC_KEY_FILE": KEY,
                "HA_NCCL_INC_CONNECT_MS": str(LIMIT_S * 250),
            })  # fmt: skip

    def rank(self, rank):
        root = f"{self.lab.host('a').socket_address}:{PORT + 100 + self.number}"
        return ["nccl-net-perf", "--plugin", self.plugin, "--via", "collnet", "--rank", str(rank), "--nranks", "2", "--root", root,
                "--op", "allreduce", "--datatype", "int32", "--sizes", "9000", "--seconds", "600", "--timeout", "60", "-c", "1", "-w", "1"]  # fmt: skip

    def start(self, what, name, words, env=None):
        self.processes[what] = self.lab.host(name).start([self.program(words[0]), *words[1:]], env)

    def says(self, what, text):
        self.until(lambda: text in roce.said_by(self.processes[what]), f"the {what} does not say '{text}'")

    def until(self, so, otherwise):
        end = time.monotonic() + LIMIT_S
        while not so():
            over = [what for what, process in self.processes.items() if process.poll() is not None]
            if over or time.monotonic() > end:
                said = {what: roce.said_by(process)[-800:] for what, process in self.processes.items()}
                raise LabError(f"{otherwise}, but {self.sums()} sums; over: {over}; said: {said}")
            time.sleep(0.2)

    def sums(self):
        """All-reduces that host a's rank has had."""
        page = self.lab.host("a").run([self.program("nccl-ha"), "metrics"]).out
        return sum(map(int, re.findall(r"^nccl_ha_inc_all_reduces_total\{[^}]*\} (\d+)$", page, re.MULTILINE)))

    def events(self, kind):
        """By host."""
        found = {}
        for name in HOSTS:
            text = self.lab.host(name).run(f"cat {self.log_of(name)} 2>/dev/null", check=False).out
            found[name] = [event for event in map(json.loads, text.splitlines()) if event["kind"] == kind]
        return found

    def wait_for_events(self, kind):
        self.until(lambda: all(self.events(kind).values()), f"no {kind} in an event log")

    def end(self):
        """Complaints."""
        self.processes["a"].kill(10)  # SIGUSR1: its time is up
        wrong = []
        for name in HOSTS:
            if self.processes[name].wait(LIMIT_S) != 0:
                wrong.append(f"{name}: status {self.processes[name].status}: {roce.said_by(self.processes[name])[-800:]}")
        if aborted := sum(self.events("inc-abort").values(), []):
            wrong.append(f"groups were aborted: {aborted}")
        return wrong

    def counted(self):
        """Complaints about what the switch's simverbs has counted."""
        with open(os.path.join(self.lab.folder.path, self.stats), encoding="utf-8") as file:
            counts = [json.loads(line) for line in file]
        print(f"simverbs counted {counts}")
        wrong = [f"{bad} is {one[bad]}" for one in counts for bad in roce.BAD if one[bad]]
        return wrong if counts else ["simverbs has counted nothing"]

    def kill(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()


def lose(job):
    """Complaints."""
    job.begin()
    job.wait_for_events("inc-connect")
    job.until(lambda: job.sums() >= SUMS // 2, "too few sums by the switch")
    if early := sum(job.events("inc-epoch").values(), []):
        return [f"the group has left its switch before it was lost: {early}"]
    by_switch = job.sums()
    switch = job.processes.pop("switch")
    job.loss.strike(job.lab, switch)
    if not job.loss.halts:
        switch.wait(LIMIT_S)
    job.wait_for_events("inc-epoch")
    moved_at = job.sums()
    job.until(lambda: job.sums() >= max(SUMS, moved_at + SUMS // 2), "too few sums without a switch")
    sums, pauses_ms = job.sums(), [event["blackout_ms"] for events in job.events("inc-epoch").values() for event in events]
    print(f"{job.loss.name}: {by_switch} sums by the switch, {sums} in all, without any for {', '.join(f'{ms:.0f}' for ms in pauses_ms)} ms")
    return job.end() + ([] if job.loss.halts else job.counted())


def prepare(lab):
    roce.unload(lab, "s", [])
    with open(os.path.join(lab.folder.path, "net.yaml"), "w", encoding="utf-8") as file:
        file.write(TOPOLOGY)
    octal = "".join(f"\\0{byte:o}" for byte in os.urandom(32))
    for host in lab.hosts.values():
        host.run(f"umask 377; printf '%b' '{octal}' >{KEY}")


def check(lab, build, plugin):
    """Loses the switch in each way and prints a line each. Whether all was right."""
    prepare(lab)
    failed = 0
    for number, loss in enumerate(LOSSES):
        job = Job(lab, build, plugin, loss, number)
        try:
            wrong = lose(job)
        except LabError as error:
            wrong = [str(error)]
        finally:
            job.kill()
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok'}: {loss.mode}: {loss.name}{''.join(f'{os.linesep}    {line}' for line in wrong)}", flush=True)
    for name in HOSTS:
        if bad := [line for line in lab.host(name).run("dmesg").out.splitlines() if "ICRC" in line]:
            failed += 1
            print(f"FAILED: the kernel of {name} says {bad[:3]}")
    return not failed
