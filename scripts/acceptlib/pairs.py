# SPDX-License-Identifier: Apache-2.0
"""Which ports of the two nodes reach each other, and which of them stand by for which, and why."""

from . import standby, traffic
from .report import FAIL, PASS, WARN

PAIRS_MAX = 64  # with more only those of equal number are tried, unless all are wanted

# A pair that does not work must say so soon: within about a second. One that ought to work is tried again, with
# a longer time-out.
ALONE = {"HA_NCCL_ENABLE_BACKUP": "0", "NCCL_IB_TIMEOUT": "16", "NCCL_IB_RETRY_CNT": "3"}
LONGER_TIMEOUT = {**ALONE, "NCCL_IB_TIMEOUT": "18"}


# ---- pairs ----------------------------------------------------------------------------------------------


def wanted_pairs(nodes, which):
    a, b = (node.devices for node in nodes)
    every = [(x, y) for x in a for y in b]
    if which == "all" or (which == "auto" and len(every) <= PAIRS_MAX):
        return every
    return list(zip(a, b))


def try_pair(nodes, name, x, y, env, quick):
    """{"from", "to", "reached", …} of one pair of ports, failover off."""
    found = {"from": x["full"], "to": y["full"], "same_rail": x["index"] == y["index"]}
    if x["layer"] != y["layer"]:
        return {**found, "reached": False, "why": "another link layer"}
    size = 1 << 20 if quick else 4 << 20
    arguments = ["--op", "pingpong,sendrecv", "--sizes", f"8,{size}", "-n", "5" if quick else "40", "-w", "2", "-c", "1"]
    only = {node.name: {"NCCL_IB_HCA": "=" + port["full"]} for node, port in zip(nodes, (x, y))}
    try:
        report, _ = traffic.run(nodes, name, arguments, env=env, own_env=only, limit_s=90, timeout_s=30)
    except traffic.TrafficError as error:
        return {**found, "reached": False, "why": str(error)}
    rows = {(row["op"], row["size"]): row for row in report["rows"]}
    return {
        **found,
        "reached": report["wrong"] == 0,
        "why": None if report["wrong"] == 0 else f"{report['wrong']} wrong elements",
        "round_trip_us": rows["pingpong", 8]["time_us"],
        "gbytes_per_s": rows["sendrecv", size]["busbw_gbps"],
    }


def try_pairs(nodes, wanted, quick):
    for number, (x, y) in enumerate(wanted):
        found = try_pair(nodes, f"pair-{number}", x, y, ALONE, quick)
        if not found["reached"] and found["same_rail"]:
            found = try_pair(nodes, f"pair-{number}-again", x, y, LONGER_TIMEOUT, quick)
        yield found


def find_pairs(report, nodes, options):
    report.section("pairs of ports")
    wanted = wanted_pairs(nodes, options.pairs)
    if len(wanted) < len(nodes[0].devices) * len(nodes[1].devices):
        report.say(f"  only ports of equal number, {len(wanted)} pairs; all of them with --pairs all")
    found = list(try_pairs(nodes, wanted, options.quick))
    report.data["pairs"] = found
    rows = []
    for pair in found:
        if pair["reached"]:
            rows.append([pair["from"], pair["to"], "yes", f"{pair['round_trip_us']:.1f}", f"{pair['gbytes_per_s']:.2f}"])
        else:
            rows.append([pair["from"], pair["to"], "NO", "-", "-"])
    report.table([f"node {nodes[0].name}", f"node {nodes[1].name}", "reached", "round trip us", "GB/s each way"], rows)
    for pair in found:
        if not pair["reached"]:
            report.say(f"  {pair['from']} - {pair['to']}: {pair['why'][:400]}")
    judge_pairs(report, found)
    return found


