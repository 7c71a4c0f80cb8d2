# SPDX-License-Identifier: Apache-2.0
"""What the plugin's event logs of both ends say of their connections: which paths there are, which of them
are proved, and which one is in use."""

import re

# "recv 1ba0a413 (host:12582 sim0:1 <- host:12583 sim1:1)"
NAME = re.compile(r"(send|recv) \S+ \(\S+ (\S+) (?:->|<-) \S+ (\S+)\)")
ENDS = ("send", "recv")


class Connection:
    """The receiving end decides, so what it says of paths counts."""

    def __init__(self):
        self.ports = {"send": {}, "recv": {}}  # path: local port there
        self.nodes = {}  # end: which node it is on
        self.good = set()  # paths
        self.active = {"send": 0, "recv": 0}
        self.switches = {"send": [], "recv": []}  # events

    def take(self, node, event):
        match = NAME.match(event["name"] or "")
        if not match:
            return
        end, local, remote = match.groups()
        self.nodes[end] = node
        self.ports[end].setdefault(0, local)
        self.ports["recv" if end == "send" else "send"].setdefault(0, remote)
        source, target = event["from"] or {}, event["to"] or {}
        for place in (source, target):
            if place.get("path") is not None:
                self.ports[end][place["path"]] = place["port"]
        if end == "recv" and event["kind"] == "failure":
            self.good.discard(source.get("path"))
        elif end == "recv" and event["kind"] == "recovery":
            self.good.add(target["path"])
        if event["kind"] == "switch":
            self.active[end] = target["path"]
            self.switches[end].append(event)

    def ports_of(self, path):
        """(sender's, receiver's)"""
        return tuple(self.ports[end].get(path) for end in ENDS)

    def standbys(self):
        """Proved paths that share neither port with the one in use."""
        mine = self.ports_of(self.active["recv"])
        found = []
        for path in sorted(self.good - {self.active["recv"]}):
            theirs = self.ports_of(path)
            if all(a and b and a != b for a, b in zip(mine, theirs)):
                found.append(path)
        return found

    def is_protected(self):
        return self.active["send"] == self.active["recv"] and self.active["recv"] in self.good and bool(self.standbys())


class Connections:
    """All of a run. `take` gets each line of each node's log once."""

    def __init__(self):
        self.all = {}  # by number
        self.events = []

    def take(self, node, event):
        self.events.append({**event, "node": node})
        if event.get("connection") is not None:
            self.all.setdefault(event["connection"], Connection()).take(node, event)

    def are_protected(self, expected):
        return len(self.all) >= expected and all(c.is_protected() for c in self.all.values())

    def switches(self):
        """How often each end has moved."""
        return {(key, end): len(c.switches[end]) for key, c in self.all.items() for end in ENDS}
