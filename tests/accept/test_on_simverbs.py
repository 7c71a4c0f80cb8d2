#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/acceptance from one end to the other on two simulated hosts: it passes where all is well, says what
is not where it is not, and brings a link up again however it ends."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "scripts", "acceptance")
BUILD = os.environ["BUILD"]
SIMVERBS = os.path.join(BUILD, "bin", "simverbs")
SHORT = ("--build", BUILD, "--quick", "--rounds", "2", "--pause-limit", "5000", "--hold", "0.7")


def wait_for(condition, limit_s=30):
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = os.path.join(self.folder, "report.json")

    def acceptance(self, *words, env=None):
        done = subprocess.run([sys.executable, "-B", SCRIPT, *SHORT, "--json", self.out, *words], capture_output=True, text=True,
                              timeout=150, check=False, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})  # fmt: skip
        report = None
        if os.path.exists(self.out):
            with open(self.out, encoding="utf-8") as file:
                report = json.load(file)
        return done, report


class Fabric(Case):
    """With a fabric of our own, which outlives the script."""

    def setUp(self):
        super().setUp()
        self.name = f"test-acceptance-{os.getpid()}"
        subprocess.run([SIMVERBS, "up", self.name], check=True)
        self.addCleanup(subprocess.run, [SIMVERBS, "down", self.name], check=False)

    def prefix(self, host):
        return f"{SIMVERBS} run {self.name} {host} --"

    def status(self):
        return json.loads(subprocess.run([SIMVERBS, "status", self.name, "--json"], capture_output=True, text=True, check=True).stdout)

    def links_down(self):
        return [device for device in self.status()["devices"] if device["link"] != "up"]

    def processes(self):
        return [process for process in self.status()["processes"] if process["alive"]]


class Everything(Case):
    def test_all_of_it_where_all_is_well(self):
        done, report = self.acceptance("--simverbs", "2x2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        verdicts = {line["what"]: line["verdict"] for line in report["verdict"]}
        self.assertNotIn("FAIL", verdicts.values())
        self.assertEqual({(p["from"], p["to"]) for p in report["pairs"] if p["reached"]},
                         {(f"sim{x}:1", f"sim{y}:1") for x in (0, 1) for y in (0, 1)})  # fmt: skip
        self.assertEqual({(r["node"], r["port"], r["standby"]) for r in report["standbys"]},
                         {(n, f"sim{x}:1", f"sim{1 - x}:1") for n in "ab" for x in (0, 1)})  # fmt: skip
        self.assertEqual([(d["node"], d["state_down"], d["moved"], d["restored"], d["wrong"]) for d in report["drills"]],
                         [(n, "down", True, True, 0) for n in "ab"])  # fmt: skip
        for row in report["drills"]:
            self.assertIn("local port down", row["reasons"])
            self.assertGreater(row["checked"], 0)
        self.assertEqual({s["what"] for s in report["speed"]}, {"round trip", "all ports"})
        if shutil.which("ib_write_bw"):
            self.assertIn("perftest", report, [line for line in report["verdict"] if "perftest" in line["what"]])
            self.assertEqual(len(report["perftest"]["plugin"]), 2)
            self.assertTrue(all(value > 0 for value in report["perftest"]["perftest"]))
        self.assertRegex(done.stdout, r"\d+ PASS, \d+ WARN, 0 FAIL: ")
        facts = report["nodes"]["a"]["facts"]
        self.assertEqual([d["name"] for d in facts["devices"]], ["sim0", "sim1"])
        self.assertEqual(facts["devices"][0]["ports"][0]["gbps"], 400)


class Trouble(Fabric):
    def test_a_plugin_without_failover_fails(self):
        done, report = self.acceptance("--simverbs", "2x2", "--steps", "standby,drill", "--proof-time", "1.5", env={"HA_NCCL_ENABLE_BACKUP": "0", "HA_NCCL_QP_TIMEOUT": "14"})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        failed = {line["what"] for line in report["verdict"] if line["verdict"] == "FAIL"}
        self.assertLessEqual({"node a: standby", "node b: standby", "node a: variables", "drill: sim0:1 of node a"}, failed)

    def test_a_pair_that_carries_nothing_is_found_and_the_passed_over_standby_too(self):
        subprocess.run([SIMVERBS, "cut", self.name, "1", "--host", "1"], check=True)
        done, report = self.acceptance("--here", self.prefix(0), "--exec", self.prefix(1), "--steps", "pairs")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        lost = {(p["from"], p["to"]) for p in report["pairs"] if not p["reached"]}
        self.assertEqual(lost, {("sim0:1", "sim1:1"), ("sim1:1", "sim1:1")})
        found = {line["what"]: line["found"] for line in report["verdict"] if line["verdict"] == "FAIL"}
        self.assertIn("sim1:1-sim1:1", found["pairs of a rail"])

    def test_what_is_missing_is_named(self):
        done, _ = self.acceptance("--simverbs", "2x2", "--plugin", "/nowhere/libnccl-net-ha.so")
        self.assertEqual(done.returncode, 2)
        self.assertIn("the plugin is not found", done.stderr)
        done, _ = self.acceptance("--exec", "false")
        self.assertEqual(done.returncode, 2)
        self.assertIn("node's half has ended", done.stderr)
        done, _ = self.acceptance()
        self.assertEqual(done.returncode, 2)
        self.assertIn("name the other node in one way", done.stderr)

    def test_a_token_that_others_may_read_is_not_taken(self):
        path = os.path.join(self.folder, "token")
        for mode, content, message in (0o644, "x", "mode 0600"), (0o640, "x", "mode 0600"), (0o600, "\n", "is empty"):
            with open(path, "w", encoding="ascii") as file:
                file.write(content)
            os.chmod(path, mode)
            done, _ = self.acceptance("--connect", "127.0.0.1:1", "--token-file", path)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)
        done, _ = self.acceptance("--connect", "127.0.0.1:1", env={"HA_ACCEPTANCE_TOKEN": ""})
        self.assertIn("needs the token that --listen printed", done.stderr)