def judge_pairs(report, found):
    lost = [f"{p['from']}-{p['to']}" for p in found if not p["reached"] and p["same_rail"]]
    same = [p for p in found if p["same_rail"]]
    report.judge(not lost, "pairs of a rail", f"no data over {', '.join(lost)}" if lost else f"all {len(same)} carry data",
                 "the lines above say why: cabling, subnet, VLAN, GID, partition key; run ib_write_bw over the same pair")  # fmt: skip
    crossed = [p for p in found if not p["same_rail"]]
    if not crossed:
        return
    lost = [f"{p['from']}-{p['to']}" for p in crossed if not p["reached"]]
    report.judge(not lost, "pairs across rails", f"no data over {', '.join(lost)}" if lost else f"all {len(crossed)} carry data",
                 "then one failed port at each node, on different rails, leaves no path: join the rails' switches, or route", WARN)  # fmt: skip


# ---- standbys -------------------------------------------------------------------------------------------


def look_at_devices(nodes):
    """A run over all devices with short messages: each node's list of them, as the plugin sees it."""
    _, run = traffic.run(nodes, "devices", ["--op", "pingpong", "--sizes", "8", "-n", "1", "-w", "0"], limit_s=90)
    for node in nodes:
        node.take_devices(run.log(node))


def watch_choice(nodes, limit_s):
    """The connections of a run with two of them, one per direction, on every device."""
    count = min(len(node.devices) for node in nodes)
    arguments = ["--op", "sendrecv", "--sizes", "64K", "--chunk", "16K", "-C", str(count), "--seconds", str(limit_s + 30)]
    with traffic.Traffic(nodes, "standby", arguments, limit_s=limit_s + 90) as run:
        run.wait_for(lambda: run.connections.are_protected(2 * count), limit_s)
        run.finish(asked=True)
        return run.connections


def choices(nodes, connections):
    """A row per end of each connection: which port stands by there, and why."""
    guids = {node.name: {device["name"]: device["guid"] for device in node.facts["devices"]} for node in nodes}
    by_name = {node.name: node for node in nodes}
    for connection in connections.all.values():
        paths = connection.standbys()
        for end in ("send", "recv"):
            node = by_name[connection.nodes.get(end, nodes[0].name)]
            primary = node.device(connection.ports[end].get(connection.active[end], ""))
            row = {"node": node.name, "end": end, "port": primary and primary["full"], "standby": None, "why": "no path in reserve was proved", "note": None}
            if primary and paths:
                chosen = connection.ports[end][paths[0]]
                why, note = standby.explain(primary, chosen, node.devices, guids[node.name])
                row = {**row, "standby": chosen, "why": why, "note": note, "path": connection.ports_of(paths[0])}
            yield row


def find_standbys(report, nodes, options):
    report.section("standby of each port")
    connections = watch_choice(nodes, options.proof_time)
    found = sorted(choices(nodes, connections), key=lambda row: (row["node"], row["port"] or "", row["end"]))
    report.data["standbys"] = found
    header = ["node", "port", "end", "standby", "over", "why"]
    report.table(header, [[r["node"], r["port"], r["end"], r["standby"] or "NONE", " - ".join(r["path"]) if r.get("path") else "-", r["why"]] for r in found])
    report.say("  a standby counts when the plugin has proved a path over it")
    judge_standbys(report, nodes, found)
    return found


def judge_standbys(report, nodes, found):
    for node in nodes:
        mine = [row for row in found if row["node"] == node.name]
        bare = sorted({row["port"] or "?" for row in mine if not row["standby"]})
        what = f"node {node.name}: standby"
        if not mine or bare:
            report.verdict(FAIL if len(node.devices) > 1 else WARN, what, f"none proved for {', '.join(bare) or 'any port'}",
                           "two ports per node and a way between them: see the pairs above, NCCL_IB_HCA, HA_NCCL_ENABLE_BACKUP")  # fmt: skip
            continue
        notes = sorted({row["note"] for row in mine if row["note"]})
        far = sorted({row["port"] for row in mine if standby.FAR in row["why"]})
        if notes:
            report.verdict(WARN, what, "; ".join(notes), "look at the pair above: the nearest standby is not reached")
        elif far:
            report.verdict(PASS, what, f"proved for every port; for {', '.join(far)} on another NUMA node: slower while it stands in")
        else:
            report.verdict(PASS, what, "proved for every port")
