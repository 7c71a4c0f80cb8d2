# SPDX-License-Identifier: Apache-2.0
"""Programs that a benchmark runs: none outlives it, none runs for ever, and what one of them says counts only
if its data was right."""

import json
import os
import platform
import signal
import subprocess

RUN_LIMIT_S = 60


class Failed(Exception):
    """A measurement that does not count."""


class Processes:
    """Those that a measurement started: none outlives it."""

    def __init__(self):
        self.started = []

    def __enter__(self):
        return self

    def start(self, command, **more):
        more.setdefault("stdout", subprocess.DEVNULL)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **more)
        self.started.append(process)
        return process

    def __exit__(self, *_):
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def output_of(command, env=None, limit_s=RUN_LIMIT_S):
    """What a command printed; it may take so long."""
    with Processes() as processes:
        process = processes.start(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(env or {})}
        )
        try:
            text, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(command)}: no end within {limit_s} s") from None
    if process.returncode != 0:
        raise Failed(f"{' '.join(command)} ended with status {process.returncode}:\n{text[-2000:]}")
    return text


def both_sides(command, folder, what, limit_s=RUN_LIMIT_S):
    """Microseconds of each block of nccl-net-perf's two plugins, whose blocks alternate."""
    report = os.path.join(folder, "perf.json")
    output_of([*command, "--json", report], {"HA_NCCL_STATS": "0"}, limit_s)
    with open(report, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    if [row["plugin"] for row in rows] != [0, 1] or any(row["wrong"] or not row["checked"] for row in rows):
        raise Failed(f"{what}: not both sides were measured and checked")
    return [[round(us, 3) for us in row["round_us"]] for row in rows]


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    return platform.machine()
