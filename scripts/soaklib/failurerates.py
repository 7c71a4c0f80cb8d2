# SPDX-License-Identifier: Apache-2.0
"""Making a trace from published failure rates.

Every rate has its source; what nobody has published is an assumption, is said to be one, and is an option."""

import math
import random
from dataclasses import dataclass

from .failuretrace import Failure, Trace, format_time

DAY = 86400.0
MONTH = 30 * DAY

# "The Llama 3 Herd of Models" (2024), table 5: 419 unexpected interruptions of one job in 54 days.
LLAMA_GPUS, LLAMA_S = 16384, 54 * DAY
LLAMA_ALL, LLAMA_NETWORK, LLAMA_NIC = 419, 35, 7
# "Alibaba HPN: A Data Center Network for Large Language Model Training" (SIGCOMM 2024), section 2.
HPN_LINKS_PER_MONTH, HPN_SWITCHES_PER_MONTH = 0.00057, 0.00051

LLAMA = "Llama 3, table 5"
HPN = "Alibaba HPN, SIGCOMM 2024"
ASSUMED = "assumed"


@dataclass
class Model:
    """Rates are per part and second. The parts: links (one per host and rail), switches, NICs (as links), GPUs."""

    hosts: int = 2048
    rails: int = 8
    gpus_per_host: int = 8
    hosts_per_switch: int = 128
    profile: str = "hpn"
    links_per_month: float = None  # None: of the profile
    switches_per_month: float = None
    flaps_per_month: float = 0.0005
    silent: float = 0.1  # of links and switches that fail, those that do so in silence
    repair_link_s: float = 4 * 3600.0
    repair_switch_s: float = 2 * 3600.0
    repair_nic_s: float = 4 * 3600.0
    flap_s: float = 10.0
    others: bool = True

    def switches(self):
        return self.rails * math.ceil(self.hosts / self.hosts_per_switch)

    def links(self):
        return self.hosts * self.rails

    def gpus(self):
        return self.hosts * self.gpus_per_host

    # ---- rates ----

    def link_rate(self):
        """(per link and second, source)"""
        if self.links_per_month is not None:
            return self.links_per_month / MONTH, "given"
        if self.profile == "llama3":
            return LLAMA_NETWORK / (LLAMA_GPUS * LLAMA_S), f"{LLAMA}: {LLAMA_NETWORK} of switches and cables, taken as links, a NIC per GPU"
        return HPN_LINKS_PER_MONTH / MONTH, f"{HPN}: {100 * HPN_LINKS_PER_MONTH:.3g} % of NIC-ToR links a month"

    def switch_rate(self):
        if self.switches_per_month is not None:
            return self.switches_per_month / MONTH, "given"
        if self.profile == "llama3":
            return 0.0, f"{LLAMA}: counted with the links"
        return HPN_SWITCHES_PER_MONTH / MONTH, f"{HPN}: {100 * HPN_SWITCHES_PER_MONTH:.3g} % of ToR switches a month"

    def nic_rate(self):
        return LLAMA_NIC / (LLAMA_GPUS * LLAMA_S), f"{LLAMA}: {LLAMA_NIC} of NICs, one per GPU"

    def other_rate(self):
        others = LLAMA_ALL - LLAMA_NETWORK - LLAMA_NIC
        return (others if self.others else 0) / (LLAMA_GPUS * LLAMA_S), f"{LLAMA}: the {others} that are neither network nor NIC"

    def table(self):
        """{kind: (events per second in the cluster, mean duration, source)}"""
        link, link_source = self.link_rate()
        switch, switch_source = self.switch_rate()
        nic, nic_source = self.nic_rate()
        other, other_source = self.other_rate()
        silent = f"; {self.silent:.3g} of these are silent ({ASSUMED})"
        return {
            "link-down": (link * (1 - self.silent) * self.links(), self.repair_link_s, link_source),
            "silent-cut": (link * self.silent / 2 * self.links(), self.repair_link_s, link_source + silent),
            "one-way-cut": (link * self.silent / 2 * self.links(), self.repair_link_s, link_source + silent),
            "link-flap": (self.flaps_per_month / MONTH * self.links(), self.flap_s, f"{100 * self.flaps_per_month:.3g} % of links a month ({ASSUMED})"),
            "switch-down": (switch * (1 - self.silent) * self.switches(), self.repair_switch_s, switch_source),
            "switch-silent": (switch * self.silent * self.switches(), self.repair_switch_s, switch_source + silent),
            "nic-down": (nic * self.links(), self.repair_nic_s, nic_source),
            "host-down": (other * self.gpus(), 0.0, other_source),
        }

    def comments(self, days, seed):
        yield f"made by scripts/soak --generate: {days:g} days, {self.hosts} hosts of {self.rails} rails and {self.gpus_per_host} GPUs, seed {seed}"
        yield f"{self.hosts_per_switch} hosts per switch of a rail ({ASSUMED}); durations are exponential about their mean ({ASSUMED})"
        for kind, (rate, mean, source) in self.table().items():
            long = f", {format_time(mean)} each ({ASSUMED})" if mean else ""
            yield f"{kind:<14} {rate * days * DAY:8.2f} expected{long}: {source}"


# ---- chance ----------------------------------------------------------------------------------------------


class Chance:
    """Only random() of Python's generator, whose numbers are the same in every version."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def below(self, n):
        return min(int(self.random() * n), n - 1)

    def exponential(self, mean):
        return -mean * math.log(1.0 - self.random())


def place(model, kind, chance):
    """(hosts, rail)"""
    rail = -1 if kind == "host-down" else chance.below(model.rails)
    if kind.startswith("switch-"):
        first = chance.below(math.ceil(model.hosts / model.hosts_per_switch)) * model.hosts_per_switch
        return (first, min(first + model.hosts_per_switch, model.hosts) - 1), rail
    host = chance.below(model.hosts)
    return (host, host), rail


def is_down(broken, new):
    return any(old.rail == new.rail and old.hosts[0] <= new.hosts[1] and new.hosts[0] <= old.hosts[1] for old in broken)


def generate(model, days, seed):
    """A Poisson process per kind. A part that is down does not fail again. Same seed, same trace."""
    found = []
    for number, (kind, (rate, mean, _)) in enumerate(model.table().items()):
        chance, at = Chance(seed * 1000 + number), 0.0  # so that one kind's rate changes no other's failures
        while rate > 0:
            at += chance.exponential(1 / rate)
            if at > days * DAY:
                break
            hosts, rail = place(model, kind, chance)
            duration = max(round(chance.exponential(mean), 3), 0.1) if mean else 0.0
            found.append(Failure(round(at, 3), hosts, rail, kind, duration))
    found.sort(key=lambda f: (f.at_s, f.kind, f.hosts))
    kept, broken = [], []
    for failure in found:
        broken = [old for old in broken if old.end_s > failure.at_s]
        if failure.is_network() and is_down(broken, failure):
            continue
        kept.append(failure)
        broken += [failure] if failure.is_network() else []
    return Trace(days * DAY, model.hosts, model.rails, kept)
