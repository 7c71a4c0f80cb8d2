#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-gin, gpu-inc and gpu-rails with the GPUs, MPI, NCCL and the fabric replaced: what they start and prove, that what is missed
or wrong is told and ends with 1, and that they leave nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from loading import SCRIPTS, load_script, one_gpu, processes_with

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 100
# Of in-network all-reduce, where these programs are: the controller says its address, and the switch that it serves.
CTRLD = """#!/usr/bin/env bash
echo "listens on 127.0.0.1:1"
exec sleep 617
"""
SWITCHD = """#!/usr/bin/env bash
echo "switch $$" >>"$FAKE_JOURNAL"
echo "s adds at $8"
exec sleep 617
"""


def program(path, text=None):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if text is None:
        shutil.copy(os.path.join(HERE, "fake_job.py"), path)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)


class Jobs(unittest.TestCase):
    """SCRIPT: its name; QUICK: options with which all its parts take a moment."""

    SCRIPT, QUICK = None, ()

    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.build, self.out = os.path.join(self.dir, "build"), os.path.join(self.dir, "out")
        self.journal, self.json = os.path.join(self.dir, "journal"), os.path.join(self.dir, "result.json")
        self.example = os.path.join(self.dir, "example")
        program(self.example)
        for name in ("libnccl-net-ha.so", "libnccl-net-ha-v8.so"):
            program(os.path.join(self.build, name), "")
        program(os.path.join(self.build, "bin", "nccl-ha-ctrld"), CTRLD)
        program(os.path.join(self.build, "bin", "nccl-ha-switchd"), SWITCHD)
        shutil.copy(os.path.join(HERE, "fake_simverbs"), os.path.join(self.build, "bin", "simverbs"))
        for name in ("all_reduce_perf", "alltoall_perf"):
            program(os.path.join(self.dir, "tests", "build", name))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "HA_NCCL_", "OMPI_", "CUDA_"))}
        self.env.update(NCCL_TESTS_HOME=os.path.join(self.dir, "tests"), FAKE_JOURNAL=self.journal, **one_gpu(os.path.join(self.dir, "programs")))

    def command(self, *words):
        return [os.path.join(SCRIPTS, self.SCRIPT), "--dry-run", "--mpirun", os.path.join(HERE, "fake_mpirun"), "--build", self.build,
                "--out", self.out, "--json", self.json, *self.QUICK, *words]  # fmt: skip

    def run_script(self, *words, fault="", env=None):
        """(the finished process, its report), from a clean folder."""
        shutil.rmtree(self.out, ignore_errors=True)
        for path in (self.json, self.journal):
            if os.path.exists(path):
                os.unlink(path)
        done = subprocess.run(self.command(*words), env={**self.env, "FAULT": fault, **(env or {})}, text=True, timeout=LIMIT_S, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        self.assertEqual(self.left_over(), [])
        report = None
        if os.path.exists(self.json):
            with open(self.json, encoding="utf-8") as file:
                report = json.load(file)
        return done, report

    def told(self, *words):
        """Lines of the journal that begin with one of these."""
        if not os.path.exists(self.journal):
            return []
        with open(self.journal, encoding="utf-8") as file:
            return [line.split() for line in file if line.split()[0] in words]

    def left_over(self):
        """Processes of a run, fabrics and MPS daemons that are still there."""
        left = processes_with(f"FAKE_JOURNAL={self.journal}")
        if len(self.told("up")) != len(self.told("down")):
            left.append("a fabric")
        mps = [line[1:3] for line in self.told("mps")]
        if [word for word, _ in mps] != ["begin", "quit"] * (len(mps) // 2) or any(os.path.exists(folder) for _, folder in mps):
            left.append("MPS")
        return left

    def missed(self, report):
        """(part, mark) of each that was missed, but for marks of time, which are for a quiet machine."""
        return {(name, mark["what"]) for name, part in report["parts"].items() for mark in part.get("marks", [])
                if not mark["is_met"] and not mark["what"].endswith(" ms")}  # fmt: skip

    def assert_names_its_program(self):
        os.unlink(os.path.join(self.dir, "tests", "build", self.PROGRAM))
        os.unlink(os.path.join(self.build, "libnccl-net-ha.so"))
        done, report = self.run_script()
        self.assertEqual((done.returncode, report), (1, None), done.stdout)
        self.assertRegex(done.stdout, rf"{self.SCRIPT}: FAILED: missing: .*/{self.PROGRAM}.*libnccl-net-ha.so")
        self.assertEqual(self.told("up", "mps"), [])

    def assert_missed(self, fault, words, *expected):
        done, report = self.run_script(*words, fault=fault)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(self.missed(report), set(expected), done.stdout)
        self.assertIn("missed", done.stdout)
        return report


class Rails(Jobs):
    SCRIPT, PARTS, PROGRAM = "gpu-rails", ("bundle", "losses", "own"), "all_reduce_perf"
    QUICK = ("--rounds", "1", "--losses", "3", "--patience", "3", "--run-limit", "20")

    def test_all_marks_are_met(self):
        done, report = self.run_script()
        self.assertEqual(done.returncode, 0, done.stdout)
        parts = report["parts"]
        self.assertEqual((tuple(parts), self.missed(report)), (self.PARTS, set()))
        self.assertAlmostEqual(parts["bundle"]["ratio"]["median"], 1.95, 1)
        self.assertEqual([loss["kind"] for loss in parts["losses"]["losses"]], ["link 0", "link 1", "switch", "kill"])
        self.assertTrue(all(loss["connections"] in (1, 2) for loss in parts["losses"]["losses"]), "connections of one rank or both, by then")
        self.assertEqual([loss.get("is_back") for loss in parts["losses"]["losses"]], [True, True, True, None])
        self.assertGreaterEqual(parts["losses"]["run"]["events"]["shed"], 7)
        self.assertGreater(parts["losses"]["noticed"]["p50_ms"], 0)
        self.assertEqual(parts["own"]["loss"]["result"], "went on")
        self.assertEqual((report["gpus"], report["nccl"]), ({"2": "2 ranks on 1 x NVIDIA Fake, with MPS"}, "2.28.9+cuda13.0"))
        sysfs = ["--sysfs" in line for line in self.told("run") if "all_reduce_perf" in " ".join(line)]
        self.assertEqual(sysfs.count(True), 4, "the ranks of NCCL's own, fused: of one round and of a loss")
        self.assertIn("at least 1.9", done.stdout)

    def test_what_is_missing_is_named(self):
        for words, env, text in (((), {"NCCL_TESTS_HOME": ""}, "set NCCL_TESTS_HOME"), (("--nccl", self.dir), {}, "has libnccl.so.2"),
                                 (("--mpirun", "no-mpirun"), {}, "no-mpirun is not there"),
                                 ((), {"PATH": "/usr/bin:/bin"}, "nvidia-cuda-mps-control is not there")):  # fmt: skip
            done, report = self.run_script(*words, env=env)
            self.assertEqual((done.returncode, report), (1, None), done.stdout)
            self.assertIn(text, done.stdout)
        self.assert_names_its_program()

    def test_what_makes_no_sense_is_refused(self):
        for words in (("--only", "nothing"), ("--rounds", "0")):
            self.assertEqual(self.run_script(*words)[0].returncode, 2)

    def test_a_part_that_does_not_fit_has_no_result(self):
        done, report = self.run_script("--time-limit", "5")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual({part["error"] for part in report["parts"].values()}, {"not run: no time is left"})
        self.assertEqual(len(report["parts"]), len(self.PARTS))
        self.assertIn("no result", done.stdout)

    def test_one_that_is_interrupted_leaves_nothing(self):
        process = subprocess.Popen(self.command("--only", "losses"), env={**self.env, "FAULT": "hang"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not self.told("run") and time.monotonic() < until:
            time.sleep(0.02)
        self.assertTrue(self.told("run"), "it began nothing")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=30), 130)
        self.assertEqual(self.left_over(), [])

    def test_a_bundle_that_is_slow_is_told(self):
        self.assert_missed("slow", ("--only", "bundle"), ("bundle", "bandwidth over one rail's"))

    def test_a_wrong_row_is_counted(self):
        report = self.assert_missed("wrong", ("--only", "bundle"), ("bundle", "bandwidth over one rail's"), ("bundle", "runs that were right"),
                                    ("bundle", "wrong rows"))  # fmt: skip
        self.assertEqual([run["wrong"] for run in report["parts"]["bundle"]["runs"]], [1, 1])
        report = self.assert_missed("wrong cut", ("--only", "losses", "--losses", "1", "--patience", "1.5"), ("losses", "wrong rows"),
                                    ("losses", "losses with rows meanwhile"))  # fmt: skip
        self.assertGreater(report["parts"]["losses"]["run"]["wrong"], 0)

    def test_a_loss_that_nobody_noticed_does_not_count(self):
        report = self.assert_missed("deaf link 1", ("--only", "losses", "--losses", "2", "--patience", "2"), ("losses", "losses that connections left"),
                                    ("losses", "rails that came back"))  # fmt: skip
        self.assertEqual([loss["is_left"] for loss in report["parts"]["losses"]["losses"]], [True, False, True])

    def test_a_run_that_hangs_or_ends_is_told(self):
        for fault in ("hang cut", "end"):
            done, report = self.run_script("--only", "losses", "--losses", "1", "--patience", "0.5", fault=fault)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(("losses", "runs that were right"), self.missed(report))
            self.assertIn("did not go on", report["parts"]["losses"]["run"]["result"])

    def test_ncclS_own_that_does_not_come_up_is_told_and_no_failure(self):
        done, report = self.run_script("--only", "bundle,own", fault="unfused")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(report["parts"]["own"]["ratio"], None)
        self.assertIn("Could not find NET with id 0", report["parts"]["own"]["runs"][0]["result"])


class Inc(Jobs):
    SCRIPT, PARTS, PROGRAM = "gpu-inc", ("types", "kills", "large", "v8", "speed"), "all_reduce_perf"
    QUICK = ("--rounds", "1", "--kills", "2", "--patience", "3", "--run-limit", "20")

    def test_all_marks_are_met(self):
        done, report = self.run_script("--ranks", "2")
        self.assertEqual(done.returncode, 0, done.stdout)
        parts = report["parts"]
        self.assertEqual((tuple(parts), self.missed(report)), (self.PARTS, set()))
        self.assertEqual([(run["rows"], run["via_collnet"], len(run["types"])) for run in parts["types"]["runs"]], [(288, 2, 12)])
        self.assertEqual([(kill["is_lost"], kill["is_found"]) for kill in parts["kills"]["kills"]], [(True, True)] * 2)
        self.assertEqual(parts["kills"]["until_a_result"], {"n": 16, "p50_ms": 40.0, "p99_ms": 40.0, "longest_ms": 40.0})
        self.assertEqual({ranks: part["gbps"] for ranks, part in parts["speed"].items() if ranks.isdigit()}, {"4": 2, "8": 1})
        switches = [line[1] for line in self.told("switch")]
        self.assertEqual(len(set(switches)), 1 + 3 + 1 + 1 + 2, "one for each fabric, and one for each that was killed")
        self.assertEqual({word for line in self.told("run") for word in line if word.startswith("id=simulated-host-7")}, {"id=simulated-host-7"})

    def test_a_switch_that_is_slow_is_told(self):
        self.assert_missed("slow", ("--only", "speed"), ("speed", "4 ranks: bandwidth over the ring's"), ("speed", "8 ranks: bandwidth over the ring's"))

    def test_a_wrong_row_is_counted(self):
        report = self.assert_missed("wrong", ("--only", "large"), ("large", "runs that were right"), ("large", "wrong rows"))
        self.assertEqual(report["parts"]["large"]["run"]["wrong"], 1)

    def test_a_kill_that_nobody_noticed_does_not_count_and_a_wrong_row_after_it_does(self):
        report = self.assert_missed("deaf switch,wrong cut", ("--only", "kills", "--kills", "1", "--patience", "2"), ("kills", "kills that every rank left"),
                                    ("kills", "wrong rows"))  # fmt: skip
        self.assertEqual(report["parts"]["kills"]["kills"][0]["is_lost"], False)
        self.assertGreater(report["parts"]["kills"]["run"]["wrong"], 0)

    def test_what_did_not_go_over_the_switch_has_no_result(self):
        done, report = self.run_script("--only", "large", fault="unnamed")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("0 of 2 ranks say 'via COLLNET/HA'", report["parts"]["large"]["error"])

    def test_a_run_that_hangs_is_told(self):
        done, report = self.run_script("--only", "large,kills", "--run-limit", "1.5", "--patience", "0.5", fault="hang")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("no end within", report["parts"]["large"]["run"]["result"])
        self.assertIn("no row came", report["parts"]["kills"]["error"])

    def test_what_is_missing_or_makes_no_sense_is_named(self):
        self.assertEqual(self.run_script("--ranks", "2,3")[0].returncode, 2)
        self.assert_names_its_program()


class Gin(Jobs):
    SCRIPT, PARTS, PROGRAM = "gpu-gin", ("plain", "lsa", "example", "cuts", "own"), "alltoall_perf"
    QUICK = ("--runs", "1", "--lsa-runs", "1", "--cuts", "1", "--own", "1", "--gap", "0.1", "--hold", "0.05", "--patience", "3", "--run-limit", "30")

    NO_TIMES = {"n": 0, "p50_ms": None, "p99_ms": None, "longest_ms": None}

    def setUp(self):
        super().setUp()
        self.env["NCCL_GIN_EXAMPLE"] = self.example

    def test_all_marks_are_met(self):
        done, report = self.run_script()
        self.assertIn(done.returncode, (0, 1), done.stdout)
        self.assertEqual(done.returncode == 0, all(mark["is_met"] for part in report["parts"].values() for mark in part["marks"]))
        parts = report["parts"]
        self.assertEqual((tuple(parts), self.missed(report)), (self.PARTS, set()))
        self.assertEqual(parts["plain"]["runs"][0]["rows"], 7)
        self.assertEqual(report["memory"], ["--gpu", "--dmabuf"])
        kinds = [cut["kind"] for cut in parts["cuts"]["runs"][0]["cuts"]]
        self.assertEqual(kinds, ["link 0", "link 1", "switch", "drop", "wedge", "kill"])
        self.assertTrue(all(cut["pauses_ms"] == [1, 1] and cut["left_ms"] > 0 for cut in parts["cuts"]["runs"][0]["cuts"]))
        self.assertEqual(parts["cuts"]["kinds"]["wedge"]["hit"], 1)
        self.assertEqual([(run["cut"], run["is_cut"]) for run in parts["own"]["runs"]], [(None, False), ("switch", True), ("link 0", True), ("kill", True)])
        self.assertEqual([line[2] for line in self.told("fault")], ["drop", "--clear", "wedge", "--clear"])

    def test_a_cut_that_no_stream_left_does_not_count(self):
        report = self.assert_missed("deaf kill", ("--only", "cuts", "--patience", "1.5"), ("cuts", "kill: cuts that streams left"))
        self.assertEqual(report["parts"]["cuts"]["kinds"]["kill"], {"made": 4, "hit": 0, **dict.fromkeys(("left", "pauses"), self.NO_TIMES)})
        self.assertEqual(len(report["parts"]["cuts"]["runs"]), 4, "it was tried again, and given up")

    def test_a_wrong_row_is_counted(self):
        report = self.assert_missed("wrong cut", ("--only", "cuts"), ("cuts", "runs that were right"), ("cuts", "wrong rows"))
        self.assertIn("WRONG DATA", report["parts"]["cuts"]["runs"][0]["result"])
        self.assert_missed("failed", ("--only", "example"), ("example", "runs that were right"))

    def test_another_gin_than_ours_counts_for_nothing(self):
        done, report = self.run_script("--only", "plain", fault="unnamed")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("0 of 2 ranks name our GIN", report["parts"]["plain"]["error"])

    def test_one_that_hangs_under_cuts_is_told(self):
        done, report = self.run_script("--only", "cuts", "--patience", "1", fault="hang cut")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(("cuts", "runs that were right"), self.missed(report))
        self.assertIn("HUNG after 1 cuts, the last one link 0", report["parts"]["cuts"]["runs"][0]["result"])

    def test_what_simverbs_refuses_ends_the_cuts(self):
        done, report = self.run_script("--only", "cuts", fault="simverbs fault")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("it does not fault", report["parts"]["cuts"]["ended"])

    def test_an_example_that_is_not_there_is_named(self):
        for words, env in (((), {"NCCL_GIN_EXAMPLE": ""}), (("--example", self.example + "-no"), {})):
            done, _ = self.run_script(*words, env=env)
            self.assertEqual(done.returncode, 1)
            self.assertIn("02_gin_alltoall_pure", done.stdout)
        self.assertEqual(self.run_script("--only", "lsa", env={"NCCL_GIN_EXAMPLE": ""})[0].returncode, 0)
        self.assert_names_its_program()


class Parts(unittest.TestCase):
    """Of the modules that they share."""

    def setUp(self):
        load_script("gpu-rails")
        self.gpulib, self.marks = sys.modules["gpulib"], sys.modules["gpumarks"]

    TABLE = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"

    def count(self, *rows):
        return self.gpulib.count_rows(self.TABLE + "".join(rows))

    def test_rows_are_right_wrong_or_not_written_out(self):
        right = "8 2 float sum -1 1.0 1.0 1.0 0 1.0 1.0 1.0 0\n"
        self.assertEqual(self.count(right, right, right[:20]), (2, 0))
        self.assertEqual(self.count(right.replace(" 0\n", " N/A\n")), (1, 0))
        self.assertEqual(self.count(right.replace("sum ", "")), (1, 0))
        for wrong in (right.replace(" 0\n", " 3\n"), right.replace(" 0 1.0", " 1e+05 1.0"), right.replace(" 0 1.0", " N/A 1.0"), "8 2 float\n"):
            self.assertEqual(self.count(right, wrong), (1, 1), wrong)
        self.assertEqual(self.count("2 more processes have sent a message\n", "17\n", right), (1, 0))

    def test_every_way_to_break_a_fabric_is_one_of_simverbs(self):
        cuts = sys.modules["gpucuts"]
        with cuts.Fabric(os.path.join(os.environ["BUILD"], "bin", "simverbs"), f"gpujobs{os.getpid()}", options=["--gpu", "--dmabuf"]) as net:
            for kind in ("link 0", "link 1", "switch", "kill", *cuts.FAULTS):
                for command in cuts.commands_of(kind, 1, 0):
                    net.control(*command)
            self.assertEqual(net.look(), (0, 0, 0, 0))

    def test_an_mps_daemon_that_does_not_end_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, self.gpulib.Mps.CONTROL)
            program(path, "#!/usr/bin/env bash\n[ \"${1:-}\" != -d ] || { sleep 617 >/dev/null 2>&1 & }\n")
            before, os.environ["PATH"] = os.environ["PATH"], folder + ":" + os.environ["PATH"]
            try:
                mps = self.gpulib.Mps(["0", "0"])
                mps.QUIT_S = 0.1
                with mps:
                    setting = f"{mps.FOLDERS[0]}={mps.folder}"
                    self.assertEqual(len(list(self.gpulib.processes_with(setting))), 1)
                self.assertEqual(list(self.gpulib.processes_with(setting)), [])
            finally:
                os.environ["PATH"] = before

    def test_times_that_streams_take_are_marks(self):
        gin = load_script("gpu-gin")
        for port_ms, switch_ms, met in ((49, 599, [True, True]), (50, 599, [False, True]), (49, 600, [True, False])):
            kinds = {kind: {"left": {"p99_ms": switch_ms if kind == "switch" else port_ms}} for kind in gin.KINDS}
            self.assertEqual([mark.is_met for mark in gin.marks_of_time(kinds)], met)
        self.assertEqual([mark.is_met for mark in gin.marks_of_time({kind: {"left": {"p99_ms": None}} for kind in gin.KINDS})], [False, False])

    def test_marks_at_their_limit(self):
        Mark = self.marks.Mark
        self.assertEqual([Mark("", 2, bound, 2).is_met for bound in ("at least", "at most", "below")], [True, True, False])
        self.assertEqual(self.marks.times_of([3, 1, 2]), {"n": 3, "p50_ms": 2, "p99_ms": 3, "longest_ms": 3})
        self.assertEqual(self.marks.times_of([])["p99_ms"], None)


if __name__ == "__main__":
    unittest.main()
