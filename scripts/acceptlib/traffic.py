# SPDX-License-Identifier: Apache-2.0
"""Checked traffic between the two nodes: nccl-net-perf, a rank on each."""

import json
import re
import signal
import time

from . import eventlog, wire

POLL_S = 0.1
SETTLE_S = 30  # for processes to end that were told to

# One line of the plugin's log per device, as NCCL gets to see it.
DEVICE = re.compile(
    r"\[(?P<index>\d+)\] (?P<name>\S+):(?P<port>\d+) (?P<layer>RoCE|InfiniBand) (?P<mbps>\d+) Mb/s, LID (?P<lid>\d+), "
    r"GID (?P<gid_index>-?\d+) (?P<gid>\S+?)(?: \(RoCE v(?P<roce>\d)\))?, NUMA node (?P<numa>-?\d+), (?P<pci>.*)$"
)
UNUSED = re.compile(r"NET/HA : (\S+:\d+ (?:is not used|is down): .*)$")
LOADED = re.compile(r"NET/HA : nccl-ha (\S+): \d+ device")


class Node:
    """One of the two, and how to have things done there."""

    def __init__(self, name, caller, wanted):
        self.name, self.call, self.close = name, caller.call, caller.close
        self.about = self.call("hello", **wanted)
        if self.about["protocol"] != wire.PROTOCOL:
            raise wire.NodeError(f"node {name} has another version of this script")
        self.facts = self.call("facts", answer_s=180)
        self.host = self.facts["host"]
        self.address = self.interface = None  # of bootstrap sockets
        self.devices = []  # as the plugin sees them: set by take_devices
        self.unused = []
        self.plugin_version = None

    def take_devices(self, log):
        """From the plugin's log of any run that used all devices."""
        found = {}
        for line in log.splitlines():
            if match := DEVICE.search(line):
                row = match.groupdict()
                for key in ("index", "port", "mbps", "gid_index", "numa"):
                    row[key] = int(row[key])
                found[row["index"]] = {**row, "full": f"{row['name']}:{row['port']}"}
            elif match := UNUSED.search(line):
                self.unused.append(match[1])
            if match := LOADED.search(line):
                self.plugin_version = match[1]
        self.devices = [found[index] for index in sorted(found)]

    def device(self, full):
        return next((device for device in self.devices if device["full"] == full), None)


class TrafficError(wire.NodeError):
    """Traffic that did not start, or did not end well. `status` is that of rank 0, or None."""

    def __init__(self, text, status=None):
        super().__init__(text)
        self.status = status


class Traffic:
    """One run. Pair with close()."""

    def __init__(self, nodes, name, arguments, env=None, own_env=None, limit_s=120, timeout_s=20):
        """own_env: {node's name: variables}; timeout_s: of nccl-net-perf, when nothing moves."""
        self.nodes, self.name, self.limit_s = nodes, name, limit_s
        self.connections = eventlog.Connections()
        self.offsets = {node.name: 0 for node in nodes}
        self.began = time.monotonic()
        first = nodes[0]
        root = f"{first.address}:{first.call('port', address=first.address)}"
        if ":" in first.address:
            root = f"[{first.address}]:{root.rsplit(':', 1)[1]}"
        for rank, node in enumerate(nodes):
            argv = [node.about["perf"], "--plugin", node.about["plugin"], "--rank", str(rank), "--nranks", "2"]
            argv += ["--root", root, "--timeout", str(timeout_s), "--json", f"{{folder}}/{name}.json", *arguments]
            node.call("start", name=name, argv=argv, env={
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": "INIT,NET",
                "NCCL_SOCKET_IFNAME": "=" + node.interface,
                "HA_NCCL_EVENT_LOG": f"{{folder}}/{name}.events",
                **(env or {}),
                **(own_env or {}).get(node.name, {}),
            })  # fmt: skip

    def statuses(self):
        return [node.call("poll", name=self.name) for node in self.nodes]

    def poll(self):
        """Takes what the event logs have to say."""
        for node in self.nodes:
            got = node.call("read", name=f"{self.name}.events", offset=self.offsets[node.name], lines=True)
            self.offsets[node.name] = got["offset"]
            for line in got["text"].splitlines():
                self.connections.take(node.name, json.loads(line))

    def wait_for(self, condition, limit_s):
        """Whether it became true while traffic ran."""
        until = time.monotonic() + limit_s
        while True:
            running = None in self.statuses()
            self.poll()
            if condition():
                return True
            if not running or time.monotonic() > until:
                return False
            time.sleep(POLL_S)

    def finish(self, asked=False):
        """Waits for the end, or asks for it. Returns the report. TrafficError: it did not end well."""
        if asked:
            self.nodes[0].call("signal", name=self.name, number=int(signal.SIGUSR1))
        until = self.began + self.limit_s if not asked else time.monotonic() + SETTLE_S
        while None in self.statuses():
            if time.monotonic() > until:
                raise TrafficError(f"{self.name}: no end in time: {self.last_words()}")
            time.sleep(POLL_S)
        self.poll()
        statuses = self.statuses()
        text = self.nodes[0].call("read", name=f"{self.name}.json")["text"]
        if statuses != [0, 0] or not text:
            worst = next((status for status in statuses if status), None)
            raise TrafficError(f"{self.name}: ended with status {statuses[0]} and {statuses[1]}: {self.last_words()}", worst)
        return json.loads(text)

    def log(self, node):
        return node.call("read", name=f"{self.name}.log")["text"]

    def last_words(self):
        """Of each node the first error of nccl-net-perf and the warning right before it: later ones come of it."""
        lines = []
        for node in self.nodes:
            text = self.log(node)
            error = re.search(r"nccl-net-perf: .*", text)
            warnings = re.findall(r"NCCL WARN (.*)", text[: error.start()] if error else text)
            said = warnings[-1:] + ([error[0]] if error else [])
            short = [re.sub(r"NET/HA : connection (\w+ \w+) \(.*?(?:->|<-).*?\): ", r"\1: ", line) for line in said]
            lines += [f"{node.name}: {line.strip()[:200]}" for line in short]
        return "; ".join(lines) or "it said nothing"

    def close(self):
        for node in self.nodes:
            try:
                node.call("signal", name=self.name, number=int(signal.SIGKILL))
            except wire.NodeError:
                pass  # gone, and its processes with it

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run(nodes, name, arguments, **more):
    """From start to end: (report, the Traffic)."""
    with Traffic(nodes, name, arguments, **more) as traffic:
        return traffic.finish(), traffic


def longest_stall_ms(report):
    return max((stall["duration_ms"] for row in report["rows"] for stall in row["stalls"]), default=0.0)
