# SPDX-License-Identifier: Apache-2.0
"""When guests stood still because this host gave them no processor.

The kernel tells of every thread of QEMU's how long it has waited for a processor so far, and of every
processor how long another machine had it. A thread of this program reads both every few milliseconds
while a drill runs, so that afterwards one can ask what was lost in any stretch of time: in the pause that
a drill is judged by, wherever it was."""

import bisect
import threading
import time

STEP_NS = 10_000_000  # between readings; also the kernel's own step for what other machines had


class Losses:
    """What one thread or processor lost: stretches of time, in the order of their ends."""

    def __init__(self):
        self.ends, self.stretches, self.longest_ns = [], [], 0

    def add(self, began_ns, ended_ns, lost_ns):
        self.ends.append(ended_ns)
        self.stretches.append((began_ns, ended_ns, lost_ns))
        self.longest_ns = max(self.longest_ns, ended_ns - began_ns)

    def between(self, first_ns, last_ns):
        total = 0
        for began, ended, lost in self.stretches[bisect.bisect_right(self.ends, first_ns) :]:
            if ended - self.longest_ns >= last_ns:
                break
            total += lost * max(0, min(ended, last_ns) - max(began, first_ns)) / (ended - began)
        return total


class Record:
    """What was lost and when, from totals that only grow, read now and then. Their keys are (kind, name): of each
    kind the one that lost most counts, and kinds add up, since no kernel sees what the other does."""

    def __init__(self, now_ns, totals):
        self.read_ns, self.totals = now_ns, totals
        self.losses = {}  # by key

    def read(self, now_ns, totals):
        """A loss is told when it is over: one longer than the time since the last reading began before that."""
        for key, total in totals.items():
            lost = total - self.totals.get(key, 0)
            if lost > 0:
                self.losses.setdefault(key, Losses()).add(min(self.read_ns, now_ns - lost), now_ns, lost)
        self.read_ns, self.totals = now_ns, totals

    def lost_ns(self, first_ns, last_ns):
        """Between these, and never more than there is between them."""
        worst = {}
        for (kind, _), losses in self.losses.items():
            worst[kind] = max(worst.get(kind, 0), losses.between(first_ns, last_ns))
        return min(sum(worst.values()), last_ns - first_ns)


class Watch:
    """Reads until it is told to stop. totals() must not block."""

    def __init__(self, totals):
        self.totals, self.record = totals, Record(time.monotonic_ns(), totals())
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(STEP_NS / 1e9):
            self.read()

    def read(self):
        """What is lost until the moment of the reading is what it tells of, so the time is taken behind it."""
        totals = self.totals()
        self.record.read(time.monotonic_ns(), totals)

    def stop(self):
        """Returns the record."""
        self.over.set()
        self.thread.join()
        self.read()
        return self.record
