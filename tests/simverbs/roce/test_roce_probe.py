# SPDX-License-Identifier: Apache-2.0
"""The probe of verbs on two devices of the RoCE wire, at the ends of virtual interfaces: simverbs answers over real
packets as it does on a fabric of its own, or as the kernel does. `here`: one process has both. `between`: each has a
process in a network namespace of its own, and one asks the other."""

import os
import subprocess
import sys
from functools import partial

import namespaces

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(HERE, "..", "..", "lab")
sys.path.insert(0, LAB)
import probe_answers  # noqa: E402
import probe_run  # noqa: E402

BUILD = os.environ["BUILD"]
PROBE = os.path.join(BUILD, "tests", "lab", "probe", "lab-probe")
RECORD = os.path.join(LAB, "probe", "kernel-6.1.answers")
TABLE = os.path.join(HERE, "..", "..", "..", "docs", "simverbs.md")
ENDS = {"a0": ("10.98.0.1", "52:54:00:98:00:01"), "b0": ("10.98.0.2", "52:54:00:98:00:02")}


def shell(script):
    subprocess.run(["sh", "-ec", script], check=True)


def silence(interface, on):
    """What leaves by it is lost: a queue that has room for nothing."""
    shell(f"tc qdisc {'replace' if on else 'del'} dev {interface} root {'pfifo limit 0' if on else ''}")


def env_of(interfaces, mode):
    return {**os.environ, "LD_LIBRARY_PATH": os.path.join(BUILD, "simverbs"), "SIMVERBS_ROCE": interfaces,
            "SIMVERBS_ROCE_MODE": mode}  # fmt: skip


class Here:
    """Without IPv6: addresses that come and go with the link are events, too."""

    def __init__(self):
        (a, mac_a), (b, mac_b) = ENDS.values()
        shell(f"""ip link set lo up
            ip link add a0 mtu 4200 address {mac_a} type veth peer name b0 mtu 4200 address {mac_b}
            ip link set a0 addrgenmode none
            ip link set b0 addrgenmode none
            ip addr add {a}/24 dev a0
            ip addr add {b}/24 dev b0
            ip link set a0 up
            ip link set b0 up""")
        self.wait(namespaces.is_up)
        self.introduce()

    @staticmethod
    def wait(is_so):
        for name in ENDS:
            namespaces.wait_link(name, is_so)

    @staticmethod
    def introduce():
        """Both ends are in one namespace, where nobody asks for the other's address."""
        for name, (_, _), (address, mac) in (("a0", *ENDS.values()), ("b0", *reversed(ENDS.values()))):
            shell(f"ip neigh replace {address} lladdr {mac} dev {name} nud permanent")

    def link(self, state):
        shell(f"ip link set a0 {state}")
        self.wait(namespaces.is_up if state == "up" else lambda said: not namespaces.is_up(said))
        if state == "up":
            self.introduce()

    @staticmethod
    def silence(on):
        for name in ENDS:
            silence(name, on)

    @staticmethod
    def ask(do, *group):
        start = partial(subprocess.Popen, env=env_of("a0,b0", "packet"))
        return probe_run.ask(start, [PROBE, "sv_a0", "sv_b0", *group], do)


class Between:
    """A switch is between them: what becomes of one's link the other does not see."""

    PORTS = ("port-a", "port-b")

    def __init__(self):
        self.pair = namespaces.Pair()
        self.hosts = self.pair.hosts
        shell("ip link add switch type bridge && ip link set switch up")
        for host, port in zip(self.hosts, self.PORTS):
            inside = ["netns", str(self.pair.other.pid)] if host.inside else []
            namespaces.ip("link", "add", port, "mtu", "4200", "type", "veth", "peer", "name", "wire", "mtu", "4200", *inside)
            shell(f"ip link set {port} master switch && ip link set {port} up")
            host.ip("link", "set", "wire", "addrgenmode", "none")
            host.ip("addr", "add", f"10.98.1.{host.number}/24", "dev", "wire")
            host.ip("link", "set", "wire", "up")
        self.wait_up()

    def wait_up(self):
        for host, port in zip(self.hosts, self.PORTS):
            host.wait_up("wire")
            namespaces.wait_link(port, lambda said: "state forwarding" in said)

    def link(self, state):
        self.hosts[0].ip("link", "set", "wire", state)
        if state == "up":
            self.wait_up()

    def silence(self, on):
        for port in self.PORTS:
            silence(port, on)

    def ask(self, do, *group):
        env = env_of("wire", os.environ["SIMVERBS_ROCE_MODE"])
        asks, serves = (partial(host.start, env=env) for host in self.hosts)
        with probe_run.served(serves, [PROBE, "serve", "sv_wire"], self.hosts[1].address) as peer:
            return probe_run.ask(asks, [PROBE, "sv_wire", peer, *group], do)


def do(place, what):
    """What the probe asks its driver for."""
    word, state = what.split()
    if word == "link":
        place.link(state)
    elif word == "silence":
        place.silence(state == "on")
    else:
        sys.exit(f"the probe asks for '{what}', which nobody here can do")


def main(name, *group):
    place = {"here": Here, "between": Between}[name]()
    lines = place.ask(partial(do, place), *group)
    if group:
        print("\n".join(lines))
        return
    ours = probe_answers.parse(lines)
    kernel = probe_answers.read(RECORD)
    with open(TABLE, encoding="utf-8") as file:
        listed = probe_answers.parse_table(file.read())
    faults = probe_answers.strange(ours, kernel, listed)
    print(f"{len(ours)} answers, {sum(ours[name] == kernel.get(name) for name in ours)} of them the kernel's, {len(faults)} faults")
    print("\n".join(faults))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    namespaces.go_inside()
    main(*sys.argv[1:])
