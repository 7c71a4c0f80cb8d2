# SPDX-License-Identifier: Apache-2.0
"""The model: what the failures of a trace cost one job that uses the whole cluster, from what the replay has
measured. Nothing here is measured on that cluster.

The job is one that waits for its slowest member, so that it is down when any part of it is. A failure that
falls into the time in which it is down already costs nothing more."""

from dataclasses import dataclass, field


@dataclass
class Life:
    """Of a job over the span of the trace."""

    span_s: float
    down_s: float = 0.0
    restarts: int = 0
    paused: int = 0
    missed: int = 0  # failures while it was down
    curve: list = field(default_factory=lambda: [(0.0, 0.0)])  # (s, down_s so far)
    until_s: float = 0.0

    def hit(self, at_s, cost_s, restart):
        if at_s < self.until_s:
            self.missed += 1
            return
        self.until_s = min(at_s + cost_s, self.span_s)
        self.down_s += self.until_s - at_s
        self.restarts += restart
        self.paused += not restart and cost_s > 0
        self.curve += [(at_s, self.curve[-1][1]), (self.until_s, self.down_s)]

    def end(self):
        self.curve.append((self.span_s, self.down_s))
        return self

    def availability(self):
        return 1 - self.down_s / self.span_s


@dataclass
class Costs:
    restart_s: float
    rides_out_s: float
    pauses_ms: dict  # line or identity of a failure: measured
    killed: set  # of those that the plugin did not survive
    typical_ms: dict  # kind: median, for failures that found no place on the fabric
    without: dict  # kind: what replay.without_plugin found

    def with_plugin(self, failure):
        """(seconds, whether it is a restart)"""
        if not failure.is_network():
            return self.restart_s, True
        pause_s = self.pauses_ms.get(id(failure), self.typical_ms.get(failure.kind, 0.0)) / 1000
        return (pause_s + self.restart_s, True) if id(failure) in self.killed else (pause_s, False)

    def without_plugin(self, failure):
        if not failure.is_network():
            return self.restart_s, True
        if rides_out(failure, self.rides_out_s):
            return failure.duration_s, False
        found = self.without.get(failure.kind)
        if not found or not found["tried"]:
            return self.restart_s, True  # nobody tried
        if not found["died"]:
            return 0.0, False
        return found["median_error_ms"] / 1000 + self.restart_s, True


def rides_out(failure, rides_out_s):
    """Whether the hardware's own retries outlast it. Nothing outlasts a device that died."""
    return failure.kind != "nic-down" and failure.duration_s < rides_out_s


def live(trace, cost_of, others):
    life = Life(trace.span_s)
    for failure in trace.failures:
        if failure.is_network() or others:
            life.hit(failure.at_s, *cost_of(failure))
    return life.end()
