#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for programs of nccl-tests, and for NCCL's example, when scripts/gpu-gin, gpu-inc and gpu-rails are tested without GPUs:
writes NCCL's log and the plugin's events as the journal of the fake simverbs says that the fabric is broken, and rows of a table, with
-N 0 without end. FAULT in the environment, words with commas between them, makes it misbehave:

  wrong, wrong cut   a wrong row at last; as soon as something was cut
  failed             the example is not passed
  hang, hang cut     no row more after the first; after a cut
  status, end        it ends with 3 at once; after five rows, though it has no end
  unnamed            the log has neither our GIN nor the collNet
  deaf KIND          nobody notices that kind of cut
  slow, unfused      bandwidths are less than asked; NCCL's own transport does not fuse"""

import json
import os
import sys
import time

env = os.environ
rank, ranks, faults = int(env["FAKE_RANK"]), int(env["FAKE_RANKS"]), env.get("FAULT", "").split(",")
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
program = os.path.basename(sys.argv[0])
network, plugin = env["NCCL_NET"], env["NCCL_NET_PLUGIN"]
ours, collnet = plugin != "none", "HA_NCCL_INC" in env
UNITS = {"K": 10, "M": 20}
ROW_S = 0.02
BROKEN = {"link": "down", "cut": None, "device": "kill", "fault": None, "died": None}


def size_of(text):
    return int(text[:-1]) << UNITS[text[-1]] if text[-1] in UNITS else int(text)


def log(text):
    with open(env["NCCL_DEBUG_FILE"], "a", encoding="utf-8") as file:
        file.write(f"fake:1:1 [0] NCCL {text}\n")


def event(kind, **more):
    path = env["HA_NCCL_EVENT_LOG"].replace("%p", str(os.getpid()))
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, "connection": f"of rank {rank}", "monotonic_ns": time.monotonic_ns(), **more}) + "\n")


class Watch:
    """What became of the fabric, by the journal since the program began; and of the switch, by its process."""

    def __init__(self):
        self.at = os.path.getsize(env["FAKE_JOURNAL"])
        self.switch = self.switch_of(0)
        self.cuts = 0

    @staticmethod
    def switch_of(since):
        """The process that serves as the switch, by the journal."""
        with open(env["FAKE_JOURNAL"], encoding="utf-8") as file:
            pids = [line.split()[1] for line in file if line.startswith("switch ")]
        return pids[-1] if pids else since

    def look(self):
        with open(env["FAKE_JOURNAL"], encoding="utf-8") as file:
            file.seek(self.at)
            lines = file.readlines()
            self.at = file.tell()
        for line in lines:
            self.told(line.split(" libraries=")[0].split())
        if self.switch and not os.path.exists(f"/proc/{self.switch}/environ"):
            self.switch = None
            self.left("switch")
        elif not self.switch and self.switch_of(None) and os.path.exists(f"/proc/{self.switch_of(None)}/environ"):
            self.switch = self.switch_of(None)
            self.back()

    def told(self, said):
        if said[0] not in BROKEN:
            return
        kind = {"link": f"link {said[2]}", "cut": "switch", "device": "kill"}.get(said[0], said[2].split()[0])
        heals = "--heal" in said or "--clear" in said or said[-1] in ("up", "revive")
        if heals:
            self.back()
        else:
            self.left(kind)

    def left(self, kind):
        self.cuts += 1
        if f"deaf {kind}" in faults:
            return
        if collnet:
            event("inc-epoch", detail="a switch is gone: it has hung up", blackout_ms=30.0)
        elif "HA_NCCL_RAILS" in env:
            event("shed")
        elif ours:
            log("INFO GIN: to rank 1: goes on over sim1:1, in epoch 2, after 1 ms; 0 operations are to be written")

    @staticmethod
    def back():
        if collnet:
            event("inc-epoch", detail="its plan's switches are back", blackout_ms=40.0)
        elif "HA_NCCL_RAILS" in env:
            event("recovery")


