# SPDX-License-Identifier: Apache-2.0
"""`scripts/demo inc`: eight ranks whose all-reduces a switch adds up; it is killed in the middle, and they go on without one.

    incdemo.py BUILD OUT     writes throughput.dat and faults.gp for docs/img/demo.gp, and says what happened
"""

import json
import os
import queue
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # nothing but sources beside the scripts
from benchlib import write_file  # noqa: E402
from benchrun import Failed  # noqa: E402
from inclib import Live  # noqa: E402

HOSTS = 8
OPS = 400
BYTES = 256 << 10
KILLED_AFTER = OPS // 2
BIN_S = 0.2
LIMIT_S = 300


def listen_to(rank, number, said):
    for line in rank.stdout:
        said.put((time.monotonic(), number, line))
    said.put((time.monotonic(), number, ""))


class Demo:
    def __init__(self, fabric):
        self.fabric, self.done, self.killed_s, self.results = fabric, [], None, {}

    def take(self, at_s, number, line):
        if line.startswith("done ") and number == 0:
            self.done.append(at_s)
            if len(self.done) == KILLED_AFTER:
                self.fabric.switch.kill()
                self.killed_s = time.monotonic()
                print("        the switch is killed", flush=True)
        elif line.startswith("{"):
            self.results[number] = json.loads(line)

    def run(self):
        ranks = [self.fabric.rank(i, "--ops", str(OPS), "--bytes", str(BYTES)) for i in range(HOSTS)]
        self.fabric.processes += ranks
        self.fabric.give_handles(ranks)
        said, ended, until_s = queue.Queue(), 0, time.monotonic() + LIMIT_S
        for number, rank in enumerate(ranks):
            threading.Thread(target=listen_to, args=(rank, number, said), daemon=True).start()
        while ended < HOSTS:
            try:
                at_s, number, line = said.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                raise Failed("the ranks do not come to their end") from None
            ended += line == ""
            self.take(at_s, number, line)
        statuses = [rank.wait(timeout=30) for rank in ranks]
        if any(statuses) or len({one["digest"] for one in self.results.values()}) != 1:
            raise Failed(f"statuses {statuses}: {self.fabric.last_errors()}")

    def pause_s(self):
        """From the switch's death to the next all-reduce that is done."""
        return min(at_s for at_s in self.done if at_s > self.killed_s) - self.killed_s

    def write(self, out):
        begun_s = self.done[0]
        bins = [0] * (int((self.done[-1] - begun_s) / BIN_S) + 1)
        for at_s in self.done:
            bins[int((at_s - begun_s) / BIN_S)] += HOSTS * BYTES
        write_file(os.path.join(out, "throughput.dat"), "".join(f"{i * BIN_S:.1f} {n / BIN_S / 1e9:.4f}\n" for i, n in enumerate(bins)))
        at_s = self.killed_s - begun_s
        write_file(os.path.join(out, "faults.gp"), f"set arrow from {at_s:.3f}, graph 0 to {at_s:.3f}, graph 1 nohead dashtype 2\n"
                   f"set label 'the switch is killed' at {at_s:.3f}, graph 0.95 offset 1,0\n")  # fmt: skip


def main(build, out):
    try:
        with tempfile.TemporaryDirectory(prefix="inc-demo-") as folder, Live(build, HOSTS, 2, folder) as fabric:
            demo = Demo(fabric)
            demo.run()
        demo.write(out)
    except (Failed, OSError, ValueError) as error:
        print(f"incdemo: FAILED: {error}", file=sys.stderr)
        return 1
    print(f"        {OPS} all-reduces of {HOSTS} ranks, every type and operation; {demo.pause_s() * 1000:.0f} ms from the switch's death to the next result")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
