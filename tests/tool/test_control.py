# SPDX-License-Identifier: Apache-2.0
"""nccl-ha failover and failback on a job that runs: what the operator gets to see, who may ask, and that callers
who mean no good cost the job nothing. What becomes of the traffic is the drills' (ha-drill drain)."""

import glob
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from job import TOOL, Job, document, nccl_ha, text, wait_for

NOBODY = 65534
CONNECTIONS = 8  # of both ranks: two in each direction, at both ends


def stands_still(pid):
    """A signal to stop reaches the threads that run only when one of them has taken it."""
    try:
        stats = [pathlib.Path(path).read_text() for path in glob.glob(f"/proc/{pid}/task/*/stat")]
    except OSError:
        return False  # one has ended meanwhile
    return all(stat.rsplit(") ", 1)[1].startswith("T") for stat in stats)


# Nothing fails here: a rank without a processor for half a second is not left, only what is asked for moves.
STAYS = {"HA_NCCL_QP_TIMEOUT": "18", "HA_NCCL_RTO_MS": "10000", "HA_NCCL_STALL_MS": "0"}


class Control(unittest.TestCase):
    def setUp(self):
        self.job = Job("--op", "allreduce", "--sizes", "64K", "--chunk", "16K", "-C", "2", "--dev", "0", "--seconds", "300", env=STAYS)
        self.addCleanup(self.job.end)
        self.job.wait_until_protected(CONNECTIONS // 2)
        self.processes = self.job.status()["processes"]
        self.pids = [str(p["pid"]) for p in self.processes]
        self.sockets = [p["file"] + ".control" for p in self.processes]

    def order(self, *words, pid=None, status=0):
        which = ["--pid", pid] if pid else ["--job", self.job.id]
        return document(*words, *which, status=status)

    def connections(self):
        return [c for p in document("status", "--job", self.job.id, "--connections", status=None)["processes"]
                for c in p["connections"]]  # fmt: skip

    def failovers(self):
        return [c["counters"]["failovers"] for c in self.connections()]

    def drained(self):
        return {port["port"] for p in self.job.status()["processes"] for port in p["ports"] if port["drained"]}

    def test_what_the_operator_gets_to_see(self):
        moved = self.order("failover", "--port", "sim0:1")
        # The first process takes the second one's ends along.
        self.assertEqual((moved["moved"] + moved["already"], moved["refused"], moved["worked"]), (CONNECTIONS, 0, True))
        for connection in moved["processes"][0]["connections"]:
            self.assertEqual((connection["from"]["port"], connection["now"]["port"], connection["outcome"]),
                             ("sim0:1", "sim1:1", "moved"))  # fmt: skip
        again = self.order("failover", "--port", "sim0:1")
        self.assertEqual((again["moved"], again["already"]), (0, CONNECTIONS))

        said = text("failover", "--job", self.job.id, "--port", "sim1:1", status=1)
        self.assertIn("8 refused", said)
        self.assertIn("no healthy path in reserve", said)
        self.assertIn("--force", said)
        wait_for("the mark", lambda: self.drained() == {"sim0:1", "sim1:1"})
        self.assertIn("active, drained", text("status", "--job", self.job.id, status=None))

        back = self.order("failback")
        self.assertEqual((back["moved"] + back["already"], back["worked"]), (CONNECTIONS, True))
        self.assertEqual({c["now"]["port"] for p in back["processes"] for c in p["connections"]}, {"sim0:1"})
        self.assertEqual(nccl_ha("failover", "--job", self.job.id, "--port", "sim9:1").returncode, 1)
        self.assertEqual(nccl_ha("failover", "--job", "no such job", "--port", "sim0:1").returncode, 3)
        for bad in ["failover"], ["failover", "--port", "a:1", "--connection", "1"], ["failback", "--wait", "x"]:
            self.assertEqual(nccl_ha(*bad).returncode, 2, bad)

        # A process that stands still says nothing, and does nothing later.
        os.kill(int(self.pids[0]), signal.SIGSTOP)
        try:
            wait_for("all its threads stopped", lambda: stands_still(self.pids[0]))
            silent = nccl_ha("failover", "--pid", self.pids[0], "--port", "sim0:1")
        finally:
            os.kill(int(self.pids[0]), signal.SIGCONT)
        self.assertEqual(silent.returncode, 1)
        self.assertIn(b"does not answer", silent.stderr)
        time.sleep(0.5)
        self.assertEqual(self.drained(), set())

    def test_one_connection_moves_once_however_soon_each_end_is_asked(self):
        number = self.connections()[0]["connection"]
        for moves in range(1, 9):
            self.job.wait_until_protected(CONNECTIONS // 2)  # a path in reserve is built a while after the move
            done = self.order("failover", "--connection", number[8:])
            self.assertEqual([c["connection"] for p in done["processes"] for c in p["connections"]], [number] * 2)
            self.assertEqual((done["moved"], done["worked"]), (2, True))
            wait_for("the switch shown", lambda: sorted(self.failovers())[-2:] == [moves] * 2)  # noqa: B023
        self.assertEqual(sorted(self.failovers()), [0] * (CONNECTIONS - 2) + [8] * 2)

    def test_nobody_but_the_user_and_root(self):
        for path in self.sockets:
            mode = os.stat(path).st_mode
            self.assertEqual(mode & 0o7777, 0o600)
        if os.geteuid() != 0:
            self.skipTest("as root only: becomes another user")
        # The build folder may be one that others cannot enter.
        folder = tempfile.mkdtemp(prefix="nccl-ha-test.", dir="/tmp")
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o755)
        tool = shutil.copy(TOOL, folder)
        stranger = subprocess.run([tool, "failover", "--port", "sim0:1"], user=NOBODY, group=NOBODY, extra_groups=[],
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)  # fmt: skip
        self.assertEqual((stranger.returncode, stranger.stdout), (3, b""))
        self.assertEqual(self.failovers(), [0] * CONNECTIONS)

    def test_two_drains_at_once_and_hostile_callers(self):
        over = threading.Event()
        answers = [0]

        def ask(path, request, half=False):
            with socket.socket(socket.AF_UNIX) as caller:
                caller.settimeout(5)
                try:
                    caller.connect(path)
                    caller.sendall(request)
                    if not half and caller.recv(100).startswith(b"nccl-ha 1 error"):
                        answers[0] += 1
                except OSError:
                    pass  # shown out, for others wait

        def flood(request, half):
            while not over.is_set():
                for path in self.sockets:
                    ask(path, request, half)
                time.sleep(0.001)

        silent = []
        for path in self.sockets * 20:
            caller = socket.socket(socket.AF_UNIX)
            caller.connect(path)
            silent.append(caller)
        floods = [threading.Thread(target=flood, args=args) for args in
                  [(b"\0" * 4096, False), (b"nccl-ha 1 failover port sim", True), (b"nccl-ha 1 failback nothing\n", False)]]  # fmt: skip
        for thread in floods:
            thread.start()
        try:
            wait_for("callers that were answered", lambda: answers[0] > 50)
            tools = [subprocess.Popen([TOOL, "failover", "--pid", pid, "--port", port, "--json"], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE) for pid, port in zip(self.pids, ["sim0:1", "sim0:1"])]  # fmt: skip
            for tool in tools:
                said, _ = tool.communicate(timeout=30)
                self.assertEqual(tool.returncode, 0, said)
                self.assertTrue(json.loads(said)["worked"])
        finally:
            over.set()
            for thread in floods:
                thread.join()
            for caller in silent:
                caller.close()
        wait_for("the way elsewhere", lambda: {c["port"] for c in self.connections()} == {"sim1:1"})
        self.assertEqual(self.failovers(), [1] * CONNECTIONS)
        self.assertIsNone(self.job.process.poll(), self.job.said())  # every byte is checked, and a wrong one ends it
        wait_for("answers again", lambda: nccl_ha("failback", "--job", self.job.id).returncode == 0, 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
