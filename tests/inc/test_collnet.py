# SPDX-License-Identifier: Apache-2.0
"""The plugin's collNet, driven by processes as NCCL drives it (collnet_main.c), over nccl-ha-ctrld and nccl-ha-switchd on a simverbs
fabric: every type and operation, every version of the table, switches that are killed in the middle, and ranks that cannot connect."""

import os
import random
import re
import select
import signal
import socket
import subprocess
import threading
import time
import unittest

import test_switchd
from test_switchd import BUILD, OPS, SLACK, TIMEOUT_S

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RANK = os.path.join(BUILD, "bin", "inc-collnet")
CHECK, PERF, NCCL_HA = (os.path.join(BUILD, "bin", name) for name in ("nccl-net-check", "nccl-net-perf", "nccl-ha"))
PLUGIN = os.path.join(BUILD, "libnccl-net-ha.so")
PLUGIN_V8 = os.path.join(BUILD, "libnccl-net-ha-v8.so")
ALL = 40  # every type with every operation
WRONG_BYTES, REFUSED = 3, 4
REMOTE_ERROR = 6  # ncclRemoteError
KILLS = int(os.environ.get("COLLNET_KILLS", "4"))
APIS = range(8, 13) if "COLLNET_KILLS" in os.environ else (12, 8)
CYCLES = int(os.environ.get("COLLNET_CYCLES", "10"))
EVERY_STEP = "COLLNET_KILLS" in os.environ
# The NIC is what simverbs calls it.
STAR = test_switchd.STAR.replace("nic: n", "nic: sim0").replace("max_fan_in: 2", "max_fan_in: 8")
CLOS = test_switchd.CLOS.replace("nic: n", "nic: sim0")
VARIABLES = {"HA_NCCL_INC": "1", "HA_NCCL_INC_MIN_RANKS": "2", "NCCL_SOCKET_IFNAME": "lo", "HA_NCCL_INC_CONNECT_MS": str(10000 * SLACK),
             "HA_NCCL_INC_RTO_MS": str(30000 * SLACK)}  # fmt: skip


class Ranks(test_switchd.Fabric):
    def rank(self, number, hosts, *words, plugin=PLUGIN, **variables):
        settings = {**VARIABLES, "HA_NCCL_INC_CONTROLLER": self.address, "HA_NCCL_INC_KEY_FILE": self.key_file, "HA_NCCL_INC_HOST": hosts[number], **variables}
        command = [test_switchd.SIMVERBS, "run", self.fabric, str(number), "--", RANK, "--plugin", plugin, "--rank", str(number), "--ranks", str(len(hosts)), *words]
        return self.begin(f"rank{number}", "env", *[f"{name}={value}" for name, value in settings.items()], *command)

    def job(self, hosts, *words, holds=None, others=None, plugin=PLUGIN, **variables):
        """Ranks that have all handles. others: variables of one rank, by its number."""
        ranks = [self.rank(number, hosts, *words, "--hold", str((holds or {}).get(number, 0)), plugin=plugin, **variables, **(others or {}).get(number, {}))
                 for number in range(len(hosts))]  # fmt: skip
        self.carry_handles(ranks)
        return ranks

    def handles_of(self, ranks):
        handles = []
        for rank in ranks:
            self.read_until(rank, f"devices {self.rails}\n")
            handles.append(rank.stdout.readline().split()[1])
        return handles

    def carry_handles(self, ranks):
        self.give_handles(ranks, self.handles_of(ranks))

    def give_handles(self, ranks, handles):
        for rank in ranks:
            rank.stdin.write(" ".join(handles) + "\n")
            rank.stdin.flush()

    def results(self, members):
        said = []
        for number, rank in enumerate(members):
            lines = rank.stdout.read().splitlines()
            status = rank.wait(TIMEOUT_S)
            said.append({**test_switchd.json.loads(lines[-1]), "exit": status, "said": self.errors(f"rank{number}")})
        return said

    def expect_all_right(self, ranks, ops):
        results = self.results(ranks)
        self.assertEqual([(one["exit"], one["done"]) for one in results], [(0, ops)] * len(ranks), results)
        self.assertEqual(len({one["digest"] for one in results}), 1, results)
        return results


    def events_of(self, ranks):
        """By rank: what is in its event log, as `nccl-ha events` has it; the log is named by event_log()."""
        said = subprocess.run([NCCL_HA, "events", "--json", os.path.join(self.top, "events.*")], stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S).stdout
        events = [test_switchd.json.loads(line) for line in said.splitlines()]
        return [[event for event in events if event["rank"] == rank] for rank in range(len(ranks))]

    def event_log(self, ranks):
        """Variables of all ranks, and those of each."""
        return {"HA_NCCL_EVENT_LOG": os.path.join(self.top, "events.%p")}, {rank: {"RANK": str(rank)} for rank in range(len(ranks))}


