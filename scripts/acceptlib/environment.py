# SPDX-License-Identifier: Apache-2.0
"""The environment of both nodes, and what of it gets in the way of the plugin."""

from .report import FAIL, PASS, WARN

MIB = 1 << 20
MEMLOCK_LEAST = 64 * MIB  # rings and staging buffers of a handful of connections
SHM_LEAST = 64 * MIB


def size(value):
    if value is None:
        return "unlimited"
    return f"{value / (1 << 30):.1f} GiB" if value >= 1 << 30 else f"{value / MIB:.0f} MiB" if value >= MIB else f"{value >> 10} KiB"


def or_dash(value):
    return "-" if value in (None, "", []) else str(value)


# ---- what there is ------------------------------------------------------------------------------------


def software(node):
    f = node.facts
    nccl = f["nccl"]
    return [
        ("host", f["host"]),
        ("system", f"{or_dash(f['distribution'])}, Linux {f['kernel']}, {f['processors']} processors"),
        ("libibverbs", f"{or_dash(f['verbs']['version'])} ({or_dash(f['verbs']['path'])})"),
        ("plugin", f"{or_dash(node.plugin_version)} ({node.about['plugin']})"),
        ("NCCL", f"{or_dash(nccl['version'])} ({nccl['path']})" if nccl else "not found"),
        ("GPUs", f"{len(f['gpus'])} x {f['gpus'][0]}" if f["gpus"] else "none"),
        ("GPU memory to NICs", gpu_direct(f)),
        ("locked memory", size(f["memlock"])),
        ("descriptors", or_dash(f["descriptors"]) if f["descriptors"] is not None else "unlimited"),
        ("/dev/shm", f"{size(f['shm']['free'])} of {size(f['shm']['size'])} free" if f["shm"] else "-"),
        ("bootstrap", f"{node.interface} {node.address}"),
        ("privileges", f["root"] or "none"),
        ("variables", " ".join(f"{k}={v}" for k, v in f["variables"].items()) or "-"),
    ]


def gpu_direct(f):
    ways = []
    if f["peermem"]:
        ways.append(f["peermem"].rsplit("/", 1)[1])
    if f["open_driver"] and kernel_at_least(f["kernel"], 5, 12):
        ways.append("dmabuf (open driver, kernel 5.12 or later)")
    return " and ".join(ways) or "no way found"


def kernel_at_least(text, major, minor):
    parts = text.split(".")
    return (int(parts[0]), int("".join(c for c in parts[1] if c.isdigit()) or 0)) >= (major, minor)


def gid_words(port, plugin_device):
    if not port["gids"]:
        return "-"
    index = plugin_device["gid_index"] if plugin_device else port["gids"][0]["index"]
    entry = next((entry for entry in port["gids"] if entry["index"] == index), port["gids"][0])
    return f"{len(port['gids'])}, uses {entry['index']}: {entry['gid']} {or_dash(entry['type'])}"


def device_rows(node):
    for device in node.facts["devices"]:
        for port in device["ports"]:
            full = f"{device['name']}:{port['port']}"
            yield [
                node.name, full, or_dash(device["model"]), or_dash(device["firmware"]), or_dash(port["state"]),
                or_dash(port["link_layer"]), or_dash(port["rate"]), or_dash(port["mtu"]),
                {True: "on", False: "off", None: "-"}[port["apm"]], or_dash(device["numa"]),
                ",".join(port["netdevs"]) or "-", gid_words(port, node.device(full)),
            ]  # fmt: skip


def interface_rows(node):
    for i in node.facts["interfaces"]:
        speed = f"{i['gbps']:g} Gb/s" if i["gbps"] else "-"
        yield [node.name, i["name"], or_dash(i["state"]), or_dash(i["driver"]), speed, or_dash(i["mtu"]), " ".join(i["addresses"]) or "-"]


def show(report, nodes):
    report.section("environment")
    both = [software(node) for node in nodes]
    report.table(["", *(f"node {node.name}" for node in nodes)], [[row[0], *(side[i][1] for side in both)] for i, row in enumerate(both[0])])
    report.say()
    header = ["node", "port", "model", "firmware", "state", "link layer", "rate", "MTU", "APM", "NUMA", "interface", "GIDs"]
    report.table(header, [row for node in nodes for row in device_rows(node)])
    for node in nodes:
        for line in node.unused:
            report.say(f"  node {node.name}: {line}")
    report.say()
    header = ["node", "interface", "state", "driver", "speed", "MTU", "addresses"]
    report.table(header, [row for node in nodes for row in interface_rows(node)])


# ---- what gets in the way ---------------------------------------------------------------------------


def ports_in_use(node):
    """(device, port, as the plugin sees it)"""
    for device in node.facts["devices"]:
        for port in device["ports"]:
            seen = node.device(f"{device['name']}:{port['port']}")
            if seen:
                yield device, port, seen


