# SPDX-License-Identifier: Apache-2.0
"""Ranks of nccl-net-perf in a job with a key, started one by one as mpirun and srun do: who has not the key neither takes
a rank's place nor ends the run, a wrong key is one line that names the host, and what a descriptor holds is the plugin's, too.

PERF, SIMVERBS, PLUGIN and REF in the environment are the tool, the one that makes fabrics, ours, and a plugin that needs none."""

import os
import re
import socket
import struct
import subprocess
import tempfile
import time
import unittest

PERF, SIMVERBS, PLUGIN, REF = (os.environ[name] for name in ("PERF", "SIMVERBS", "PLUGIN", "REF"))
LIMIT_S = 60
HELLO = struct.Struct("=QQIIQ16s32s")  # magic, token, rank, ranks, keyed, nonce, code
MAGIC = 0x4E50424F4F543032
WELCOME = struct.Struct("=QQ16s32s")  # magic, verdict, nonce, code
REFUSED_KEY = 2


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


class JobKey(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="nccl-ha-test.")
        self.addCleanup(self.dir.cleanup)
        self.key, self.other = self.key_file("key"), self.key_file("other")
        self.address = free_address()

    def key_file(self, name):
        path = os.path.join(self.dir.name, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(32))
        return path

    def start(self, *words, plugin=REF, **more):
        """more: variables."""
        process = subprocess.Popen(
            [PERF, "--plugin", plugin, "--sizes", "1K", "-n", "2", "-w", "0", "--timeout", "20", *words], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, close_fds=False,
            env={**os.environ, "NCCL_SOCKET_IFNAME": "lo", **{name: str(value) for name, value in more.items()}},
        )  # fmt: skip
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        process.stdout.close()

    def rank(self, number, **more):
        return self.start("--rank", str(number), "--nranks", "2", "--root", self.address, **more)

    def said(self, process, status=0):
        output = process.communicate(timeout=LIMIT_S)[0]
        self.assertEqual(process.returncode, status, output)
        return output

    def dial(self):
        host, port = self.address.split(":")
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                return socket.create_connection((host, int(port)), timeout=LIMIT_S)
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.02)

    def test_a_stranger_takes_no_ranks_place_and_the_run_goes_on(self):
        root = self.rank(0, HA_NCCL_JOB_KEY_FILE=self.key)
        for keyed in (0, 1):
            with self.dial() as stranger:
                stranger.sendall(HELLO.pack(MAGIC, 0, 1, 2, keyed, os.urandom(16), os.urandom(32)))
                answer = stranger.recv(WELCOME.size, socket.MSG_WAITALL)
                self.assertEqual(WELCOME.unpack(answer)[1], REFUSED_KEY)
                self.assertEqual(stranger.recv(1), b"")
        self.said(self.rank(1, HA_NCCL_JOB_KEY_FILE=self.key))
        said = self.said(root)
        self.assertEqual(said.count("is refused"), 1, said)

    def test_a_wrong_key_is_one_line_that_names_the_host_and_the_run_waits_for_the_right_one(self):
        keys = {"its job key is another": {"HA_NCCL_JOB_KEY_FILE": self.other}, "it has no job key": {}}
        for why, variables in keys.items():
            with self.subTest(why):
                self.address = free_address()
                root = self.rank(0, HA_NCCL_JOB_KEY_FILE=self.key)
                began = time.monotonic()
                said = self.said(self.rank(1, **variables), status=2)
                self.assertLess(time.monotonic() - began, 20)  # no trying again and again
                self.assertEqual(said.count(self.address), 1, said)
                self.assertIn("job key", said)
                self.said(self.rank(1, HA_NCCL_JOB_KEY_FILE=self.key))
                said = self.said(root)
                self.assertEqual(said.count("a rank on 127.0.0.1 is refused: " + why), 1, said)

    def test_a_rank_with_a_key_does_not_go_on_without(self):
        root = self.rank(0)
        said = self.said(self.rank(1, HA_NCCL_JOB_KEY_FILE=self.key), status=2)
        self.assertIn("refuses our job key", said)
        self.said(self.rank(1, HA_NCCL_JOB_KEY_FILE=self.key, HA_NCCL_AUTH="off"))
        self.said(root)

    def test_where_a_key_is_required_and_there_is_none_nothing_starts(self):
        for words in (["--rank", "0", "--nranks", "2", "--root", self.address], []):
            said = self.said(self.start(*words, HA_NCCL_AUTH="required"), status=2)
            self.assertEqual(said.count("HA_NCCL_AUTH=required, and there is no key"), 1, said)

    def test_what_a_descriptor_holds_is_read_by_tool_and_plugin(self):
        """Of a file by all ranks that a launcher starts."""
        with open(self.key, "rb") as file:
            os.set_inheritable(file.fileno(), True)
            self.said(self.start("--simverbs", "2x1", plugin=PLUGIN, HA_NCCL_AUTH="required", HA_NCCL_JOB_KEY_FD=file.fileno()))

    def test_and_a_pipe_is_left_for_the_plugin(self):
        """One for each rank: what is read there is gone for all others."""
        fabric = f"perf-key-{os.getpid()}"
        subprocess.run([SIMVERBS, "up", fabric, "--hosts", "2", "--rails", "1"], check=True, stdout=subprocess.DEVNULL)
        self.addCleanup(subprocess.run, [SIMVERBS, "down", fabric], check=True, stdout=subprocess.DEVNULL)
        ranks = []
        for number in range(2):
            reader, writer = os.pipe()
            os.set_inheritable(reader, True)
            with open(self.key, "rb") as file:
                os.write(writer, file.read())
            os.close(writer)
            ranks.append(self.start("--rank", str(number), "--nranks", "2", "--root", self.address, "--fabric", fabric,
                                    plugin=PLUGIN, HA_NCCL_AUTH="required", HA_NCCL_JOB_KEY_FD=reader))  # fmt: skip
            os.close(reader)
        for rank in ranks:
            self.said(rank)

    def test_ranks_of_mpirun_and_srun_meet_by_the_key_where_no_launcher_hands_out_a_token(self):
        """By the variables that these set. Who has another key is refused there, too."""
        launchers = {
            "OMPI_COMM_WORLD_RANK": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"),
            "SLURM_PROCID": ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"),
        }
        for rank, (size, local, job) in launchers.items():
            with self.subTest(rank):
                variables = {size: 2, local: 2, job: f"test-{os.getpid()}", "HA_NCCL_AUTH": "required"}
                root = self.start(HA_NCCL_JOB_KEY_FILE=self.key, **{rank: 0}, **variables)
                said = self.said(self.start(HA_NCCL_JOB_KEY_FILE=self.other, **{rank: 1}, **variables), status=2)
                self.assertIn("refuses our job key", said)
                self.said(self.start(HA_NCCL_JOB_KEY_FILE=self.key, **{rank: 1}, **variables))
                self.said(root)

    def test_workers_of_torchrun_take_a_file_and_no_descriptor(self):
        """It gives them variables, and closes what it has open."""
        worker = 'exec "$0" --rank "$RANK" --nranks "$WORLD_SIZE" --root "$MASTER_ADDR:$MASTER_PORT" "$@"'
        address, port = self.address.split(":")
        with open(self.key, "rb") as file:
            os.set_inheritable(file.fileno(), True)
            for key, status in {"HA_NCCL_JOB_KEY_FILE": 0, "HA_NCCL_JOB_KEY_FD": 2}.items():
                ranks = [
                    subprocess.Popen(
                        ["sh", "-c", worker, PERF, "--plugin", REF, "--sizes", "1K", "-n", "2", "-w", "0", "--timeout", "20"],
                        close_fds=True, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": address,
                             "MASTER_PORT": port, "HA_NCCL_AUTH": "required",
                             key: str(file.fileno()) if status else self.key},
                    ) for rank in range(2)
                ]  # fmt: skip
                for rank in ranks:
                    self.addCleanup(self.end, rank)
                for rank in ranks:
                    said = self.said(rank, status)
                    if status:
                        self.assertIn("it is not open", said)

    def test_what_the_page_says_makes_a_key(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/operations.md"), encoding="utf-8") as page:
            command = re.search(r"^    (.*urandom >key\))$", page.read(), re.M)[1]
        subprocess.run(["sh", "-c", command.replace("key)", "made)")], check=True, cwd=self.dir.name)
        made = os.path.join(self.dir.name, "made")
        root = self.rank(0, HA_NCCL_JOB_KEY_FILE=made)
        self.said(self.rank(1, HA_NCCL_JOB_KEY_FILE=made))
        self.said(root)


if __name__ == "__main__":
    unittest.main()
