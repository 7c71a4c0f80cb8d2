# SPDX-License-Identifier: Apache-2.0
"""nccl-net-check --collnet: a collNet that keeps every rule is found to, and one that breaks a rule is found by that rule."""

import concurrent.futures
import os
import re
import subprocess
import unittest

CHECK, PLUGIN, NONE = (os.environ[name] for name in ("CHECK", "PLUGIN", "NONE"))
AT_LENGTH = "CONTRACT_COLL_ALL" in os.environ
# How a variant can break it without an end; what such a rule is given.
LIMIT_S = {"coll-connect-death": 2, "coll-death": 1, "coll-two-groups": 1}


def check(*words, plugin=PLUGIN, breaks=""):
    return subprocess.run([CHECK, "--plugin", plugin, "--collnet", *words], env={**os.environ, "REF_COLL_BREAK": breaks},
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
