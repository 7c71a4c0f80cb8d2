# SPDX-License-Identifier: Apache-2.0
"""libinccl, by programs that have its header alone (inccl_main.c), over nccl-ha-ctrld and nccl-ha-switchd on a simverbs fabric: every type and
operation, whatever is registered, a switch that is killed in the middle, and each error within its time."""

import os
import re
import subprocess
import unittest

import test_switchd
from test_switchd import SLACK, TIMEOUT_S

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RANK, SHORT, KINDS, RULES, EXAMPLE = (os.path.join(test_switchd.BIN, f"inccl-{name}") for name in ("rank", "short", "kinds", "rules", "example"))
ALL = 40  # every type with every operation
OK, ARGUMENT, REFUSED, REMOTE, TIMEOUT, DISAGREE = 0, -1, -3, -4, -5, -6
# The NIC is what simverbs calls it.
STAR = test_switchd.STAR.replace("nic: n", "nic: sim0").replace("max_fan_in: 2", "max_fan_in: 8")
CLOS = test_switchd.CLOS.replace("nic: n", "nic: sim0")


class Programs(test_switchd.Fabric):
    def program(self, number, hosts, *words, **options):
        """options: of this rank, in place of those that fit."""
        said = {"rank": number, "ranks": len(hosts), "connect": self.address, "key-file": self.key_file, "host": hosts[number], "group": f"job{self._testMethodName[-20:]}",
                "connect-ms": 10000 * SLACK, "late-ms": 30000 * SLACK, **{name.replace("_", "-"): value for name, value in options.items()}}  # fmt: skip
        return self.begin(f"rank{number}", RANK, *[f"--{name}={value}" for name, value in said.items()], *words, on=number)

    def job(self, hosts, *words, others=None, **options):
        """others: options of one rank, by its number."""
        return [self.program(rank, hosts, *words, **{**options, **(others or {}).get(rank, {})}) for rank in range(len(hosts))]

    def ends(self, ranks):
        results = []
        for number, rank in enumerate(ranks):
            lines = rank.stdout.read().splitlines()
            status = rank.wait(TIMEOUT_S)
            self.assertTrue(lines, self.errors(f"rank{number}"))
            results.append({**test_switchd.json.loads(lines[-1]), "exit": status, "said": self.errors(f"rank{number}")})
        return results

    def expect_all_right(self, ranks, ops):
        results = self.ends(ranks)
        self.assertEqual([(one["exit"], one["result"], one["done"]) for one in results], [(0, OK, ops)] * len(ranks), results)
        self.assertEqual(len({one["digest"] for one in results}), 1, results)
        return results

    def expect_error(self, ranks, code, pattern, limit_s, or_else=None):
        """The same one at all of them, in time. or_else: what it is for those who hear it from the controller."""
        for one in self.ends(ranks):
            self.assertEqual(one["exit"], 1, one)
            self.assertIn(one["result"], (code, or_else), one)
            self.assertRegex(one["why"], pattern)
            self.assertLess(one["took_s"], limit_s * SLACK, one)


