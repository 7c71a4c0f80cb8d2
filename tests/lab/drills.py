# SPDX-License-Identifier: Apache-2.0
"""The table of drills: what is done to the lab, and what must come of it.

Rails are named by what they carry: `active` is the one that traffic is on when the step comes, `same`
the one of the step before, `other` the other one. In a drill's expectations `used` is the rail that
carried traffic when it began, `spare` the other.
"""

from dataclasses import dataclass

from topology import RAILS

# rdma_rxe has completions with "local QP operation error" come before the event, as often as not.
PORT_DOWN = ("local port down", "peer's port down", "told by the peer", "error completion")
SILENCE = ("heartbeats lost", "error completion", "told by the peer", "no completion in time")
LINK_DOWN_MS = 500  # at most, where a port says that it is down: half of what the soft timeout takes


@dataclass(frozen=True)
class Drill:
    """A row of the table."""

    name: str
    proves: str
    steps: tuple
    labs: tuple = ("one", "two")
    short: tuple = ()  # the labs whose short form has it: there it is no repetition of another one
    workload: str = "steady"
    reasons: tuple = ()  # what the first to notice may say; none: nothing may fail
    each: bool = True  # every fault is noticed; else one of them is enough
    switches: tuple = (0, 0)  # at least, at most (None: any), over both ends of both connections
    blackout_ms: float = None  # nothing may stand still for longer, beyond the noise
    by_event: bool = False  # the faults are links that go down, which the mark for these is about (judge.LinkDowns)
    blackout_min_ms: float = 0  # the fault cannot have been there if it cost less
    slower_than: float = 0  # the fault must slow traffic down to this share
    ends_on: str = ""  # the rail that carries traffic in the end: used or spare
    witnesses: tuple = ()  # (host, rail, kernel's counters with + in between, least increase)
    leaves_broken: bool = False  # the lab must be healed afterwards
    fate: str = "survives"  # or "lost": the other host's rank ends with an error
    stuck_at: str = ""  # the host at which queue pairs of the plugin's must be left stuck at least once
    late_to: str = ""  # the host to which packets must come late, and change nothing
    lost: str = ""  # the host whose process is killed
    says: tuple = ()  # one of these the others say
    ends_within_ms: float = 0  # the others; of one that survives, both when they are told to
    held: bool = False  # the kernel may then keep threads that destroy queue pairs, and the lab is past mending


def link_down_up(host):
    return (
        ("sleep", 0.5),
        ("link", host, "active", "down"),
        ("moved",),
        ("sleep", 0.3),
        ("link", host, "same", "up"),
        ("healthy",),
    )


