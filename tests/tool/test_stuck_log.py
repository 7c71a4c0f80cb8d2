# SPDX-License-Identifier: Apache-2.0
"""A log that hangs, as one on a file system behind the network that fails, does not hold up a failover."""

import json
import os
import select
import shutil
import tempfile
import threading
import unittest

from job import Job, wait_for


class Log:
    """A pipe that is read until it is not."""

    def __init__(self):
        self.read_fd, self.write_fd = os.pipe()
        self.file = os.fdopen(self.write_fd, "wb")  # what a job can be given
        # The same pipe for us, not blocking: O_NONBLOCK on the first one would be the job's, too.
        self.filler = os.open(f"/proc/self/fd/{self.write_fd}", os.O_WRONLY | os.O_NONBLOCK)
        self.text = b""
        self.start_reading()

    def start_reading(self):
        self.stopped = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while not self.stopped.is_set():
            if select.select([self.read_fd], [], [], 0.05)[0]:
                self.text += os.read(self.read_fd, 65536)

    def stop_reading(self):
        """From now on whoever writes there waits."""
        self.stopped.set()
        self.reader.join()
        for size in 4096, 1:
            while self.has_room(size):
                pass

    def has_room(self, size=1):
        try:
            return os.write(self.filler, b"." * size) > 0
        except BlockingIOError:
            return False

    def close(self):
        self.stopped.set()
        self.reader.join()
        os.close(self.filler)
        os.close(self.read_fd)


class StuckLog(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        self.addCleanup(shutil.rmtree, self.dir)
        self.log = Log()
        self.addCleanup(self.log.close)
        self.job = Job("--op", "allreduce", "--sizes", "64K", "--chunk", "16K", "-C", "2", "--seconds", "300",
                       env={"NCCL_DEBUG": "INFO", "HA_NCCL_EVENT_LOG": os.path.join(self.dir, "%h.%p"),
                            "HA_NCCL_OUTAGE_MS": "60000"}, output=self.log.file)  # fmt: skip
        self.addCleanup(self.job.end)
        self.job.wait_until_protected(4)

    def switches(self):
        """In the event logs of both ranks."""
        events = []
        for name in os.listdir(self.dir):
            with open(os.path.join(self.dir, name), encoding="ascii") as file:
                events += [json.loads(line)["kind"] for line in file]
        return events.count("switch")

    def connections(self):
        return [c for process in self.job.status("-v")["processes"] for c in process["connections"]]

    def messages(self):
        return [c["counters"]["messages"] for c in self.connections()]

    def failovers(self):
        """As the statistics count them, which nobody has to write."""
        return sum(c["counters"]["failovers"] for c in self.connections())

    def is_on(self, port):
        """Whether all connections carry traffic over this port."""
        groups = [g for process in self.job.status()["processes"] for g in process["groups"]]
        return groups and all(g["port"] == port and g["state"] == "active" for g in groups)

    def fail_over(self, rail, port):
        """Cuts the rail; messages have to arrive over the other one."""
        self.job.simverbs("cut", rail)
        wait_for(f"all connections on {port}", lambda: self.is_on(port))
        before = self.messages()
        wait_for("messages on each", lambda: all(now > then for now, then in zip(self.messages(), before)))
        self.job.simverbs("cut", rail, "--heal")

    def test_a_log_that_nobody_reads_holds_up_no_failover(self):
        self.log.stop_reading()
        told = self.switches()
        self.fail_over("0", "sim1:1")
        # A line waits in front of them: the log was really stuck.
        self.assertFalse(self.log.has_room())
        self.assertEqual(self.switches(), told)
        self.job.wait_until_protected(4)
        self.fail_over("1", "sim0:1")
        self.log.start_reading()
        self.assertGreater(self.failovers(), len(self.connections()))  # some by the first cut, all by the second
        wait_for("every event", lambda: self.switches() == self.failovers())
        wait_for("every line", lambda: self.log.text.count(b": failover from ") == self.failovers())
        self.assertNotIn(b"are missing here", self.log.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
