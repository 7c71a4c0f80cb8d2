# SPDX-License-Identifier: Apache-2.0
"""nccl-ha over files: statistics that processes have left, damaged or meant to harm; event logs that grow, are
cut, are replaced. One short job provides a real statistics file."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from job import SLACK, TOOL, Held, Job, StatisticsFile, document, nccl_ha, text, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOBODY = 65534
LAST_BYTES = 56 + 4 * 24 + 4 * 32  # the last members of a connection's record: preferred, rails, sheds
GPU_PROVED = slice(-8 - LAST_BYTES, -4 - LAST_BYTES)
JSON_COMMANDS = ["status", "health"]  # that show what there is, and judge it


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.mkdtemp(prefix="nccl-ha-test.")
        cls.source = os.path.join(cls.kept, "source")
        job = Job("--sizes", "64K", "-C", "2", "--seconds", "30")
        try:
            job.wait_until_protected(4)
            cls.process = job.status()["processes"][0]
            shutil.copyfile(cls.process["file"], cls.source)
        finally:
            job.end()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.kept)

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, pid=1234, uid=None):
        return os.path.join(self.dir, f"nccl-ha.{os.getuid() if uid is None else uid}.{pid}")

    def put(self, pid=1234, uid=None):
        StatisticsFile(self.source).write(self.path(pid, uid))
        return self.path(pid, uid)

    def status(self, *words, status=None):
        return document("status", "--dir", self.dir, *words, status=status)

    # ---- which files --------------------------------------------------------------------------

    def test_without_any_job_the_status_is_3_and_a_line_says_why(self):
        done = nccl_ha("status", "--dir", self.dir)
        self.assertEqual((done.returncode, done.stdout), (3, b""))
        self.assertIn(b"uses the plugin here", done.stderr)
        self.assertEqual(nccl_ha("status", "--dir", "/nonexistent").returncode, 3)

    def test_as_json_no_process_is_an_answer_and_0_unless_there_may_be_one(self):
        for command in JSON_COMMANDS:
            for words in [], ["--job", "other"], ["--pid", "1"], ["--rank", "0"]:
                done = nccl_ha(command, "--json", "--dir", self.dir, *words)
                self.assertEqual((done.returncode, done.stderr), (0, b""), words)
                self.assertFalse(json.loads(done.stdout)["processes"])
            done = nccl_ha(command, "--json", "--dir", "/nonexistent")
            self.assertEqual(done.returncode, 3)
            self.assertFalse(json.loads(done.stdout)["processes"])
            self.assertIn(b"/nonexistent: No such file", done.stderr)
        path = self.put()
        os.truncate(path, 1000)
        with Held(path):
            for command in JSON_COMMANDS:
                done = nccl_ha(command, "--json", "--dir", self.dir)
                self.assertEqual((done.returncode, json.loads(done.stdout)["unreadable_files"]), (3, 1))

    def test_the_help_says_what_each_exit_status_means(self):
        for command in JSON_COMMANDS:
            shown = text(command, "--help")
            self.assertRegex(shown, r"(?s)Exit status:\n +0 .*\n +1 .*\n +2 .*\n +3 .*")
            self.assertRegex(re.sub(r"\s+", " ", shown), r" 0 [^0-9]*With --json also: there is no such process")

    def test_the_manual_page_and_the_help_name_the_same_exit_statuses(self):
        with open(os.path.join(ROOT, "docs", "man", "nccl-ha.1"), encoding="utf-8") as file:
            section = re.search(r'(?s)^\.SH "EXIT STATUS"\n(.*?)^\.(?:PP|SH)', file.read(), re.MULTILINE)[1]
        page = dict(re.findall(r"(?ms)^\.TP\n\.B (\d)\n(.*?)(?=^\.TP|\Z)", section))
        helped = {}
        for command in re.findall(r"(?m)^  (\w+) ", text("--help")):
            found = re.search(r"(?s)\b[Ss]tatus[:\s]+(?=0)(.*?)(?:\n\n|\Z)", text(command, "--help"))
            if found:
                helped[command] = found[1]
        self.assertIn("Status as of failover.", text("failback", "--help"))
        helped["failback"] = helped["failover"]
        self.assertLessEqual({"status", "health", "events", "config", "metrics", "inc"}, set(helped))
        # 0 and 2 are the same of all.
        says = {command: set(re.findall(r"(?<![\w.])([013-9])(?=[ ,:])", shown)) - {"0"} for command, shown in helped.items()}
        names = {status: set(re.findall(r"(?m)^\.BR? (\w+)(?: |$)", what)) for status, what in page.items()}
        self.assertEqual(set(page), {"0", "2"}.union(*says.values()))
        for status in set(page) - {"0", "2"}:
            self.assertEqual(names[status], {command for command, found in says.items() if status in found}, f"status {status}")
        # And what they say of each begins with the same words.
        for command in JSON_COMMANDS:
            for status, words in re.findall(r"(?m)^ *(\d)  ([^.,:;]*)", "  " + helped[command]):
                if status not in "23":
                    self.assertIn(re.sub(r"\s+", " ", words), re.sub(r"\s+", " ", page[status]), f"{command}: {status}")

    def test_a_killed_process_is_left_out_and_shown_as_dead_when_asked_for(self):
        self.put()
        done = nccl_ha("status", "--dir", self.dir)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"1 that were killed left statistics behind: see --dead", done.stderr)
        self.assertEqual(self.status(status=0)["dead_files"], 1)
        dead = self.status("--dead", status=0)["processes"]
        self.assertEqual([(p["live"], p["pid"]) for p in dead], [(False, self.process["pid"])])
        self.assertIn("is dead; it left: 4 connections: 4 protected", text("status", "--dead", "--dir", self.dir))

    def test_processes_are_selected_by_job_rank_and_pid(self):
        with Held(self.put(1)), Held(self.put(2)):
            self.assertEqual(len(self.status(status=0)["processes"]), 2)
            self.assertEqual(len(self.status("--pid", str(self.process["pid"]), status=0)["processes"]), 2)
            for words in ["--pid", "1"], ["--job", "other"], ["--rank", "0"]:
                self.assertEqual(self.status(*words, status=0)["processes"], [])
                done = nccl_ha("status", "--dir", self.dir, *words)
                self.assertIn(b"no such process; 2 others use the plugin here", done.stderr)

    @unittest.skipUnless(os.getuid() == 0, "only root sees other users' files")
    def test_root_sees_all_users_and_others_only_themselves(self):
        # TMPDIR may be a folder that others cannot enter, as in scripts/test.
        self.dir = tempfile.mkdtemp(prefix="nccl-ha-test.", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        for path in self.put(1), self.put(2, NOBODY):
            os.chmod(path, 0o600)
        os.chown(self.path(2, NOBODY), NOBODY, NOBODY)
        os.chown(self.put(3, 12345), NOBODY, NOBODY)  # says another user than it belongs to
        with Held(self.path(1)), Held(self.path(2, NOBODY)), Held(self.path(3, 12345)):
            self.assertEqual([p["uid"] for p in self.status(status=0)["processes"]], [0, NOBODY])
            tool = os.path.join(self.dir, "nccl-ha")  # where anybody may reach it
            shutil.copy(TOOL, tool)
            done = subprocess.run([tool, "status", "--json", "--dir", self.dir], user=NOBODY, group=NOBODY, extra_groups=[],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([p["uid"] for p in json.loads(done.stdout)["processes"]], [NOBODY])

    # ---- what is wrong with them --------------------------------------------------------------

    def refused(self, change, message):
        path = self.put()
        change(path)
        with Held(path):
            done = nccl_ha("status", "--dir", self.dir)
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertIn(message, done.stderr.decode())
            self.assertIn("nccl_ha_unreadable_files 1\n", text("metrics", "--dir", self.dir))
        os.unlink(path)

    def test_what_cannot_be_read_is_named_and_passed_over(self):
        def patch(offset, form, value):
            def change(path):
                with open(path, "r+b") as file:
                    file.seek(offset)
                    file.write(struct.pack(form, value))

            return change

        damaged = "damaged, cut off or no statistics file"
        self.refused(lambda path: os.truncate(path, 1000), damaged)
        self.refused(lambda path: os.truncate(path, 20), damaged)
        self.refused(patch(8, "<I", 3), "another version of the plugin (statistics version 3, this program reads 2)")
        self.refused(patch(0, "<Q", 12345), damaged)
        self.refused(patch(24 + 32 + 12, "<I", 0xFFFFFFFF), damaged)  # how many connections
        self.refused(patch(24 + 16, "<Q", 1 << 63), damaged)  # where the ports are

    def test_a_process_that_is_just_starting_is_no_complaint(self):
        for content in b"", b"\0" * 4096:
            with open(self.path(), "wb") as file:
                file.write(content)
            with Held(self.path()):
                self.assertNotIn(b"damaged", nccl_ha("status", "--dir", self.dir).stderr)

    def test_links_pipes_and_other_names_are_not_opened(self):
        os.symlink(self.source, self.path(1))
        os.mkfifo(self.path(2))
        for name in "nccl-ha.x.1", f"nccl-ha.{os.getuid()}.1.2.3", f"nccl-ha.{os.getuid()}.1.sock", "other":
            shutil.copyfile(self.source, os.path.join(self.dir, name))
        self.assertEqual(self.status("--dead", status=0)["unreadable_files"], 0)

    def test_a_file_that_is_cut_again_and_again_never_ends_the_tool(self):
        path = self.put()
        whole = os.path.getsize(path)
        stop = threading.Event()

        def cut():
            while not stop.is_set():
                os.truncate(path, 8192)
                StatisticsFile(self.source).write(path)

        cutter = threading.Thread(target=cut)
        cutter.start()
        seen = set()
        try:
            with Held(path):
                for _ in range(40):
                    done = nccl_ha("status", "--dir", self.dir)
                    seen.add(done.returncode)
                    self.assertIn(done.returncode, (0, 1, 3), done.stderr)
        finally:
            stop.set()
            cutter.join()
        self.assertEqual(os.path.getsize(path), whole)
        self.assertIn(3, seen)  # or nothing was cut while it looked

    def test_names_cannot_write_on_the_terminal_nor_break_json_or_metrics(self):
        file = StatisticsFile(self.source)
        job = file.record("job", 0)
        evil = b'\x1b[2J"\\\n\xff\xfe\0'
        at = 8 + 24  # behind the sequence number and the numbers before job_id
        job[at : at + len(evil)] = evil
        file.write(self.path())
        with Held(self.path()):
            for words in ["status"], ["status", "-v"], ["top", "--count", "1"], ["metrics"]:
                done = nccl_ha(*words, "--dir", self.dir)
                self.assertNotIn(b"\x1b", done.stdout)
            line = next(line for line in text("metrics", "--dir", self.dir).splitlines() if "job_info{" in line)
            self.assertIn(r'job_id="?[2J\"\\???",', line)
            self.assertEqual(self.status()["processes"][0]["job"], '\x1b[2J"\\\n??')

    def test_a_path_that_was_proved_with_gpu_memory_is_said_to_be(self):
        file = StatisticsFile(self.source)
        for proved in 0, 0xF:
            for i in range(4):
                connection = file.record("conns", i)
                connection[GPU_PROVED] = proved.to_bytes(4, "little")  # one bit for each path
            file.write(self.path())
            with Held(self.path()):
                lines = text("status", "-v", "--dir", self.dir)
                self.assertEqual(lines.count("yes, proved with GPU memory"), 4 if proved else 0)
                for connection in self.status("-v")["processes"][0]["connections"]:
                    self.assertTrue(connection["protected"])
                    self.assertEqual(connection["proved_with_gpu_memory"], proved != 0)

    def test_rails_that_were_lost_without_a_failover_are_counted_for_their_port(self):
        counts = [(750, 3_000_000, 0, 0, 0, 0), (250, 1_000_000, 3, 2, 5, 600_000)]
        names = ("stripes", "stripe_bytes", "sheds", "mends", "mended_stripes", "mended_bytes")
        leaks = 3 * 8  # the last members of a port's record
        file = StatisticsFile(self.source)
        for rail, values in enumerate(counts):
            struct.pack_into("<IiI6Q", file.record("ports", rail), file.tables["ports"][1] - leaks - 60, 2, 0, rail, *values)
        file.write(self.path())
        with Held(self.path()):
            self.assertIn("is a bundle of 2 ports: sim0:1 75 % sim1:1 25 %; a rail was lost without a failover 3 times, mended 2\n",
                          text("status", "--dir", self.dir))  # fmt: skip
            metrics = text("metrics", "--dir", self.dir)
            for port, values in zip(self.status()["processes"][0]["ports"], counts):
                self.assertEqual([port["counters"][name] for name in names], list(values))
                for name, value in zip(names, values):
                    self.assertRegex(metrics, rf'(?m)^nccl_ha_port_{name}_total\{{[^}}]*port="{port["port"]}"[^}}]*\}} {value}$')

    def test_what_each_rail_of_a_connection_is_given_and_lost_is_in_status(self):
        # The last members of a connection's record: 4 rails, then 4 rails' losses.
        given = [(768, 10, 3_000_000, 0, 0, 0, 0), (256, 9, 1_000_000, 3, 2, 5, 600_000), (0, 0, 0, 1, 0, 0, 0)]
        names = ("stripes", "bytes", "sheds", "mends", "mended_stripes", "mended_bytes")
        file = StatisticsFile(self.source)
        size = file.tables["conns"][1]
        for i in range(4):
            for rail, (share, stripes, carried, *lost) in enumerate(given):
                record = file.record("conns", i)
                struct.pack_into("<II2Q", record, size - 4 * 32 - (4 - rail) * 24, share, 0, stripes, carried)
                struct.pack_into("<4Q", record, size - (4 - rail) * 32, *lost)
        file.write(self.path())
        with Held(self.path()):
            connections = self.status("-v")["processes"][0]["connections"]
            self.assertEqual(len(connections), 4)
            for connection in connections:
                self.assertEqual([rail["rail"] for rail in connection["rails"]], [0, 1, 2])
                self.assertEqual([rail["share"] for rail in connection["rails"]], [0.75, 0.25, 0])
                for rail, (_, *counts) in zip(connection["rails"], given):
                    self.assertEqual([rail[name] for name in names], counts)
            metrics = text("metrics", "-v", "--dir", self.dir)
            senders = sum(connection["direction"] == "send" for connection in connections)
            self.assertGreater(senders, 0)
            for rail, share in ("0", "0.7500"), ("1", "0.2500"):
                found = re.findall(rf'(?m)^nccl_ha_connection_rail_share\{{[^}}]*rail="{rail}"\}} {share}$', metrics)
                self.assertEqual(len(found), senders)
            self.assertEqual(metrics.count("\nnccl_ha_connection_rail_share{"), 2 * senders)

    def test_what_devices_do_not_take_back_is_in_the_metrics_as_it_is_now(self):
        names, values = ("leaked_queue_pairs", "leaked_registrations", "leaked_objects"), (5, 2, 1)
        file = StatisticsFile(self.source)
        struct.pack_into("<3Q", file.record("ports", 1), file.tables["ports"][1] - 3 * 8, *values)
        file.write(self.path())
        with Held(self.path()):
            metrics = text("metrics", "--dir", self.dir)
            for port, expected in zip(self.status()["processes"][0]["ports"], ((0, 0, 0), values)):
                self.assertEqual([port["counters"][name] for name in names], list(expected))
                for name, value in zip(names, expected):
                    self.assertRegex(metrics, rf'(?m)^nccl_ha_port_{name}\{{[^}}]*port="{port["port"]}"[^}}]*\}} {value}$')

    # ---- many connections ---------------------------------------------------------------------

    def test_1024_connections_are_a_line_or_a_line_each_and_quick(self):
        file = StatisticsFile(self.source)
        count = file.fill_connections()
        file.write(self.path())
        self.assertEqual(count, 1024)
        with Held(self.path()):
            began = time.monotonic()
            lines = text("status", "--dir", self.dir).splitlines()
            self.assertLess(time.monotonic() - began, 0.5 * SLACK)
            self.assertLess(len(lines), 10)
            self.assertIn("1024 connections: 1024 protected", lines[0])
            began = time.monotonic()
            each = text("status", "-v", "--dir", self.dir)
            self.assertLess(time.monotonic() - began, 1 * SLACK)
            self.assertEqual(each.count("\n  0000000000000"), 1024)
            self.assertEqual(len(self.status("-v")["processes"][0]["connections"]), 1024)
            metrics = text("metrics", "--dir", self.dir)
            self.assertNotIn("connection_protected", metrics)
            self.assertEqual(text("metrics", "-v", "--dir", self.dir).count("\nnccl_ha_connection_protected{"), 1024)

    # ---- configuration ------------------------------------------------------------------------

    def test_the_values_of_a_process_are_its_own(self):
        with Held(self.put()):
            values = document("config", "--dir", self.dir, "--pid", str(self.process["pid"]), env={"HA_NCCL_RTO_MS": "77"})
        by_name = {v["name"]: v for v in values["processes"][0]["variables"]}
        self.assertEqual(by_name["HA_NCCL_RTO_MS"], {"name": "HA_NCCL_RTO_MS", "value": "1000", "origin": "default"})
        self.assertEqual(by_name["NCCL_SOCKET_IFNAME"]["origin"], "environment")
        self.assertEqual(by_name["NCCL_SOCKET_IFNAME"]["value"], "lo")

    def test_this_environment_is_checked(self):
        good = {v["name"]: v for v in document("config", env={"HA_NCCL_RTO_MS": "77"})["variables"]}
        timeouts = document("config", env={"NCCL_IB_TIMEOUT": "22"})
        self.assertEqual((timeouts["give_up_ms"], timeouts["nccl_window_ms"]), (274878, 274878))
        self.assertIn("keeps trying for 60000 ms; NCCL's own transport may bear 4295 ms", text("config", env={"NCCL_IB_TIMEOUT": "16"}))
        done = nccl_ha("config", env={"HA_NCCL_OUTAGE_MS": "5000"})
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"HA_NCCL_OUTAGE_MS=5000: a connection without a path fails after 5000 ms", done.stderr)
        self.assertEqual((good["HA_NCCL_RTO_MS"]["value"], good["HA_NCCL_RTO_MS"]["origin"]), ("77", "environment"))
        self.assertEqual(good["HA_NCCL_MAX_RECVS"]["max"], 8)
        self.assertIn("HA_NCCL_RTO_MS  77     environment", text("config", "--changed", env={"HA_NCCL_RTO_MS": "77"}))
        done = nccl_ha("config", "-c", env={"HA_NCCL_RTO_MS": "soon", "HA_NCCL_RTOMS": "1"})
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"HA_NCCL_RTO_MS=soon cannot be used", done.stderr)
        self.assertIn(b"did you mean HA_NCCL_RTO_MS?", done.stderr)
        self.assertIn(b"default: what is set cannot be used", done.stdout)

    # ---- usage --------------------------------------------------------------------------------

    def test_every_command_has_help_and_refuses_what_it_does_not_know(self):
        listing = text("--help")
        self.assertRegex(text("--version"), r"^nccl-ha \d+\.\d+\.\d+(\+\S+)?\n$")
        for command in [line.split()[0] for line in listing.splitlines() if line.startswith("  ")]:
            self.assertIn("Usage: nccl-ha", text(command, "--help"))
            self.assertEqual(nccl_ha(command, "--no-such-option").returncode, 2, command)
        for words in [], ["nonsense"], ["status", "x"], ["status", "--pid", "x"], ["top", "-i", "0"], ["top", "-n", "x"], [
            "events", "--kind", "party"], ["events", "--since", "soon"], ["metrics", "-i", "5"]:  # fmt: skip
            self.assertEqual(nccl_ha(*words).returncode, 2, words)


def event(kind="switch", when="2026-11-22T06:00:00.000Z", connection="00000000000000ab", **more):
    return {
        "time": when, "monotonic_ns": 1, "host": "a", "pid": 7, "rank": 0, "kind": kind, "connection": connection,
        "name": f"send {connection} (a:7 sim0:1 -> b:8 sim0:1)", "reason": "heartbeats lost", "detail": None,
        "from": {"path": 0, "generation": 1, "port": "sim0:1"}, "to": {"path": 1, "generation": 1, "port": "sim1:1"},
        "epoch": 2, "detection_ms": 600.0, "blackout_ms": 612.5, "completed_without_resend": 0, "replayed_messages": 3,
        "replayed_bytes": 96, **more,
    }  # fmt: skip


def line(*args, **more):
    return json.dumps(event(*args, **more)) + "\n"


class Events(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        self.addCleanup(shutil.rmtree, self.dir)

    def file(self, name, *content):
        path = os.path.join(self.dir, name)
        with open(path, "a", encoding="ascii") as out:
            out.write("".join(content))
        return path

    def test_events_of_several_files_are_in_the_order_of_their_times(self):
        a = self.file("a", line(when="2026-11-22T06:00:01.000Z"), line(when="2026-11-22T06:00:03.000Z"))
        b = self.file("b", line("failure", when="2026-11-22T06:00:02.000Z"))
        times = [json.loads(each)["time"][17:19] for each in text("events", "--json", a, b).splitlines()]
        self.assertEqual(times, ["01", "02", "03"])
        shown = text("events", os.path.join(self.dir, "*")).splitlines()
        self.assertEqual(len(shown), 4)
        self.assertIn("sim0:1 (path 0.1) -> sim1:1 (path 1.1): heartbeats lost, detected after 600 ms, blackout 612 ms, 3 replayed",
                      shown[1])  # fmt: skip

    def test_filters(self):
        path = self.file("log", line("failure"), line("switch", connection="00000000000000cd"),
                         line("latch", when="2026-11-22T07:00:00.000Z", rank=3, reason="error completion"))  # fmt: skip

        def kinds(*words):
            return [json.loads(each)["kind"] for each in text("events", "--json", *words, path).splitlines()]

        self.assertEqual(kinds(), ["failure", "switch", "latch"])
        self.assertEqual(kinds("--kind", "switch,latch"), ["switch", "latch"])
        self.assertEqual(kinds("-c", "00000000000000cd"), ["switch"])
        self.assertEqual(kinds("-c", "b:8 sim0"), ["failure", "switch", "latch"])
        self.assertEqual(kinds("--since", "2026-11-22T06:30"), ["latch"])
        self.assertEqual(kinds("--since", "36500d"), ["failure", "switch", "latch"])
        self.assertEqual(kinds("--rank", "3"), ["latch"])
        self.assertEqual(kinds("--reason", "error"), ["latch"])

    def test_every_kind_that_is_taken_is_in_the_manual_and_in_the_table(self):
        refused = nccl_ha("events", "--kind", "party")
        self.assertEqual(refused.returncode, 2)
        kinds = re.search(rb"is none of these: (.*)", refused.stderr).group(1).decode().split()
        self.assertIn("inc-abort", kinds)
        for name in kinds:
            nccl_ha("events", "--kind", name, self.file("one", line(kind=name))).check_returncode()
        with open(os.path.join(ROOT, "docs/man/nccl-ha.1"), encoding="utf-8") as page:
            only = re.search(r"Only these: ([^.]*)\.", page.read()).group(1).replace("\\", "")
        self.assertEqual(re.split(r",\s", only), kinds)
        with open(os.path.join(ROOT, "docs/operations.md"), encoding="utf-8") as page:
            row = next(each for each in page if each.startswith("| `kind` |"))
        for name in kinds:
            self.assertIn("`" + name + "`", row)

    def test_what_is_no_event_is_told_and_passed_over(self):
        path = self.file("log", "not json\n", line(), '{"kind": "switch"}\n', "x" * 100000 + "\n", line(), '{"half')
        done = nccl_ha("events", "--json", path)
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 2))
        self.assertEqual(done.stderr.count(b"no event; passed over"), 2)
        self.assertIn(b"too long", done.stderr)
        self.assertEqual(nccl_ha("events", os.path.join(self.dir, "missing")).returncode, 1)
        self.assertIn(b"no file matches", nccl_ha("events", os.path.join(self.dir, "missing*")).stderr)
        self.assertEqual(nccl_ha("events", self.dir).returncode, 1)

    def test_terminal_codes_in_an_event_are_not_written(self):
        path = self.file("log", line(reason="\x1b[31mred", host="\x1b]0;x\x07"))
        self.assertNotIn("\x1b", text("events", path))

    def test_following_copes_with_growth_cuts_replacement_and_new_files(self):
        first = self.file("events.1", line(reason="one"))
        follower = subprocess.Popen([TOOL, "events", "--follow", "--json", os.path.join(self.dir, "events.*")],
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        self.addCleanup(follower.stdout.close)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        got = []

        def collect():
            for each in follower.stdout:
                got.append(json.loads(each)["reason"])

        threading.Thread(target=collect, daemon=True).start()

        def comes(*reasons):
            wait_for(f"{reasons}, got {got}", lambda: got == list(reasons), 20)

        comes("one")
        half = line(reason="two")
        self.file("events.1", half[:40])
        time.sleep(0.3)
        self.assertEqual(got, ["one"])
        self.file("events.1", half[40:])
        comes("one", "two")
        self.file("events.2", line(reason="three"))
        comes("one", "two", "three")
        os.truncate(first, 0)
        time.sleep(0.3)  # a file that is cut and at once longer again looks like one that grew
        self.file("events.1", line(reason="four"))
        comes("one", "two", "three", "four")
        os.rename(first, os.path.join(self.dir, "old"))
        self.file("events.1", line(reason="five"))
        comes("one", "two", "three", "four", "five")
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(20), 0)


if __name__ == "__main__":
    unittest.main()