class Sums(Programs):
    def test_every_type_and_operation_whatever_is_registered(self):
        self.start_controller(STAR)
        self.serve("s")
        for one in self.expect_all_right(self.job("abc", "--ops", str(ALL), "--bytes", "30000"), ALL):
            self.assertEqual(one["said"], "")
        self.expect_free()

    def test_operations_of_several_pieces_through_two_levels_of_switches(self):
        self.start_controller(CLOS)
        self.serve("l0", "l1", "s0")
        self.expect_all_right(self.job("abcd", "--ops", "8", "--bytes", "1300001"), 8)

    def test_units_that_are_larger_than_a_piece(self):
        self.start_controller(STAR)
        self.serve("s")
        self.expect_all_right(self.job("abc", "--ops", "6", "--bytes", "3000000", unit=1 << 20), 6)

    def test_one_communicator_after_the_other_leaves_nothing(self):
        self.start_controller(STAR)
        self.serve("s")
        before = self.descriptors(self.switches["s"])
        self.expect_all_right(self.job("abc", "--ops", "7", "--bytes", "3000", "--comms", "5"), 35)
        self.expect_free()
        self.assertTrue(test_switchd.wait_for(lambda: self.descriptors(self.switches["s"]) == before))

    def test_a_switch_killed_in_the_middle_costs_no_element(self):
        self.start_controller(CLOS)
        self.serve("l0", "l1", "s0")
        ranks = self.job("abcd", "--ops", str(ALL), "--bytes", "300000", others={3: {"hold": 13}})
        self.read_all_until(ranks, "done 12\n")  # three go on, and switches have what they contribute
        self.switches["l0"].kill()
        self.go(ranks[3])
        for one in self.expect_all_right(ranks, ALL):
            self.assertRegex(one["said"], "goes on by another way, for the 1. time")
        self.expect_free()


    def test_the_example_is_in_the_page_and_right(self):
        with open(os.path.join(ROOT, "docs", "examples", "inccl.c"), encoding="utf-8") as file, open(os.path.join(ROOT, "docs", "inc.md"), encoding="utf-8") as page:
            self.assertIn("```c\n" + file.read() + "```\n", page.read())
        self.start_controller(STAR)
        self.serve("s")
        self.expect_said("6 6\n", [(EXAMPLE, self.address, self.key_file, str(rank), "3") for rank in range(3)])

    def test_what_the_header_says_of_calls(self):
        """Two ranks in one process, and so on one NIC."""
        self.start_controller(STAR)
        self.serve("s")
        self.expect_said("fine\n", [(RULES, self.address, self.key_file)])

    def test_the_short_forms(self):
        self.start_controller(STAR)
        self.serve("s")
        self.expect_said("0\n", [(SHORT, self.address, str(rank), "3") for rank in range(3)], f"HA_NCCL_INC_KEY_FILE={self.key_file}")

    def start(self, programs, *settings):
        return [self.begin(f"rank{rank}", "env", f"HA_NCCL_INC_HOST={'abcd'[rank]}", *settings, test_switchd.SIMVERBS, "run", self.fabric, str(rank), "--", *words)
                for rank, words in enumerate(programs)]  # fmt: skip

    def expect_said(self, text, programs, *settings):
        """All of them say it last, and end well."""
        for number, rank in enumerate(self.start(programs, *settings)):
            self.assertEqual((rank.stdout.read().splitlines()[-1] + "\n", rank.wait(TIMEOUT_S)), (text, 0), self.errors(f"rank{number}"))

    def test_all_kinds_of_operations(self):
        self.start_controller(CLOS)
        self.serve("l0", "l1", "s0")
        self.expect_said("0\n", [(KINDS, self.address, str(rank), "4", "30000", "40") for rank in range(4)], f"HA_NCCL_INC_KEY_FILE={self.key_file}")
        self.expect_free()

    def test_all_kinds_of_operations_in_several_pieces(self):
        self.start_controller(STAR)
        self.serve("s")
        self.expect_said("0\n", [(KINDS, self.address, str(rank), "3", "700001", "3") for rank in range(3)], f"HA_NCCL_INC_KEY_FILE={self.key_file}")

    def test_all_kinds_of_operations_without_a_switch_left(self):
        """What nobody contributes to is contributed again, and results that are not wanted are sent to who lacks them."""
        self.start_controller(STAR)
        self.serve("s")
        ranks = self.start([(KINDS, self.address, str(rank), "3", "200000", "8") for rank in range(3)], f"HA_NCCL_INC_KEY_FILE={self.key_file}",
                           f"HA_NCCL_INC_RTO_MS={30000 * SLACK}", "PAUSE=3")  # fmt: skip
        self.read_all_until(ranks, "round 2\n")
        self.go(*ranks[:2])  # one waits: the others' first units are at the switch
        self.read_all_until(ranks[:2], "begun 3\n")  # and they have what they have asked for before it is done
        self.assertFalse(test_switchd.select.select([ranks[0].stdout], [], [], 0.2)[0])
        self.switches["s"].kill()
        self.go(ranks[2])
        for number, rank in enumerate(ranks):
            self.assertEqual((rank.stdout.read().splitlines()[-1], rank.wait(TIMEOUT_S)), ("0", 0), self.errors(f"rank{number}"))
            self.assertIn("goes on by another way", self.errors(f"rank{number}"))

    def test_groups_are_in_the_metrics(self):
        self.start_controller(STAR)
        self.serve("s")
        ranks = self.job("abc", "--ops", "8", others={0: {"hold": 4}, 1: {"hold": 4}, 2: {"hold": 4}})
        self.read_all_until(ranks, "done 3\n")
        self.assertTrue(test_switchd.wait_for(lambda: len(re.findall(r"(?m)^nccl_ha_inc_all_reduces_total{.*} 4$", self.metrics())) >= 3), self.metrics())
        self.go(*ranks)
        self.expect_all_right(ranks, 8)

    def metrics(self):
        return subprocess.run([test_switchd.TOOL, "metrics"], stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S).stdout


