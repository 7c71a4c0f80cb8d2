# SPDX-License-Identifier: Apache-2.0
"""The verdict on a drill, from witnesses that know nothing of each other.

nccl-net-perf says whether every byte was right and when bytes arrived; the plugin's event logs and
counters say what it noticed and did; the kernel's counters say that the fault was there and over
which rail traffic went afterwards. Nothing here touches a lab, so that it can be tested without one.

Under emulation healthy traffic pauses, too. So every pause is held against those of the same traffic
in windows of the same length just before a fault, and both are printed.
"""

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

import witness

EVENT_BLACKOUT_MS = 50.0  # beyond the noise, 95th percentile: where a port says that it is down
MANY = 20  # faults, of which the 95th percentile is not the worst one
WINDOW_NS = 250_000_000  # in which a pause begins that a fault caused; and of the noise


def percentile(values, share):
    """The smallest of the values that this share of them does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)] if ordered else 0.0


def all_of(began, ended):
    return ended - began


class Timeline:
    """When bytes arrived at one rank: a count for each interval, on that host's clock."""

    def __init__(self, origin_ns, interval_ms, counts):
        self.origin_ns, self.interval_ns = origin_ns, interval_ms * 1e6
        self.counts = counts
        self.pauses = []  # (from, to), in order
        began = None
        for index, count in enumerate(counts):
            if count == 0 and began is None:
                began = index
            elif count and began is not None:
                self.pauses.append((self.at(began), self.at(index)))
                began = None
        if began is not None:
            self.pauses.append((self.at(began), self.at(len(counts))))
        self.ends = [end for _, end in self.pauses]

    def at(self, index):
        return self.origin_ns + index * self.interval_ns

    def longest_ms(self, first_ns, last_ns, end_ns=float("inf"), counted_ns=all_of):
        """The longest pause that is under way somewhere between these, from the first of them on and
        cut off at the end. counted_ns: says how much of what is between two moments counts."""
        longest = 0.0
        for began, ended in self.pauses[bisect.bisect_right(self.ends, first_ns) :]:
            if began > last_ns:
                break
            began, ended = max(began, first_ns), min(ended, end_ns)
            if ended - began > longest:
                longest = max(longest, counted_ns(began, ended))
        return longest / 1e6

    def rate(self, first_ns, last_ns):
        """Bytes a second."""
        low, high = (max(0, int((ns - self.origin_ns) // self.interval_ns)) for ns in (first_ns, last_ns))
        counts = self.counts[low:high]
        return sum(counts) / (len(counts) * self.interval_ns / 1e9) if counts else 0.0

    def best_rate(self, first_ns, last_ns):
        """Of the windows between: a machine that stands still for one of them slows no traffic down."""
        number = max(1, int((last_ns - first_ns) // WINDOW_NS))
        starts = [last_ns - (i + 1) * WINDOW_NS for i in range(number)]
        return max(self.rate(max(start, first_ns), start + WINDOW_NS) for start in starts)


def timelines_of(report, hosts):
    """Those of a report of nccl-net-perf, by host."""
    timeline = report["timeline"]
    return {
        host: Timeline(origin, timeline["interval_ms"], counts)
        for host, origin, counts in zip(hosts, report["clock"]["monotonic_ns"], timeline["bytes_received"])
    }


@dataclass
class Fault:
    """A step that broke something, as each host's clock saw it."""

    text: str
    exact: bool  # the kernel tells of it at once: it began when the step did
    before: dict  # host: ns
    after: dict
    quiet: dict  # since when all was well
    until: dict = field(default_factory=dict)  # the next fault, or the drill's end
    ports: list = field(default_factory=list)  # (host, rail) of an exact one
    told: dict = field(default_factory=dict)  # when the kernel told the first end of it; empty: not known


@dataclass
class Episode:
    """What was seen while a drill was conducted. Counters are the kernel's."""

    drill: object
    begin: dict = field(default_factory=dict)  # host: ns
    end: dict = field(default_factory=dict)
    used: int = 0  # the rail that carried the traffic at the start
    faults: list = field(default_factory=list)
    counters: dict = field(default_factory=dict)  # (host, rail): {name: increase over the drill}
    tail: dict = field(default_factory=dict)  # (host, rail): bytes in the last moments
    statuses: dict = field(default_factory=dict)  # host: exit status, of a workload that had to end
    output: dict = field(default_factory=dict)
    died: dict = field(default_factory=dict)  # host: ns after the fault at which its rank had ended
    standstill: object = None  # a standstill.Record
    offsets: dict = field(default_factory=dict)  # host: what its clock says when that record's says 0
    seen: dict = field(default_factory=dict)  # by witnesses of our own in the guest (witness.py)
    pulls: int = 0  # links pulled to find a queue pair stuck
    trouble: str = ""  # why the drill could not be conducted to its end

    def counted_on(self, host):
        """How much of a pause counts that lies between two moments of this host's clock: not what went by before the
        kernel told anybody of a fault in which the pause began, and not what guests stood still."""

        def counted_ns(began, ended):
            for fault in self.faults:
                if fault.told and fault.before[host] <= began < fault.told[host]:
                    began = min(fault.told[host], ended)
            offset = self.offsets[host]
            return ended - began - self.standstill.lost_ns(began - offset, ended - offset)

        return counted_ns if self.standstill else all_of


class Times(NamedTuple):
    """What one fault cost, ms; None: not known. JSON has a list of these."""

    detection: float
    blackout: float = None
    noise: float = None
    ran: float = None  # the longest pause by what counts of it: Episode.counted_on


@dataclass
class Row:
    """A line of the table."""

    drill: str
    lab: str
    detected_by: str = "-"
    detection_ms: float = None
    blackout_ms: float = None
    noise_ms: float = None
    faults: int = 0
    switches: int = 0
    replayed: int = 0
    wrong: int = None
    complaints: list = field(default_factory=list)
    notes: list = field(default_factory=list)  # what else there is to tell
    times: list = field(default_factory=list)  # Times of each fault
    by_event: bool = False  # of faults that a port tells of itself

    def complain(self, text):
        self.complaints.append(text)


class LinkDowns(NamedTuple):
    """What links cost that went down, over one drill or more: 95th percentiles, ms."""

    number: int
    blackout: float
    noise: float
    ran: float  # the pauses by what counts of them, which is what is judged

    @classmethod
    def of(cls, rows):
        """Of those among these that a port tells of itself. None: nothing is known of any."""
        times = [t for row in rows if row.by_event for t in row.times if t.blackout is not None]
        known = ([getattr(t, name) for t in times if getattr(t, name) is not None] for name in cls._fields[1:])
        return cls(len(times), *(percentile(values, 95) for values in known)) if times else None

    def beyond_ms(self, value):
        return max(0.0, value - self.noise)

    def complaint(self):
        """Where they are beyond the limit; "": they are not. Of few there is no percentile: one pause may be that in
        which soft RoCE held a processor of the guest (docs/testing.md)."""
        beyond_ms = self.beyond_ms(self.ran)
        if self.number < MANY or beyond_ms <= EVENT_BLACKOUT_MS:
            return ""
        return (
            f"blackouts of {self.number} links that went down are {beyond_ms:.0f} ms beyond the noise (95th percentile), "
            f"limit {EVENT_BLACKOUT_MS:.0f} ms"
        )


def complaint_of(rows):
    """About all links that went down in a drill or a round; "": none."""
    downs = LinkDowns.of(rows)
    return downs.complaint() if downs else ""


class Judge:
    """Verdicts on all drills of one workload."""

    def __init__(self, lab, hosts, events, report, statuses, output=None, words="", held=None, end_ms=None):
        """held: host: where the kernel holds threads of a process that has ended otherwise. end_ms: how long both
        took to end."""
        self.lab, self.hosts, self.events = lab, hosts, events
        self.held, self.end_ms = held or {}, end_ms
        self.report, self.statuses, self.output = report, statuses, output or {}
        self.words = words
        self.timelines = timelines_of(report, hosts) if report else {}
        self.healthy = []  # the longest pause in each window of healthy traffic, ms

    def judge(self, episode):
        row = Row(episode.drill.name, self.lab)
        events = [e for e in self.events if episode.begin[e["end"]] <= e["monotonic_ns"] <= episode.end[e["end"]]]
        row.faults, row.by_event = len(episode.faults), episode.drill.by_event
        for fault in episode.faults:
            tell_no_later(fault, first_failure(fault, events))
        self.tell(row, episode, events)
        if episode.trouble:
            row.complain(episode.trouble)
        self.judge_witnesses(row, episode)
        if episode.drill.fate == "survives":
            self.judge_data(row)
            self.judge_reasons(row, episode, events)
            self.judge_switches(row, episode, events)
            self.judge_pauses(row, episode)
            self.judge_rail(row, episode)
            self.judge_late(row, episode)
            self.judge_stuck(row, episode, events)
            self.judge_leaving(row, episode)
        else:
            self.judge_end(row, episode)
        return row

    # ---- what the table says ----

    def tell(self, row, episode, events):
        switches = [e for e in events if e["kind"] == "switch"]
        first = []
        for fault in episode.faults:
            found = first_failure(fault, events)
            row.times.append(Times(self.detection_ms(fault, found, switches), *self.pauses_of(fault, episode)))
            if found and found["reason"] not in first:
                first.append(found["reason"])
        row.detected_by = ", ".join(first) or "-"
        row.switches = len(switches)
        row.replayed = sum(e["replayed_messages"] for e in switches)
        row.wrong = self.report["wrong"] if self.report else None
        detections = [times.detection for times in row.times if times.detection is not None]
        row.detection_ms = percentile(detections, 95) if detections else None
        if self.timelines:
            row.noise_ms = self.noise_ms(row)
            row.blackout_ms = self.blackout_ms(row, episode)

    def detection_ms(self, fault, found, switches):
        """From the fault to the first end that noticed; if it is not known when it began, from the
        path's last sign of life, as the plugin says."""
        if not found:
            return None
        host = found["end"]
        if fault.exact:
            return (found["monotonic_ns"] - fault.before[host]) / 1e6
        said = [e["detection_ms"] for e in switches if e["detection_ms"] and e["monotonic_ns"] >= fault.before[e["end"]]]
        return min(said, default=None)

    def pauses_of(self, fault, episode):
        """What Times has behind the detection: the rank that was worse off."""
        if not self.timelines:
            return ()
        blackout, ran = (
            max(
                line.longest_ms(fault.before[host], fault.after[host] + WINDOW_NS, counted_ns=counted_on(host))
                for host, line in self.timelines.items()
            )
            for counted_on in (lambda host: all_of, episode.counted_on)
        )
        noise = [
            line.longest_ms(fault.before[host] - WINDOW_NS, fault.before[host], fault.before[host])
            for host, line in self.timelines.items()
            if fault.before[host] - WINDOW_NS >= fault.quiet[host]
        ]
        return blackout, max(noise, default=None), ran

    def noise_ms(self, row):
        """95th percentile: of the windows just before the drill's faults if these are many, else of all
        healthy windows of the workload."""
        own = [times.noise for times in row.times if times.noise is not None]
        return percentile(own if len(own) >= MANY else self.healthy, 95)

    def learn_noise(self, episodes):
        """From the quiet times before faults, and all of a drill that breaks nothing."""
        found = []
        if not self.timelines:
            return
        for episode in episodes:
            spans = [(fault.quiet, fault.before) for fault in episode.faults]
            if not spans and not episode.trouble:
                spans = [(episode.begin, episode.end)]
            for first, last in spans:
                found += self.windows(first, last)
        self.healthy = found

    def windows(self, first, last):
        """The longest pause of the worse rank, for each window between these."""
        host = self.hosts[0]
        number = int((last[host] - first[host]) // WINDOW_NS)
        return [
            max(
                line.longest_ms(first[h] + i * WINDOW_NS, first[h] + (i + 1) * WINDOW_NS, last[h])
                for h, line in self.timelines.items()
            )
            for i in range(number)
        ]

    def blackout_ms(self, row, episode):
        """Of many faults the 95th percentile, else the longest pause."""
        if len(episode.faults) >= MANY:
            return percentile([times.blackout for times in row.times], 95)
        return self.longest_ms(episode)

    def longest_ms(self, episode, run_only=False):
        """The longest pause from the first fault to the end. run_only: by what counts of it."""
        first, last = episode.faults[0].before if episode.faults else episode.begin, episode.end
        return max(
            line.longest_ms(first[host], last[host], last[host], episode.counted_on(host) if run_only else all_of)
            for host, line in self.timelines.items()
        )

    # ---- what must hold ----

    def judge_data(self, row):
        for host, status in self.statuses.items():
            if status != 0:
                row.complain(f"nccl-net-perf on {host} ended with status {status}, not 0: {self.words}")
        if not self.report:
            row.complain("nccl-net-perf left no report: nothing is known of the data")
            return
        if self.report["wrong"]:
            row.complain(f"{self.report['wrong']} bytes are wrong")
        if not all(r["checked"] > 0 and r["checked"] == r["iterations"] for r in self.report["rows"]):
            row.complain("not every iteration was checked")
        self.judge_counters(row)

    def judge_counters(self, row):
        """The plugin's two ways of telling must agree, over the whole workload."""
        switches = [e for e in self.events if e["kind"] == "switch"]
        counters = self.report.get("counters", {}).get("connections", {})
        pairs = (
            ("failovers", len(switches)),
            ("replayed_messages", sum(e["replayed_messages"] for e in switches)),
        )
        for name, told in pairs:
            if counters.get(name) != told:
                row.complain(f"the event logs tell of {told} {name}, the counters of {counters.get(name)}")

    def judge_reasons(self, row, episode, events):
        reasons = episode.drill.reasons
        failures = [e for e in events if e["kind"] == "failure" and e["connection"]]
        if not reasons:
            for event in failures[:1]:
                row.complain(f"nothing may fail here, but {event['name']} said '{event['reason']}': {event['detail']}")
            return
        missed = [f.text for f in episode.faults if not first_failure(f, events)]
        if missed and episode.drill.each:
            row.complain(f"nobody noticed {len(missed)} of {len(episode.faults)} faults, '{missed[0]}' among them")
        elif len(missed) == len(episode.faults):
            row.complain("nobody noticed any fault")
        strange = [e["reason"] for e in (first_failure(f, events) for f in episode.faults) if e and e["reason"] not in reasons]
        if strange:
            row.complain(f"noticed by '{strange[0]}', which is none of {', '.join(reasons)}")

    def judge_switches(self, row, episode, events):
        low, high = episode.drill.switches
        if row.switches < low:
            row.complain(f"{row.switches} switches in the event logs, at least {low} are due")
        if high is not None and row.switches > high:
            row.complain(f"{row.switches} switches in the event logs, at most {high} are due")
        for event in events:
            if event["kind"] == "latch":
                row.complain(f"{event['name']} failed for good: {event['detail']}")

    def judge_pauses(self, row, episode):
        if not self.timelines:
            return
        drill, counts_ms = episode.drill, row.blackout_ms
        if drill.by_event:
            # A guest that the host gave no processor has stood still, whatever the plugin did, and what nobody was told
            # of nobody can mend: that is no blackout.
            counts_ms = self.longest_ms(episode, run_only=True)
            if self.longest_ms(episode) - counts_ms > 10:
                row.notes.append(f"a blackout of {counts_ms:.0f} ms at most after the kernel had told, in which the guests ran")
            if complaint := complaint_of([row]):
                row.complain(complaint)
        if drill.blackout_ms is not None and counts_ms > drill.blackout_ms + row.noise_ms:
            row.complain(f"nothing arrived for {counts_ms:.0f} ms; the limit is {drill.blackout_ms:.0f} ms and noise")
        if row.blackout_ms < drill.blackout_min_ms:
            row.complain(
                f"the longest pause was {row.blackout_ms:.0f} ms, where the fault should have stopped all for {drill.blackout_min_ms:.0f} ms"
            )

    def judge_rail(self, row, episode):
        """Heartbeats go over every rail: one that carries data has far more than they."""
        want = episode.drill.ends_on
        if not want or episode.trouble:
            return
        rail = episode.used if want == "used" else 1 - episode.used
        carried = sum(n for (_, r), n in episode.tail.items() if r == rail)
        other = sum(n for (_, r), n in episode.tail.items() if r != rail)
        if carried < 10 * other or not carried:
            row.complain(
                f"in the end rail {rail} carried {carried} bytes and the other {other}: traffic is not where it belongs"
            )

    def judge_witnesses(self, row, episode):
        """The kernel's counters must say that the fault was there."""
        for host, rail, names, least in episode.drill.witnesses:
            rail = episode.used if rail == "used" else 1 - episode.used
            counters = episode.counters.get((host, rail), {})
            seen = sum(counters.get(name, 0) for name in names.split("+"))
            if seen < least:
                row.complain(
                    f"the kernel of {host} counted {seen} {names} on rail {rail}, at least {least} are due: was the fault there?"
                )
        share = episode.drill.slower_than
        if share and self.timelines and not episode.trouble:
            self.judge_slowness(row, episode, share)

    def judge_late(self, row, episode):
        """What packets did that came after the fence."""
        host = episode.drill.late_to
        if not host or episode.trouble or not self.report:
            return
        gave_up = sum(
            counted.get("rdma.retry_exceeded_err", 0) for (of, _), counted in episode.counters.items() if of == host
        )
        witness.judge_late(row, host, episode.seen, self.events, self.report, episode.faults[-1].before[host], gave_up)

    def judge_stuck(self, row, episode, events):
        """Whether the kernel left a queue pair stuck, which the plugin then left."""
        host = episode.drill.stuck_at
        if not host or episode.trouble:
            return
        if "lab-deaf: withheld 'port error'" not in self.output.get(host, ""):
            row.complain(f"the device on {host} told of its port")
        found = stuck_queue_pairs(events, host, episode.begin[host])
        if not found:
            row.complain(f"in {episode.pulls} times in which the link of {host} went away, no queue pair was left stuck")
            return
        row.notes.append(
            f"{len(found)} queue pairs were stuck after {episode.pulls} times in which a link went away: {found[0]['name']}: "
            f"{found[0]['detail']}"
        )

    def judge_leaving(self, row, episode):
        """Whether the ranks ended in time, and nothing but the kernel held them."""
        drill = episode.drill
        for host, where in self.held.items():
            # A line for each thread: "NAME in FUNCTION: STACK". The first thread, which has ended, has no stack.
            threads = [line.split(":") for line in where.splitlines() if line.split(":")[-1].strip()]
            if drill.held and all("ib_uverbs" in stack[-1] for stack in threads):
                names = ", ".join(words[0] for words in threads)
                row.notes.append(f"the kernel of {host} still held threads of the process that had ended: {names}")
            else:
                row.complain(f"the process on {host} did not end: {where}")
        if drill.ends_within_ms and (self.end_ms is None or self.end_ms > drill.ends_within_ms):
            row.complain(f"the ranks ended after {self.end_ms or -1:.0f} ms, limit {drill.ends_within_ms:.0f} ms")
        elif drill.ends_within_ms:
            row.notes.append(f"both ranks had ended {self.end_ms:.0f} ms after they were told to")

    def judge_slowness(self, row, episode, share):
        line = self.timelines[self.hosts[0]]
        fault = episode.faults[0]
        host = self.hosts[0]
        before = line.best_rate(fault.quiet[host], fault.before[host])
        during = line.rate(fault.after[host], episode.end[host])
        if during > share * before:
            row.complain(f"traffic ran at {during / before:.0%} of what it did before: was the fault there?")

    def judge_end(self, row, episode):
        """A rank whose peer is lost must say so, soon and in good order."""
        drill = episode.drill
        for host in self.hosts:
            if host == drill.lost:
                continue
            status, text = episode.statuses.get(host), episode.output.get(host, "")
            if status != 3:
                row.complain(f"nccl-net-perf on {host} ended with status {status}, not 3 (an error of the plugin's)")
            if not any(word in text for word in drill.says):
                row.complain(f"nothing on {host} says '{' or '.join(drill.says)}'")
            took = episode.died.get(host)
            if took is None or took > drill.ends_within_ms:
                row.complain(f"{host} was told after {took or -1:.0f} ms, limit {drill.ends_within_ms:.0f} ms")


def tell_no_later(fault, found):
    """Who has noticed before the kernel told, by a completion with an error, was told by that."""
    if fault.told and found:
        early_ns = max(0, fault.told[found["end"]] - found["monotonic_ns"])
        fault.told = {host: ns - early_ns for host, ns in fault.told.items()}


def stuck_queue_pairs(events, host, since_ns):
    """Failures at this host of paths on which what was posted never completed, not even with an error, while the
    queue pair was ready to send as far as anybody was told."""
    return [
        e
        for e in events
        if e["kind"] == "failure"
        and e["end"] == host
        and e["monotonic_ns"] >= since_ns
        and e["reason"] == "no completion in time"
        and "is in RTS" in e["detail"]
    ]


def first_failure(fault, events):
    """The first thing that an end of a connection said of a failure between this fault and the next. Hosts
    have clocks of their own, so it is the one that said it soonest after the fault."""
    later = [
        e
        for e in events
        if e["kind"] == "failure"
        and e["connection"]
        and fault.before[e["end"]] <= e["monotonic_ns"] < fault.until[e["end"]]
    ]
    return min(later, key=lambda e: e["monotonic_ns"] - fault.before[e["end"]], default=None)
