# SPDX-License-Identifier: Apache-2.0
"""Conducting drills: their steps one after the other, on traffic that several of them share.

What breaks here must not spoil what follows: before each drill the lab is whole and the workload
protected, or both are made anew.
"""

import time
from collections import Counter
from operator import itemgetter

from judge import Episode, Fault, Judge, Row, stuck_queue_pairs
from machine import LabError
from standstill import Watch
from topology import HOSTS, RAILS, interface
from witness import came_late, watch_packets, write_late
from workload import KINDS, Workload, WorkloadError

QUIET_S = 0.35  # of healthy traffic before a fault: a window for the noise, and some more
TAIL_S = 0.3  # in the end, for the question over which rail traffic goes
WAIT_S = 30  # for what must come; judged by other limits
PULL_S = 0.1  # a link is away
STUCK_S = 1.5  # until the soft timeout has told, which takes 1 s


class Clocks:
    """What each host's clock says when ours says something."""

    def __init__(self, lab):
        guests = {name: lab.host(name).guest for name in HOSTS}
        self.offsets = {name: guest.clock_ns()[0] for name, guest in guests.items()}
        if guests["a"] is guests["b"]:
            self.offsets["b"] = self.offsets["a"]

    def now(self):
        return self.of_ours(time.monotonic_ns())

    def of_ours(self, ns):
        return {host: ns + offset for host, offset in self.offsets.items()}

    def of_guest(self, name, ns):
        """What both clocks say when this host's says that."""
        return self.of_ours(ns - self.offsets[name])