def alternating(times):
    """Each failover goes where the one before came from. The link goes down at the one end of a rail, at the other, at both."""
    steps = ()
    for i in range(times):
        hosts = ("a", "b", "ab")[i // len(RAILS) % 3]
        steps += (
            ("link", hosts, "active", "down"),
            ("moved",),
            ("link", hosts, "same", "up"),
            ("healthy",),
        )
    return (("sleep", 0.5), *steps)


def netem_for(seconds, what, hosts=("a",)):
    return (
        ("sleep", 0.5),
        *(("netem", host, "active", what) for host in hosts),
        ("sleep", seconds),
        *(("netem", host, "same", None) for host in hosts),
    )


def silent(hosts):
    return (
        ("sleep", 0.5),
        *(("netem", host, "active" if host == hosts[0] else "same", "loss 100%") for host in hosts),
        ("moved",),
        ("sleep", 0.3),
        *(("netem", host, "same", None) for host in hosts),
        ("healthy",),
    )


DRILLS = (
    Drill(
        "healthy",
        "nothing happens where nothing is broken; how long traffic pauses by itself",
        short=("one",),
        steps=(("sleep", 4),),
        ends_on="used",
    ),
    # ---- what a fabric does without being broken ----
    Drill(
        "loss",
        "2 % of the packets lost is the hardware's business",
        short=("one",),
        steps=netem_for(2, "loss 2%"),
        ends_on="used",
        witnesses=(("a", "used", "netem_dropped", 1),),
    ),
    Drill(
        "delay",
        "so are 5 ms more on the way",
        steps=netem_for(2, "delay 5ms 2ms"),
        ends_on="used",
        witnesses=(("a", "used", "netem_passed", 100),),
        slower_than=0.7,
    ),
    Drill(
        "duplication",
        "so are packets that come twice",
        steps=netem_for(2, "duplicate 5%"),
        ends_on="used",
        witnesses=(("b", "used", "rdma.duplicate_request", 1),),
    ),
    Drill(
        "reordering",
        "so are packets that overtake others",
        steps=netem_for(2, "delay 2ms reorder 75% 50%"),
        ends_on="used",
        witnesses=(("b", "used", "rdma.out_of_seq_request+rdma.rcvd_seq_err", 1),),
    ),
    Drill(
        "corruption",
        "so are packets whose checksum is wrong",
        steps=netem_for(2, "corrupt 2%"),
        ends_on="used",
        witnesses=(("b", "used", "rdma.out_of_seq_request+rdma.rcvd_seq_err+rdma.duplicate_request", 1),),
    ),
    # ---- ports that say that they are down ----
    # What a guest does for the first time takes three times as long, since the emulator translates it
    # then. So those that have time to spare go first, and those whose milliseconds count find code that ran.
    Drill(
        "crossed",
        "a loses one rail and b the other: nothing is left until one is back",
        short=("two",),
        steps=(
            ("sleep", 0.5),
            ("link", "a", "active", "down"),
            ("moved",),
            ("link", "b", "other", "down"),
            ("outage",),
            ("sleep", 0.5),
            ("link", "a", "same", "up"),
            ("link", "b", "other", "up"),
            ("healthy",),
        ),
        reasons=PORT_DOWN + SILENCE,
        each=False,
        switches=(8, None),
        blackout_ms=6000,
        blackout_min_ms=400,
        witnesses=(("a", "used", "rdma.link_downed", 1), ("b", "spare", "rdma.link_downed", 1)),
    ),
    Drill(
        "flapping",
        "ports that flap, at one end, the other or both, cost pauses, no data",
        steps=(
            ("sleep", 0.5),
            *(
                step
                for hosts in ("a", "b", "ab") * 2
                for step in (("link", hosts, "same", "down"), ("sleep", 0.05), ("link", hosts, "same", "up"), ("sleep", 0.1))
            ),
            ("healthy",),
        ),
        reasons=PORT_DOWN,
        each=False,
        switches=(4, None),
        blackout_ms=2500,
        witnesses=(("a", "used", "rdma.link_downed", 4),),
    ),
    Drill(
        "link-down-a",
        "ip link set down at the one end, and back up: a pause, and protected again",
        short=("two",),
        steps=link_down_up("a"),
        reasons=PORT_DOWN,
        switches=(4, 8),
        by_event=True,
        blackout_ms=LINK_DOWN_MS,
        ends_on="spare",
        witnesses=(("a", "used", "rdma.link_downed", 1),),
    ),
    Drill(
        "link-down-b",
        "the same at the other end",
        steps=link_down_up("b"),
        reasons=PORT_DOWN,
        switches=(4, 8),
        by_event=True,
        blackout_ms=LINK_DOWN_MS,
        ends_on="spare",
        witnesses=(("b", "used", "rdma.link_downed", 1),),
    ),
    Drill(
        "both-ends",
        "both ends of a cable pulled at once",
        steps=(
            ("sleep", 0.5),
            ("link", "ab", "active", "down"),
            ("moved",),
            ("sleep", 0.3),
            ("link", "ab", "same", "up"),
            ("healthy",),
        ),
        reasons=PORT_DOWN,
        each=False,
        switches=(4, 8),
        by_event=True,
        blackout_ms=LINK_DOWN_MS,
        ends_on="spare",
        witnesses=(("a", "used", "rdma.link_downed", 1), ("b", "used", "rdma.link_downed", 1)),
    ),
    # ---- ports that say nothing ----
    Drill(
        "cut-one-way",
        "all packets lost in one direction: nobody is told, silence tells",
        short=("one",),
        steps=silent(("a",)),
        reasons=SILENCE,
        switches=(4, 8),
        blackout_ms=2500,
        blackout_min_ms=50,
        ends_on="spare",
        witnesses=(("a", "used", "netem_dropped", 1),),
    ),
    Drill(
        "cut-other-way",
        "the same in the other direction",
        steps=silent(("b",)),
        reasons=SILENCE,
        switches=(4, 8),
        blackout_ms=2500,
        blackout_min_ms=50,
        ends_on="spare",
        witnesses=(("b", "used", "netem_dropped", 1),),
    ),
    Drill(
        "cut",
        "all packets lost in both directions",
        steps=silent(("a", "b")),
        reasons=SILENCE,
        each=False,
        switches=(4, 8),
        blackout_ms=2500,
        blackout_min_ms=50,
        ends_on="spare",
        witnesses=(("a", "used", "netem_dropped", 1), ("b", "used", "netem_dropped", 1)),
    ),
    Drill(
        "cut-for-ever",
        "with the retry count that NCCL has, which is for ever here, and no heartbeats the soft timeout tells",
        short=("one",),
        workload="unheard",
        steps=silent(("a", "b")),
        reasons=("no completion in time", "told by the peer"),
        each=False,
        switches=(4, 8),
        blackout_ms=2500,
        blackout_min_ms=900,
        ends_on="spare",
        witnesses=(("a", "used", "netem_dropped", 1), ("b", "used", "netem_dropped", 1)),
    ),
    Drill(
        "set-link-off",
        "the hypervisor pulls the cable of one host",
        labs=("two",),
        short=("two",),
        steps=(
            ("sleep", 0.5),
            ("set_link", "a", "active", "off"),
            ("moved",),
            ("sleep", 0.3),
            ("set_link", "a", "same", "on"),
            ("healthy",),
        ),
        reasons=PORT_DOWN + SILENCE,
        switches=(4, 8),
        blackout_ms=1500,
        ends_on="spare",
        witnesses=(("a", "used", "rdma.link_downed", 1),),
    ),
    Drill(
        "late-packets",
        "what arrives after a switch, of messages that were sent again, changes no memory",
        labs=("one",),
        short=("one",),
        workload="canaries",
        steps=(
            ("sleep", 0.5),
            ("delay_until_late", "a", "b", (400, 400, 600, 600)),
        ),
        reasons=SILENCE,
        switches=(4, None),
        blackout_ms=5000,
        blackout_min_ms=100,
        late_to="b",
    ),
    Drill(
        "stuck",
        "a queue pair that the kernel leaves without any completion, though its link is back, is found and left",
        labs=("two",),
        short=("two",),
        workload="deaf",
        steps=(("sleep", 0.3), ("pull_until_stuck", "a", 30), ("healthy",)),
        reasons=SILENCE,
        each=False,
        switches=(2, None),
        blackout_ms=4000,
        witnesses=(("a", "used", "rdma.link_downed", 1),),
        stuck_at="a",
    ),
    # ---- addresses ----
    Drill(
        "address-change",
        "an address moves to another entry of the table: the path is built anew with it",
        short=("one",),
        steps=(
            ("sleep", 0.5),
            ("address", "a", "active"),
            ("moved",),
            ("healthy",),
        ),
        reasons=("port address changed", "told by the peer") + SILENCE,
        switches=(4, 8),
        blackout_ms=2500,
        ends_on="spare",
        leaves_broken=True,
    ),
    # ---- many ----
    Drill(
        "alternating",
        "a hundred failovers in a row, from rail to rail and back",
        labs=("one",),
        steps=alternating(100),
        reasons=PORT_DOWN,
        switches=(400, None),
        by_event=True,
        blackout_ms=LINK_DOWN_MS,
        ends_on="used",
        witnesses=(("a", "used", "rdma.link_downed", 40), ("b", "spare", "rdma.link_downed", 40)),
    ),
    Drill(
        "alternating-ends",
        "failovers in a row, at the one end, the other and both: local and remote link down",
        labs=("two",),
        # So many, as one pause in 20 may be longer: of 24, a single one too many is soon there by chance.
        steps=alternating(60),
        reasons=PORT_DOWN,
        switches=(240, None),
        by_event=True,
        blackout_ms=LINK_DOWN_MS,
        ends_on="used",
        witnesses=(("a", "used", "rdma.link_downed", 12), ("b", "used", "rdma.link_downed", 12)),
    ),
    Drill(
        "failback",
        "with HA_NCCL_ENABLE_FAILBACK=1 a connection goes back to its primary rail",
        workload="failback",
        steps=(
            ("sleep", 0.5),
            ("link", "a", "active", "down"),
            ("moved",),
            ("sleep", 0.3),
            ("link", "a", "same", "up"),
            ("moved", 2),
            ("healthy",),
        ),
        reasons=PORT_DOWN,
        switches=(8, None),
        blackout_ms=1000,
        ends_on="used",
        witnesses=(("a", "used", "rdma.link_downed", 1),),
    ),
    # ---- hosts ----
    Drill(
        "peer-frozen",
        "a host that stands still for 2 s is waited for",
        labs=("two",),
        steps=(("sleep", 0.5), ("freeze", "b"), ("sleep", 2), ("thaw", "b"), ("sleep", 1), ("healthy",)),
        reasons=SILENCE,
        each=False,
        switches=(0, None),
        blackout_ms=8000,
        blackout_min_ms=1500,
    ),
    Drill(
        "peer-killed",
        "a peer that dies is an error within seconds, and no path to be mended",
        short=("two",),
        workload="killed",
        steps=(("sleep", 0.5), ("kill", "b"), ("ended",)),
        fate="lost",
        lost="b",
        says=("peer process is gone", "left without a goodbye"),
        ends_within_ms=5000,
    ),
    Drill(
        "device-unbound",
        "a device taken from its driver is left, and the rest goes on without it",
        labs=("two",),  # alone, without its card, a device of rxe does not go
        short=("two",),
        # The card goes when nobody has the device open any more: the workload ends before the lab is healed.
        # In half of all times the kernel holds what destroys queue pairs for minutes: rxe waits for packets in a
        # card's queue, and its driver for rxe. Nothing of the plugin's calls may wait with them. Comes last, since
        # such a lab is past mending.
        held=True,
        ends_within_ms=5000,
        steps=(("sleep", 0.5), ("unbind", "a", "active"), ("moved",), ("sleep", 1)),
        workload="unbound",
        reasons=("local device failed", "port address changed", "local port down", "told by the peer") + SILENCE,
        switches=(4, None),
        blackout_ms=3000,
        ends_on="spare",
    ),
)
