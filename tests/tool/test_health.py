# SPDX-License-Identifier: Apache-2.0
"""nccl-ha health beside jobs whose rails are cut and mended, without any, and over files meant to harm; and what watches
hosts with it: the plugin for node-problem-detector, the check for LBNL Node Health Check and node_exporter's textfile."""

import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

from job import LIMIT_S, TOOL, Held, Job, StatisticsFile, document, nccl_ha, text, wait_for

GOOD, DEGRADED, NO_JOB, UNPROTECTED, STOPPED = 0, 1, 3, 4, 5
PREFERRED = struct.Struct("<IiQ40s")  # in a connection's record before what it says of each of 4 rails
RAILS_BYTES = 4 * (24 + 32)
AT_PREFERRED = slice(-PREFERRED.size - RAILS_BYTES, -RAILS_BYTES)
PORT_STATE = 8 + 8 + 64 + 8  # in a port's record
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MONITORING = os.path.join(ROOT, "docs", "monitoring")


def samples(page, name):
    """{labels: value} of a metric."""
    return {labels: float(value) for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.MULTILINE)}


def checked(*words, tool=TOOL):
    """Exit status and line of the check for monitors."""
    done = subprocess.run([os.path.join(MONITORING, "nccl-ha-check"), *words], env={**os.environ, "NCCL_HA": tool},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)  # fmt: skip
    return done.returncode, done.stdout.decode().rstrip("\n")


class ProblemDetector:
    """What node-problem-detector does with a custom plugin's file, as its documentation has it: each rule's program is
    run; 0 is well, 1 is the problem, all else is not known; what it prints is cut and becomes the message. A permanent
    rule sets a condition, a temporary one makes an event."""

    def __init__(self, path):
        with open(path, encoding="ascii") as file:
            self.config = json.load(file)
        assert self.config["plugin"] == "custom" and self.config["source"]
        self.conditions = {each["type"]: each for each in self.config["conditions"]}
        for rule in self.config["rules"]:
            assert rule["type"] in ("permanent", "temporary")
            assert rule["reason"] and rule["path"].startswith("/usr/share/nccl-ha/monitoring/")
            assert rule["type"] == "temporary" or rule["condition"] in self.conditions

    def run(self, *more):
        """({condition: (status, reason, message)}, [(reason, message) of events])"""
        settings, conditions, events = self.config["pluginConfig"], {}, []
        for rule in self.config["rules"]:
            began = time.monotonic()
            status, said = checked(*rule.get("args", []), *more)
            assert time.monotonic() - began < float(settings["timeout"].rstrip("s"))
            said = said.strip()[: settings["max_output_length"]]
            word = {0: "False", 1: "True"}.get(status, "Unknown")
            if rule["type"] == "permanent":
                default = self.conditions[rule["condition"]]
                well = default["reason"], default["message"]
                conditions[rule["condition"]] = (word, *(well if word == "False" else (rule["reason"], said)))
            elif word != "False":
                events.append((rule["reason"], said))
        return conditions, events


# What LBNL Node Health Check does with a check, as its documentation has it: files of a folder are sourced, and a check
# that fails calls die.
NHC_STAND_IN = """
die() { printf 'ERROR:  nhc:  Health check failed:  %s\n' "${*:2}"; }
for file in "$1"/*.nhc; do . "$file"; done
shift
"$@" || exit 1
"""


def nhc_scripts():
    """Those that come with Node Health Check; None where it is not installed."""
    folder = os.environ.get("NHC_SCRIPTS", "/etc/nhc/scripts")
    return folder if shutil.which("nhc") and os.path.exists(os.path.join(folder, "common.nhc")) else None


def node_health_check(real, folder, *words):
    """Exit status and what is said: of the real program, or of its stand-in."""
    environment = {**os.environ, "NCCL_HA": TOOL, "NCCL_HA_CHECK": os.path.join(MONITORING, "nccl-ha-check")}
    scripts = os.path.join(folder, "scripts")
    os.makedirs(scripts, exist_ok=True)
    shutil.copy(os.path.join(MONITORING, "nccl_ha.nhc"), scripts)
    if real:
        shutil.copytree(nhc_scripts(), scripts, dirs_exist_ok=True)
        with open(os.path.join(folder, "nhc.conf"), "w", encoding="ascii") as file:
            file.write("* || check_nccl_ha " + " ".join(words) + "\n")
        command = ["nhc", "-D", folder, "MARK_OFFLINE=0", "NHC_RM=slurm", f"LOGFILE={folder}/log"]
    else:
        command = ["bash", "-c", NHC_STAND_IN, "nhc", scripts, "check_nccl_ha", *words]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=LIMIT_S, check=False)  # fmt: skip
    return done.returncode, done.stdout.decode()


