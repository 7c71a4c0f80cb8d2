# SPDX-License-Identifier: Apache-2.0
"""The drill: a port goes down under checked traffic, and what becomes of that."""

import sys
import time

from . import breakers, traffic, wire
from .report import FAIL, PASS, WARN

SWITCH_S = 20  # for both ends to move; heartbeats need a fraction of it
BACK_S = 60  # for the port to be proved again
PERSON_S = 180  # for somebody to walk to a switch


class Drill:
    """One port of one node, down and up again."""

    def __init__(self, nodes, node, port, way, options, say):
        self.nodes, self.node, self.port, self.way, self.options, self.say = nodes, node, port, way, options, say
        other = next(n for n in nodes if n is not node)
        self.breaker = breakers.BREAKERS[way](node, other, port)  # may refuse
        self.key = f"{port['full']} of node {node.name}"
        self.row = {"node": node.name, "port": port["full"], "way": self.breaker.title, "trouble": None, "restored": None,
                    "blackout_ms": None, "detection_ms": None, "wrong": None, "replayed": 0, "reasons": [], "noise_ms": None}  # fmt: skip

    def by_hand(self):
        return self.way == "operator"

    def conduct(self):
        """The row. The link is up again when this returns, or row["restored"] says why not."""
        name = f"drill-{self.node.name}-{self.port['full'].replace(':', '-')}"
        arguments = ["--op", "sendrecv", "--sizes", "1M", "--chunk", "64K", "--dev", str(self.port["index"]), "-c", "1"]
        arguments += ["--seconds", "3600", "--stall-ms", "2"]
        armed = False
        try:
            with traffic.Traffic(self.nodes, name, arguments, timeout_s=30 if not self.by_hand() else 2 * PERSON_S) as run:
                if not run.wait_for(lambda: run.connections.are_protected(2), self.options.proof_time):
                    raise traffic.TrafficError(f"the connections found no standby: {run.last_words()}")
                time.sleep(0.5)  # of peace, for the noise
                limit = self.options.hold + SWITCH_S + 30
                self.node.call("arm", key=self.key, down=self.breaker.down, up=self.breaker.up, limit_s=limit)
                armed = True
                self.break_and_mend(run)
                armed = False
                self.judge_run(run, run.finish(asked=True))
        except wire.NodeError as error:
            self.row["trouble"] = str(error)
            self.row["lost"] = isinstance(error, traffic.TrafficError) and error.status == 1
        finally:
            if armed:
                self.mend()
        return self.row

    def break_and_mend(self, run):
        before = run.connections.switches()
        self.tell("take it down now")
        down = self.node.call("down", key=self.key, answer_s=120)
        self.row["down_ns"] = down
        moved = run.wait_for(lambda: all(n > before.get(key, 0) for key, n in run.connections.switches().items()),
                             PERSON_S if self.by_hand() else SWITCH_S)  # fmt: skip
        self.row["state_down"] = self.breaker.state()
        self.row["moved"] = moved
        if moved:
            run.wait_for(lambda: False, self.options.hold)
        self.mend()
        if moved and None in run.statuses():
            self.row["protected_again"] = run.wait_for(lambda: run.connections.are_protected(2), PERSON_S if self.by_hand() else BACK_S)

    def tell(self, what):
        if self.by_hand():
            self.say(f"  >>> {self.port['full']} of node {self.node.name} ({self.node.host}): {what}")
            print("\a", end="", file=sys.stderr, flush=True)

    def mend(self):
        """Up again, and seen to be."""
        try:
            self.tell("put it back now")
            up = self.node.call("release", key=self.key, answer_s=900)
            until = time.monotonic() + (PERSON_S if self.by_hand() else BACK_S)
            while (state := self.breaker.state()) != "up" and time.monotonic() < until:
                time.sleep(0.3)
            self.row["up_ns"] = up
            self.row["restored"] = state == "up"
            if state != "up":
                self.row["trouble"] = f"the port is '{state}' after the link was brought up again"
        except wire.NodeError as error:
            self.row["restored"] = False
            self.row["trouble"] = f"the link may still be down: {error}"

    # ---- what the witnesses say ----

    def judge_run(self, run, report):
        row = self.row
        switches = [event for event in run.connections.events if event["kind"] == "switch"]
        down_ms, noise, blackout = self.when_down(report), 0.0, 0.0
        for stall in (stall for r in report["rows"] for stall in r["stalls"]):
            before = stall["start_ms"] + stall["duration_ms"] < down_ms[stall["rank"]]
            noise, blackout = (max(noise, stall["duration_ms"]), blackout) if before else (noise, max(blackout, stall["duration_ms"]))
        row["blackout_ms"], row["noise_ms"] = round(blackout, 1), round(noise, 1)
        row["detection_ms"] = round(max((e["detection_ms"] or 0 for e in switches), default=0.0), 1)
        row["replayed"] = sum(e["replayed_messages"] or 0 for e in switches)
        row["reasons"] = sorted({e["reason"] for e in switches})
        row["switches"] = len(switches)
        row["wrong"] = report["wrong"]
        row["checked"] = sum(r["checked"] for r in report["rows"])

    def when_down(self, report):
        """For each rank, on its report's clock. The ranks start their clocks together but not at the same
        instant, so that on the other node's all that is near counts as an effect."""
        here = self.nodes.index(self.node)
        own = (self.row["down_ns"][0] - report["clock"]["monotonic_ns"][here]) / 1e6
        return {here: own, 1 - here: own - 100}


