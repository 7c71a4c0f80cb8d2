# SPDX-License-Identifier: Apache-2.0
"""Runs the probe of verbs on this machine and does what it asks its driver for."""

import contextlib
import subprocess
import sys
import threading

LIMIT_S = 150


@contextlib.contextmanager
def limited(process):
    """Kills it when its time is over, and in any case at the end."""
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()


def ask(start, command, do):
    """The probe's lines. start(command, **pipes) gives a process; do(what) breaks or mends something."""
    lines = []
    with limited(start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)) as process:
        for line in process.stdout:
            line = line.rstrip("\n")
            if line.startswith("! "):
                do(line[2:])
                process.stdin.write("done\n")
            else:
                lines.append(line)
        status = process.wait()
    if status:
        sys.exit(f"the probe ended with status {status} after: {lines[-1:]}")
    return lines


@contextlib.contextmanager
def served(start, command, address):
    """While somebody serves the second device there: what whoever asks calls it."""
    with limited(start([*command, address], stdout=subprocess.PIPE, text=True)) as process:
        word, _, port = process.stdout.readline().strip().partition(" ")
        if word != "port":
            sys.exit("nobody serves the second device")
        yield f"{address}:{port}"
        if process.wait():
            sys.exit(f"who served the second device ended with status {process.returncode}")
