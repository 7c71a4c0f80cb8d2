# SPDX-License-Identifier: Apache-2.0
"""Failure traces: what failed when, where, how, and for how long.

    # anything after a # is a comment
    trace 1                     the version of the format; the first line
    span 54d                    how long the cluster was watched
    cluster 2048 8              hosts, and rails of each
    3h12m    17     3  link-down    4h       time  host  rail  kind  duration
    2d       0-127  5  switch-down  2h       of several hosts at once; "-" for all of them
    5d30m    4      -  host-down    0s       no rail: the whole host

Times count from the start and never go back; times and durations are numbers with d, h, m, s or ms, one after
the other without blanks."""

import re
from dataclasses import dataclass

VERSION = 1
MAX_RAILS, MAX_HOSTS = 16, 1_000_000
UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True)
class Kind:
    name: str
    what: str
    many_hosts: bool = False  # a range of hosts, or "-"
    has_rail: bool = True


KINDS = {
    kind.name: kind
    for kind in (
        Kind("link-down", "a port goes down: cable, transceiver, switch port; both ends of the link see it"),
        Kind("link-flap", "a port goes down and up several times within the duration"),
        Kind("silent-cut", "a port stays up and the switch forwards nothing to or from it"),
        Kind("one-way-cut", "a port stays up and what it sends is lost"),
        Kind("switch-down", "a switch dies: the ports of all these hosts on the rail go down", many_hosts=True),
        Kind("switch-silent", "a switch forwards nothing, and the ports of all these hosts stay up", many_hosts=True),
        Kind("nic-down", "a NIC dies and is of no more use to who has it open"),
        Kind("host-down", "whatever ends a job with or without the plugin: GPU, host, software", has_rail=False),
    )
}
NETWORK = tuple(name for name in KINDS if name != "host-down")


class TraceError(ValueError):
    """A trace that cannot be read; names the line."""


@dataclass(frozen=True)
class Failure:
    at_s: float
    hosts: tuple  # (first, last), both included
    rail: int  # -1: none
    kind: str
    duration_s: float
    line: int = 0

    @property
    def end_s(self):
        return self.at_s + self.duration_s

    def is_network(self):
        return self.kind != "host-down"


@dataclass
class Trace:
    span_s: float
    hosts: int
    rails: int
    failures: list

    def count(self, kind):
        return sum(failure.kind == kind for failure in self.failures)


# ---- times --------------------------------------------------------------------------------------------


