# SPDX-License-Identifier: Apache-2.0
"""nccl-net-check --collnet: a collNet that keeps every rule is found to, and one that breaks a rule is found by that rule; and
nccl-net-perf --via collnet."""

import concurrent.futures
import os
import re
import subprocess
import unittest

CHECK, PERF, PLUGIN, NONE = (os.environ[name] for name in ("CHECK", "PERF", "PLUGIN", "NONE"))
AT_LENGTH = "CONTRACT_COLL_ALL" in os.environ
# How a variant can break it without an end; what such a rule is given.
LIMIT_S = {"coll-connect-death": 2, "coll-death": 1, "coll-two-groups": 1}


def check(*words, plugin=PLUGIN, breaks=""):
    return subprocess.run([CHECK, "--plugin", plugin, "--collnet", *words], env={**os.environ, "REF_COLL_BREAK": breaks},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300)  # fmt: skip


def perf(*words, plugin=PLUGIN, breaks=""):
    return subprocess.run([PERF, "--plugin", plugin, "--via", "collnet", "--ranks", "3", *words], env={**os.environ, "REF_COLL_BREAK": breaks},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300)  # fmt: skip


def rules():
    return re.findall(r"^(coll-[a-z-]+) ", check("--list").stdout, re.MULTILINE)


class Rules(unittest.TestCase):
    def test_a_collnet_that_keeps_all_rules_is_found_to(self):
        for api in (12, 11, 10, 9, 8) if AT_LENGTH else (12, 8):
            done = check("--api", f"v{api}", "--cycles", "60")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(f"{len(rules()) - (api < 11) - (api < 9)} passed, 0 failed, 0 skipped", done.stdout)

    def test_each_rule_finds_the_variant_that_breaks_it(self):
        names = rules()
        self.assertGreaterEqual(len(names), 40)
        words = {name: ("--rule", name, *(("--limit", str(LIMIT_S[name])) if name in LIMIT_S else ())) for name in names}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = dict(zip(names, pool.map(lambda name: check("--api", "v12", "--cycles", "60", *words[name], breaks=name), names)))
        for name, done in found.items():
            with self.subTest(name):
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stdout, rf"(?m)^FAIL  v12 +{name} ")

    def test_perf_drives_a_collnet_and_compares_every_byte(self):
        """nccl-net-perf, of the one that keeps the rules and of some that do not."""
        for breaks, status, pattern in (
            ("", 0, "wrong elements: 0 in 10 checked of 10 rows"),
            ("coll-data", 1, "wrong elements: [1-9]"),
            ("coll-vtable", 3, "the collNet lacks test after init"),
            ("coll-init", 3, "init of the collNet of plugin .* returned ncclInternalError"),
            ("coll-counts", 3, "allreduce of 0 B by the collNet: iallreduce, piece 0 of 1, returned ncclInvalidArgument"),
        ):
            done = perf("--peer-via", "ring", "-n", "2", "-w", "1", "--rounds", "1", "--flush", "--chunk", "1000", "--sizes", "0,1,4096,65536,100001", breaks=breaks)
            self.assertEqual(done.returncode, status, done.stdout)
            self.assertRegex(done.stdout, pattern)
        for words, pattern in (
            (("--op", "all"), "without a ring there are all-reduces only"),
            (("--canary",), "leave them out with --via collnet and --via inccl"),
            (("--via", "x"), "'x' is none of ring, collnet"),
        ):
            done = perf(*words)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(pattern, done.stdout)
        self.assertIn("it exports none of ncclCollNetPlugin_v8", perf(plugin=NONE).stdout)

    def test_what_cannot_be_checked_is_not_a_pass(self):
        for plugin, words, pattern in (
            (NONE, ("--api", "newest"), "no rule applies to what was asked for"),
            (PLUGIN, ("--rule", "data"), "no rule 'data'"),
            (PLUGIN, ("--each", "A=1"), "'A=1' is not NAME=VALUE,VALUE"),
        ):
            done = check(*words, plugin=plugin)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(pattern, done.stdout)


if __name__ == "__main__":
    unittest.main()