class Conductor:
    """Conducts one drill on a workload that is running."""

    def __init__(self, lab, workload, drill):
        self.lab, self.workload, self.drill = lab, workload, drill
        self.episode = Episode(drill)
        self.clocks = None
        self.quiet = None  # since when all is well; None: it is not
        self.moves = {}  # of the connections' ends, before the last fault
        self.rail = 0  # the last one that a step was about
        self.watch = None  # on what guests lose to the host
        self.witnesses = {}  # by what they watch
        self.netem = {}  # what has been taken away again did: (host, rail): Counter

    # ---- from start to end ----

    def conduct(self):
        episode = self.episode
        try:
            self.prepare()
            before = self.read_counters()
            self.clocks = Clocks(self.lab)
            self.watch = Watch(self.lab.lost_ns)
            episode.begin = self.clocks.now()
            self.quiet = episode.begin
            for step in self.drill.steps:
                self.do(*step)
            if self.drill.fate == "survives":
                self.watch_tail()
            after = self.read_counters()
            self.note_told()
            episode.counters = {
                key: {name: after[key][name] - n for name, n in values.items() if name in after[key]}
                for key, values in before.items()
            }
            for key, packets in self.netem.items():
                episode.counters[key].update(packets)
        except LabError as error:
            episode.trouble = str(error)
        finally:
            self.finish()
        return episode

    def prepare(self):
        """All connections protected, and on one rail."""
        work = self.workload
        for _ in range(3):
            work.wait(work.is_protected, WAIT_S, "the connections to be protected before the drill")
            rails = work.rails()
            if len(rails) == 1:
                self.episode.used = self.rail = rails.pop()
                return
            self.gather(max(rails))
        raise WorkloadError("the connections do not come together on one rail")

    def gather(self, rail):
        """Away from this rail with those that are there."""
        work = self.workload
        self.lab.host("a").link(rail, "down")
        work.wait(lambda: rail not in work.rails(), WAIT_S, f"the connections to leave rail {rail}")
        self.lab.host("a").link(rail, "up")

    def finish(self):
        """The episode ends here, in any case, with a whole lab as far as that can be had."""
        episode = self.episode
        for witness in self.witnesses.values():
            witness.stop()
        if self.watch:
            episode.standstill, episode.offsets = self.watch.stop(), self.clocks.offsets
        now = self.clocks.now() if self.clocks else {host: 0 for host in HOSTS}
        episode.begin = episode.begin or now
        episode.end = now
        for fault, following in zip(episode.faults, episode.faults[1:]):
            fault.until = following.before
        if episode.faults:
            episode.faults[-1].until = now
        try:
            self.workload.poll()
            if episode.trouble or self.drill.leaves_broken:
                self.lab.heal()
        except LabError as error:
            episode.trouble = episode.trouble or str(error)

    def note_told(self):
        """When the kernel told of faults that it tells of: to take an interface down has taken it 2 to 200 ms until
        then."""
        exact = [fault for fault in self.episode.faults if fault.exact]
        hosts = {host for fault in exact for host, _ in fault.ports}
        down = {host: self.lab.host(host).guest.ports_down() for host in hosts}
        for fault, following in zip(exact, [*exact[1:], None]):
            told = []
            for host, rail in fault.ports:
                until = following.before[host] if following else float("inf")
                times = [ns for other in HOSTS for ns in down[host].get(interface(other, rail), ())]
                told += [self.clocks.of_guest(host, ns) for ns in times if fault.before[host] <= ns < until]
            fault.told = min(told, key=itemgetter(HOSTS[0]), default={})

    def watch_tail(self):
        first = self.read_counters()
        time.sleep(TAIL_S)
        second = self.read_counters()
        names = ("net.tx_bytes", "net.rx_bytes")  # none where the device is gone
        self.episode.tail = {
            key: sum(second[key].get(name, 0) - first[key].get(name, 0) for name in names) for key in first
        }

    def read_counters(self):
        """The kernel's counters of every rail of every host; a device that is gone has none."""
        found = {}
        for name in HOSTS:
            for rail in RAILS:
                found[name, rail] = self.lab.host(name).counters(rail)
        return found

    # ---- steps ----

    def do(self, verb, *words):
        if hasattr(self, "do_" + verb):
            getattr(self, "do_" + verb)(*words)
        elif verb == "thaw" or words[-1] in ("up", "on", None):
            self.act(verb, words)
        else:
            self.fault(verb, words)

    def fault(self, verb, words):
        """A step that breaks something: after some quiet time if there was none, and with stamps."""
        if self.quiet is not None and self.episode.faults:
            time.sleep(QUIET_S)
        self.moves = self.workload.moves()
        quiet, self.quiet = self.quiet, None
        before, after = self.act(verb, words)
        text = " ".join(map(str, (verb, *words)))
        fault = Fault(text, verb == "link", before, after, quiet if quiet is not None else before)
        if fault.exact:
            fault.ports = [(host, self.rail) for host in words[0]]
        self.episode.faults.append(fault)

    def act(self, verb, words):
        """Returns when it began and ended, on both clocks."""
        before = self.clocks.now()
        times = getattr(self, "act_" + verb)(*words)
        if times is None:
            return before, self.clocks.now()
        # The hosts themselves say when.
        began, ended = ([self.clocks.of_guest(host, ns[i]) for host, ns in times.items()] for i in (0, 1))
        return min(began, key=itemgetter(HOSTS[0])), max(ended, key=itemgetter(HOSTS[0]))

    def rail_of(self, word):
        """active: which carries traffic now, most of it; same: as in the last step; other: the other one."""
        if word == "active":
            self.workload.poll()
            load = self.workload.load()
            self.rail = max(sorted(load), key=load.get)
        return 1 - self.rail if word == "other" else self.rail

    def act_link(self, hosts, rail, state):
        """At once, of hosts with a letter each."""
        return self.lab.link(hosts, self.rail_of(rail), state)

    def act_netem(self, host, rail, what):
        rail = self.rail_of(rail)
        if what is None:
            self.netem.setdefault((host, rail), Counter()).update(self.lab.host(host).netem_packets(rail))
        return {host: self.lab.host(host).netem(rail, what)}

    def act_address(self, host, rail):
        self.lab.address(host, self.rail_of(rail))

    def act_unbind(self, host, rail):
        self.lab.unbind(host, self.rail_of(rail))

    def act_set_link(self, host, rail, state):
        self.lab.set_link(host, self.rail_of(rail), state)

    def act_freeze(self, host):
        self.lab.freeze(host)

    def act_thaw(self, host):
        self.lab.thaw(host)

    def act_kill(self, host):
        self.workload.processes[host].kill()

    def do_sleep(self, seconds):
        time.sleep(seconds)

    def do_moved(self, times=1):
        """Every end of every connection has moved so often since the last fault."""
        self.workload.wait(
            lambda: self.workload.has_moved_since(self.moves, times), WAIT_S, "all connections to move to another rail"
        )

    def do_healthy(self):
        self.workload.wait(self.workload.is_protected, WAIT_S, "the connections to be protected again")
        self.quiet = self.clocks.now()

    def do_outage(self):
        """A connection has said that no path is left."""
        begin = self.episode.begin
        self.workload.wait(
            lambda: any(
                e["kind"] == "outage" and e["monotonic_ns"] >= begin[e["end"]] for e in self.workload.events
            ),
            WAIT_S,
            "a connection to say that no path is left",
        )

    def do_ended(self):
        """Every rank that can end has ended."""
        fault = self.episode.faults[0]
        waiting = [host for host in HOSTS if host != self.drill.lost]
        until = time.monotonic() + WAIT_S
        while waiting and time.monotonic() < until:
            for host in list(waiting):
                if self.workload.processes[host].poll() is not None:
                    self.episode.died[host] = (self.clocks.now()[host] - fault.before[host]) / 1e6
                    waiting.remove(host)
            time.sleep(0.02)

    def do_pull_until_stuck(self, host, most):
        """Takes the link away from under traffic, and gives it back soon, until a queue pair of the plugin's
        stays stuck. What the link's absence only delayed goes on when it is back."""
        for _ in range(most):
            self.fault("link", (host, "active", "down"))
            self.episode.pulls += 1
            time.sleep(PULL_S)
            self.act("link", (host, "same", "up"))
            time.sleep(STUCK_S)
            self.workload.poll()
            if stuck_queue_pairs(self.workload.events, host, self.episode.begin[host]):
                return
            self.do_healthy()

    # ---- witnesses of our own ----

    def do_delay_until_late(self, host, to, delays_ms):
        """Delays what a host sends, until packets come late to the other and land where nothing fences: a slow
        machine may fence after they have come, and where nothing was on its way nothing is late. The longer the
        delay, the likelier it is that queue pairs give up by themselves, so the short ones come first."""
        for delay_ms in delays_ms:
            self.episode.seen = self.delay(host, to, f"delay {delay_ms}ms limit 20000")
            fault_ns = self.episode.faults[-1].before[to]
            self.workload.poll()
            unfenced = self.episode.seen["late"]["landed_unfenced"]
            if unfenced and came_late(self.episode.seen, self.workload.events, to, fault_ns):
                return

    def delay(self, host, to, how):
        """What two witnesses saw on the rail that carried traffic: {"packets": [...], "late": {...}}."""
        rail, build = self.rail_of("active"), self.workload.build
        self.witnesses = {
            "packets": watch_packets(self.lab, to, rail, build),
            "late": write_late(self.lab, rail, build),
        }
        time.sleep(QUIET_S)
        self.fault("netem", (host, "same", how))
        self.witnesses["late"].go_on()
        late = self.witnesses["late"].result("late")
        self.do_moved()
        time.sleep(QUIET_S)
        self.act("netem", (host, "same", None))
        packets = self.witnesses["packets"].stop()
        self.do_healthy()
        return {"packets": packets, "late": late}