def parse_time(text):
    """Seconds. ValueError unless the whole text is one."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[dhms])", text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"'{text}' is no time like 2d4h, 90s or 250ms")
    units = [u for _, u in parts]
    if units != sorted(set(units), key=list(UNITS).index):
        raise ValueError(f"'{text}': each unit once, the largest first")
    return sum(float(n) * UNITS[u] for n, u in parts)


def format_time(seconds):
    """To the millisecond, so that parse_time gives back what was written."""
    left, words = round(seconds * 1000), []
    for unit in ("d", "h", "m", "s", "ms"):
        size = round(UNITS[unit] * 1000)
        if left >= size:
            words.append(f"{left // size}{unit}")
            left %= size
    return "".join(words) or "0s"


# ---- reading --------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, name):
        self.name, self.number = name, 0
        self.trace = None
        self.version = self.span = self.cluster = None
        self.broken = []  # failures that are not over yet

    def fail(self, text):
        raise TraceError(f"{self.name}:{self.number}: {text}")

    def whole(self, text, what, most):
        if not re.fullmatch(r"\d+", text) or int(text) > most:
            self.fail(f"'{text}' is no {what} from 0 to {most}")
        return int(text)

    def time(self, text):
        try:
            return parse_time(text)
        except ValueError as error:
            return self.fail(str(error))

    def take(self, line):
        words = line.split("#", 1)[0].split()
        if not words:
            return
        if self.version is None:
            if words != ["trace", str(VERSION)]:
                self.fail(f"the first line must be 'trace {VERSION}', not '{line.strip()}'")
            self.version = VERSION
        elif words[0] == "span":
            self.take_span(words)
        elif words[0] == "cluster":
            self.take_cluster(words)
        elif self.span is None or self.cluster is None:
            self.fail("'span' and 'cluster' must come before the failures")
        else:
            self.take_failure(words)

    def take_span(self, words):
        if self.span is not None or len(words) != 2:
            self.fail("'span TIME' once, please")
        self.span = self.time(words[1])
        if self.span <= 0:
            self.fail("the span must be longer than nothing")

    def take_cluster(self, words):
        if self.cluster is not None or len(words) != 3:
            self.fail("'cluster HOSTS RAILS' once, please")
        hosts, rails = self.whole(words[1], "number of hosts", MAX_HOSTS), self.whole(words[2], "number of rails", MAX_RAILS)
        if hosts < 2 or rails < 1:
            self.fail("a cluster has at least 2 hosts and 1 rail")
        self.cluster = (hosts, rails)
        self.trace = Trace(self.span or 0.0, hosts, rails, [])

    def hosts(self, text, kind):
        last = self.cluster[0] - 1
        if kind.many_hosts and text == "-":
            return (0, last)
        match = re.fullmatch(r"(\d+)-(\d+)", text)
        if match and not kind.many_hosts:
            self.fail(f"{kind.name} is of one host, not of '{text}'")
        if not match:
            host = self.whole(text, "host", last)
            return (host, host)
        first, final = (self.whole(part, "host", last) for part in match.groups())
        if first > final:
            self.fail(f"'{text}': the first host comes first")
        return (first, final)

    def take_failure(self, words):
        if len(words) != 5:
            self.fail(f"{len(words)} fields, not 5: time, host, rail, kind, duration")
        at, host, rail, name, duration = words
        if name not in KINDS:
            self.fail(f"no kind is called '{name}': {', '.join(KINDS)}")
        kind, at_s = KINDS[name], self.time(at)
        if not kind.has_rail and rail != "-":
            self.fail(f"{name} has no rail: '-', not '{rail}'")
        number = self.whole(rail, "rail", self.cluster[1] - 1) if kind.has_rail else -1
        failure = Failure(at_s, self.hosts(host, kind), number, name, self.time(duration), self.number)
        if at_s > self.span:
            self.fail(f"{at} is after the end of the span")
        if self.trace.failures and at_s < self.trace.failures[-1].at_s:
            self.fail(f"{at} is before the failure of line {self.trace.failures[-1].line}")
        if failure.is_network() and failure.duration_s <= 0:
            self.fail(f"a {name} takes time: '{duration}'")
        self.refuse_overlap(failure)
        self.trace.failures.append(failure)

    def refuse_overlap(self, new):
        """A part that is broken cannot break again."""
        self.broken = [old for old in self.broken if old.end_s > new.at_s + 1e-6]
        if not new.is_network():
            return
        for old in self.broken:
            if old.rail == new.rail and old.hosts[0] <= new.hosts[1] and new.hosts[0] <= old.hosts[1]:
                self.fail(f"host and rail are still down by the {old.kind} of line {old.line}")
        self.broken.append(new)


def parse(text, name="trace"):
    """TraceError with the name and the number of the line when something is wrong."""
    reader = Reader(name)
    for line in text.splitlines():
        reader.number += 1
        reader.take(line)
    reader.number += 1
    if reader.version is None:
        reader.fail(f"there is nothing in it: the first line must be 'trace {VERSION}'")
    if reader.span is None or reader.cluster is None:
        reader.fail("'span' or 'cluster' is missing")
    reader.trace.span_s = reader.span
    return reader.trace


# ---- writing -------------------------------------------------------------------------------------------


def host_words(trace, failure):
    first, last = failure.hosts
    if not KINDS[failure.kind].many_hosts or first == last:
        return str(first)
    return "-" if (first, last) == (0, trace.hosts - 1) else f"{first}-{last}"


def write(trace, comments=()):
    lines = [f"# {comment}".rstrip() for comment in comments]
    lines += [f"trace {VERSION}", f"span {format_time(trace.span_s)}", f"cluster {trace.hosts} {trace.rails}"]
    lines.append(f"#{'time':>15} {'host':>12} rail {'kind':<14} duration")
    for f in trace.failures:
        rail = "-" if f.rail < 0 else str(f.rail)
        lines.append(f"{format_time(f.at_s):>16} {host_words(trace, f):>12} {rail:>4} {f.kind:<14} {format_time(f.duration_s)}")
    return "\n".join(lines) + "\n"
