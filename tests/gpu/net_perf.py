#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for all_reduce_perf when scripts/gpu-failover is tested without GPUs: real traffic of the
real plugin over the real fabric, by nccl-net-perf, with NCCL's log lines and nccl-tests' table around
it. For NCCL's own transport it runs the plugin without backup paths. Wants NET_PERF in the environment."""

import argparse
import json
import os
import subprocess
import sys

parser = argparse.ArgumentParser()
for flag in "befgcnw":
    parser.add_argument(f"-{flag}", type=int, required=True)
options = parser.parse_args()
env = dict(os.environ)
rank, network, plugin = int(env["OMPI_COMM_WORLD_RANK"]), env["NCCL_NET"], env["NCCL_NET_PLUGIN"]
report = os.path.join(os.path.dirname(env["NCCL_DEBUG_FILE"]), "net-perf.json")
if plugin == "none":
    env["HA_NCCL_ENABLE_BACKUP"] = "0"

with open(env["NCCL_DEBUG_FILE"], "w", encoding="utf-8") as log:
    log.write("fake:1:1 [0] NCCL INFO NCCL version 2.28.3+cuda13.0\n")
    log.write(f"fake: {env['NCCL_HOSTID']} gpu={env['CUDA_VISIBLE_DEVICES']} mps={env.get('CUDA_MPS_PIPE_DIRECTORY', '')}\n")
    if plugin != "none":
        log.write("fake:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin HA (v11)\n")
        log.write("fake:1:1 [0] NCCL INFO NET/HA : nccl-ha 0.1.0: 2 device(s): [0]sim0:1/RoCE [1]sim1:1/RoCE\n")
    log.write(f"fake:1:1 [0] NCCL INFO Using network {network}\n")
    log.write(f"fake:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{network}/0\n")
    log.flush()
    command = [env["NET_PERF"], "--op", "allreduce", "-b", str(options.b), "-e", str(options.e)]
    command += ["-f", str(options.f), "-n", str(options.n), "-w", str(options.w), "-c", str(options.c)]
    command += ["--channels", "2", "--pause", "2", "--nap", "200", "--timeout", "30", "--json", report]
    status = subprocess.run(command, env=env, stdout=log, stderr=log, check=False).returncode
if status != 0:
    sys.exit(status)
if rank != 0:
    sys.exit(0)

print("# Using devices")
for r in range(int(env["FAKE_RANKS"])):
    print(f"#  Rank {r:2d} Group  0 Pid   4242 on       fake device  0 [0000:{r:02x}:00] NVIDIA Fake")
print("#       size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong")
with open(report, encoding="utf-8") as file:
    rows = json.load(file)["rows"]
wrong = 0
for row in rows:
    wrong += row["wrong"]
    us = row["time_us"]
    print(f"{row['size']} {row['size'] // 4} float sum -1 {us} 1.00 {row['busbw_gbps']} {row['wrong']} {us} 1.00 1.00 {row['wrong']}")
print(f"# Out of bounds values : {wrong} {'OK' if wrong == 0 else 'FAILED'}")