ALL_GOOD = {"sim0:1": {"good"}, "sim1:1": {"good"}}


class HealthOfAJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.job = Job("--op", "allreduce", "--sizes", "64K", "--chunk", "16K", "-C", "2", "--seconds", "300",
                      env={"HA_NCCL_OUTAGE_MS": "60000"})  # fmt: skip
        try:
            cls.job.wait_until_protected(4)
        except BaseException:
            cls.job.end()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.job.end()

    def tearDown(self):
        for rail in "0", "1":
            self.job.simverbs("cut", rail, "--heal")
            for host in "0", "1":
                self.job.simverbs("link", host, rail, "up")
        self.comes(GOOD, ALL_GOOD)

    def health(self):
        """Exit status and document."""
        done = nccl_ha("health", "--job", self.job.id, "--json")
        return done.returncode, json.loads(done.stdout)

    def comes(self, status, states=None):
        """Until this is the verdict, and, where given, the states of the ports by name."""

        def there():
            got, shown = self.health()
            by_name = {}
            for port in shown["ports"]:
                by_name.setdefault(port["port"], set()).add(port["state"])
            return (got == status and (states is None or by_name == states)) and shown

        return wait_for(f"status {status}, {states}", there)

    def test_all_is_good(self):
        shown = self.comes(GOOD, ALL_GOOD)
        self.assertEqual((shown["format"], shown["state"], shown["processes"]), (1, "good", 2))
        self.assertEqual([port["state"] for port in shown["ports"]], ["good"] * 4)  # two simulated hosts
        self.assertEqual({port["fault"] for port in shown["ports"]}, {None})
        self.assertEqual(sum(port["connections"] for port in shown["ports"]), 8)
        lines = text("health", "--job", self.job.id).splitlines()
        self.assertEqual(len(lines), 4)
        for line in lines:
            self.assertRegex(line, r"^good sim[01]:1: \d connections$")

    def test_a_cut_cable_is_degraded_since_then_and_good_when_it_is_mended(self):
        began = time.time()
        self.job.simverbs("cut", "0")
        self.comes(DEGRADED, {"sim0:1": {"degraded"}, "sim1:1": {"unprotected"}})

        def left():
            ports = [port for port in self.health()[1]["ports"] if port["port"] == "sim0:1"]
            return all(port["left"] == 2 for port in ports) and ports

        for port in wait_for("all that left it", left):
            self.assertEqual((port["served_by"], port["connections"]), ("sim1:1", 0))
            since = time.mktime(time.strptime(port["since"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
            self.assertTrue(int(began) <= since <= time.time(), port)
            # Both ends say active, and there is but one other end.
            self.assertEqual(port["fault"]["at"], "between")
            self.assertEqual(port["fault"]["remote_ports"],
                             [{"host": "127.0.0.1", "port": "sim0:1", "says": "active", "answers": False}])  # fmt: skip
        first = text("health", "--job", self.job.id, status=DEGRADED).splitlines()[0]
        self.assertRegex(first, r"^degraded sim0:1: served by a standby \(sim1:1\) since \S+Z, drain at the next checkpoint; "
                                r"127\.0\.0\.1 sim0:1 does not answer over it")  # fmt: skip
        page = text("metrics", "--job", self.job.id)
        degraded = [labels for labels, value in samples(page, "nccl_ha_port_health").items() if value and 'state="degraded"' in labels]
        self.assertEqual(len(degraded), 2)
        for labels in degraded:
            self.assertIn('port="sim0:1"', labels)
            left = samples(page, "nccl_ha_port_left_time_seconds")[labels.replace(',state="degraded"', "")]
            self.assertTrue(int(began) <= left <= time.time())
        self.job.simverbs("cut", "0", "--heal")
        # Traffic stays where it is, and that is good.
        shown = self.comes(GOOD)
        self.assertEqual({port["since"] for port in shown["ports"]}, {None})

    def told_of_a_cut_and_of_its_end(self, look):
        """look(degraded) checks what is said while all is well, while a rail is cut, and afterwards."""
        look(False)
        self.job.simverbs("cut", "0")
        self.comes(DEGRADED, {"sim0:1": {"degraded"}, "sim1:1": {"unprotected"}})
        look(True)
        self.job.simverbs("cut", "0", "--heal")
        self.comes(GOOD)
        look(False)

    def test_a_stand_in_for_node_problem_detector_is_told_of_a_cut_and_of_its_end(self):
        detector = ProblemDetector(os.path.join(MONITORING, "node-problem-detector.json"))
        job = "--job", self.job.id
        well = {"NcclPortDegraded": ("False", "NcclPortsServe", "no port of a running job is served by a standby")}

        def look(degraded):
            conditions, events = detector.run(*job)
            if not degraded:
                self.assertEqual((conditions, events), (well, []))
                return
            status, reason, message = conditions["NcclPortDegraded"]
            self.assertEqual((status, reason, events), ("True", "DrainAtNextCheckpoint", []))
            self.assertRegex(message, r"^degraded sim0:1: served by a standby \(sim1:1\) since .*drain at the next checkpoint")
            self.assertRegex(checked("unprotected", *job)[1], "^unprotected sim1:1: nothing could take over")

        self.told_of_a_cut_and_of_its_end(look)

    def health_check(self, real):
        with tempfile.TemporaryDirectory() as folder:

            def look(degraded):
                status, said = node_health_check(real, folder, "--job", self.job.id)
                self.assertEqual(status, int(degraded), said)
                if degraded:
                    self.assertIn("check_nccl_ha:  degraded sim0:1: served by a standby", said)
                else:
                    self.assertEqual(said, "")

            self.told_of_a_cut_and_of_its_end(look)

    def test_a_stand_in_for_node_health_check_is_told_of_a_cut_and_of_its_end(self):
        self.health_check(real=False)

    @unittest.skipUnless(nhc_scripts(), "Node Health Check is not installed: its stand-in alone was told, by the test before")
    def test_node_health_check_itself_is_told_of_a_cut_and_of_its_end(self):
        self.health_check(real=True)

    def test_a_port_that_is_down_is_degraded_on_its_own_host_and_not_on_the_other(self):
        self.job.simverbs("link", "0", "0", "down")
        shown = self.comes(DEGRADED, {"sim0:1": {"degraded", "good"}, "sim1:1": {"unprotected"}})
        here, there = sorted((port for port in shown["ports"] if port["port"] == "sim0:1"), key=lambda port: port["state"])
        self.assertEqual((here["fault"]["at"], there["fault"]["at"]), ("here", "elsewhere"))
        self.assertIn("it is down: look at its cable", here["text"])
        self.assertIn("the other end says that 127.0.0.1 sim0:1 is down", there["text"])
        self.assertNotIn("drain", there["text"])

    def test_an_outage_that_was_survived_is_good_again(self):
        self.job.simverbs("cut", "0")
        self.job.simverbs("cut", "1")
        shown = self.comes(STOPPED)
        self.assertIn("no path is left for ", shown["ports"][0]["text"])
        wait_for("an outage", lambda: any(c["counters"]["outages"] for p in self.job.status("-v")["processes"]
                                          for c in p["connections"]))  # fmt: skip
        self.comes(STOPPED)
        self.assertEqual(checked("stopped", "--job", self.job.id)[0], 1)
        for rail in "0", "1":
            self.job.simverbs("cut", rail, "--heal")
        self.comes(GOOD)
        self.assertEqual(checked("stopped", "--job", self.job.id), (0, "every port is good"))

    def test_a_port_that_is_drained_is_no_fault(self):
        done = nccl_ha("failover", "--job", self.job.id, "--port", "sim0:1")
        self.assertEqual(done.returncode, 0, done.stderr)
        try:
            shown = self.comes(GOOD, {"sim0:1": {"drained"}, "sim1:1": {"good"}})
            self.assertEqual(shown["state"], "drained")
        finally:
            nccl_ha("failback", "--job", self.job.id)


class HealthOfOtherHosts(unittest.TestCase):
    def test_a_host_with_a_single_port_is_unprotected(self):
        job = Job("--simverbs", "2x1", "--sizes", "4K", "--seconds", "60")
        self.addCleanup(job.end)
        wait_for("connections", lambda: job.status()["summary"]["connections"] == 4)
        # A rank that gets no processor for long looks as if its port were gone, until it gets one.
        lines = ["unprotected sim0:1: nothing could take over from it for 2 connections"] * 2
        wait_for("the verdict", lambda: text("health", "--job", job.id, status=None).splitlines() == lines)
        wait_for("its status", lambda: nccl_ha("health", "--job", job.id).returncode == UNPROTECTED)
        states = ["unprotected"] * 2
        wait_for("it as JSON", lambda: [port["state"] for port in document("health", "--job", job.id, status=None)["ports"]] == states)

    def test_without_a_job_there_is_nothing_to_say(self):
        with tempfile.TemporaryDirectory() as folder:
            done = nccl_ha("health", "--dir", folder)
            self.assertEqual((done.returncode, done.stdout), (NO_JOB, b""))
            self.assertIn(b"uses the plugin here", done.stderr)
            shown = document("health", "--dir", folder, status=0)
            self.assertEqual((shown["state"], shown["ports"]), (None, []))

    def test_a_check_that_cannot_be_made_is_not_known(self):
        with tempfile.TemporaryDirectory() as folder:
            for state in "degraded", "unprotected", "stopped":
                self.assertEqual(checked(state, "--dir", folder), (0, "no process uses nccl-ha here"))
            self.assertEqual(checked("degraded", "--no-such-option")[0], 2)
            status, said = checked("degraded", tool="/nonexistent/nccl-ha")
            self.assertEqual(status, 2)
            self.assertIn("/nonexistent/nccl-ha", said)
            for words in [], ["party"]:
                self.assertEqual(checked(*words)[0], 2)
                self.assertIn("usage: nccl-ha-check degraded|unprotected|stopped", checked(*words)[1])

    def test_a_file_meant_to_harm_says_no_more_than_a_file_can(self):
        folder = tempfile.mkdtemp(prefix="nccl-ha-test.")
        self.addCleanup(shutil.rmtree, folder)
        source = os.path.join(folder, "source")
        job = Job("--sizes", "64K", "-C", "2", "--seconds", "30")
        try:
            job.wait_until_protected(4)
            shutil.copyfile(job.status()["processes"][0]["file"], source)
        finally:
            job.end()
        path = os.path.join(folder, f"nccl-ha.{os.getuid()}.1234")
        file = StatisticsFile(source)
        evil = b'\x1b[2J"\\\n\xff\xfe' + b"x" * 32  # does not end
        for i, (marks, device, left_ns) in enumerate([
            (0xFFFFFFFF, 0, 1), (1 | 16, 0, (1 << 64) - 1), (1 | 4, -5, 1), (1 | 16, 0x7FFFFFFF, 1)]):  # fmt: skip
            record = file.record("conns", i)
            record[AT_PREFERRED] = PREFERRED.pack(marks, device, left_ns, evil)
        struct.pack_into("<I", file.record("ports", 0), PORT_STATE, 77)
        file.write(path)
        with Held(path):
            done = nccl_ha("health", "--dir", folder)
            self.assertEqual(done.returncode, DEGRADED)
            self.assertNotIn(b"\x1b", done.stdout)
            self.assertEqual(len(done.stdout.splitlines()), 2)
            shown = document("health", "--dir", folder, status=DEGRADED)["ports"][0]
            self.assertEqual(shown["fault"]["remote_ports"][0]["port"], '?[2J"\\???' + "x" * 30)
            self.assertEqual(shown["left"], 1)
            self.assertNotIn("\x1b", text("metrics", "--dir", folder))

    def test_of_a_plugin_that_does_not_say_what_it_left_the_ports_tell(self):
        """Of an earlier version: its records end before that."""
        folder = tempfile.mkdtemp(prefix="nccl-ha-test.")
        self.addCleanup(shutil.rmtree, folder)
        job = Job("--sizes", "64K", "-C", "2", "--seconds", "60")
        self.addCleanup(job.end)
        job.wait_until_protected(4)
        job.simverbs("cut", "0")
        source = job.status()["processes"][0]["file"]
        path = os.path.join(folder, f"nccl-ha.{os.getuid()}.1234")

        def shown_of_a_copy():
            file = StatisticsFile(source)
            for i in range(4):
                file.record("conns", i)[AT_PREFERRED] = bytes(PREFERRED.size)
            file.write(path)
            with Held(path):
                shown = document("health", "--dir", folder, status=None)
            return shown["state"] == "degraded" and shown["ports"][0]

        shown = wait_for("a port that is silent", shown_of_a_copy)
        self.assertEqual((shown["port"], shown["since"], shown["left"]), ("sim0:1", None, 0))
        self.assertIn("out of use, drain at the next checkpoint; nobody answers over it", shown["text"])


if __name__ == "__main__":
    unittest.main()
