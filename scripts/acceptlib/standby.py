# SPDX-License-Identifier: Apache-2.0
"""Why a port stands by for another one: the plugin's criteria (docs/devices.md), worked out again from sysfs,
independently of the plugin, so that its choice can be explained and a strange one is noticed."""

import re

SWITCH, ROOT, NUMA, FAR = "behind the same PCI switch", "below the same root port", "on the same NUMA node", "on another NUMA node"
DISTANCES = ("the same PCI device", SWITCH, ROOT, NUMA, FAR)


def below_devices(path):
    """From the host bridge on, or nothing."""
    match = re.search(r".*/devices/(pci.*)$", path or "")
    return match[1].split("/") if match else []


def distance(a, b):
    """Of two devices, {"pci": path, "numa": node}: an index of DISTANCES."""
    left, right = below_devices(a["pci"]), below_devices(b["pci"])
    same_numa = a["numa"] is not None and a["numa"] >= 0 and a["numa"] == b["numa"]
    if not left or not right:
        return DISTANCES.index(NUMA if same_numa else FAR)
    common = next((i for i, (x, y) in enumerate(zip(left, right)) if x != y), min(len(left), len(right)))
    rest = (len(left) - common, len(right) - common)
    if rest == (0, 0):
        return 0
    # Host bridge, root port, upstream port of a switch: below it a downstream port each, and the device.
    if common >= 3 and rest == (2, 2):
        return DISTANCES.index(SWITCH)
    if common >= 2:
        return DISTANCES.index(ROOT)
    return DISTANCES.index(NUMA if common or same_numa else FAR)


class Candidate:
    """A port that may stand by for `primary`. Criteria in their order; smaller is better in each."""

    NAMES = ("fast enough", "another chip", "near", "not slower", "nearest in speed")

    def __init__(self, primary, port, guids):
        self.port = port
        same_chip = port["name"] == primary["name"] or (
            guids.get(port["name"]) is not None and guids.get(port["name"]) == guids.get(primary["name"])
        )
        self.distance = distance(primary, port)
        self.key = (
            port["mbps"] < primary["mbps"] // 2,
            same_chip,
            self.distance,
            port["mbps"] < primary["mbps"],
            abs(port["mbps"] - primary["mbps"]),
        )

    def words(self, primary):
        chip = "another port of the same chip" if self.key[1] else "another chip"
        speed = "equally fast" if self.port["mbps"] == primary["mbps"] else f"{self.port['mbps'] / 1000:g} Gb/s"
        unknown = not below_devices(self.port["pci"]) and (self.port["numa"] is None or self.port["numa"] < 0)
        return f"{chip}, {'at an unknown distance' if unknown else DISTANCES[self.distance]}, {speed}"


def candidates(primary, ports, guids):
    """Best first; a port of another link layer cannot stand in."""
    found = [Candidate(primary, port, guids) for port in ports if port["full"] != primary["full"] and port["layer"] == primary["layer"]]
    return sorted(found, key=lambda candidate: candidate.key)


def explain(primary, chosen, ports, guids):
    """(why, note): `note` when a candidate that ranks higher was passed over, else None."""
    ranked = candidates(primary, ports, guids)
    mine = next((c for c in ranked if c.port["full"] == chosen), None)
    if mine is None:
        return "it is no candidate by what sysfs says", "the plugin and sysfs disagree"
    why = mine.words(primary)
    better = [c for c in ranked if c.key < mine.key]
    equals = [c for c in ranked if c.key == mine.key and c is not mine]
    worse = [c for c in ranked if c.key > mine.key]
    if better:
        names = ", ".join(c.port["full"] for c in better)
        return why, f"{names} rank{'s' if len(better) == 1 else ''} higher and was passed over: not proved reachable"
    if equals:
        why += f"; {', '.join(c.port['full'] for c in equals)} rank{'s' if len(equals) == 1 else ''} the same, connections are spread"
    elif worse:
        first = next(i for i, (x, y) in enumerate(zip(mine.key, worse[0].key)) if x != y)
        why += f"; before {worse[0].port['full']}: {Candidate.NAMES[first]}"
    else:
        why += "; the only one"
    return why, None
