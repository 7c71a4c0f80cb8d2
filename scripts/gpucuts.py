# SPDX-License-Identifier: Apache-2.0
"""What breaks a simulated fabric under a job and finds what came of it: scripts/gpu-failover, gpu-train, gpu-gin and gpu-rails."""

import json
import os
import threading
import time

from gpulib import START, BenchError, simverbs

RAILS = 2
SAMPLE_S = 0.02
TRAFFIC_WINDOW_S = 0.3  # traffic is what moved within this long
FLAPS, FLAP_S = 5, 0.1

# What a device that dies may take with it without a trace is a message that it acknowledged and did
# not place; with completion end to end that is no loss (docs/protocol.md). The caller may overrule.
PLUGIN_ENV = {"HA_NCCL_COMPLETION": "e2e"}

LAST_KINDS = ["kill", "unplug"]  # of a run: what they break stays broken until it has ended
KINDS = ["link 0", "link 1", "switch", "flap", "kill", "link 1", "link 0", "flap", "switch", "unplug"]
# Those of which nobody is told anything: packets of a device vanish; its queue pairs' writes stay where they are.
FAULTS = {"drop": "drop host={host} rail={rail}", "wedge": "wedge host={host} rail={rail} op=write"}


def commands_of(kind, host, rail):
    """simverbs' commands that break a rail in this way and that heal it."""
    if kind == "switch":
        return ("cut", rail), ("cut", rail, "--heal")
    if kind == "kill":
        return ("device", host, rail, "kill"), ("device", host, rail, "revive")
    if kind in FAULTS:
        return ("fault", FAULTS[kind].format(host=host, rail=rail)), ("fault", "--clear")
    return ("link", host, rail, "down"), ("link", host, rail, "up")


class Cut:
    """One failure: what, when, and what came of it. Times are those of CLOCK_MONOTONIC."""

    def __init__(self, number, run, kind, host, rail):
        self.number, self.run, self.kind, self.host, self.rail = number, run, kind, host, rail
        self.began = self.healed = None
        self.found = {}  # for the report

    def place(self):
        return f"rail {self.rail}" if self.kind == "switch" else f"host {self.host} rail {self.rail}"


class Net:
    """A fabric of two rails, from its start to its end. options: of `simverbs up`."""

    def __init__(self, tool, name, hosts=2, options=()):
        self.tool, self.name, self.hosts = tool, name, hosts
        simverbs(tool, "up", name, "--hosts", str(hosts), "--rails", str(RAILS), *options)

    def __enter__(self):
        return self

    def __exit__(self, *_reason):
        self.down()

    def control(self, command, *arguments):
        simverbs(self.tool, command, self.name, *map(str, arguments))

    def down(self):
        simverbs(self.tool, "down", self.name, check=False)