class Sums(Ranks):
    def test_every_type_and_operation_through_every_version_of_the_table(self):
        self.start_controller(STAR)
        self.serve("s")
        for api in range(8, 13):
            ranks = self.job("abc", "--ops", str(ALL), "--bytes", "30000", "--api", str(api))
            results = self.expect_all_right(ranks, ALL)
            self.assertIn("INFO NET/HA : INC group nccl-", results[0]["said"])
            self.assertNotIn("WARN", results[0]["said"])
            self.expect_free()

    def test_the_plugin_with_the_oldest_tables_alone(self):
        self.start_controller(STAR)
        self.serve("s")
        self.expect_all_right(self.job("ab", "--ops", "8", "--api", "8", plugin=PLUGIN_V8), 8)

    def test_large_ones_through_two_levels_of_switches(self):
        self.start_controller(CLOS)
        self.serve("l0", "l1", "s0")
        # Each type twice; all operations have been added up above.
        self.expect_all_right(self.job("abcd", "--ops", str(ALL // 2), "--bytes", "1000000"), ALL // 2)

    def in_order(self, **settings):
        """Floats of any bits, whose sums have to be those of one switch above all ranks. No two neighbours are below the same leaf."""
        self.start_controller(CLOS)
        self.serve("l0", "l1", "s0")
        return self.job("acbd", "--ops", str(ALL), "--bytes", "30000", "--in-order", **settings)

    def test_sums_have_other_bits_where_leaves_add_first(self):
        self.assertIn(WRONG_BYTES, {one["exit"] for one in self.results(self.in_order())})

    def test_reproducible_sums_have_the_same_bits_by_every_plan(self):
        """Of leaves that forward, and of hosts when all switches are gone in the middle."""
        ranks = self.in_order(HA_NCCL_INC_REPRODUCIBLE="1", holds={3: 10})
        self.read_all_until(ranks, "done 9\n")
        plan = test_switchd.json.loads(self.inc("plan", self.status()["groups"][0]["group"], "--json").stdout)
        self.assertEqual({tree["depth"] for tree in plan["lanes"] + plan["spares"]}, {1}, plan)
        for switch in self.switches.values():
            switch.kill()
        self.go(ranks[3])
        for one in self.expect_all_right(ranks, ALL):
            self.assertIn("goes on by another way", one["said"])

    def test_without_a_switch_that_adds_all_ranks_at_once_reproducible_groups_are_refused(self):
        self.start_controller(STAR.replace("max_fan_in: 8", "max_fan_in: 2"))
        self.serve("s")
        for one in self.results(self.job("abc", HA_NCCL_INC_REPRODUCIBLE="1")):
            self.assertEqual(one["exit"], REFUSED, one)
            self.assertIn("HA_NCCL_INC_REPRODUCIBLE=1 needs a switch that adds all 3 members at once", one["said"])

    def test_again_and_again(self):
        """NCCL makes communicators and destroys them: nothing is left, at the ranks, the switch and the controller."""
        self.start_controller(STAR)
        self.serve("s")
        before = self.held(self.switches["s"])
        ranks = self.job("abc", "--ops", "5", "--bytes", "3000", "--cycles", str(CYCLES))
        of_ranks = None
        for _ in range(CYCLES - 1):
            handles = self.handles_of(ranks)
            of_ranks = of_ranks or self.held(*ranks)
            self.assertEqual(self.held(*ranks), of_ranks)
            self.give_handles(ranks, handles)
        self.expect_all_right(ranks, 5)
        self.expect_free()
        self.assertTrue(test_switchd.wait_for(lambda: self.held(self.switches["s"]) == before))

    def expect_inc(self, status, pattern, *words, **variables):
        """What `nccl-ha inc` says of the controller."""
        settings = {"HA_NCCL_INC_CONTROLLER": self.address, "HA_NCCL_INC_KEY_FILE": self.key_file, **variables}
        done = subprocess.run([NCCL_HA, "inc", *words], env={**os.environ, **settings}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertRegex(done.stdout, pattern)

    def test_the_controller_shows_what_it_has_and_may_end_under_a_job(self):
        self.start_controller(STAR)
        self.expect_inc(1, r"(?m)1 switches, 0 served; 0 groups; 0 plans and 0 refusals since it began\n.*\ns +NO +0 +64 +0 +512$")
        self.serve("s")
        ranks = self.job("abc", "--ops", "12", holds=test_switchd.ALL_AT_4)
        self.read_all_until(ranks, "done 3\n")
        self.expect_inc(0, r"(?m)1 switches, 1 served; 1 groups; 1 plans and 0 refusals since it began\n.*\ns +yes +1 +64 +[1-9][0-9]* +512\n"
                           r".*\nnccl-[0-9a-f]+ +held +3 +[1-3] +- +s s +-$")  # fmt: skip
        self.expect_inc(0, '"groups_most":64', "--json")
        self.expect_inc(2, "which controller", HA_NCCL_INC_CONTROLLER="")
        self.expect_inc(1, "nccl-ha inc: 'nowhere' is not HOST:PORT", "--connect", "nowhere")
        self.expect_inc(1, "no job key from --key-file=/nonexistent", "--key-file", "/nonexistent")
        self.ctrld.kill()
        self.ctrld.wait()
        self.expect_inc(1, "nccl-ha inc: 127.0.0.1:[0-9]+: ")
        self.go(*ranks)
        for one in self.expect_all_right(ranks, 12):
            self.assertNotIn("WARN", one["said"])

    def said_by(self, *words):
        settings = {"HA_NCCL_INC_CONTROLLER": self.address, "HA_NCCL_INC_KEY_FILE": self.key_file}
        return subprocess.run([NCCL_HA, *words], env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S).stdout

    def metrics(self, *words):
        """{metric{labels}: value} of one command, of the processes with our label."""
        said = [line.rsplit(" ", 1) for line in self.said_by(*words).splitlines() if line.startswith("nccl_ha_inc_")]
        return {re.sub(r"\{job_id=.*\}", "", name): float(value) for name, value in said if "job_id" not in name or f'job_id="{self.fabric}",rank="0"' in name}

    def test_metrics_show_what_becomes_of_a_group(self):
        """At the controller, at the switch and at rank 0, before the switch dies and after; the ranks wait in the middle."""
        self.start_controller(STAR)
        self.serve("s")
        self.expect_inc(2, "--json or --metrics, not both", "--json", "--metrics")
        ranks = self.job("abc", "--ops", "12", "--bytes", "6400", holds=test_switchd.ALL_AT_4, others={n: {"RANK": str(n)} for n in range(3)}, SLURM_JOB_ID=self.fabric)
        self.read_all_until(ranks, "done 3\n")
        wanted = {'nccl_ha_inc_controller_groups{state="held"}': 1, "nccl_ha_inc_controller_plans_total": 1, 'nccl_ha_inc_switch_served{switch="s"}': 1,
                  'nccl_ha_inc_switch_groups{switch="s"}': 1, 'nccl_ha_inc_switch_groups_limit{switch="s"}': 64, 'nccl_ha_inc_switch_trees{switch="s"}': 2,
                  'nccl_ha_inc_switch_trees_made_total{switch="s"}': 2, 'nccl_ha_inc_switch_units_total{switch="s"}': 4}  # fmt: skip
        self.assertTrue(test_switchd.wait_for(lambda: wanted.items() <= self.metrics("inc", "--metrics").items()), self.metrics("inc", "--metrics"))
        of_switch = self.metrics("inc", "--metrics")
        page = self.write("page", self.said_by("inc", "--metrics").encode(), 0o600)
        checked = subprocess.run([os.path.join(ROOT, "scripts", "check-dashboard"), "--switches", page], stdout=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT_S)
        self.assertEqual(checked.returncode, 0, checked.stdout)
        wanted = {"nccl_ha_inc_groups": 1, "nccl_ha_inc_groups_alone": 0, "nccl_ha_inc_groups_joined_total": 1, "nccl_ha_inc_all_reduces_total": 4,
                  "nccl_ha_inc_epochs_total": 0, "nccl_ha_inc_units_taken_total": 0, "nccl_ha_inc_units_again_total": 0,
                  "nccl_ha_inc_pause_seconds_count": 0}  # fmt: skip
        self.assertTrue(test_switchd.wait_for(lambda: wanted.items() <= self.metrics("metrics").items()), self.metrics("metrics"))
        added = self.metrics("metrics")["nccl_ha_inc_bytes_total"]
        self.assertEqual(of_switch['nccl_ha_inc_switch_unit_bytes_total{switch="s"}'], added)
        self.switches["s"].kill()
        self.assertTrue(test_switchd.wait_for(lambda: self.metrics("metrics").get("nccl_ha_inc_groups_alone") == 1), self.metrics("metrics"))
        after = self.metrics("metrics")
        self.assertEqual((after["nccl_ha_inc_all_reduces_total"], after["nccl_ha_inc_groups_failed_total"]), (4, 0))
        self.assertGreaterEqual(after["nccl_ha_inc_epochs_total"], 1)
        self.assertGreaterEqual(after["nccl_ha_inc_pause_seconds_count"], 1)
        self.assertGreater(after["nccl_ha_inc_pause_seconds_sum"], 0)
        self.assertEqual(self.metrics("inc", "--metrics")['nccl_ha_inc_switch_served{switch="s"}'], 0)
        self.go(*ranks)
        self.expect_all_right(ranks, 12)

    def test_small_windows_and_units(self):
        self.start_controller(STAR)
        self.serve("s")
        for settings in ({"HA_NCCL_INC_UNIT": "100"}, {"HA_NCCL_INC_WINDOW": "1"}, {"HA_NCCL_INC_COPIES": "0"}):
            self.expect_all_right(self.job("abc", "--ops", "40", "--bytes", "5000", **settings), 40)


class Contract(Ranks):
    def test_every_rule_of_the_contract_is_kept(self):
        """By the oldest and the newest table; tests/contract/test_coll.py shows that each rule finds who breaks it."""
        self.start_controller(STAR)
        self.serve("s")
        settings = {**VARIABLES, "HA_NCCL_INC_CONTROLLER": self.address, "HA_NCCL_INC_KEY_FILE": self.key_file, "HA_NCCL_INC_CONNECT_MS": str(1500 * SLACK)}
        for api in APIS:
            command = [CHECK, "--plugin", PLUGIN, "--collnet", "--fabric", self.fabric, "--api", f"v{api}", "--each", "HA_NCCL_INC_HOST=a,b"]
            checked = self.begin("check", "env", *[f"{name}={value}" for name, value in settings.items()], *command)
            said = checked.stdout.read()
            self.assertEqual(checked.wait(TIMEOUT_S), 0, said + self.errors("check"))
            self.assertRegex(said, r"\n(38|39|40) passed, 0 failed, 0 skipped\n")
        self.assertTrue(test_switchd.wait_for(lambda: {group["state"] for group in self.status()["groups"]} <= {"refused"}), self.status())


class Perf(Ranks):
    def begin_perf(self, *words):
        settings = {**VARIABLES, "HA_NCCL_INC_CONTROLLER": self.address, "HA_NCCL_INC_KEY_FILE": self.key_file, "NCCL_DEBUG": "WARN"}
        return self.begin("perf", "env", *[f"{name}={value}" for name, value in settings.items()], PERF, "--fabric", self.fabric, "--ranks", "4",
                          "--via", "collnet", "--env", "HA_NCCL_INC_HOST=h{rank}", *words)  # fmt: skip

    def topology(self):
        topology = CLOS
        for number, name in enumerate("abcd"):
            topology = topology.replace(f"{{name: {name},", f"{{name: h{number},").replace(f"{{a: {name},", f"{{a: h{number},")
        return topology

    def test_it_measures_beside_the_ring_and_the_switch_may_die(self):
        self.start_controller(self.topology())
        self.serve("l0", "l1", "s0")
        measured = self.begin_perf("--peer-via", "ring", "--sizes", "8,100000", "-n", "4", "--rounds", "3", "-w", "1")
        said = measured.stdout.read()
        self.assertEqual(measured.wait(TIMEOUT_S), 0, said + self.errors("perf"))
        self.assertRegex(said, r'"HA", collNet API v12, HA_NCCL_INC_HOST=h\{rank\}')
        self.assertIn("# wrong elements: 0 in 4 checked of 4 rows", said)
        self.assertRegex(said, "A  [0-9.]+ \\(")
        self.assertNotIn("is refused", self.errors("perf"))
        measured = self.begin_perf("--peer-via", "inccl", "--peer-env", "HA_NCCL_INC_HOST=h{rank}", "--sizes", "0,8,100000,3000000", "-n", "4", "--rounds", "3", "-w", "1")
        said = measured.stdout.read()
        self.assertEqual(measured.wait(TIMEOUT_S), 0, said + self.errors("perf"))
        self.assertIn('"HA", libinccl beside it, HA_NCCL_INC_HOST=h{rank}', said)
        self.assertIn("# wrong elements: 0 in 8 checked of 8 rows", said)
        self.assertEqual(self.status()["plans"], 3)  # one for each collNet, and the communicator's
        measured = self.begin_perf("--sizes", "100000", "--seconds", str(1 * SLACK))
        for line in measured.stdout:
            if "(GB/s)" in line:
                break
        time.sleep(0.3 * SLACK)
        self.switches["l0"].kill()
        said = measured.stdout.read()
        self.assertEqual(measured.wait(TIMEOUT_S), 0, said + self.errors("perf"))
        self.assertRegex(said, "# wrong elements: 0 in [0-9]+ checked of 1 rows")
        self.assertIn("goes on by another way", self.errors("perf"))


class Deaths(Ranks):
    def lose(self, topology, names, hosts, victim, pattern, **settings):
        """A switch is killed while all ranks but the last one wait for it."""
        self.start_controller(topology)
        self.serve(*names)
        middle = max(OPS // 3, 1)
        last = len(hosts) - 1
        log, others = self.event_log(hosts)
        ranks = self.job(hosts, "--ops", str(OPS), "--bytes", "300000", holds={last: middle}, others=others, **settings, **log)
        for rank in ranks:
            self.read_until(rank, f"done {middle - 1}\n")
        self.switches[victim].kill()
        self.go(ranks[last])
        for one in self.expect_all_right(ranks, OPS):
            self.assertRegex(one["said"], pattern)
        self.expect_free()
        self.expect_another_way(self.events_of(ranks))

    def expect_another_way(self, logs):
        """Of the same group at each rank, each way that was tried; units were under way, which have been computed again, or some rank had."""
        for log in logs:
            self.assertEqual([event["kind"] for event in log], ["inc-connect", *["inc-epoch"] * (len(log) - 1)], log)
            self.assertEqual([event["epoch"] for event in log], sorted({event["epoch"] for event in log}), log)
            for event in log[1:]:
                self.assertRegex(event["detail"], "a switch is gone|other ranks lost theirs|nobody answers|switch at [0-9.:]+: Connection (reset by peer|refused)")
                self.assertGreater(event["blackout_ms"], 0)
        self.assertEqual({log[-1]["epoch"] for log in logs}, {logs[0][-1]["epoch"]}, logs)
        self.assertEqual(len({(event["connection"], event["name"]) for log in logs for event in log}), 1, logs)
        self.assertGreater(sum(event["completed_without_resend"] + event["replayed_messages"] for log in logs for event in log[1:]), 0, logs)

    def test_a_switch_killed_in_the_middle_costs_no_element(self):
        self.lose(CLOS, ("l0", "l1", "s0"), "abcd", "l0", "WARN NET/HA : INC group nccl-[0-9a-f]+, rank [0-3]: goes on by another way, for the 1. time, as (a switch is gone|other ranks lost)")

    def drain(self, topology, names, hosts, victim):
        """Of a job that goes on all the while, a switch is ended by a signal. What it says, and what ranks say."""
        self.start_controller(topology)
        self.serve(*names)
        ranks = self.job(hosts, "--ops", str(4 * ALL), "--bytes", "100000")
        self.read_all_until(ranks, "done 9\n")
        begun = time.monotonic()
        self.switches[victim].send_signal(signal.SIGTERM)
        self.assertEqual(self.switches[victim].wait(TIMEOUT_S), 0)
        self.assertLess(time.monotonic() - begun, 2 * SLACK)  # its limit: it was left before
        results = self.expect_all_right(ranks, 4 * ALL)
        for name in names:
            self.assertEqual(self.errors(name), "")
        self.expect_free()
        return results

    def test_a_switch_that_is_ended_is_left_before_it_goes(self):
        """It has hosts below it in one lane, and a switch in the other one."""
        self.expect_left(self.drain(CLOS, ("l0", "l1", "s0"), "abcd", "l0"))

    def expect_left(self, results):
        for one in results:
            self.assertRegex(one["said"], "goes on by another way, for the 1. time, as (a switch is about to end|other ranks lost theirs)")
            self.assertNotIn("a switch is gone", one["said"])
            self.assertNotIn("for the 2. time", one["said"])

    def test_the_only_switch_killed_in_the_middle_costs_no_element(self):
        self.lose(STAR, ("s",), "abc", "s", "goes on by another way")

    def test_a_switch_killed_at_random_moments_costs_no_element(self):
        """Its only one, or one of three, under a job that is connecting, adding or leaving."""
        random.seed(KILLS)
        moved = 0
        for number in range(KILLS):
            topology, names, hosts = ((STAR, ("s",), "abc"), (CLOS, ("l0", "l1", "s0"), "abcd"))[number % 2]
            self.start_controller(topology)
            self.serve(*names)
            ranks = self.job(hosts, "--ops", "60", "--bytes", "200000")
            time.sleep(random.uniform(0, 0.3) * SLACK)
            self.switches[random.choice(names)].kill()
            results = self.results(ranks)
            self.assertIn({one["exit"] for one in results}, ({0}, {REFUSED}), results)
            self.assertEqual(len({one["digest"] for one in results}), 1, results)
            moved += "goes on by another way" in results[0]["said"]
            self.stop()
            self.processes.clear()
            for name in os.listdir(self.top):
                if name.endswith(".err"):
                    os.unlink(os.path.join(self.top, name))
        print(f"{moved} of {KILLS} went on by another way")

    def test_without_a_fallback_all_ranks_end_with_one_error(self):
        self.start_controller(STAR)
        self.serve("s")
        log, others = self.event_log("abc")
        ranks = self.job("abc", "--ops", "12", holds=test_switchd.ALL_AT_4, others=others, HA_NCCL_INC_FALLBACK="none", **log)
        self.read_all_until(ranks, "done 3\n")
        self.switches["s"].kill()
        self.go(*ranks)
        for one in self.results(ranks):
            self.assertEqual((one["exit"], one["done"]), (1, 4), one)
            self.assertIn("its all-reduces have ended: no tree is left, and members do not add for each other", one["said"])
        for log in self.events_of(ranks):
            self.assertEqual([event["kind"] for event in (log[0], log[-1])], ["inc-connect", "inc-abort"], log)
            self.assertRegex(log[-1]["detail"], "^no tree is left")

    def test_a_rank_that_dies_is_named_to_all_others(self):
        self.start_controller(STAR)
        self.serve("s")
        ranks = self.job("abc", "--ops", "12", holds=test_switchd.ALL_AT_4)
        self.read_all_until(ranks, "done 3\n")
        ranks[1].kill()
        begun = time.monotonic()
        self.go(ranks[0], ranks[2])
        for one in self.results([ranks[0], ranks[2]]):
            self.assertEqual((one["exit"], one["result"], one["done"]), (1, REMOTE_ERROR, 4), one)
        for name in ("rank0", "rank2"):
            self.assertIn("its all-reduces have ended: a member's process has ended (member 1,", self.errors(name))
        self.assertLess(time.monotonic() - begun, 2 * SLACK)


class SecondPort(Ranks):
    """Hosts have two ports, of which NCCL has the first one."""

    rails = 2

    def test_a_port_that_goes_down_in_the_middle_costs_no_element(self):
        """While two wait for the last one."""
        self.start_controller(STAR)
        self.serve("s")
        middle = max(OPS // 3, 1)
        log, others = self.event_log("abc")
        ranks = self.job("abc", "--ops", str(OPS), "--bytes", "300000", holds={2: middle}, others=others, **log)
        self.read_all_until(ranks, f"done {middle - 1}\n")
        self.addCleanup(self.link, 1, 0, "up")
        self.link(1, 0, "down")
        self.assertTrue(test_switchd.wait_for(lambda: "goes on by another way" in self.errors("rank1")), self.errors("rank1"))
        self.go(ranks[2])
        results = self.expect_all_right(ranks, OPS)
        self.assertIn(", if its port goes down by sim1", results[1]["said"])
        self.assertRegex(results[1]["said"], "WARN NET/HA : INC group nccl-[0-9a-f]+, rank 1: goes on by another way, for the 1. time, as port sim0:1 is left for sim1:1")
        for one in (results[0], results[2]):
            self.assertRegex(one["said"], "goes on by another way, for the 1. time, as (other ranks lost theirs|a switch is gone)")
        self.expect_free()
        epochs = [event for event in self.events_of(ranks)[1] if event["kind"] == "inc-epoch"]
        self.assertEqual(epochs[0]["detail"], "port sim0:1 is left for sim1:1")

    def test_a_second_nic_that_dies_before_a_group_begins_is_done_without(self):
        """Memory that it does not take is asked for once, and not for each all-reduce."""
        self.start_controller(STAR)
        self.serve("s")
        ranks = [self.rank(number, "abc", "--ops", str(4 * OPS), "--bytes", "1000") for number in range(3)]
        handles = self.handles_of(ranks)
        self.device(1, 1, "kill")
        self.addCleanup(self.device, 1, 1, "revive")
        self.assertTrue(test_switchd.wait_for(lambda: "sim1: device fatal error" in self.errors("rank1")), self.errors("rank1"))
        self.give_handles(ranks, handles)
        results = self.expect_all_right(ranks, 4 * OPS)
        self.assertNotIn("goes on by another way", results[1]["said"])
        self.assertLess(results[1]["said"].count("WARN"), 4 * OPS, results[1]["said"])

    def test_without_backup_there_is_no_other_port(self):
        self.start_controller(STAR)
        self.serve("s")
        for one in self.expect_all_right(self.job("abc", "--ops", "2", "--bytes", "1000", HA_NCCL_ENABLE_BACKUP="0"), 2):
            self.assertIn(", no other port", one["said"])


class Refusals(Ranks):
    """One verdict for all ranks, in time, and a reason."""

    def expect_refused(self, ranks, pattern, limit_s=None):
        begun = time.monotonic()
        results = self.results(ranks)
        self.assertEqual([one["exit"] for one in results], [REFUSED] * len(ranks), results)
        self.assertLess(time.monotonic() - begun, (11 if limit_s is None else limit_s) * SLACK)
        self.assertRegex(" ".join(one["said"] for one in results), pattern)
        for one in results:
            self.assertRegex(one["said"], "WARN NET/HA : INC: a group of [0-9]+ ranks is refused: ")

    def test_off_means_no_devices(self):
        self.address = self.key_file = ""
        for plugin, api in (*((PLUGIN, api) for api in range(8, 13)), (PLUGIN_V8, 8)):
            rank = self.rank(0, "a", "--api", str(api), plugin=plugin, HA_NCCL_INC="0")
            self.assertEqual(rank.stdout.readline(), "devices 0\n")
            self.assertEqual(rank.wait(TIMEOUT_S), REFUSED)

    def test_without_controller_key_switch_or_plan(self):
        self.start_controller(STAR)
        log, others = self.event_log("abc")
        self.expect_refused(self.job("abc", others=others, **log), "no plan: .*that a program serves", 2)
        for events in self.events_of("abc"):
            self.assertEqual([event["kind"] for event in events], ["inc-refused"], events)
            self.assertRegex(events[0]["detail"], "no plan: .*that a program serves")
        self.expect_refused(self.job("abc", HA_NCCL_INC_CONTROLLER=""), "HA_NCCL_INC_CONTROLLER and HA_NCCL_INC_KEY_FILE are needed", 2)
        self.expect_refused(self.job("abc", HA_NCCL_INC_CONTROLLER="nowhere"), "'nowhere' is not HOST:PORT", 2)
        self.expect_refused(self.job("abc", HA_NCCL_INC_KEY_FILE="/nonexistent"), "no job key from HA_NCCL_INC_KEY_FILE=/nonexistent", 2)
        self.expect_refused(self.job("abc", HA_NCCL_INC_MIN_RANKS="4"), "HA_NCCL_INC_MIN_RANKS is 4", 2)
        self.expect_refused(self.job("abc", HA_NCCL_INC_HOST="zz"), "the topology has no zz/sim0", 2)
        self.ctrld.kill()
        self.ctrld.wait()
        self.expect_refused(self.job("abc"), "controller: nobody answers", 2)

    def test_one_rank_that_cannot_is_enough(self):
        self.start_controller(STAR)
        self.serve("s")
        other = self.write("other", os.urandom(32), 0o400)
        for number in range(3):
            for wrong in ({"HA_NCCL_INC_KEY_FILE": other}, {"HA_NCCL_INC_CONTROLLER": ""}, {"HA_NCCL_INC_HOST": "zz"}):
                self.expect_refused(self.job("abc", others={number: wrong}, HA_NCCL_INC_CONNECT_MS="1500"), "no plan|no verdict|controller: ", 3)

    def test_one_rank_of_another_version_is_enough(self):
        """Its words go through somebody who says another version; or the controller's do."""
        self.start_controller(STAR)
        self.serve("s")
        for number, is_rank in ((0, True), (1, False), (2, True)):
            with socket.create_server(("127.0.0.1", 0)) as server:
                between = threading.Thread(target=self.relay, args=(server, is_rank))
                between.start()
                at = "127.0.0.1:%d" % server.getsockname()[1]
                ranks = self.job("abc", others={number: {"HA_NCCL_INC_CONTROLLER": at}}, HA_NCCL_INC_CONNECT_MS="1500")
                self.expect_refused(ranks, "the controller speaks version 4, and this is 5" if is_rank else "speaks version 5, and this is 4", 3)
                between.join(TIMEOUT_S)

    def relay(self, server, is_rank):
        """Of one connection, to its end: whoever is of another version says so in the second four bytes."""
        near, _ = server.accept()
        at, port = self.address.split(":")
        with near, socket.create_connection((at, int(port)), timeout=TIMEOUT_S) as far:
            said = near if is_rank else far
            hello = bytearray(said.recv(40, socket.MSG_WAITALL))
            hello[4] += 1
            (far if is_rank else near).sendall(hello)
            while True:
                ready = select.select([near, far], [], [], TIMEOUT_S)[0]
                data = ready[0].recv(65536) if ready else b""
                if not data:
                    return
                (far if ready[0] is near else near).sendall(data)

    def test_without_room_again_and_again(self):
        """At the only switch, which has another group: nothing is left, at the ranks, the switch and the controller."""
        self.start_controller(STAR.replace("max_fan_in: 8", "max_fan_in: 8, groups: 1"))
        self.serve("s")
        held = self.job("abc", "--ops", "8", holds=test_switchd.ALL_AT_4)
        self.read_all_until(held, "done 3\n")
        before = self.at_rest(self.switches["s"], self.ctrld)
        refused = self.job("abc", "--cycles", str(CYCLES))
        for _ in range(CYCLES - 1):
            self.carry_handles(refused)
        self.expect_refused(refused, "no plan: no switch that reaches all members has room", 2)
        self.assertEqual(sum("is refused: no plan" in line for line in self.errors("rank1").splitlines()), CYCLES)
        self.assertEqual([self.status()[name] for name in ("plans", "refusals")], [1, CYCLES])
        self.assertTrue(test_switchd.wait_for(lambda: [self.descriptors(process) for process in (self.switches["s"], self.ctrld)] == before))
        self.go(*held)
        self.expect_all_right(held, 8)

    def steps(self):
        """How many steps each rank takes until it has connected: whom it dials, and what it says."""
        return [one["steps"] for one in self.expect_all_right(self.job("abc", "--ops", "1"), 1)]

    def die(self, number, step):
        """The others' exits, when this rank has died behind this step; one whose group was refused before, on a slow machine, gets more time."""
        for limit_ms in (1500, 6000, 24000):
            ranks = [self.rank(one, "abc", "--ops", "1", "--dies-at", str(step if one == number else 0), HA_NCCL_INC_CONNECT_MS=str(limit_ms)) for one in range(3)]
            self.carry_handles(ranks)
            begun = time.monotonic()
            exits = [rank.wait(TIMEOUT_S) for rank in ranks]
            self.assertLess(time.monotonic() - begun, limit_ms / 1000 + 1 * SLACK)
            if exits.pop(number) == -signal.SIGKILL:
                return exits
            self.assertEqual(exits, [REFUSED, REFUSED])
        self.fail(f"rank {number} comes to no step {step}")

    def test_a_rank_that_dies_at_a_step_of_connect(self):
        """All others are refused, or all are connected and hear that it is dead."""
        self.start_controller(STAR)
        self.serve("s")
        steps, verdicts = self.steps(), set()
        self.expect_free()
        before = self.at_rest(self.switches["s"], self.ctrld)
        for number, step in ((number, step) for number in range(3) for step in range(1, steps[number] + 1) if EVERY_STEP or step % 3 == number):
            exits = self.die(number, step)
            self.assertLessEqual(set(exits), {1, REFUSED}, (number, step))
            self.assertEqual(len(set(exits)), 1, (number, step))
            verdicts.update(exits)
        self.assertEqual(verdicts, {1, REFUSED})
        self.assertTrue(test_switchd.wait_for(lambda: {group["state"] for group in self.status()["groups"]} <= {"refused"}), self.status())
        self.assertTrue(test_switchd.wait_for(lambda: [self.descriptors(process) for process in (self.switches["s"], self.ctrld)] == before))


if __name__ == "__main__":
    unittest.main()