class SecondPort(Programs):
    """Nobody reads the events of NICs for such a program but the library."""

    rails = 2

    def test_a_port_that_goes_down_in_the_middle_costs_no_element(self):
        self.start_controller(STAR)
        self.serve("s")
        ranks = self.job("abc", "--ops", str(ALL), "--bytes", "300000", others={2: {"hold": 13}})
        self.read_all_until(ranks, "done 12\n")
        self.addCleanup(self.link, 1, 0, "up")
        self.link(1, 0, "down")
        self.assertTrue(test_switchd.wait_for(lambda: "goes on by another way" in self.errors("rank1")), self.errors("rank1"))
        self.go(ranks[2])
        results = self.expect_all_right(ranks, ALL)
        self.assertRegex(results[1]["said"], "for the 1. time, as port sim0:1 is left for sim1:1")
        self.expect_free()


class Errors(Programs):
    def test_options_that_cannot_be(self):
        self.start_controller(STAR)
        for wrong, said in (({"rank": 3}, "rank 3 of 3 ranks"), ({"connect_ms": 1}, "HA_NCCL_INC_CONNECT_MS is 1, and has to be 1000 to 600000"),
                            ({"connect": ""}, "nccl-ha-ctrld listens"), ({"group": "g" * 53}, "52 letters")):  # fmt: skip
            (one,) = self.ends([self.program(0, "abc", **wrong)])
            self.assertEqual((one["exit"], one["result"]), (1, ARGUMENT), one)
            self.assertRegex(one["said"], said)
        self.expect_error([self.program(0, "abc", connect="nowhere")], ARGUMENT, "'nowhere' is not HOST:PORT", 1)
        self.expect_error([self.program(0, "abc", key_file="/nonexistent")], ARGUMENT, "key cannot be read", 1)
        self.expect_error([self.program(0, "abc", group="a b")], ARGUMENT, "letters, digits", 1)

    def test_a_controller_that_refuses_or_is_not_there(self):
        self.start_controller(STAR)
        self.expect_error(self.job("abc"), REFUSED, "no plan: .*that a program serves", 1)
        other = self.write("other", os.urandom(32), 0o400)
        self.expect_error([self.program(0, "abc", key_file=other)], REFUSED, "another key", 1)
        self.ctrld.kill()
        self.ctrld.wait()
        self.expect_error(self.job("abc", group="again"), REMOTE, "controller: nobody answers", 1)

    def test_a_group_that_is_to_be_reproducible_and_cannot(self):
        """Rank 0's word holds for all."""
        self.start_controller(STAR.replace("max_fan_in: 8", "max_fan_in: 2"))
        self.serve("s")
        self.expect_error(self.job("abc", others={0: {"reproducible": 1}}), REFUSED, "no plan: HA_NCCL_INC_REPRODUCIBLE=1 needs a switch that adds all 3", 1)

    def test_a_rank_that_does_not_come(self):
        self.start_controller(STAR)
        self.serve("s")
        ranks = [self.program(rank, "abc", connect_ms=1000) for rank in range(2)]
        self.expect_error(ranks, REMOTE, "no verdict in time|no plan: .*(has not asked|has gone)", 2, REFUSED)

    def test_a_rank_that_dies(self):
        self.start_controller(STAR)
        self.serve("s")
        ranks = self.job("abc", "--ops", str(ALL), others={1: {"hold": 5}})
        self.read_all_until([ranks[0], ranks[2]], "done 4\n")
        ranks[1].kill()
        self.expect_error([ranks[0], ranks[2]], REMOTE, r"a member's process has ended \(member 1,", 2)

    def test_ranks_that_do_not_ask_for_the_same(self):
        self.start_controller(STAR)
        self.serve("s")
        self.expect_error(self.job("abc", "--ops", str(ALL), others={1: {"differ": 6}}), DISAGREE, "members do not ask for the same operations", 2)

    def test_a_call_that_is_not_done_in_its_time_ends_the_communicator(self):
        self.start_controller(STAR)
        self.serve("s")
        limit_s = 0.25 * SLACK  # more than an operation takes that nobody holds up
        ranks = self.job("abc", "--ops", "20", others={0: {"timeout_ms": int(1000 * limit_s)}, 1: {"hold": 6}})
        self.read_all_until(ranks, "done 4\n")
        (first,) = self.ends([ranks[0]])
        self.assertEqual((first["exit"], first["result"]), (1, TIMEOUT), first)
        self.assertTrue(limit_s <= first["took_s"] < limit_s + SLACK, first)
        self.go(ranks[1])
        self.expect_error(ranks[1:], REMOTE, r"a member's process has ended|member 0", 2)


if __name__ == "__main__":
    unittest.main()
