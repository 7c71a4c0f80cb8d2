# SPDX-License-Identifier: Apache-2.0
"""The networks of the labs, and what can be done to them.

    one     one guest that is both hosts: two pairs of veth, an rxe device on each end
    two     a guest per host: two rails between them, and a third network for sockets
    three   a guest per host and one, 's', that is a switch that adds: one network joins all, and has their sockets, too

In the first two, host 'a' has the RDMA devices and interfaces a0 and a1, host 'b' has b0 and b1, and rail N joins
aN and bN. In `one` everything is in the initial network namespace, because rxe knows no other: processes
choose their devices by name, and a link that goes down takes the carrier of its other end along."""

import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import machine

RAILS = (0, 1)
NETWORKS = (0, 1, 2)  # the rails and, in lab `two`, the one for sockets
HOSTS = ("a", "b")
GUESTS = (*HOSTS, "s")
DRIVER = "/sys/bus/virtio/drivers/virtio_net"
MTU = 4200  # of an interface, for a path MTU of 4096
DEFAULT_LIMIT_S = machine.CALL_LIMIT_S


def interface(host, rail):
    return f"{host}{rail}"


def peer_of(host):
    return "b" if host == "a" else "a"


def mac(host, rail):
    return f"52:54:00:00:{rail:02x}:{GUESTS.index(host) + 1:02x}"


def first_address(host, rail):
    return f"10.77.{rail}.{GUESTS.index(host) + 1}"


class Host:
    """One host of a lab: what its links, devices and processes can be made to do."""

    def __init__(self, name, guest, sockets=2):
        """sockets: the network for bootstrap sockets of a host that has a guest of its own."""
        self.name, self.guest = name, guest
        self.addresses = {rail: first_address(name, rail) for rail in RAILS}
        self.scratch = "/run"  # a folder in the guest's memory
        self.impaired = set()  # rails with netem
        own = guest.name in GUESTS
        self.socket_interface = interface(name, sockets) if own else "lo"
        self.socket_address = first_address(name, sockets) if own else "127.0.0.1"

    def link(self, rail, state):
        """'down' or 'up'. Returns the guest's clock just before and just after."""
        return link(self.guest, [(self, rail)], state)

    def netem(self, rail, rules):
        """Packets that leave by this rail: the words of tc-netem, such as 'loss 100%'; None ends it.
        Returns the guest's clock before and after the command, which takes effect in between."""
        name = interface(self.name, rail)
        before = self.guest.call("clock")["now_ns"]
        (self.impaired.discard if rules is None else self.impaired.add)(rail)
        if rules is None:
            self.guest.run(f"tc qdisc del dev {name} root", check=False)
        else:
            self.guest.run(["tc", "qdisc", "replace", "dev", name, "root", "netem", *rules.split()])
        return before, self.guest.call("clock")["now_ns"]

    def netem_packets(self, rail):
        """Packets that netem has let through, and thrown away."""
        text = self.run(["tc", "-s", "qdisc", "show", "dev", interface(self.name, rail)]).out
        found = re.search(r"netem.*?Sent \d+ bytes (\d+) pkt.*?dropped (\d+)", text, re.DOTALL)
        return dict(zip(("netem_passed", "netem_dropped"), map(int, found.groups()))) if found else {}

    def start(self, argv, env=None, **options):
        return self.guest.start_process(argv, env, **options)

    def run(self, command, limit_s=DEFAULT_LIMIT_S, check=True):
        return self.guest.run(command, limit_s, check)

    def counters(self, rail):
        """The kernel's own: of the RDMA device ("rdma."), of its interface ("net.")."""
        name = interface(self.name, rail)
        patterns = {
            "rdma": f"/sys/class/infiniband/{name}/ports/1/hw_counters/*",
            "net": f"/sys/class/net/{name}/statistics/*",
        }
        files = self.guest.call("read", patterns=list(patterns.values()))["files"]
        found = {}
        for path, text in files.items():
            kind = "rdma" if "/infiniband/" in path else "net"
            if re.fullmatch(r"\d+", text):
                found[f"{kind}.{os.path.basename(path)}"] = int(text)
        return found

    def tail(self, path, offset):
        """What a file in the guest has from this offset on: at most 64 KB of plain text."""
        return self.guest.call("tail", path=path, offset=offset)["text"]

    def gids(self, rail):
        """{index: GID} of a device, without the empty ones."""
        folder = f"/sys/class/infiniband/{interface(self.name, rail)}/ports/1/gids"
        files = self.guest.call("read", patterns=[f"{folder}/*"])["files"]
        return {int(os.path.basename(path)): gid for path, gid in files.items() if gid.strip("0:")}

    def port_state(self, rail):
        path = f"/sys/class/infiniband/{interface(self.name, rail)}/ports/1/state"
        return self.guest.call("read", patterns=[path])["files"].get(path, "gone")