class Fabric(Net):
    """One with the payload bytes that each of its devices has received, sampled by a
    thread. A connection may run between devices of different rails: only devices say what it uses."""

    def __init__(self, tool, name, hosts=2, options=()):
        super().__init__(tool, name, hosts, options)
        self.samples = []  # (seconds, bytes of host 0 rail 0, of host 0 rail 1, of host 1 rail 0, …)
        self.error = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def look(self):
        status = json.loads(simverbs(self.tool, "status", self.name, "--json"))
        moved = [0] * (self.hosts * RAILS)
        for device in status["devices"]:
            counters = device["counters"]
            moved[device["host"] * RAILS + device["rail"]] = (
                counters["copy_direct_bytes"] + counters["copy_shared_bytes"]
            )
        return tuple(moved)

    def sample(self):
        try:
            while not self.stopping.wait(SAMPLE_S):
                moved = self.look()
                self.samples.append((time.monotonic(), moved))
        except (BenchError, OSError, ValueError, KeyError) as error:
            self.error = error

    def traffic(self):
        """Bytes of each device in the last moments."""
        if self.error:
            raise BenchError(f"the fabric cannot be watched: {self.error}")
        if not self.samples:
            return (0,) * (self.hosts * RAILS)
        now, latest = self.samples[-1]
        for when, moved in reversed(self.samples):
            if when < now - TRAFFIC_WINDOW_S:
                break
        return tuple(b - a for a, b in zip(moved, latest))

    def longest_pause(self, first, last, end=float("inf")):
        """The longest time, beginning within these and cut off at the end, in which every look found
        the same count. What came between two looks is not seen: see blind()."""
        longest, began, before = 0.0, None, None
        for when, moved in self.samples:
            if when > end:
                break
            if moved != before:
                began, before = when, moved
            elif when > first and began <= last:
                longest = max(longest, when - max(began, first))
        return longest

    def blind(self, first, last):
        """The longest time between two looks."""
        times = [when for when, _ in self.samples if first <= when <= last]
        return max((b - a for a, b in zip(times, times[1:])), default=0.0)

    def span(self, since):
        """(first, last) moment since then at which bytes arrived, or None."""
        arrived = [b[0] for a, b in zip(self.samples, self.samples[1:]) if b[0] > since and a[1] != b[1]]
        return (arrived[0], arrived[-1]) if arrived else None

    def timeline(self, step):
        """Rows (seconds since the start, GB/s of each device), a row every step."""
        rows = []
        for when, moved in self.samples:
            if rows and when < rows[-1][0] + step:
                continue
            rows.append((when, moved))
        return [
            (b[0] - START, *((y - x) / (b[0] - a[0]) / 1e9 for x, y in zip(a[1], b[1])))
            for a, b in zip(rows, rows[1:])
        ]

    def down(self):
        self.stopping.set()
        self.thread.join(timeout=60)
        super().down()


