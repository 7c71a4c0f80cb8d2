# SPDX-License-Identifier: Apache-2.0
"""Speed through the plugin, each time beside something else in turn: the plugin with failover off, perftest on
the same ports, another plugin if one is named, and NCCL's own transport where there are GPUs."""

import os
import re
import shlex
import signal
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchlib import Estimate, size_name  # noqa: E402
from gpulib import BenchError, parse_perf  # noqa: E402

from . import traffic, wire  # noqa: E402
from .report import FAIL, PASS, WARN  # noqa: E402

EQUAL = 0.97  # a ratio that is no worse counts as equal
BAD = 0.80
NEAR_THE_CEILING = 0.9  # perftest has no protocol: it writes to the same memory again and again
ROUNDS_FOR_AN_INTERVAL = 6
PERFTEST_S = 30
NOISE = 1.5  # an interval whose ends are farther apart says nothing
LATENCY_SIZES = (8, 64 << 10)
BANDWIDTH_SIZE = 1 << 20  # of a message
GIB = 1 << 30


def judge_ratio(report, what, estimate, least=EQUAL):
    """A ratio that is better the larger it is. Where its interval is wide or made of few rounds the nodes were
    too busy to prove anything."""
    text = f"{estimate} of its speed"
    again = "run it again on idle nodes with --rounds 21; then docs/performance.md"
    if estimate.high > NOISE * estimate.low:
        report.verdict(WARN, what, text + ": too noisy to tell", again)
    elif estimate.median >= least or estimate.high >= 1:
        report.verdict(PASS, what, text)
    else:
        sure = estimate.high < BAD * least and estimate.rounds >= ROUNDS_FOR_AN_INTERVAL
        report.verdict(FAIL if sure else WARN, what, text, again)


# ---- the plugin against itself, or another one ----------------------------------------------------------


class Side:
    """What the plugin as shipped is compared with."""

    def __init__(self, title, arguments):
        self.title, self.arguments = title, arguments


def sides(compare):
    # Without a standby the hardware must be as patient as NCCL has it by default.
    yield Side("failover off", ["--peer-env", "HA_NCCL_ENABLE_BACKUP=0", "--peer-env", "NCCL_IB_TIMEOUT=20"])
    if compare:
        yield Side(os.path.basename(compare), ["--peer-plugin", compare])


def cases_of(nodes, quick):
    """(what, size of a message, arguments of nccl-net-perf)"""
    count = min(len(node.devices) for node in nodes)
    cases = [("round trip", size, ["--op", "pingpong", "--sizes", str(size), "-n", "50" if quick else "200"]) for size in LATENCY_SIZES]
    total = (16 if quick else 128) * BANDWIDTH_SIZE * count
    cases.append(("all ports", BANDWIDTH_SIZE, ["--op", "sendrecv", "--sizes", str(total), "--chunk", str(BANDWIDTH_SIZE),
                                                "-C", str(count), "-n", "2" if quick else "5"]))  # fmt: skip
    return cases


def compare_with(nodes, side, case, rounds):
    """Both in turn, in the same processes; the ratio is that of their time over ours."""
    kind, size, arguments = case
    name = f"speed-{size_name(size)}-{re.sub('[^a-z]', '-', side.title)}"
    more = [*arguments, "-w", "1", "-c", "1", "--rounds", str(rounds), *side.arguments]
    report, _ = traffic.run(nodes, name, more, limit_s=300, timeout_s=60)
    ours, theirs = (next(row for row in report["rows"] if row["plugin"] == n) for n in (0, 1))
    return {"wrong": report["wrong"], "ratio": Estimate([b / a for a, b in zip(ours["round_us"], theirs["round_us"])]),
            "ours": figure(kind, ours), "theirs": figure(kind, theirs)}  # fmt: skip


def figure(kind, row):
    """(number, unit)"""
    if kind == "round trip":
        return statistics.median(row["round_us"]), "us"
    return row["busbw_gbps"], "GB/s"


def with_unit(value):
    number, unit = value
    return f"{number:.1f} {unit}" if unit == "us" else f"{number:.2f} {unit}"


# ---- perftest -----------------------------------------------------------------------------------------


def perftest_words(port, quick):
    words = ["ib_write_bw", "-d", port["name"], "-i", str(port["port"]), "-F", "-b", "-s", str(BANDWIDTH_SIZE), "-n", "300" if quick else "3000"]
    return words + (["-x", str(port["gid_index"])] if port["layer"] == "RoCE" else [])


