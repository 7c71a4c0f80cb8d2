# SPDX-License-Identifier: Apache-2.0
"""From the failures of a large cluster in weeks to scripts for a small fabric in seconds.

Time: the order of all changes and what overlaps what stay as they are. Only the time between two changes is
divided, and never below what it takes to notice and to settle.

Place: a failure stays on its host modulo the fabric's hosts and on its rail modulo the fabric's rails, unless
other hosts' failures are folded onto the same place at that moment: then it moves to a port that is sound
there. Nothing is folded so that a host would lose its last port where the host in the trace did not; what
finds no place is left out and counted."""

from dataclasses import dataclass, field

LEAD_MS = 1500.0  # for connections to find their standbys
FAILURES_PER_RUN = 25  # the report of a run keeps the longest pauses only
FLAPS = 3


@dataclass
class Placed:
    """A failure on the fabric: times in ms of its run."""

    failure: object
    ports: list  # (host, rail)
    at_ms: float = 0.0
    end_ms: float = 0.0


@dataclass
class Run:
    """Failures that one run of the job meets, on a fabric that is whole when it starts."""

    placed: list = field(default_factory=list)

    def script(self):
        """For ha-drill."""
        lines = [line for placed in self.placed for line in steps(placed)]
        return "".join(f"{at:.1f} {what}\n" for at, what in lines)


# ---- words -------------------------------------------------------------------------------------------------


def cut_words(kind, host):
    return f" --host {host}" + (" --direction from" if kind == "one-way-cut" else "")


def steps(placed):
    """(ms, words of ha-drill), what breaks and what mends."""
    kind, at, end = placed.failure.kind, placed.at_ms, placed.end_ms
    if kind == "switch-silent":
        rail = placed.ports[0][1]
        return [(at, f"cut {rail}"), (end, f"cut {rail} --heal")]
    found = []
    for host, rail in placed.ports:
        if kind in ("link-down", "switch-down"):
            found += [(at, f"link {host} {rail} down"), (end, f"link {host} {rail} up")]
        elif kind == "link-flap":
            part = (end - at) / (2 * FLAPS - 1)
            for i in range(FLAPS):
                found += [(at + 2 * i * part, f"link {host} {rail} down"), (at + (2 * i + 1) * part, f"link {host} {rail} up")]
        elif kind == "nic-down":
            found += [(at, f"device {host} {rail} kill"), (end, f"device {host} {rail} revive")]
        else:
            found += [(at, f"cut {rail}{cut_words(kind, host)}"), (end, f"cut {rail} --host {host} --heal")]
    return found


# ---- place ---------------------------------------------------------------------------------------------------


class Fabric:
    """Which ports are out of use, in the fabric and in the cluster."""

    def __init__(self, hosts, rails):
        self.hosts, self.rails = hosts, rails
        self.broken = {}  # (host, rail): Placed

    def sound(self, host):
        return [rail for rail in range(self.rails) if (host, rail) not in self.broken]

    def find(self, failure):
        """Ports for a failure, or None."""
        rails = [(failure.rail + i) % self.rails for i in range(self.rails)]
        if failure.kind.startswith("switch-"):
            for rail in rails:
                if all(rail in self.sound(host) and len(self.sound(host)) > 1 for host in range(self.hosts)):
                    return [(host, rail) for host in range(self.hosts)]
            return None
        first = failure.hosts[0]
        for host in [(first + i) % self.hosts for i in range(self.hosts)]:
            for rail in rails:
                if rail in self.sound(host) and len(self.sound(host)) > 1:
                    return [(host, rail)]
        return None

    def take(self, placed):
        for port in placed.ports:
            self.broken[port] = placed

    def mend(self, placed):
        """A NIC that died is of no use to the job that runs, also when it is back."""
        if placed.failure.kind != "nic-down":
            self.broken = {port: by for port, by in self.broken.items() if by is not placed}


# ---- time --------------------------------------------------------------------------------------------------------


def shorten(gap_s, accelerate, settle_ms):
    """ms between two changes; what is shorter than the settling time already stays as it is."""
    return min(gap_s * 1000, max(gap_s * 1000 / accelerate, settle_ms))


def changes(failures):
    """(seconds, whether it starts, failure) in order; ends before starts."""
    both = [(f.at_s, True, f) for f in failures] + [(f.end_s, False, f) for f in failures]
    return sorted(both, key=lambda change: (change[0], change[1]))


def fold(trace, hosts, rails, accelerate, settle_ms):
    """([Run], [failures that found no place])"""
    runs, homeless = [Run()], []
    fabric, now_ms, before_s, where = Fabric(hosts, rails), LEAD_MS, None, {}
    for at_s, starts, failure in changes([f for f in trace.failures if f.is_network()]):
        if before_s is not None:
            now_ms += shorten(at_s - before_s, accelerate, settle_ms)
        before_s = at_s
        if starts:
            ports = fabric.find(failure)
            if ports is None:
                homeless.append(failure)
                continue
            where[id(failure)] = Placed(failure, ports, now_ms)
            fabric.take(where[id(failure)])
            runs[-1].placed.append(where[id(failure)])
            continue
        placed = where.pop(id(failure), None)
        if placed is None:
            continue
        # A failure of no length in the replay would prove nothing.
        placed.end_ms = now_ms = max(now_ms, placed.at_ms + 1)
        fabric.mend(placed)
        if not where and wants_a_new_run(runs[-1]):
            runs.append(Run())
            fabric, now_ms, before_s = Fabric(hosts, rails), LEAD_MS, None
    return [run for run in runs if run.placed], homeless


def wants_a_new_run(run):
    """At a moment when nothing is broken: after many failures, or with a NIC gone for good."""
    return len(run.placed) >= FAILURES_PER_RUN or any(p.failure.kind == "nic-down" for p in run.placed)


def alone(failure, hosts, rails, hold_ms):
    """A run that meets nothing but this failure."""
    return Run([Placed(failure, Fabric(hosts, rails).find(failure), LEAD_MS, LEAD_MS + hold_ms)])