def begin():
    log(f"INFO NCCL version {env.get('FAKE_NCCL', '2.28.9')}+cuda13.0")
    for name in sorted(env):
        if name.startswith(("NCCL_", "HA_NCCL_")):
            log(f"INFO {name} set by environment to {env[name]}.")
    if ours:
        log(f"INFO NET/Plugin: Loaded net plugin HA (v{8 if plugin == 'ha-v8' else 11})")
        devices = "1 device(s): [0]sim0+sim1/RoCE" if "HA_NCCL_RAILS" in env else "2 device(s): [0]sim0:1/RoCE [1]sim1:1/RoCE"
        log(f"INFO NET/HA : nccl-ha 0.1.0: {devices}")
    log(f"INFO Using network {network}")
    log(f"INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{network}/0")
    if "HA_NCCL_GIN" in env and "unnamed" not in faults:
        log("INFO Assigned GIN plugin HA to comm")
    if collnet and "unnamed" not in faults:
        log("INFO Coll Net channel 0 via COLLNET/HA/0")
    if "unfused" in faults and "NCCL_NET_FORCE_MERGE" in env:
        log("WARN Could not find NET with id 0")
        sys.exit(3)
    if "status" in faults:
        log("WARN it does not go")
        sys.exit(3)


def meet():
    """No rank goes on before all watch."""
    folder = os.path.dirname(env["NCCL_DEBUG_FILE"])
    with open(os.path.join(folder, f"watches-{rank}"), "w", encoding="utf-8"):
        pass
    while not all(os.path.exists(os.path.join(folder, f"watches-{r}")) for r in range(ranks)):
        time.sleep(0.01)


def bandwidth():
    many = "HA_NCCL_RAILS" in env or "NCCL_NET_FORCE_MERGE" in env or "collnetchain" in env.get("NCCL_ALGO", "")
    return 0.25 * (1 if not many else 1.3 if "slow" in faults else 1.95)


def row(size, kind, op, wrong):
    if rank == 0:
        print(f"{size} {size // 4} {kind} {op} -1 10.0 1.00 {bandwidth():.3f} {wrong} 10.0 1.00 {bandwidth():.3f} {'N/A' if program == 'alltoall_perf' else wrong}",
              flush=True)


def main():
    begin()
    if program not in ("all_reduce_perf", "alltoall_perf"):
        print("rank 0: " + ("FAILED" if "failed" in faults else "PASSED"))
        return
    assert words["-g"] == words["-c"] == "1" and env["NCCL_TESTS_DEVICE"] == "0"
    if rank == 0:
        print("# Using devices")
        for r in range(ranks):
            print(f"#  Rank {r:2d} Group  0 Pid   4242 on       fake device  0 [0000:{r if env['CUDA_VISIBLE_DEVICES'] == str(rank) else 0:02x}:00] NVIDIA Fake")
        print("#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong", flush=True)
    sizes, size = [], size_of(words["-b"])
    while size <= size_of(words["-e"]):
        sizes.append(size)
        size *= int(words.get("-f", 2))
    kinds = [f"type{n}" for n in range(12)] if words.get("-d") == "all" else ["float"]
    ops = ["sum", "prod", "max", "min", "avg", "mulsum"] if words.get("-o") == "all" else ["sum"]
    rows = [(size, kind, op) for size in sizes for kind in kinds for op in ops]
    watch, cycles, made = Watch(), int(words.get("-N", 1)), 0
    meet()
    while not cycles or made < cycles:
        for each in rows:
            watch.look()
            if ("hang" in faults and made) or ("hang cut" in faults and watch.cuts):
                time.sleep(617)
            row(*each, 7 if "wrong cut" in faults and watch.cuts and made else 0)
            time.sleep(0 if cycles else ROW_S)
        made += 1
        if "end" in faults and not cycles and made > 5:
            log("WARN it ended")
            sys.exit(5)
    if "hang" in faults:
        time.sleep(617)
    if rank == 0:
        if "wrong" in faults:
            row(*rows[-1], 7)
        print(f"# Out of bounds values : {'7 FAILED' if 'wrong' in faults else '0 OK'}")


main()
