# SPDX-License-Identifier: Apache-2.0
"""The traffic that drills break: nccl-net-perf as two ranks, one on each host of the lab.

A workload outlives a drill: it is told to end when the drills that share it are over, and reports
then. Meanwhile the event logs of both ends are followed, which is how a drill knows that traffic has
moved or that a connection is protected again. Judging is done elsewhere, with more witnesses.
"""

import collections
import itertools
import json
import os
import re
import signal
import time
from dataclasses import dataclass, field

from machine import LabError
from topology import HOSTS, RAILS, interface

INTERVAL_MS = 2.0  # of the timeline: how exactly pauses are known
POLL_S = 0.05
GRACE_S = 2  # for the kernel to clear away what is left of a process
LIMIT_S = 600  # no workload lives longer than this

# "recv 1ba0a413 (host:12582 sim0:1 <- host:12583 sim1:1)"
NAME = re.compile(r"(send|recv) \S+ \(\S+ (\S+) (?:->|<-) \S+ (\S+)\)")

# Under emulation a retransmission timeout is no luxury, and 7 would be "for ever" to rdma_rxe.
COMMON_ENV = {"HA_NCCL_QP_RETRY_CNT": "6", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
# Small messages, so that there are always some in flight, and every byte of them checked.
COMMON_ARGS = ("--op", "sendrecv", "--sizes", "128K", "--chunk", "16K", "--dev", "0", "-c", "1", "-w", "1")


@dataclass(frozen=True)
class Kind:
    """How a workload is run: what it adds to the above."""

    name: str
    env: dict = field(default_factory=dict)  # {build} is the build folder; None: without this variable
    env_b: dict = field(default_factory=dict)  # on host b alone
    args: tuple = ()
    meets: bool = True  # the ranks, every tenth of a second
    connections: int = 2  # of one channel between two ranks: one per direction


KINDS = {
    kind.name: kind
    for kind in (
        Kind("steady"),
        Kind("failback", env={"HA_NCCL_ENABLE_FAILBACK": "1"}),
        # The hardware of host a gives up before a delay of 400 ms is over, and that of b does not: what comes late to b
        # finds queue pairs that nothing but the fence has put out of use.
        Kind(
            "canaries",
            env={"HA_NCCL_QP_TIMEOUT": "13"},
            env_b={"HA_NCCL_QP_TIMEOUT": "18"},
            args=("--canary", "--linger", "1000"),
        ),
        Kind("unheard", env={"HA_NCCL_QP_RETRY_CNT": None, "HA_NCCL_HEARTBEAT_MS": "60000", "HA_NCCL_STALL_MS": "0"}),
        # A device that tells nothing and gives up for nothing, as 7 retries are for ever there: only the soft timeout
        # is left. As much under way as can be, since the kernel leaves a queue pair stuck by chance. With the usual
        # 67 ms the device would send again under such load what is only late.
        Kind(
            "deaf",
            env={
                "HA_NCCL_QP_RETRY_CNT": None,
                "HA_NCCL_QP_TIMEOUT": "16",
                "HA_NCCL_HEARTBEAT_MS": "60000",
                "HA_NCCL_STALL_MS": "0",
                "LD_PRELOAD": "{build}/tests/lab/lab-deaf.so",
            },
            args=("--sizes", "1M", "--depth", "32", "-C", "4"),
            connections=8,
        ),
        Kind("unbound"),
        # Ranks that meet between batches miss each other there: it is the plugin that has to notice.
        Kind("killed", meets=False),
    )
}

ports = itertools.count(20000)  # of the ranks' meeting point: in the guest nobody else has any
numbers = itertools.count(1)


class WorkloadError(LabError):
    """Traffic that did not start, or that ended before its time."""


def said_by(process):
    """Everything that a process of the lab has printed."""
    text = ""
    for path in (process.out, process.err):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text += file.read()
        except OSError:
            pass
    return text


def status_of_the_leaving(stat):
    """The exit status of a process that has ended but for threads that the kernel does not let go, from
    its /proc/PID/stat; None: it has not."""
    words = stat.rpartition(")")[2].split()
    if not words or words[0] != "Z":
        return None
    code = int(words[-1])
    return code >> 8 if code & 127 == 0 else -(code & 127)


def rail_of(port):
    """Of a port's name in the event log: "a1:1"."""
    return int(port[1])


class Connection:
    """What the two event logs say of one connection."""

    def __init__(self):
        self.ports = {"send": {}, "recv": {}}  # path: local port there
        self.good = {}  # path: its generation, as the receiver knows; it decides
        self.active = {"send": 0, "recv": 0}  # path
        self.moves = {"send": 0, "recv": 0}  # switches seen
        self.seen_receiver = False

    def take(self, event):
        end, local, remote = NAME.match(event["name"]).groups()
        other = "recv" if end == "send" else "send"
        self.ports[end].setdefault(0, local)
        self.ports[other].setdefault(0, remote)
        source, target = event["from"] or {}, event["to"] or {}
        for place in (source, target):
            if place.get("path") is not None:
                self.ports[end][place["path"]] = place["port"]
        if end == "recv":
            self.seen_receiver = True
            if event["kind"] == "recovery":
                self.good[target["path"]] = target["generation"]
            elif event["kind"] == "failure" or (event["kind"] == "switch" and event["reason"] != "failback"):
                self.failed(source)  # at a switch: the sender may be the only one that told of the failure
        if event["kind"] == "switch":
            self.active[end] = target["path"]
            self.moves[end] += 1

    def failed(self, source):
        """Its successor may be there already: a switch is told of when it is over."""
        if self.good.get(source["path"]) == source["generation"]:
            del self.good[source["path"]]

    def ports_of(self, path):
        return self.ports["send"].get(path), self.ports["recv"].get(path)

    def is_protected(self):
        """The active path is good, and so is one that has neither of its ports."""
        active = self.active["recv"]
        if self.active["send"] != active or active not in self.good:
            return False
        mine = self.ports_of(active)
        return any(
            all(a and b and a != b for a, b in zip(mine, self.ports_of(path))) for path in self.good.keys() - {active}
        )


class Workload:
    """One run of nccl-net-perf. Pair start() with end(), which is also right after a failure."""

    def __init__(self, lab, kind, build, plugin):
        self.lab, self.kind, self.build, self.plugin = lab, kind, build, plugin
        self.name = f"{kind.name}-{next(numbers)}"
        self.processes = {}
        self.events = []  # as in the logs, with "end": the host; in order for each end
        self.connections = {}
        self.offsets = {host: 0 for host in HOSTS}
        self.rests = {host: "" for host in HOSTS}
        self.report = None
        self.statuses = {}
        self.stuck = {}  # host: where its process was that did not end when it was told to
        self.held = {}  # host: where the kernel holds threads of its process, which has ended otherwise
        self.end_ms = None  # how long it took both to end after they were told to
        self.output = {}

    # ---- from start to end ----

    def start(self):
        port = next(ports)
        for rank, name in enumerate(HOSTS):
            host = self.lab.host(name)
            env = {
                **COMMON_ENV,
                "NCCL_SOCKET_IFNAME": "=" + host.socket_interface,
                "NCCL_IB_HCA": "=" + ",".join(interface(name, rail) for rail in RAILS),
                "HA_NCCL_EVENT_LOG": self.log_path(name),
                **self.kind.env,
                **(self.kind.env_b if name == "b" else {}),
            }
            env = {key: value.format(build=self.build) for key, value in env.items() if value is not None}
            argv = [os.path.join(self.build, "bin", "nccl-net-perf")]
            argv += ["--plugin", self.plugin, "--rank", str(rank), "--nranks", "2"]
            argv += ["--root", f"{self.lab.host('a').socket_address}:{port}"]
            argv += ["--seconds", str(LIMIT_S)] if self.kind.meets else ["-n", "1000000"]
            argv += ["--timeout", "30", "--timeline-ms", str(INTERVAL_MS), "--json", f"/run/lab/{self.name}.json"]
            argv += [*COMMON_ARGS, *self.kind.args]
            self.processes[name] = host.start(argv, env, name=f"{self.name}.{name}")
        self.wait(self.is_protected, 40, "the connections to be up, each with a path in reserve")

    def end(self):
        """Tells rank 0 that time is up, collects what is left of both, and leaves no process behind but what
        the kernel holds."""
        try:
            if self.alive():
                told = time.monotonic()
                self.processes["a"].kill(signal.SIGUSR1)
                self.wait_for_exit(30)
                self.end_ms = (time.monotonic() - told) * 1e3
            self.poll()
        finally:
            for name, process in self.processes.items():
                self.collect(name, process)
        self.report = self.read_report()
        self.write_events()

    def collect(self, name, process):
        """The exit status and the output of one."""
        until = time.monotonic() + GRACE_S
        while (status := self.leaving(process)) is not None and time.monotonic() < until:
            time.sleep(POLL_S)
        if process.poll() is not None:
            self.statuses[name] = process.wait()
        elif status is not None:
            self.held[name], self.statuses[name] = self.stacks(name, process), status
        else:
            self.stuck[name] = self.stacks(name, process)
            process.kill()
            self.statuses[name] = process.wait(10)
        self.output[name] = said_by(process)

    def leaving(self, process):
        """Its exit status if nothing is left of it but threads in the kernel; None: it runs, or is gone."""
        path = f"/proc/{process.pid}/stat"
        return status_of_the_leaving(process.machine.call("read", patterns=[path])["files"].get(path, ""))

    def stacks(self, name, process):
        """Where in the kernel the threads of one that does not end are."""
        script = f"""for task in /proc/{process.pid}/task/*; do
            echo "$(cat "$task/comm") in $(cat "$task/wchan"): $(tr '\\n' ' ' <"$task/stack")"; done 2>&1"""
        try:
            return self.lab.host(name).run(script, 10, check=False).out
        except LabError as error:
            return str(error)

    def write_events(self):
        """For people: beside the report, and kept with it."""
        with open(os.path.join(self.lab.folder.path, f"{self.name}.events"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in self.events)

    def wait_for_exit(self, limit_s):
        until = time.monotonic() + limit_s
        while time.monotonic() < until and not all(
            process.poll() is not None or self.leaving(process) is not None for process in self.processes.values()
        ):
            time.sleep(POLL_S)

    def alive(self):
        return bool(self.processes) and all(process.poll() is None for process in self.processes.values())

    def last_words(self):
        """What a process that ended too early said last."""
        lines = []
        for name, process in self.processes.items():
            text = [line for line in said_by(process).splitlines() if re.search(r"nccl-net-perf:|WARN", line)]
            lines += [f"{name}: {line}" for line in text[-3:]]
            if name in self.stuck:
                lines.append(f"{name} did not end: {self.stuck[name]}")
        return "; ".join(lines) or "it said nothing"

    # ---- files ----

    def log_path(self, name):
        """In the guest's memory: a write to the folder shared with the host would cost the plugin time."""
        return f"{self.lab.host(name).scratch}/{self.name}.{name}.events"

    def read_report(self):
        try:
            with open(os.path.join(self.lab.folder.path, f"{self.name}.json"), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return None

    # ---- following the event logs ----

    def poll(self):
        for name in HOSTS:
            text = self.lab.host(name).tail(self.log_path(name), self.offsets[name])
            self.offsets[name] += len(text)  # the event log is plain ASCII
            *lines, self.rests[name] = (self.rests[name] + text).split("\n")
            for line in lines:
                self.take(name, json.loads(line))

    def take(self, name, event):
        event["end"] = name
        self.events.append(event)
        if event["connection"]:
            self.connections.setdefault(event["connection"], Connection()).take(event)

    def is_protected(self):
        return (
            sum(c.seen_receiver for c in self.connections.values()) >= self.kind.connections
            and all(c.is_protected() for c in self.connections.values())
        )

    def moves(self):
        """How often each end of each connection has moved."""
        return {(key, end): n for key, c in self.connections.items() for end, n in c.moves.items()}

    def has_moved_since(self, before, times=1):
        now = self.moves()
        return all(now[key] >= n + times for key, n in before.items())

    def load(self):
        """How many ends of connections each rail carries now."""
        return collections.Counter(
            rail_of(connection.ports[end][connection.active[end]])
            for connection in self.connections.values()
            for end in ("send", "recv")
        )

    def rails(self):
        """The rails that carry connections now."""
        return set(self.load())

    def wait(self, condition, limit_s, what):
        until = time.monotonic() + limit_s
        while True:
            alive = self.alive()
            self.poll()
            if condition():
                return
            if not alive:
                raise WorkloadError(f"the workload ended while waiting for {what}: {self.last_words()}")
            if time.monotonic() > until:
                raise WorkloadError(f"waited {limit_s} s in vain for {what}")
            time.sleep(POLL_S)