# ---- all of them -------------------------------------------------------------------------------------------


def choose_ports(nodes, options):
    """(node, port) of each drill: the first port of each node, or all."""
    count = min(len(node.devices) for node in nodes)
    for node in nodes:
        for port in node.devices[:count]:
            yield node, port


def prepare(nodes, options, say):
    """([Drill], {node: [why not]})"""
    drills, refused = [], {node.name: [] for node in nodes}
    done = set()
    for node, port in choose_ports(nodes, options):
        if node.name in done and not options.all_ports:
            continue
        way = options.drill if options.drill != "auto" else breakers.automatic(node, port)
        try:
            drills.append(Drill(nodes, node, port, way, options, say))
            done.add(node.name)
        except breakers.Refused as why:
            refused[node.name].append(str(why))
    return drills, refused


def confirmed(drills, options, say):
    """Real links go down only when somebody says so."""
    real = [drill for drill in drills if drill.way in ("ip", "mlxlink")]
    if not real:
        return True
    say("  these links will go down for a moment, one after the other; anything else that uses them will notice:")
    for drill in real:
        say(f"    node {drill.node.name} ({drill.node.host}): {drill.breaker.title}")
    for drill in real:
        for argv in drill.breaker.up:
            say(f"    should all else fail, on {drill.node.host}: {' '.join(argv)}")
    if options.yes or not sys.stdin.isatty():
        return options.yes
    return input("  go on? [y/N] ").strip().lower() in ("y", "yes")


def verdict(report, row, options):
    what = f"drill: {row['port']} of node {row['node']}"
    if row["restored"] is False:
        report.verdict(FAIL, what, row["trouble"] or "the port did not come back", "bring it up by hand, then look at the switch's port")
    elif row["trouble"]:
        report.verdict(FAIL, what, ("WRONG DATA: " if row.get("lost") else "") + row["trouble"], "the plugin's log lines above; docs/operations.md")
    elif row["wrong"] or not row["checked"]:
        report.verdict(FAIL, what, f"{row['wrong']} wrong elements, {row['checked']} rounds checked", "report this: data must never be wrong")
    elif not row["moved"]:
        report.verdict(FAIL, what, f"traffic did not move to another port; the port was {row['state_down']}", "did the link really go down? the plugin's log lines say what it noticed")
    elif row["blackout_ms"] > options.pause_limit:
        report.verdict(WARN, what, f"survived, with a pause of {row['blackout_ms']} ms (more than {options.pause_limit:g} ms)", "docs/tuning.md: heartbeats, timeouts; an idle machine pauses less")
    elif not row.get("protected_again"):
        report.verdict(WARN, what, f"survived with a pause of {row['blackout_ms']} ms, but the port was not used again within {BACK_S} s", "look at the port: errors, subnet manager, switch")
    else:
        report.verdict(PASS, what, f"pause of {row['blackout_ms']} ms, 0 wrong bytes, port back in reserve")


def drill(report, nodes, options):
    report.section("drill")
    report.data["drills"] = []
    if options.drill == "none":
        report.verdict(WARN, "drill", "not done, as asked", "run it with --drill ip, mlxlink or operator before you rely on failover")
        return
    drills, refused = prepare(nodes, options, report.say)
    for name, reasons in refused.items():
        for why in reasons:
            report.say(f"  {why}")
        if reasons and not any(d.node.name == name for d in drills):
            report.verdict(WARN, f"drill: node {name}", f"not done: {reasons[0]}", "docs/acceptance.md, The drill, says which way suits which port")
    if not confirmed(drills, options, report.say):
        report.verdict(WARN, "drill", "not done: nobody said yes", "run it in a terminal, or with --yes")
        return
    rows = []
    for one in drills:
        report.say(f"  {one.key}: {one.breaker.title} …")
        rows.append(one.conduct())
        report.data["drills"].append(rows[-1])
        if rows[-1]["restored"] is False:
            break
    header = ["node", "port", "state", "detected ms", "pause ms", "noise ms", "replayed", "wrong", "noticed by"]
    report.table(header, [[r["node"], r["port"], r.get("state_down", "-"), r["detection_ms"] if r["detection_ms"] is not None else "-",
                           r["blackout_ms"] if r["blackout_ms"] is not None else "-", r["noise_ms"] if r["noise_ms"] is not None else "-",
                           r["replayed"], r["wrong"] if r["wrong"] is not None else "-", ", ".join(r["reasons"])] for r in rows])  # fmt: skip
    for row in rows:
        verdict(report, row, options)
