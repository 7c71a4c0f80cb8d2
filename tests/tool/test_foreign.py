# SPDX-License-Identifier: Apache-2.0
"""Root's nccl-ha over what another user has put there for it: names of files that are not his to read, files that take
time and memory, text that a terminal would obey."""

import ctypes
import json
import os
import re
import resource
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from job import TOOL, Held, document, nccl_ha, text

NOBODY = 65534
MAGIC = 0x5453414843434E
VERSION = 2
RECORD = 4096  # bytes of any record: more than the tool knows of
EVENT_LOG = 8 + 24 + 3 * 64 + 32 + 4 * 8  # in a job's record
IN_OPEN = 0x20


def event(reason):
    return json.dumps({"time": "2026-11-22T06:00:00.000Z", "host": "a", "kind": "switch", "reason": reason}) + "\n"


class Statistics:
    """A statistics file as no plugin writes it."""

    def __init__(self, pid=7, event_log="", ports=0, conns=0, config=0, connections_open=0, seq=0, job_id=b"", in_use=1):
        self.counts = {"job": 1, "ports": ports, "conns": conns, "config": config}
        size = 88 + RECORD * sum(self.counts.values())
        self.data = bytearray(size)
        at, tables = 88, b""
        self.at = {}
        for name, count in self.counts.items():
            tables += struct.pack("<QII", at, RECORD, count)
            self.at[name] = at
            at += RECORD * count
        self.data[:88] = struct.pack("<QIIQ", MAGIC, VERSION, 88, size) + tables
        job = self.at["job"]
        struct.pack_into("<QQIIiI64s", self.data, job, 0, 0, pid, os.getuid(), -1, 0, job_id)
        struct.pack_into("<Q", self.data, job + 8 + 24 + 3 * 64 + 32, connections_open)
        log = os.fsencode(event_log)
        self.data[job + EVENT_LOG : job + EVENT_LOG + len(log)] = log
        for i in range(conns):
            struct.pack_into("<QI", self.data, self.at["conns"] + i * RECORD, seq, in_use)

    def write(self, path, uid):
        with open(path, "wb") as file:
            file.write(self.data)
        os.chown(path, uid, uid)
        os.chmod(path, 0o600)


class Opened:
    """What is opened of a few things that exist: by inotify, which does not count a look at a name."""

    def __init__(self, *paths):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0
        for path in paths:
            assert self.libc.inotify_add_watch(self.fd, os.fsencode(path), IN_OPEN) >= 0, path

    def count(self):
        try:
            return len(os.read(self.fd, 65536)) // 16
        except BlockingIOError:
            return 0

    def close(self):
        os.close(self.fd)


