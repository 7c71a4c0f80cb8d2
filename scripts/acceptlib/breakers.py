# SPDX-License-Identifier: Apache-2.0
"""The ways to take a link down for the drill, what each needs, and what must not be taken down."""

import json
import re

from . import wire


class Refused(Exception):
    """This way cannot, or must not, be taken here; says why."""


class Breaker:
    """Commands that take one port of a node down and bring it up again, and how to see its state."""

    def __init__(self, title, down, up, state):
        self.title, self.down, self.up, self.state = title, down, up, state


def privileged(node, argv):
    if node.facts["root"] is None:
        raise Refused(f"{argv[0]} needs root on node {node.name}, or sudo without a password")
    return argv if node.facts["root"] == "root" else ["sudo", "-n", *argv]


def port_facts(node, port):
    device = next(d for d in node.facts["devices"] if d["name"] == port["name"])
    return next(p for p in device["ports"] if p["port"] == port["port"])


# ---- what must stay up ------------------------------------------------------------------------------------


def protected_interfaces(node, other):
    """{interface: why it must stay up}"""
    found = {}

    def protect(name, why):
        if name:
            found.setdefault(name, why)

    protect(node.interface, "the bootstrap sockets go over it")
    for name in node.facts["default_routes"]:
        protect(name, "a default route goes over it")
    addresses = {other.address: "it leads to the other node's bootstrap address"}
    if node.facts["ssh"]:
        addresses[node.facts["ssh"].split()[0]] = "ssh comes in over it"
    for address, why in addresses.items():
        if address:
            protect(node.call("route", address=address), why)
    by_name = {i["name"]: i for i in node.facts["interfaces"]}
    for name, why in list(found.items()):
        for below in by_name.get(name, {}).get("lower", []):
            protect(below, f"{name} is on top of it, and {why}")
    return found


def check_interface(node, other, name):
    why = protected_interfaces(node, other).get(name)
    if why:
        raise Refused(f"{name} of node {node.name} stays up: {why}")
    interface = next((i for i in node.facts["interfaces"] if i["name"] == name), None)
    if interface and interface["upper"]:
        raise Refused(f"{name} of node {node.name} has {', '.join(interface['upper'])} on top of it, which would not come back by itself")


# ---- ip ------------------------------------------------------------------------------------------------------

UNDONE_BY_DOWN = ("-4", "-6")


def ip_json(node, *words):
    done = node.call("run", argv=[node.facts["tools"]["ip"], "-j", *words], limit_s=20)
    return json.loads(done["out"] or "[]") if done["status"] == 0 else []


def lost_addresses(node, name):
    """IPv6 addresses that somebody gave the interface: the kernel forgets them when it goes down."""
    for entry in ip_json(node, "-6", "addr", "show", "dev", name):
        for info in entry.get("addr_info", []):
            if info.get("scope") == "global" and not info.get("dynamic"):
                yield f"{info['local']}/{info['prefixlen']}"


def lost_routes(node, name):
    """(family, words): routes over the interface that the kernel did not make itself."""
    for family in UNDONE_BY_DOWN:
        done = node.call("run", argv=[node.facts["tools"]["ip"], family, "route", "show", "table", "all", "dev", name], limit_s=20)
        for line in done["out"].splitlines():
            words = [word for word in line.split() if word not in ("linkdown", "dead")]
            kind = words[0] if words else ""
            if kind == "nexthop":
                raise Refused(f"{name} of node {node.name} carries a route with several next hops, which this script cannot put back")
            if not words or kind in ("local", "broadcast", "multicast", "anycast") or "kernel" in words or "ra" in words:
                continue
            yield family, words


def ip_breaker(node, other, port):
    if not node.facts["tools"]["ip"]:
        raise Refused(f"no ip on node {node.name}: install iproute2")
    if port["layer"] != "RoCE":
        raise Refused(f"{port['full']} is InfiniBand: ip takes only its IP interface down. Use --drill mlxlink")
    name = next((entry["netdev"] for entry in port_facts(node, port)["gids"] if entry["index"] == port["gid_index"]), None)
    name = name or next(iter(port_facts(node, port)["netdevs"]), None)
    if not name:
        raise Refused(f"{port['full']} of node {node.name} has no interface that ip could take down")
    check_interface(node, other, name)
    ip = node.facts["tools"]["ip"]
    up = [[ip, "link", "set", "dev", name, "up"]]
    up += [[ip, "-6", "addr", "replace", address, "dev", name] for address in lost_addresses(node, name)]
    up += [[ip, family, "route", "replace", *words, "dev", name] for family, words in lost_routes(node, name)]
    return Breaker(
        f"ip link set {name} down",
        [privileged(node, [ip, "link", "set", "dev", name, "down"])],
        [privileged(node, argv) for argv in up],
        lambda: sysfs_state(node, port),
    )


# ---- mlxlink -------------------------------------------------------------------------------------------------


def mlxlink_breaker(node, other, port):
    tool = node.facts["tools"]["mlxlink"] or node.facts["tools"]["mstlink"]
    if not tool:
        raise Refused(f"neither mlxlink nor mstlink on node {node.name}: install MFT or mstflint")
    for name in port_facts(node, port)["netdevs"]:
        check_interface(node, other, name)
    argv = [tool, "-d", port["name"], "-p", str(port["port"]), "--port_state"]
    return Breaker(
        f"mlxlink -d {port['name']} -p {port['port']} --port_state DN",
        [privileged(node, [*argv, "DN"])],
        [privileged(node, [*argv, "UP"])],
        lambda: sysfs_state(node, port),
    )


def sysfs_state(node, port):
    path = f"/sys/class/infiniband/{port['name']}/ports/{port['port']}/state"
    text = node.call("run", argv=["cat", path], limit_s=20)["out"]
    return {"ACTIVE": "up", "DOWN": "down"}.get(text.split(":")[-1].strip(), text.strip() or "unknown")


# ---- simverbs ----------------------------------------------------------------------------------------------


def simverbs_breaker(node, _, port):
    fabric, host, tool = node.facts["fabric"], node.facts["fabric_host"], node.about["simverbs"] or node.facts["tools"]["simverbs"]
    match = re.fullmatch(r"sim(\d+)", port["name"])
    if fabric is None or host is None or not match:
        raise Refused(f"{port['full']} is on no simulated fabric")
    if not tool:
        raise Refused("the simverbs tool is not found")
    rail = int(match[1])
    argv = [tool, "link", fabric, str(host), str(rail)]

    def state():
        done = node.call("run", argv=[tool, "status", fabric, "--json"], limit_s=20)
        for device in json.loads(done["out"])["devices"]:
            if (device["host"], device["rail"]) == (host, rail):
                return device["link"]
        raise wire.NodeError(f"fabric {fabric} has no host {host} with rail {rail}")

    return Breaker(f"simverbs link {fabric} {host} {rail} down", [[*argv, "down"]], [[*argv, "up"]], state)


# ---- by hand -----------------------------------------------------------------------------------------------


def operator_breaker(node, _, port):
    """Nothing is run: somebody at the switch or the cable does it when told to."""
    return Breaker(f"somebody takes {port['full']} of node {node.host} down", [], [], lambda: sysfs_state(node, port))


BREAKERS = {"ip": ip_breaker, "mlxlink": mlxlink_breaker, "simverbs": simverbs_breaker, "operator": operator_breaker}


def automatic(node, port):
    """The way that suits a port."""
    if node.facts["fabric"] is not None:
        return "simverbs"
    return "ip" if port["layer"] == "RoCE" else "mlxlink"