def run_drills(lab, build, plugin, left, say):
    """Conducts drills, and takes those it has conducted off the list. Ends early, with the rest still on
    it, when the lab is past mending; StuckCards when a machine is. Drills that follow each other share a workload if they
    can."""
    rows = []
    while left:
        work, episodes = Workload(lab, KINDS[left[0].workload], build, plugin), []
        planned = list(left)
        try:
            start(work)
            while left and left[0].workload == work.kind.name and work.alive():
                drill = left.pop(0)
                say(f"{drill.name}: {drill.proves}")
                episodes.append(Conductor(lab, work, drill).conduct())
                if episodes[-1].trouble or drill.fate != "survives":
                    break
        except LabError as error:
            rows.append(Row(left.pop(0).name, lab.name, complaints=[f"no traffic: {error}"]))
        broken = False
        try:
            work.end()
            broken = bool(work.held)
            if not broken:
                lab.heal()
        except LabError as error:
            say(str(error))
            broken = True
        judged = judge_workload(lab, work, episodes)
        if may_be_the_lab(judged) and (cards := stuck_cards(lab, say)):
            left[:] = planned
            raise StuckCards(rows, cards)
        rows += judged
        if broken:
            break
    return rows


class StuckCards(Exception):
    """Cards stand still that nobody stopped: what the drills on them said is void. `rows` are of drills before."""

    def __init__(self, rows, cards):
        super().__init__(f"QEMU has stopped to take packets from {', '.join(cards)}")
        self.rows = rows


def stuck_cards(lab, say):
    """A guest that does not answer is no excuse."""
    try:
        return lab.stuck_cards()
    except LabError as error:
        say(str(error))
        return []


def may_be_the_lab(rows):
    """Whether failures can be those of the machine: never wrong bytes, which no card that stands still can excuse."""
    return any(row.complaints for row in rows) and not any(row.wrong for row in rows)


def start(work):
    try:
        work.start()
    except WorkloadError as error:
        raise LabError(f"{error}; {work.last_words()}") from None


def judge_workload(lab, work, episodes):
    judge = Judge(
        lab.name, HOSTS, work.events, work.report, work.statuses, work.output, work.last_words(), work.held, work.end_ms
    )
    for episode in episodes:
        episode.statuses, episode.output = work.statuses, work.output
    judge.learn_noise(episodes)
    return [judge.judge(episode) for episode in episodes]
