#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for a program of nccl-tests when scripts/gpu-bench is tested without GPUs: reads the same
arguments and environment, writes NCCL's log lines to NCCL_DEBUG_FILE and, on rank 0, a result
table. FAULT in the environment makes it misbehave."""

import argparse
import os
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
for flag in "befgcnwN":
    parser.add_argument(f"-{flag}", type=int, required=True)
options = parser.parse_args()
env = os.environ
rank, ranks, fault = int(env["FAKE_RANK"]), int(env["FAKE_RANKS"]), env.get("FAULT", "")
op = os.path.basename(sys.argv[0])
assert options.c == 1 and options.g == 1 and env["NCCL_TESTS_DEVICE"] == "0"

plugin, network = env["NCCL_NET_PLUGIN"], env["NCCL_NET"]
api = "8" if plugin == "ha-v8" and fault != "api" else "11"
if fault == "fallback" and network == "HA":
    network = "Socket"
if fault == "channel":
    via = "Socket"
else:
    via = network
with open(env["NCCL_DEBUG_FILE"], "w", encoding="utf-8") as log:
    log.write("fake:1:1 [0] NCCL INFO NCCL version 2.28.3+cuda13.0\n")
    for name in sorted(env):
        if name.startswith("NCCL_"):
            log.write(f"fake:1:1 [0] NCCL INFO {name} set by environment to {env[name]}.\n")
    if plugin != "none":
        log.write(f"fake:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin HA (v{api})\n")
        if fault != "silent":
            log.write("fake:1:1 [0] NCCL INFO NET/HA : nccl-ha 0.1.0: 2 device(s): [0]sim0:1/RoCE [1]sim1:1/RoCE\n")
    log.write(f"fake:1:1 [0] NCCL INFO Using network {network}\n")
    log.write(f"fake:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{via}/0\n")
if fault == "slow":
    time.sleep(1)
if fault == "slow later":  # after four runs over the fabric
    with open(env["FAKE_JOURNAL"], encoding="utf-8") as journal:
        if journal.read().count("\nrun ") > 8:
            time.sleep(617)
if fault == "hang":
    subprocess.Popen(["sleep", "617"])
    subprocess.Popen(["sleep", "617"], start_new_session=True)  # as launchers start ranks
    time.sleep(617)
if fault == "status":
    sys.exit(3)
if rank != 0:
    sys.exit(0)

print("# nccl-tests version 2.17.6 nccl-headers=22803 nccl-library=22803")
print("# Using devices")
for r in range(ranks):
    bus = 0 if "shared" in fault else r
    print(f"#  Rank {r:2d} Group  0 Pid   4242 on       fake device  0 [0000:{bus:02x}:00] NVIDIA Fake")
if fault != "table":
    print("#                                           out-of-place                       in-place")
    print("#       size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong")
    print("#        (B)  (elements)              (us)  (GB/s) (GB/s)           (us)  (GB/s) (GB/s)")
    base = {"HA": 10.0, "IB": 12.0, "Socket": 40.0}[network] + (1.0 if env.get("HA_NCCL_COMPLETION") == "e2e" else 0.0)
    sizes = [options.b << n for n in range(40) if options.b << n <= options.e]
    for cycle, size in ((c, s) for c in range(options.N) for s in sizes):
        # The first cycle is slow; of three, the median is not.
        us = base + size / 1000 + (100.0 if cycle == 0 and options.N > 1 else 0.0)
        wrong = "7" if "wrong" in fault and size > 1000 else "0"
        wrong = "N/A" if fault == "unchecked" else wrong
        inplace = "0" if op == "all_reduce_perf" else "N/A"
        redop = "sum" if op == "all_reduce_perf" else "none"
        print(f"{size} {size // 4} float {redop} -1 {us:.2f} 1.00 {size / us / 1000:.2f} {wrong} {us:.2f} 1.00 1.00 {inplace}")
print("# Out of bounds values : 7 FAILED" if "wrong" in fault else "# Out of bounds values : 0 OK")
print("# Avg bus bandwidth    : 1.0")
