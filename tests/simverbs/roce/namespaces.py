# SPDX-License-Identifier: Apache-2.0
"""Two hosts in network namespaces of their own, with two rails between them: pairs of virtual interfaces.

Nothing of it is outside: whatever ends this process, the kernel takes all of it away. Needs no privileges where
ordinary users may have namespaces."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time

RAILS = (0, 1)
MTU = {0: 4200, 1: 1500}  # path MTUs of 4096 and 1024
INSIDE = "ROCE_TEST_INSIDE"
SKIP = 77
PR_SET_PDEATHSIG = 1
LINK_LIMIT_S = 20


def go_inside():
    """Runs this program again in a network namespace of its own, or skips it."""
    if os.environ.get(INSIDE):
        return
    for flags in (["-n"], ["-Urn"]):
        if subprocess.run(["unshare", *flags, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            os.environ[INSIDE] = "1"
            os.execvp("unshare", ["unshare", *flags, sys.executable, "-B", *sys.argv])
    print("SKIP: no network namespace may be had here")
    sys.exit(SKIP)


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def wait_listening(port, limit_s):
    """Until somebody listens there in this namespace, which is the test's; False: nobody does."""
    until = time.monotonic() + limit_s
    wanted = f":{port:04X} "
    while time.monotonic() < until:
        for kind in ("tcp", "tcp6"):
            with open(f"/proc/net/{kind}", encoding="ascii") as file:
                if any(wanted in line and " 0A " in line for line in file):
                    return True
        time.sleep(0.02)
    return False


def wait_link(name, is_so, inside=()):
    """Until what the kernel says of an interface is so: of a carrier it tells up to a second after it came or went,
    and what is opened before goes by what it had told."""
    until = time.monotonic() + LINK_LIMIT_S
    while not is_so(subprocess.check_output([*inside, "ip", "-d", "-o", "link", "show", name], text=True)):
        if time.monotonic() > until:
            raise RuntimeError(f"the link of {name} does not become what it was made")
        time.sleep(0.01)


def is_up(said):
    return " state UP " in said


class Host:
    """One end: a namespace, and how to run something there."""

    def __init__(self, name, pid):
        self.name, self.number = name, "ab".index(name) + 1
        self.inside = ["nsenter", "-t", str(pid), "-n"] if pid else []
        self.address = f"10.99.2.{self.number}"  # of the interface for sockets

    def ip(self, *words):
        subprocess.run([*self.inside, "ip", *words], check=True)

    def start(self, argv, env=None, **options):
        return subprocess.Popen([*self.inside, *argv], env={**os.environ, **(env or {})}, preexec_fn=die_with_parent,
                                **options)  # fmt: skip

    def set_up_rail(self, rail):
        """Also after its interface was down: that takes its IPv6 addresses away."""
        name = f"rail{rail}"
        self.ip("addr", "replace", f"10.99.{rail}.{self.number}/24", "dev", name)
        # Else its own address of the link is to be had only seconds later, as another GID.
        subprocess.run([*self.inside, "sh", "-c", f"echo 0 >/proc/sys/net/ipv6/conf/{name}/accept_dad"], check=True)
        self.ip("link", "set", name, "up")
        self.ip("addr", "replace", f"fd00:99:{rail}::{self.number}/64", "dev", name, "nodad")

    def wait_up(self, interface):
        wait_link(interface, is_up, self.inside)

    def silence(self, rail):
        """What it sends by this rail is lost, and nobody is told: a queue that has room for nothing."""
        subprocess.run([*self.inside, "tc", "qdisc", "replace", "dev", f"rail{rail}", "root", "pfifo", "limit", "0"],
                       check=True)  # fmt: skip

    def hear_again(self, rail):
        subprocess.run([*self.inside, "tc", "qdisc", "del", "dev", f"rail{rail}", "root"], check=True)

    def lost_in_silence(self, rail):
        told = subprocess.run([*self.inside, "tc", "-s", "qdisc", "show", "dev", f"rail{rail}"], check=True,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
        return int(re.search(r"dropped (\d+)", told.stdout)[1])

    def set_up(self):
        self.ip("link", "set", "lo", "up")
        for rail in RAILS:
            self.set_up_rail(rail)
        self.ip("addr", "add", f"{self.address}/24", "dev", "sockets")
        self.ip("link", "set", "sockets", "up")


class Pair:
    """Hosts a (this process's namespace) and b."""

    def __init__(self):
        self.other = subprocess.Popen(["unshare", "-n", "sleep", "infinity"], preexec_fn=die_with_parent)
        self.links = []
        self.wait_for_namespace()
        for rail in RAILS:
            name, mtu = f"rail{rail}", str(MTU[rail])
            ip("link", "add", name, "mtu", mtu, "type", "veth", "peer", "name", name, "mtu", mtu, "netns",
               str(self.other.pid))  # fmt: skip
            self.links.append(name)
        ip("link", "add", "sockets", "type", "veth", "peer", "name", "sockets", "netns", str(self.other.pid))
        self.links.append("sockets")
        self.hosts = [Host("a", None), Host("b", self.other.pid)]
        for host in self.hosts:
            host.set_up()
        self.wait_up()

    def wait_up(self):
        for host in self.hosts:
            for rail in RAILS:
                host.wait_up(f"rail{rail}")

    def wait_for_namespace(self):
        until = time.monotonic() + 10
        while os.readlink(f"/proc/{self.other.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            if time.monotonic() > until:
                raise RuntimeError("the other namespace does not come")
            time.sleep(0.01)

    def close(self):
        """The links first: those of a namespace that ends go some time after it."""
        for name in self.links:
            ip("link", "del", name)
        self.other.kill()
        self.other.wait()