def perftest(nodes, ports, number, quick):
    """GB/s of both directions together, or NodeError."""
    a, b = nodes
    tcp = a.call("port", address=a.address)
    name = f"perftest-{number}"
    a.call("start", name=name, argv=[*perftest_words(ports[0], quick), "-p", str(tcp)], env={})
    try:
        until = time.monotonic() + 30
        while not a.call("listens", number=tcp):
            if a.call("poll", name=name) is not None or time.monotonic() > until:
                raise wire.NodeError("the server did not start: " + a.call("read", name=name + ".log")["text"].strip()[-200:])
            time.sleep(0.1)
        done = b.call("run", argv=[*perftest_words(ports[1], quick), "-p", str(tcp), a.address], limit_s=PERFTEST_S)
    finally:
        a.call("signal", name=name, number=int(signal.SIGKILL))
    rows = re.findall(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", done["out"], re.MULTILINE)
    if done["status"] != 0 or not rows:
        raise wire.NodeError((done["err"] or done["out"]).strip()[-200:])
    return float(rows[-1][3]) * (1 << 20) / 1e9  # it prints MiB/s


def plugin_on(nodes, ports, number, quick):
    """The same of the plugin, over one pair of ports."""
    total = (32 if quick else 256) * BANDWIDTH_SIZE
    arguments = ["--op", "sendrecv", "--sizes", str(total), "--chunk", str(BANDWIDTH_SIZE), "-n", "3" if quick else "8", "-w", "1", "-c", "1",
                 "--depth", "16", "--dev", "0"]  # fmt: skip
    only = {node.name: {"NCCL_IB_HCA": "=" + port["full"]} for node, port in zip(nodes, ports)}
    report, _ = traffic.run(nodes, f"ceiling-{number}", arguments, own_env=only, limit_s=120, timeout_s=60)
    return 2 * report["rows"][0]["busbw_gbps"]


def ceiling(nodes, rounds, quick):
    """The plugin beside perftest on the first pair of ports, in turn."""
    ports = [node.devices[0] for node in nodes]
    values = []
    for number in range(rounds):
        ours = plugin_on(nodes, ports, number, quick)
        try:
            theirs = perftest(nodes, ports, number, quick)
        except wire.NodeError as error:
            if "timed out" in str(error):  # as on rdma_rxe, which may retry for ever
                raise
            theirs = perftest(nodes, ports, f"{number}-again", quick)  # somebody took its TCP port, perhaps
        values.append((ours, theirs))
    return {"ports": [p["full"] for p in ports], "plugin": [v[0] for v in values], "perftest": [v[1] for v in values],
            "ratio": Estimate([ours / theirs for ours, theirs in values])}  # fmt: skip


# ---- NCCL on GPUs -------------------------------------------------------------------------------------------

TRANSPORTS = {
    "HA": {"NCCL_NET": "HA"},
    "IB": {"NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none"},
}


def nccl_run(node, command, network, plugin, number):
    """{size: {"us": …}} of one run of the user's nccl-tests command line over this network."""
    env = {**TRANSPORTS[network], "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if network == "HA":
        env["NCCL_NET_PLUGIN"] = plugin
    name = f"nccl-{network}-{number}"
    node.call("start", name=name, argv=shlex.split(command), env=env)
    until = time.monotonic() + 600
    while (status := node.call("poll", name=name)) is None:
        if time.monotonic() > until:
            node.call("signal", name=name, number=int(signal.SIGTERM))
            raise wire.NodeError(f"'{command}' over {network}: no end within 600 s")
        time.sleep(0.5)
    text = node.call("read", name=name + ".log")["text"]
    if status != 0:
        raise wire.NodeError(f"'{command}' over {network}: status {status}: {text.strip()[-400:]}")
    if not re.search(rf"Using network {network}\b", text):
        raise wire.NodeError(f"'{command}': NCCL did not say 'Using network {network}': do the variables NCCL_NET, NCCL_NET_PLUGIN, "
                             "NCCL_DEBUG and NCCL_DEBUG_SUBSYS reach the ranks (mpirun -x)?")  # fmt: skip
    return parse_perf(text)


def nccl(nodes, command, rounds):
    """{size: Estimate of NCCL IB's time over ours}"""
    node, plugin = nodes[0], nodes[0].about["plugin"]
    runs = []
    for number in range(rounds):
        order = ("HA", "IB") if number % 2 == 0 else ("IB", "HA")
        runs.append({network: nccl_run(node, command, network, plugin, number) for network in order})
    common = sorted(set.intersection(*({*run[n]} for run in runs for n in run)))
    return {size: Estimate([run["IB"][size]["us"] / run["HA"][size]["us"] for run in runs]) for size in common}


# ---- all of it -------------------------------------------------------------------------------------------------


def plain(found):
    """For JSON."""
    return {**found, "ratio": {"median": found["ratio"].median, "low": found["ratio"].low, "high": found["ratio"].high}}


def measure_sides(report, nodes, options):
    rows, kept = [], []
    for side in sides(options.compare):
        for case in cases_of(nodes, options.quick):
            name = f"{case[0]}, {size_name(case[1])}B"
            what = f"speed: {name}, against {side.title}"
            try:
                found = compare_with(nodes, side, case, options.rounds)
            except traffic.TrafficError as error:
                report.verdict(FAIL, what, str(error), "docs/operations.md says what each log line means")
                continue
            kept.append({"what": case[0], "size": case[1], "other": side.title, **plain(found)})
            rows.append([name, with_unit(found["ours"]), f"{side.title}: {with_unit(found['theirs'])}", str(found["ratio"])])
            if found["wrong"]:
                report.verdict(FAIL, what, f"{found['wrong']} wrong elements", "report this: data must never be wrong")
            else:
                judge_ratio(report, what, found["ratio"])
    report.data["speed"] = kept
    if rows:
        report.table(["", "plugin", "beside it", "its time over the plugin's"], rows)


def measure_ceiling(report, nodes, options):
    missing = [node.host for node in nodes if not node.facts["tools"]["ib_write_bw"]]
    if missing:
        report.verdict(WARN, "speed: against perftest", f"no ib_write_bw on {', '.join(missing)}", "install perftest on both nodes to see the ceiling")
        return
    try:
        found = ceiling(nodes, min(options.rounds, 5), options.quick)
    except wire.NodeError as error:
        report.verdict(WARN, "speed: against perftest", f"ib_write_bw: {error}", "run it by hand over this pair; the plugin itself was measured above")
        return
    report.data["perftest"] = plain(found)
    report.say(f"  {' - '.join(found['ports'])}, both directions, messages of {size_name(BANDWIDTH_SIZE)}B: plugin {statistics.median(found['plugin']):.2f} GB/s, "
               f"ib_write_bw {statistics.median(found['perftest']):.2f} GB/s, plugin over perftest {found['ratio']}")  # fmt: skip
    judge_ratio(report, "speed: against perftest", found["ratio"], NEAR_THE_CEILING)


def measure_nccl(report, nodes, options):
    gpus = all(node.facts["gpus"] for node in nodes)
    if not options.nccl_tests:
        if gpus:
            report.verdict(WARN, "speed: NCCL on GPUs", "not measured, though both nodes have GPUs",
                           "--nccl-tests 'mpirun -np 2 -H A,B -x NCCL_NET -x NCCL_NET_PLUGIN -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS -x LD_LIBRARY_PATH "
                           "all_reduce_perf -b 8 -e 1G -f 2 -c 1'")  # fmt: skip
        return
    try:
        found = nccl(nodes, options.nccl_tests, options.rounds)
    except (wire.NodeError, BenchError) as error:
        report.verdict(FAIL, "speed: NCCL on GPUs", str(error), "run that command by hand, first with NCCL_NET=IB")
        return
    report.say("\n  NCCL on GPUs, in turn over the plugin and over NCCL's own IB transport")
    report.table(["size", "time over NCCL IB / over nccl-ha"], [[size_name(size), str(estimate)] for size, estimate in found.items()])
    report.data["nccl"] = [{"size": size, "median": e.median, "low": e.low, "high": e.high} for size, e in found.items()]
    middle = statistics.median(e.median for e in found.values())
    report.verdict(PASS if middle >= EQUAL else WARN if middle >= BAD else FAIL, "speed: NCCL on GPUs", f"{middle:.3f} of NCCL IB's speed in the median over the sizes, 0 wrong elements",
                   "run it again on idle nodes; docs/performance.md")  # fmt: skip


def measure(report, nodes, options):
    report.section("speed")
    measure_sides(report, nodes, options)
    measure_ceiling(report, nodes, options)
    measure_nccl(report, nodes, options)