class Halves(Fabric):
    def test_two_halves_started_by_hand(self):
        listen = subprocess.Popen([*self.prefix(1).split(), sys.executable, "-B", "-u", SCRIPT, "--listen", "127.0.0.1:0"],
                                  stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(listen.kill)
        printed = listen.stdout.readline()
        self.assertNotIn("--token", printed)
        token = re.search(r": HA_ACCEPTANCE_TOKEN=(\S+) scripts/acceptance --connect ", printed)[1]
        place = re.search(r"waiting on (\S+)", listen.stdout.readline())[1]
        done, _ = self.acceptance("--here", self.prefix(0), "--connect", place, "--token", "wrong", "--steps", "environment")
        self.assertEqual(done.returncode, 2)
        self.assertIn("can read --token in ps", done.stderr)
        done, report = self.acceptance("--here", self.prefix(0), "--connect", place, "--steps", "standby",
                                       env={"HA_ACCEPTANCE_TOKEN": token})  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual({r["standby"] for r in report["standbys"]}, {"sim0:1", "sim1:1"})
        self.assertEqual(listen.wait(timeout=20), 0)
        listen.stdout.close()


    def test_two_halves_of_a_job_with_a_key_need_no_token_and_none_without_it_is_heard(self):
        keys = []
        for name in ("key", "other"):
            keys.append(os.path.join(self.folder, name))
            with open(os.open(keys[-1], os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
                file.write(os.urandom(32))
        listen = subprocess.Popen([*self.prefix(1).split(), sys.executable, "-B", "-u", SCRIPT, "--listen", "127.0.0.1:0"],
                                  stdout=subprocess.PIPE, text=True, env={**os.environ, "HA_NCCL_JOB_KEY_FILE": keys[0]})  # fmt: skip
        self.addCleanup(listen.kill)
        self.assertIn("with the same job key: scripts/acceptance --connect ", listen.stdout.readline())
        place = re.search(r"waiting on (\S+)", listen.stdout.readline())[1]
        words = ["--here", self.prefix(0), "--connect", place, "--steps", "standby"]
        for env in {"HA_NCCL_JOB_KEY_FILE": keys[1]}, {"HA_ACCEPTANCE_TOKEN": "guessed"}:
            done, _ = self.acceptance(*words, env=env)
            self.assertEqual(done.returncode, 2)
            self.assertIn("turned away 127.0.0.1: a line with a wrong code came in", listen.stdout.readline())
        done, _ = self.acceptance(*words, env={"HA_NCCL_AUTH": "required"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("HA_NCCL_AUTH=required, and there is no key", done.stderr)
        done, report = self.acceptance(*words, env={"HA_NCCL_JOB_KEY_FILE": keys[0]})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual({r["standby"] for r in report["standbys"]}, {"sim0:1", "sim1:1"})
        self.assertEqual(listen.wait(timeout=20), 0)
        listen.stdout.close()

    def test_over_ssh(self):
        """With a program in its place that takes ssh's words and hands the command to a shell, as sshd does."""
        with open(os.path.join(self.folder, "ssh"), "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/sh
while :; do case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done
[ "$1" = other-node ] || exit 255
shift
SSH_CONNECTION='127.0.0.1 4711 127.0.0.1 22' exec {self.prefix(1)} sh -c "$*"
""")
        os.chmod(os.path.join(self.folder, "ssh"), 0o755)
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        done, report = self.acceptance("--here", self.prefix(0), "other-node", "--steps", "standby", env=path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(report["nodes"]["b"]["facts"]["ssh"].split()[0], "127.0.0.1")
        done, _ = self.acceptance("--here", self.prefix(0), "nobody", "--steps", "standby", env=path)
        self.assertEqual(done.returncode, 2)


class Installed(Case):
    def test_the_installed_script_finds_what_is_installed(self):
        prefix = os.path.join(self.folder, "usr")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True)
        script = os.path.join(prefix, "share", "nccl-ha", "scripts", "acceptance")
        done = subprocess.run([script, "--simverbs", "2x2", "--steps", "standby", "--json", self.out], capture_output=True, text=True,
                              timeout=100, check=False, stdin=subprocess.DEVNULL)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.out, encoding="utf-8") as file:
            about = json.load(file)["nodes"]["b"]["about"]
        for thing in ("plugin", "perf", "simverbs"):
            self.assertTrue(about[thing].startswith(prefix), about)


class Endings(Fabric):
    def interrupted(self, number):
        words = ["--here", self.prefix(0), "--exec", self.prefix(1), "--steps", "drill", "--hold", "300"]
        process = subprocess.Popen([sys.executable, "-B", SCRIPT, *SHORT, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   stdin=subprocess.DEVNULL)  # fmt: skip
        self.addCleanup(process.kill)
        self.assertTrue(wait_for(self.links_down), "no link went down")
        process.send_signal(number)
        self.assertNotEqual(process.wait(timeout=60), 0)
        self.assertTrue(wait_for(lambda: not self.links_down()), "the link stays down")
        self.assertTrue(wait_for(lambda: not self.processes()), "processes stay behind")

    def test_interrupted_in_the_middle_of_a_drill(self):
        self.interrupted(signal.SIGINT)

    def test_killed_in_the_middle_of_a_drill(self):
        self.interrupted(signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