def judge_node(report, node):
    f, where = node.facts, f"node {node.name}"
    if not node.devices:
        report.verdict(FAIL, f"{where}: devices", "the plugin found none", "ibv_devinfo; the lines above say why a port is left out")
        return
    many = len(node.devices) >= 2
    report.judge(many, f"{where}: ports", f"{len(node.devices)} in use: " + ", ".join(d["full"] for d in node.devices),
                 "with one port only flaps are survived, in place: look why there is no second one (NCCL_IB_HCA, ports that are down)", WARN)  # fmt: skip
    enough = f["memlock"] is None or f["memlock"] >= MEMLOCK_LEAST
    grade = PASS if f["memlock"] is None or f["root"] == "root" else WARN if enough else FAIL
    report.verdict(grade, f"{where}: locked memory", size(f["memlock"]) + (" (root needs none)" if f["root"] == "root" and f["memlock"] else ""),
                   "set memlock to unlimited for the job's user (limits.conf, LimitMEMLOCK of the launcher's service)")  # fmt: skip
    if f["shm"]:
        report.judge(f["shm"]["free"] >= SHM_LEAST, f"{where}: /dev/shm", f"{size(f['shm']['free'])} free",
                     "NCCL and the statistics of the plugin need it: give the container more (--shm-size)", WARN)  # fmt: skip
    apm = [f"{device['name']}:{port['port']}" for device, port, _ in ports_in_use(node) if port["apm"]]
    report.judge(not apm, f"{where}: automatic path migration", f"on at {', '.join(apm)}" if apm else "off, or not there",
                 "turn it off: echo 0 > /sys/class/infiniband/DEV/ports/N/apm_enable; it and failover exclude each other", WARN)  # fmt: skip
    if f["gpus"]:
        report.judge(f["peermem"] or "dmabuf" in gpu_direct(f), f"{where}: GPU memory to NICs", gpu_direct(f),
                     "modprobe nvidia_peermem, or use the open driver; without, NCCL stages through host memory", WARN)  # fmt: skip
    judge_gids(report, node)
    if f["variables"].get("HA_NCCL_DISABLE") == "1" or f["variables"].get("HA_NCCL_ENABLE_BACKUP") == "0":
        report.verdict(FAIL, f"{where}: variables", "failover is switched off in the environment", "unset HA_NCCL_DISABLE and HA_NCCL_ENABLE_BACKUP")


def judge_gids(report, node):
    old = [seen["full"] for _, port, seen in ports_in_use(node) if seen["layer"] == "RoCE" and seen["roce"] == "1"]
    if any(seen["layer"] == "RoCE" for _, _, seen in ports_in_use(node)):
        report.judge(not old, f"node {node.name}: GIDs", f"RoCE v1 at {', '.join(old)}" if old else "RoCE v2 everywhere",
                     "give the interface an address, or name a RoCE v2 entry in NCCL_IB_GID_INDEX: v1 is not routed", WARN)  # fmt: skip


def judge_both(report, a, b):
    def same(what, values, advice, grade=WARN):
        left, right = values
        report.judge(left == right, f"both nodes: {what}", f"{or_dash(left)}" if left == right else f"{or_dash(left)} and {or_dash(right)}",
                     advice, grade)  # fmt: skip

    same("plugin", (a.plugin_version, b.plugin_version), "install the same version on every node")
    same("number of ports", (len(a.devices), len(b.devices)), "nodes of a job should have the same rails: NCCL_IB_HCA, ports that are down")
    mtus = [sorted({port["mtu"] for _, port, _ in ports_in_use(node) if port["mtu"]}) for node in (a, b)]
    if all(mtus):
        report.judge(mtus[0] == mtus[1] and len(mtus[0]) == 1, "both nodes: path MTU", " and ".join(str(m) for m in sorted({*mtus[0], *mtus[1]})),
                     "set one MTU on all interfaces and switches: a path whose ends differ uses the smaller one", WARN)  # fmt: skip
    else:
        report.verdict(WARN, "both nodes: path MTU", "not known: no ibv_devinfo here", "install ibverbs-utils and run this again, or compare the MTU by hand")
    speeds = sorted({d["mbps"] for node in (a, b) for d in node.devices})
    report.judge(len(speeds) == 1, "both nodes: speed", " and ".join(f"{s / 1000:g} Gb/s" for s in speeds),
                 "a standby that is slower than its primary slows the job down while it stands in", WARN)  # fmt: skip
    firmware = {(device["model"], device["firmware"]) for node in (a, b) for device, _, _ in ports_in_use(node)}
    mixed = len(firmware) > len({model for model, _ in firmware})
    report.judge(not mixed, "both nodes: firmware", "differs between devices of one model" if mixed else "alike",
                 "bring all devices of a model to one firmware", WARN)  # fmt: skip
    same("kernel", (a.facts["kernel"], b.facts["kernel"]), "no harm by itself; worth knowing when only one node misbehaves")


def judge(report, nodes):
    for node in nodes:
        judge_node(report, node)
    if all(node.devices for node in nodes):
        judge_both(report, *nodes)
