# SPDX-License-Identifier: Apache-2.0
"""What the tests of nccl-ha share: a job on a fabric of its own, the tool, and statistics files made by hand.

BUILD in the environment is the build folder. SLACK there multiplies limits on times."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import tempfile
import time

BUILD = os.environ["BUILD"]
SLACK = float(os.environ.get("SLACK", "1"))
BIN = os.path.join(BUILD, "bin")
TOOL = os.path.join(BIN, "nccl-ha")
LIMIT_S = 60


def nccl_ha(*words, env=None, **options):
    """Runs the tool to its end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HA_NCCL_", "NCCL_"))}
    return subprocess.run([TOOL, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=LIMIT_S, check=False, env={**environment, **(env or {})}, **options)  # fmt: skip


def text(*words, status=0, **options):
    """What it prints; a failure unless it exits with this status."""
    done = nccl_ha(*words, **options)
    if status is not None and done.returncode != status:
        raise AssertionError(f"nccl-ha {' '.join(words)}: status {done.returncode}, not {status}:\n"
                             f"{done.stdout.decode()}{done.stderr.decode()}")  # fmt: skip
    return done.stdout.decode()


def document(*words, status=0, **options):
    return json.loads(text(*words, "--json", status=status, **options))


def wait_for(what, condition, limit_s=LIMIT_S, pause_s=0.02):
    """Until the condition holds; what it returned."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        held = condition()
        if held:
            return held
        time.sleep(pause_s)
    raise AssertionError(f"not after {limit_s} s: {what}")


class Job:
    """nccl-net-perf with two ranks on a fabric of two hosts and two rails, under a job id of its own. It pauses, so that
    a processor is left for who looks at it."""

    count = 0

    def __init__(self, *words, env=None, output=None):
        """output: where it says what it says, in place of a file."""
        Job.count += 1
        self.id = f"test-{os.getpid()}-{Job.count}"
        self.output = output or tempfile.TemporaryFile()
        command = [os.path.join(BIN, "nccl-net-perf"), "--plugin", "ha", "--simverbs", "2x2", "--ranks", "2",
                   "--timeout", "40", "--pause", "2", "--nap", "200", *words]  # fmt: skip
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        env={**os.environ, "SLURM_JOB_ID": self.id, **(env or {})})  # fmt: skip
        self.fabric = f"perf-{self.process.pid}"

    def said(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def status(self, *words):
        """The document, whatever the verdict."""
        return document("status", "--job", self.id, *words, status=None)

    def wait_until_protected(self, connections):
        """Until both ranks have so many connections and each is protected."""

        def protected():
            if self.process.poll() is not None:
                raise AssertionError(f"the job has ended: {self.said()}")
            summary = self.status()["summary"]
            return summary["protected"] == summary["connections"] == 2 * connections

        wait_for(f"{connections} protected connections at each end", protected)

    def simverbs(self, verb, *words):
        subprocess.run([os.path.join(BIN, "simverbs"), verb, self.fabric, *words], check=True, timeout=LIMIT_S,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # fmt: skip

    def end(self):
        """Interrupts it; it takes its fabric down."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()


class StatisticsFile:
    """A copy of a process's statistics file, to be changed. The layout is read from its header."""

    HEADER = struct.Struct("<QIIQ")  # magic, version, header_size, file_size
    TABLE = struct.Struct("<QII")  # offset, record_size, count
    TABLES = ["job", "ports", "conns", "config"]

    def __init__(self, source):
        with open(source, "rb") as file:
            self.data = bytearray(file.read())
        self.tables = {}
        for i, name in enumerate(self.TABLES):
            self.tables[name] = self.TABLE.unpack_from(self.data, self.HEADER.size + i * self.TABLE.size)

    def record(self, table, index):
        offset, size, count = self.tables[table]
        assert index < count
        return memoryview(self.data)[offset + index * size : offset + (index + 1) * size]

    def fill_connections(self):
        """Every record becomes like the first one that is in use, with a number of its own."""
        _, _, count = self.tables["conns"]
        used = next(i for i in range(count) if struct.unpack_from("<I", self.record("conns", i), 8)[0])
        model = bytes(self.record("conns", used))
        for i in range(count):
            record = self.record("conns", i)
            record[:] = model
            struct.pack_into("<Q", record, 24, i + 1)
        return count

    def write(self, path):
        with open(path, "wb") as file:
            file.write(self.data)
        os.chmod(path, 0o600)


class Held:
    """Holds the lock of a statistics file, as the process that writes it does."""

    def __init__(self, path):
        self.file = open(path, "rb")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