class Cutter:
    """Cuts what carries traffic while a process runs, one kind after the other, and heals it. options: gap, hold (seconds) and
    traffic (bytes)."""

    def __init__(self, options):
        self.options = options
        self.watched = None  # the Fabric
        self.cuts = []  # of all runs that count
        self.rail = 1  # of the last cut
        self.next_kind = 0  # in KINDS: runs go on where the last one stopped

    def wait(self, process, until):
        """Sleeps until then. False as soon as the process has ended."""
        while time.monotonic() < until:
            if process.poll() is not None:
                return False
            time.sleep(0.02)
        return process.poll() is None

    def rail_to_cut(self, kind, host):
        """A rail that carries traffic, of that port's if the cut is at a port; not twice the same if
        both do. None: there is no traffic."""
        moved = self.watched.traffic()
        rails = [sum(moved[rail::RAILS]) if kind == "switch" else moved[host * RAILS + rail] for rail in range(RAILS)]
        if max(rails) < self.options.traffic:
            return None
        other = 1 - self.rail
        return other if rails[other] * 4 > rails[self.rail] else self.rail

    def wait_for_traffic(self, process, kind, host, deadline):
        """As above, as soon as there is some; None when the process ends first."""
        while self.wait(process, time.monotonic() + 0.05) and time.monotonic() < deadline:
            rail = self.rail_to_cut(kind, host)
            if rail is not None:
                return rail
        return None

    def rotation(self):
        """The kinds of cuts in turn, up to one that ends a run; those that were not made come next."""
        while True:
            kind = KINDS[self.next_kind % len(KINDS)]
            yield kind
            self.next_kind += 1
            if kind in LAST_KINDS:
                return

    def cut_during(self, run, process, kinds, deadline):
        for kind in kinds:
            if not self.wait(process, time.monotonic() + self.options.gap):
                return
            number = len(self.cuts) + len(run["cuts"]) + 1
            host = int(kind[-1]) if kind[-1].isdigit() else number // len(KINDS) % self.watched.hosts
            rail = self.wait_for_traffic(process, kind, host, deadline)
            if rail is None:
                return
            cut = Cut(number, run["name"], kind, host, rail)
            run["cuts"].append(cut)
            self.rail = rail
            self.apply(cut, process)

    def apply(self, cut, process):
        cut.began = time.monotonic()
        broken, healed = commands_of(cut.kind, cut.host, cut.rail)
        for _ in range(FLAPS - 1 if cut.kind == "flap" else 0):
            self.watched.control(*broken)
            self.wait(process, time.monotonic() + FLAP_S)
            self.watched.control(*healed)
            self.wait(process, time.monotonic() + FLAP_S)
        self.watched.control(*broken)
        if cut.kind != "unplug":
            self.hold(cut, process)
            self.heal(cut)

    def hold(self, cut, process):
        """How long it lasts."""
        self.wait(process, time.monotonic() + (FLAP_S if cut.kind == "flap" else self.options.hold))

    def heal(self, cut):
        if cut.healed is not None:
            return
        self.watched.control(*commands_of(cut.kind, cut.host, cut.rail)[1])
        cut.healed = time.monotonic()

    def measure_stalls(self, run):
        """For each cut the longest time without a byte, from the cut to the next one. When a run has
        ended well, the quiet after its last byte is none."""
        cuts = run["cuts"]
        span = self.watched.span(run["began"])
        end = span[1] if span and not run["problem"] else run["ended"]
        for cut, following in zip(cuts, cuts[1:] + [None]):
            last = min(following.began if following else cut.healed + self.options.gap, end)
            pause = self.watched.longest_pause(cut.began, last, end)
            cut.found["stall_ms"] = round(1000 * pause, 1)
            cut.found["blind_ms"] = round(1000 * self.watched.blind(cut.began, last), 1)

    def read_events(self, run):
        """The plugin's event log of a run; each switch goes to the cut before it."""
        path = os.path.join(run["logs"], "events")
        events = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                events = [json.loads(line) for line in file]
        for event in events:
            event["seconds"] = event["monotonic_ns"] / 1e9
        switches = [event for event in events if event["kind"] == "switch"]
        run["switches"] = len(switches)
        run["latched"] = [event["detail"] for event in events if event["kind"] == "latch"]
        run["early"] = [e for e in switches if not run["cuts"] or e["seconds"] < run["cuts"][0].began]
        for cut, following in zip(run["cuts"], run["cuts"][1:] + [None]):
            until = following.began if following else run["ended"]
            cut.found.update(summary([e for e in switches if cut.began <= e["seconds"] < until]))

    def hits(self):
        return sum(1 for cut in self.cuts if cut.found.get("switches"))


def summary(switches):
    """What the event log says of one cut: all connections of both ends together."""
    times = {name: [e[name] for e in switches if e[name] is not None] for name in ("detection_ms", "blackout_ms")}
    return {
        "switches": len(switches),
        "reasons": sorted({e["reason"] or "none" for e in switches}),
        **{name: [min(values), max(values)] if values else None for name, values in times.items()},
        **{
            name: sum(e[name] or 0 for e in switches)
            for name in ("completed_without_resend", "replayed_messages", "replayed_bytes")
        },
    }


# ---- for a report --------------------------------------------------------------------------------


def span_text(values):
    if not values:
        return ""
    low, high = values
    return f"{high:.1f}" if low == high else f"{low:.1f}–{high:.1f}"


CUT_HEADER = ["cut", "run", "what", "where", "stall ms", "switches", "detected ms", "blackout ms"]
CUT_HEADER += ["kept", "replayed", "replayed kB", "reasons"]


def cut_row(cut):
    found = cut.found
    return [
        str(cut.number),
        cut.run.split("-")[-1],
        cut.kind,
        cut.place(),
        f"{found['stall_ms']:.0f}",
        str(found["switches"]),
        span_text(found["detection_ms"]),
        span_text(found["blackout_ms"]),
        str(found["completed_without_resend"]),
        str(found["replayed_messages"]),
        f"{found['replayed_bytes'] / 1000:.0f}",
        ", ".join(found["reasons"]),
    ]