def link(guest, ends, state):
    """Interfaces of one guest, all at once: pairs of a host and a rail."""
    names = [interface(host.name, rail) for host, rail in ends]
    answer = guest.call("link", names=names, up={"up": True, "down": False}[state])
    return answer["before_ns"], answer["after_ns"]


class Lab:
    """A lab that is up. close() ends it."""

    def __init__(self, name, image, build, tree, *, kvm=False, cables="unix", say=lambda text: None):
        """cables: of lab `two`, see cable()."""
        self.name, self.cables, self.say = name, cables, say
        self.machines, self.hosts = [], {}
        self.unbound = {}  # (host, rail): the process that takes the device away
        self.folder = machine.Folder()
        self.about = {"image": image, "folder": self.folder, "tree": tree, "kvm": kvm,
                      "guest": os.path.join(build, "tests", "lab", "lab-guest")}  # fmt: skip
        try:
            {"one": self.start_one, "two": self.start_two, "three": self.start_three}[name]()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for guest in self.machines:
            guest.close()
        self.folder.close()

    def host(self, name):
        return self.hosts[name]

    def link(self, hosts, rail, state):
        """The rail's ends at these hosts, all at once. Returns for each of their guests what its clock said just before
        and just after: {host: (ns, ns)}."""
        guests = {self.hosts[name].guest: name for name in hosts}

        def act(guest):
            return link(guest, [(self.hosts[name], rail) for name in hosts if self.hosts[name].guest is guest], state)

        with ThreadPoolExecutor(len(guests)) as pool:
            return dict(zip(guests.values(), pool.map(act, guests)))

    def lost_ns(self):
        """What its guests have lost to the host so far, and the host to others: totals for standstill.Record."""
        totals = machine.stolen_ns()
        for guest in self.machines:
            totals.update(guest.waited_ns())
        return totals

    def stuck_cards(self):
        """Cards that QEMU has stopped to take packets from: as a kernel says that had a queue full of them, or as it
        shows where traffic had gone elsewhere before the queue was full."""
        return [card for guest in self.machines for card in guest.stuck_cards()] or self.silent_rails()

    def silent_rails(self):
        """Heals the lab, and returns the rails over which not even the kernel's own packets are answered then: at
        least 5 in 10 s. None in a lab of one machine, which has no such cards."""
        if len(self.machines) == 1 or self.unbound:
            return []
        self.heal()
        ping = "for i in 1 2 3 4 5; do busybox ping -c 1 -W 2 {} && exit; done; exit 1"
        pings = {rail: ping.format(self.host("b").addresses[rail]) for rail in RAILS}
        return [f"a{rail} or b{rail}" for rail in RAILS if self.host("a").run(pings[rail], 30, check=False).status != 0]

    def heal(self):
        """Takes back whatever was done to the network. Nobody may have devices open that are unbound."""
        for name, host in self.hosts.items():
            if self.name == "two":
                self.thaw(name)
            for rail in RAILS:
                self.heal_rail(name, host, rail)

    def heal_rail(self, name, host, rail):
        if (name, rail) in self.unbound:
            self.unbound.pop((name, rail)).wait()
            self.bind(name, rail)
        if self.name == "two":
            self.set_link(name, rail, "on")
        if rail in host.impaired:
            host.netem(rail, None)
        host.link(rail, "up")
        if host.addresses[rail] != first_address(name, rail):
            self.address(name, rail, first_address(name, rail))

    # ---- one guest ----

    def start_one(self):
        guest = machine.Machine("guest", cpus=2, memory_mb=512, **self.about)
        self.machines = [guest]
        guest.start()
        guest.ready()
        lines = []
        for rail in RAILS:
            a, b = interface("a", rail), interface("b", rail)
            lines.append(f"link add {a} mtu {MTU} address {mac('a', rail)} type veth "
                         f"peer name {b} mtu {MTU} address {mac('b', rail)}")  # fmt: skip
            lines += [f"addr add {first_address(host, rail)}/24 dev {interface(host, rail)}" for host in HOSTS]
            lines += [f"link set {interface(host, rail)} up" for host in HOSTS]
        guest.run(f"""set -e
            for conf in all default; do
                echo 1 >/proc/sys/net/ipv4/conf/$conf/accept_local
                echo 0 >/proc/sys/net/ipv4/conf/$conf/rp_filter
            done
            ip -batch - <<'END'\n{os.linesep.join(lines)}\nEND
            {add_devices(HOSTS)}""")
        self.hosts = {name: Host(name, guest) for name in HOSTS}
        for host in self.hosts.values():
            for rail in RAILS:
                self.introduce(host, rail)

    # ---- a guest per host ----

    def start_two(self):
        ends = {host: [] for host in HOSTS}  # a socket per network
        for _ in NETWORKS:
            for host, end in zip(HOSTS, cable(self.cables)):
                ends[host].append(end)
        networks = {host: {network: wire(end, f"net{network}") for network, end in zip(NETWORKS, ends[host])} for host in HOSTS}
        self.start_guests(networks, ends)
        for name, guest in zip(HOSTS, self.machines):
            self.hosts[name] = Host(name, guest)
            self.name_cards(self.hosts[name], NETWORKS, add_devices([name]))

    def start_guests(self, networks, ends):
        """networks: QEMU's words for each of a guest's, by its number. ends: the sockets in them."""
        try:
            for name, own in networks.items():
                guest = machine.Machine(name, memory_mb=384, devices=cards(name, own), **self.about)
                self.machines.append(guest)
                guest.start(inherit=ends[name])
        finally:
            for end in sum(ends.values(), []):
                end.close()
        for guest in self.machines:
            guest.ready()

    def name_cards(self, host, networks, then):
        # No address is anybody else's: it can be used at once, and not after a second or two.
        host.guest.run(f"""set -e
            for dad in /proc/sys/net/ipv6/conf/*/accept_dad; do echo 0 >"$dad"; done
            ip -batch - <<'END'\n{os.linesep.join(link_lines(host.guest, host.name, networks))}\nEND
            {then}""")

    # ---- two hosts and a switch ----

    def start_three(self):
        """Host a's QEMU is the hub that joins them: it goes on whatever becomes of the others."""
        ends = {name: [] for name in GUESTS}
        for name in GUESTS[1:]:
            for guest, end in zip(("a", name), cable("unix")):
                ends[guest].append(end)
        networks = {name: {0: wire(ends[name][0], "net0")} for name in GUESTS[1:]}
        self.start_guests({"a": {0: hub(ends["a"], "net0")}, **networks}, ends)
        for name, guest in zip(GUESTS, self.machines):
            self.hosts[name] = Host(name, guest, sockets=0)
            self.name_cards(self.hosts[name], [0], add_devices([name] if name in HOSTS else [], [0]))

    # ---- faults that QEMU makes ----

    def set_link(self, host, rail, state):
        """'off' pulls the cable of one end's card, 'on' puts it back. Lab `two` only."""
        self.own_guest(host).set_link(card(rail), {"on": True, "off": False}[state])

    def halt(self, host):
        """Its machine is without power from now on. Not in lab `one`."""
        self.own_guest(host).halt()

    def freeze(self, host):
        """Stops its guest's processors. Not in lab `one`."""
        self.own_guest(host).freeze()

    def thaw(self, host):
        self.own_guest(host).thaw()

    def own_guest(self, host):
        if self.name == "one":
            raise machine.LabError(f"host {host} of lab {self.name} has no machine of its own")
        return self.hosts[host].guest

    # ---- faults that differ between the labs ----

    def address(self, host, rail, address=None):
        """Gives an interface another address, and its device so another GID. Returns the address."""
        host = self.hosts[host]
        name, old = interface(host.name, rail), host.addresses[rail]
        # The next one of its own: first_address() are .1 and .2.
        address = address or re.sub(r"\d+$", lambda last: str(int(last[0]) + len(HOSTS)), old)
        host.addresses[rail] = address
        # Without the first line the new address, being of the same network, would go with the old one.
        host.guest.run(f"""echo 1 >/proc/sys/net/ipv4/conf/all/promote_secondaries
            ip -batch - <<'END'\naddr add {address}/24 dev {name}\naddr del {old}/24 dev {name}\nEND""")
        if self.name == "one":
            self.introduce(host, rail)
        return address

    def unbind(self, host, rail):
        """Takes the RDMA device away: in `one` by itself, in `two` by taking its card from its driver.
        Does not wait for it: the kernel waits for those who have the device open."""
        host = self.hosts[host]
        name = interface(host.name, rail)
        argv = ["rdma", "link", "delete", name]
        if self.name == "two":
            script = f"""card=$(basename "$(readlink /sys/class/net/{name}/device)")
                echo "$card" >/run/unbound.{name}; echo "$card" >{DRIVER}/unbind"""
            argv = ["sh", "-c", script]
        self.unbound[host.name, rail] = host.start(argv)

    def bind(self, host, rail):
        """What unbind() took away is there again."""
        host = self.hosts[host]
        if self.name == "two":
            host.run(f"cat /run/unbound.{interface(host.name, rail)} >{DRIVER}/bind")
            lines = link_lines(host.guest, host.name, [rail], host.addresses)
            host.run(f"ip -batch - <<'END'\n{os.linesep.join(lines)}\nEND")
        host.run(add_devices([host.name], [rail]))

    def introduce(self, host, rail):
        """Tells the peer's interface where this host's address is. ARP between two interfaces of one
        host is no reliable thing."""
        peer = self.hosts[peer_of(host.name)]
        peer.guest.call("neighbour", dev=interface(peer.name, rail), address=host.addresses[rail],
                        mac=mac(host.name, rail))  # fmt: skip