class Foreign(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nccl-ha-test.", dir="/tmp")  # TMPDIR may be closed to others
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        self.held = []
        self.addCleanup(lambda: [each.file.close() for each in self.held])
        self.user = NOBODY if os.getuid() == 0 else os.getuid()

    def path(self, name):
        return os.path.join(self.dir, name)

    def log(self, name, reason, mode=0o644, uid=None):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(event(reason))
        os.chmod(self.path(name), mode)
        if uid is not None:
            os.chown(self.path(name), uid, uid)
        return self.path(name)

    def publish(self, pid=1, uid=None, **what):
        """A live process of that user."""
        uid = self.user if uid is None else uid
        path = self.path(f"nccl-ha.{uid}.{pid}")
        Statistics(pid=pid, **what).write(path, uid)
        self.held.append(Held(path))
        return path

    # ---- the names ----------------------------------------------------------------------------

    def test_a_users_own_log_is_read_and_followed_by_its_name_after_rotation(self):
        self.publish(event_log=self.log("a[1]*", "his own", 0o600, self.user))
        self.assertIn(": his own", text("events", "--dir", self.dir))
        follower = subprocess.Popen([TOOL, "events", "--dir", self.dir, "--json", "-f"], stdout=subprocess.PIPE)
        try:
            self.assertEqual(json.loads(follower.stdout.readline())["reason"], "his own")
            os.rename(self.path("a[1]*"), self.path("a.1"))
            self.log("a[1]*", "a new file", 0o600, self.user)
            self.assertEqual(json.loads(follower.stdout.readline())["reason"], "a new file")
        finally:
            follower.kill()
            follower.wait()
            follower.stdout.close()

    @unittest.skipUnless(os.getuid() == 0, "as root only: looks at another user's")
    def test_what_is_not_his_is_not_opened_and_others_are_shown_all_the_same(self):
        secret = self.log("secret", "root's own", 0o600)
        os.symlink(secret, self.path("link"))
        os.symlink("/dev/null", self.path("device-link"))
        os.mkfifo(self.path("pipe"), 0o666)
        os.mkdir(self.path("closed"), 0o700)
        self.log("closed/log", "behind a closed door")
        os.mkdir(self.path("folder"))
        self.log("folder/victim", "found by a pattern")
        os.symlink(self.path("folder"), self.path("way"))
        named = {
            secret: "Permission denied",
            self.path("link"): "is not a file",
            self.path("device-link"): "is not a file",
            self.path("pipe"): "is not a file",
            self.path("closed/log"): "Permission denied",
            self.path("folder/*"): "No such file",
            self.path("way/victim"): "there is a link",
            self.path("folder/../folder/victim"): "is no absolute name",
            "/*/*/*/*/*/*": "No such file",
            "/proc/kmsg": "in /dev, /proc or /sys",
            "/dev/watchdog": "in /dev, /proc or /sys",
            "/proc/self/fd/0": "in /dev, /proc or /sys",
            "relative": "is no absolute name",
        }
        watched = [secret, self.path("pipe"), self.path("closed/log"), self.path("folder/victim")]
        if self.device():
            named[self.path("device")] = "is not a file"
            watched.append(self.path("device"))
        for i, name in enumerate(named):
            self.publish(pid=100 + i, event_log=name)
        self.publish(pid=1, uid=0, event_log=self.log("closed/root", "root's, in his own process"))
        opened = Opened(*watched)
        self.addCleanup(opened.close)
        done = nccl_ha("events", "--dir", self.dir)
        self.assertEqual(opened.count(), 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b": root's, in his own process", done.stdout)
        self.assertEqual(len(done.stdout.splitlines()), 2, done.stdout)
        said = done.stderr.decode()
        for name, message in named.items():
            self.assertRegex(said, rf"(?m)^nccl-ha events: {re.escape(name)}: .*{message}")
        with open(secret, "rb"):
            self.assertEqual(opened.count(), 1)  # it would have been seen

    @unittest.skipUnless(os.getuid() == 0, "as root only: gives a right away")
    def test_who_may_read_everything_needs_no_other_right_to_see_all_users(self):
        self.publish(pid=1)
        self.publish(pid=2, uid=0)
        os.mkdir(self.path("nccl-ha-12345"), 0o700)
        Statistics(pid=3).write(self.path("nccl-ha-12345/nccl-ha.12345.3"), 12345)
        os.chown(self.path("nccl-ha-12345"), 12345, 12345)
        self.held.append(Held(self.path("nccl-ha-12345/nccl-ha.12345.3")))
        for rights, users in ("-all,+dac_read_search", [0, 12345, 1234]), ("-all", [1234]):
            Statistics(pid=4).write(self.path("nccl-ha.1234.4"), 1234)
            os.chmod(self.path("nccl-ha.1234.4"), 0o600)
            with Held(self.path("nccl-ha.1234.4")):
                done = subprocess.run(
                    ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", f"--inh-caps={rights}", f"--ambient-caps={rights}",
                     "--bounding-set=+all", self.reachable(), "status", "--json", "--dir", self.dir],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)  # fmt: skip
            self.assertIn(done.returncode, (0, 1), done.stderr)
            seen = {p["uid"] for p in json.loads(done.stdout)["processes"]}
            self.assertEqual(seen, set(users) | ({NOBODY} if "+" in rights else set()))

    def reachable(self):
        """The tool, where anybody may reach it."""
        tool = self.path("tool")
        if not os.path.exists(tool):
            shutil.copy(TOOL, tool)
        return tool

    def device(self):
        try:
            os.mknod(self.path("device"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            print("no device can be made here: not tried")
            return False
        os.chmod(self.path("device"), 0o666)
        return True

    # ---- what they cost -----------------------------------------------------------------------

    def status(self, *words):
        """The document, the seconds that it took, those of processor, and its KiB of memory."""
        began = time.monotonic()
        tool = subprocess.Popen([TOOL, "status", "--json", "--dir", self.dir, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = tool.stdout.read(), tool.stderr.read()
        _, _, usage = os.wait4(tool.pid, 0)
        tool.returncode = 0
        tool.stdout.close()
        tool.stderr.close()
        return json.loads(out), err.decode(), time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss

    def quickest_status(self):
        """Of three: a busy machine may take a second away from one of them."""
        return min((self.status() for _ in range(3)), key=lambda said: said[2])

    def test_twenty_files_that_are_never_at_rest_cost_less_than_a_second(self):
        for i in range(20):
            self.publish(pid=i, ports=64, conns=1024, config=256, connections_open=3, seq=1)
        document_, err, took_s, cpu_s, _ = self.quickest_status()
        self.assertEqual(len(document_["processes"]), 20, err)
        self.assertLess(took_s, 1)
        self.assertLess(cpu_s, 1)

    def test_a_file_costs_at_most_16_mib_of_memory(self):
        base = self.status()[4]
        self.publish(ports=64, conns=1024, config=256, connections_open=1024, seq=2)
        self.assertLess(self.status()[4] - base, 16 * 1024)

    def refused(self, path, what):
        document_, err, *_ = self.status()
        self.assertEqual((document_["processes"], document_["unreadable_files"]), ([], 1), err)
        self.assertIn(what, err)
        self.assertIn("nccl_ha_unreadable_files 1\n", text("metrics", "--dir", self.dir))
        os.unlink(path)

    def test_what_no_plugin_writes_is_counted_and_passed_over(self):
        damaged = "damaged, cut off or no statistics file"
        for table in {"ports": 65}, {"conns": 1025}, {"config": 257}:
            self.refused(self.publish(**table), damaged)
        path = self.publish()
        os.truncate(path, (16 << 20) + 1)
        self.refused(path, damaged)
        path = self.publish()
        os.link(path, self.path("other"))
        self.refused(path, damaged)

    def test_twenty_names_of_one_file_are_not_read_twenty_times(self):
        path = self.publish(conns=1024, seq=1)
        for i in range(2, 21):
            os.link(path, self.path(f"nccl-ha.{self.user}.{i}"))
        document_, _, took_s, *_ = self.quickest_status()
        self.assertEqual((document_["processes"], document_["unreadable_files"]), ([], 20))
        self.assertLess(took_s, 1)

    def test_of_one_user_64_files_are_read_and_the_others_counted(self):
        for i in range(70):
            self.publish(pid=i)
        if os.getuid() == 0:
            self.publish(pid=999, uid=0)
        document_, err, *_ = self.status()
        self.assertEqual(len(document_["processes"]), 64 + (os.getuid() == 0))
        self.assertEqual(document_["unreadable_files"], 6)
        self.assertEqual(err.count("\n"), 1)
        self.assertIn(f"user {self.user} has more than 64 statistics files", err)

    # ---- text ---------------------------------------------------------------------------------

    def assert_harmless(self, output):
        for evil in b"\x1b", b"\x9b", b"\xc2\x9b":
            self.assertNotIn(evil, output)

    def test_no_text_of_a_users_reaches_the_terminal_as_a_command(self):
        evil = b"\xc2\x9b2J\x9b2J\x1b[2J"
        name = os.path.join(os.fsencode(self.dir), b"log" + evil)
        with open(name, "wb") as file:
            file.write(event("EVIL").encode().replace(b"EVIL", b"\xc2\x9b2Jred") + b"no event\n")
        os.chown(name, self.user, self.user)
        self.publish(event_log=name, job_id=evil)
        for words in ["status"], ["status", "-v"], ["status", "--json"], ["top", "--count", "1"], ["metrics"], ["events"], [
            "events", "--json"], ["config", "--pid", "1"], ["config", "--pid", "1", "--json"]:  # fmt: skip
            done = nccl_ha(*words, "--dir", self.dir)
            self.assertNotEqual(done.stdout, b"", words)
            self.assert_harmless(done.stdout + done.stderr)
        self.assertEqual(document("status", "--dir", self.dir)["processes"][0]["job"], "??2J?2J\x1b[2J")
        self.assertEqual(json.loads(text("events", "--json", "--dir", self.dir))["reason"], "\x9b2Jred")

    def test_nor_does_what_a_process_answers(self):
        path = self.publish(conns=1, connections_open=1)
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        saved = os.geteuid()
        os.chmod(self.dir, 0o777)
        os.seteuid(self.user)  # the peer's user is the one that listened
        try:
            listener.bind(path + ".control")
            listener.listen()
        finally:
            os.seteuid(saved)

        def serve():
            listener.settimeout(30)
            client, _ = listener.accept()
            client.recv(200)
            client.sendall(b"nccl-ha 1 error \xc2\x9b2J\x9b2J\x1b[2J\n")
            client.close()

        server = threading.Thread(target=serve)
        server.start()
        done = nccl_ha("failover", "--port", "sim0:1", "--dir", self.dir)
        server.join()
        self.assertIn(b"??2J?2J?[2J", done.stderr)
        self.assert_harmless(done.stdout + done.stderr)

    def test_a_socket_that_is_a_link_is_not_called(self):
        path = self.publish(conns=1, connections_open=1)
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(self.path("elsewhere"))
        listener.listen()
        listener.settimeout(0)
        os.symlink(self.path("elsewhere"), path + ".control")
        done = nccl_ha("failover", "--port", "sim0:1", "--dir", self.dir)
        self.assertIn(b"is no socket of that user", done.stderr)
        self.assertRaises(BlockingIOError, listener.accept)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    unittest.main()