def add_devices(hosts, rails=RAILS):
    """Shell commands that put an rxe device on each of these interfaces."""
    names = [interface(host, rail) for host in hosts for rail in rails]
    return "\n".join(f"rdma link add {name} type rxe netdev {name}" for name in names)


# ---- cards and cables between two guests ----------------------------------------------------------


def cable(kind):
    """The two ends of a network, as sockets by which QEMU sends a frame at a time. "unix" loses nothing but
    waits for a guest that does not take its frames, "udp" drops what a frozen guest does not take."""
    if kind == "unix" or not machine.has_netdev("dgram"):
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in HOSTS]
    for end in ends:
        end.bind(("127.0.0.1", 0))
    for end, other in zip(ends, reversed(ends)):
        end.connect(other.getsockname())
    return ends


def card(network):
    return f"card{network}"


def wire(end, name):
    """QEMU's words for what is at the other end of a socket."""
    # QEMU before 7.2 (Ubuntu 22.04 has 6.2) takes such a socket under another name.
    socket_of = "dgram,local.type=fd,local.str=%d" if machine.has_netdev("dgram") else "socket,fd=%d"
    return ["-netdev", f"{socket_of % end.fileno()},id={name}"]


def hub(ends, name):
    """QEMU's words for a network that joins a card and these sockets."""
    words = ["-netdev", f"hubport,hubid=0,id={name}"]
    for number, end in enumerate(ends):
        words += [*wire(end, f"wire{number}"), "-netdev", f"hubport,hubid=0,id=port{number},netdev=wire{number}"]
    return words


def cards(host, networks):
    """QEMU's words for a card in each network, each in a slot of its own. networks: words for each, by its number."""
    words = []
    for network, joins in networks.items():
        words += [
            *joins,
            "-device", f"pcie-root-port,id=slot{network},chassis={network + 1},slot={network + 1}",
            "-device", f"virtio-net-pci,id={card(network)},bus=slot{network},netdev=net{network},romfile=,"
                       f"speed=100000,duplex=full,mac={mac(host, network)}",
        ]  # fmt: skip
    return words


def link_lines(guest, host, networks, addresses=None):
    """ip's words that give the cards of a guest their names and addresses."""
    files = guest.call("read", patterns=["/sys/class/net/*/address"])["files"]
    found = {address: path.split("/")[4] for path, address in files.items()}
    lines = []
    for network in networks:
        name, address = interface(host, network), (addresses or {}).get(network) or first_address(host, network)
        if mac(host, network) not in found:
            raise machine.LabError(f"{guest.name}: the card of network {network} is not there: {found}")
        lines.append(f"link set {found[mac(host, network)]} name {name} mtu {MTU if network in RAILS else 1500}")
        lines += [f"addr add {address}/24 dev {name}", f"link set {name} up"]
    return lines
