#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Failure traces: what is wrong in one is said with its line, a generated one follows the rates it names and
its seed, folding keeps order, overlap and a path, and the model adds up."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
sys.dont_write_bytecode = True
from soaklib import account, failurerates, failuretrace, fold, replay  # noqa: E402

HEAD = "trace 1\nspan 10d\ncluster 100 8\n"


class Format(unittest.TestCase):
    def test_all_that_is_allowed(self):
        trace = failuretrace.parse(
            "# made by hand\n\n" + HEAD + "1h30m 17 3 link-down 4h # a cable\n1h30m 0-9 2 switch-down 250ms\n2d - 1 switch-silent 1h\n3d 5 - host-down 0s\n"
        )
        self.assertEqual((trace.span_s, trace.hosts, trace.rails), (864000, 100, 8))
        first, second, third, last = trace.failures
        self.assertEqual((first.at_s, first.hosts, first.rail, first.kind, first.duration_s, first.line), (5400, (17, 17), 3, "link-down", 14400, 6))
        self.assertEqual((second.hosts, second.duration_s), ((0, 9), 0.25))
        self.assertEqual(third.hosts, (0, 99))
        self.assertEqual((last.rail, last.is_network()), (-1, False))

    def test_what_is_wrong_is_said_with_its_line(self):
        for text, line, says in (
            ("", 1, "nothing in it"),
            ("span 1d\n", 1, "first line must be 'trace 1'"),
            ("trace 2\n", 1, "first line must be 'trace 1'"),
            ("trace 1\nspan 1d\n", 3, "'span' or 'cluster' is missing"),
            ("trace 1\nspan 1x\n", 2, "'1x' is no time"),
            ("trace 1\nspan 0s\n", 2, "longer than nothing"),
            ("trace 1\nspan 1d\nspan 1d\n", 3, "once"),
            ("trace 1\nspan 1d\ncluster 1 8\n", 3, "at least 2 hosts"),
            ("trace 1\nspan 1d\ncluster 4 17\n", 3, "'17' is no number of rails from 0 to 16"),
            ("trace 1\n1h 1 1 link-down 1h\n", 2, "must come before"),
            (HEAD + "1h 1 1 link-down\n", 4, "4 fields, not 5"),
            (HEAD + "1h 1 1 link-down 1h 1\n", 4, "6 fields, not 5"),
            (HEAD + "1h 1 1 link-broken 1h\n", 4, "no kind is called 'link-broken'"),
            (HEAD + "1h 100 1 link-down 1h\n", 4, "'100' is no host from 0 to 99"),
            (HEAD + "1h -1 1 link-down 1h\n", 4, "'-1' is no host"),
            (HEAD + "1h 1 8 link-down 1h\n", 4, "'8' is no rail from 0 to 7"),
            (HEAD + "1h 1-2 1 link-down 1h\n", 4, "link-down is of one host"),
            (HEAD + "1h - 1 nic-down 1h\n", 4, "'-' is no host"),
            (HEAD + "1h 2-1 1 switch-down 1h\n", 4, "the first host comes first"),
            (HEAD + "1h 1 1 host-down 0s\n", 4, "host-down has no rail"),
            (HEAD + "1h 1 1 link-down 0s\n", 4, "takes time"),
            (HEAD + "1h 1 1 link-down -5s\n", 4, "'-5s' is no time"),
            (HEAD + "1h1h 1 1 link-down 5s\n", 4, "each unit once"),
            (HEAD + "1m1h 1 1 link-down 5s\n", 4, "the largest first"),
            (HEAD + "11d 1 1 link-down 5s\n", 4, "after the end of the span"),
            (HEAD + "2h 1 1 link-down 5s\n1h 1 2 link-down 5s\n", 5, "before the failure of line 4"),
            (HEAD + "1h 1 1 link-down 2h\n2h 1 1 nic-down 1h\n", 5, "still down by the link-down of line 4"),
            (HEAD + "1h 0-9 1 switch-down 2h\n2h 5 1 link-down 1h\n", 5, "still down by the switch-down of line 4"),
        ):
            with self.assertRaises(failuretrace.TraceError, msg=text) as caught:
                failuretrace.parse(text, "x.trace")
            self.assertTrue(str(caught.exception).startswith(f"x.trace:{line}: "), f"{text!r}: {caught.exception}")
            self.assertIn(says, str(caught.exception))

    def test_times_are_what_they_say(self):
        for text, seconds in (("2d4h", 187200), ("90s", 90), ("1m30s", 90), ("250ms", 0.25), ("0s", 0), ("1.5h", 5400)):
            self.assertEqual(failuretrace.parse_time(text), seconds)
        for ms in (0, 1, 999, 61_001, 90_061_001, 10**12 + 7):
            self.assertAlmostEqual(failuretrace.parse_time(failuretrace.format_time(ms / 1000)), ms / 1000, places=6)


class Generator(unittest.TestCase):
    def test_the_same_seed_gives_the_same_trace_and_another_one_another(self):
        model = failurerates.Model()
        texts = [failuretrace.write(failurerates.generate(model, 54, seed)) for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])
        # Of any machine and any Python: the first failures of seed 1.
        self.assertIn("2d12h27m18s175ms         1478    2 link-flap      5s919ms", texts[0])

    def test_what_is_written_is_read_back(self):
        model = failurerates.Model(hosts=64, links_per_month=0.5, switches_per_month=0.5, flaps_per_month=0.5)
        for seed in range(20):
            trace = failurerates.generate(model, 10, seed)
            text = failuretrace.write(trace, model.comments(10, seed))
            self.assertEqual(failuretrace.write(failuretrace.parse(text)), failuretrace.write(trace))

    def test_the_numbers_are_those_of_the_rates(self):
        """Over 200 seeds, each kind within 4 standard deviations of a Poisson process of its rate."""
        days, seeds = 54, 200
        for profile in ("hpn", "llama3"):
            model = failurerates.Model(profile=profile, switches_per_month=0.02 if profile == "hpn" else None)
            counts = dict.fromkeys(failuretrace.KINDS, 0)
            for seed in range(seeds):
                for failure in failurerates.generate(model, days, seed).failures:
                    counts[failure.kind] += 1
            for kind, (rate, _, _) in model.table().items():
                expected = rate * days * failurerates.DAY * seeds
                self.assertLessEqual(abs(counts[kind] - expected), 4 * expected**0.5 + 0.005 * expected, (profile, kind))

    def test_the_published_numbers_come_out_for_the_published_cluster(self):
        table = failurerates.Model(profile="llama3", flaps_per_month=0).table()
        expected = {kind: rate * 54 * failurerates.DAY for kind, (rate, _, _) in table.items()}
        self.assertAlmostEqual(sum(expected.values()), 419)
        self.assertAlmostEqual(expected["link-down"] + expected["silent-cut"] + expected["one-way-cut"], 35)
        self.assertAlmostEqual(expected["nic-down"], 7)
        hpn = failurerates.Model(hosts=1000, rails=10, hosts_per_switch=10).table()
        month = {kind: rate * 30 * failurerates.DAY for kind, (rate, _, _) in hpn.items()}
        self.assertAlmostEqual(month["link-down"] + month["silent-cut"] + month["one-way-cut"], 10000 * 0.00057)
        self.assertAlmostEqual(month["switch-down"] + month["switch-silent"], 1000 * 0.00051)

    def test_durations_are_exponential_about_their_mean(self):
        model = failurerates.Model(hosts=512, links_per_month=0.6, flaps_per_month=0, others=False)
        found = [f.duration_s for seed in range(5) for f in failurerates.generate(model, 30, seed).failures if f.kind == "link-down"]
        self.assertGreater(len(found), 10000)
        self.assertAlmostEqual(sum(found) / len(found) / 14400, 1, delta=0.05)
        self.assertAlmostEqual(sum(d > 14400 for d in found) / len(found), 0.3679, delta=0.02)

    def test_a_kind_of_rate_0_does_not_occur_and_changes_no_other(self):
        links = [f for f in failurerates.generate(failurerates.Model(), 54, 7).failures if f.kind == "link-down"]
        fewer = failurerates.generate(failurerates.Model(flaps_per_month=0, others=False), 54, 7)
        self.assertEqual(fewer.count("link-flap") + fewer.count("host-down"), 0)
        self.assertEqual([f for f in fewer.failures if f.kind == "link-down"], links)


def ports_down(steps_done):
    """Applies words of ha-drill in order: {(host, rail)} that do not work."""
    down, cut = set(), set()
    for words in steps_done:
        what, *rest = words.split()
        if what in ("link", "device"):
            (down.discard if rest[2] in ("up", "revive") else down.add)((int(rest[0]), int(rest[1])))
        else:
            hosts = [int(rest[rest.index("--host") + 1])] if "--host" in rest else [0, 1]
            for host in hosts:
                (cut.discard if "--heal" in rest else cut.add)((host, int(rest[0])))
    return down | cut


class Folding(unittest.TestCase):
    def fold(self, text, accelerate=100000, settle=500, rails=3):
        return fold.fold(failuretrace.parse(HEAD + text), 2, rails, accelerate, settle)

    def test_order_and_overlap_stay_and_gaps_shrink(self):
        runs, homeless = self.fold("1h 4 1 link-down 2d\n2h 7 2 silent-cut 100ms\n9d 4 0 one-way-cut 1h\n")
        self.assertEqual((len(runs), homeless), (1, []))
        a, b, c = runs[0].placed
        self.assertEqual((a.at_ms, b.at_ms), (1500, 2000))  # an hour becomes the settling time
        self.assertAlmostEqual(b.end_ms - b.at_ms, 100)  # what is shorter stays
        self.assertAlmostEqual(a.end_ms - b.end_ms, 169_199_900 / 100000)  # 46 h 59 m 59.9 s
        self.assertGreater(c.at_ms, a.end_ms)

    def test_a_failure_of_another_host_moves_rather_than_takes_the_last_port(self):
        # Hosts 4, 6, 8 are all host 0 of the fabric, and all rails are 1 modulo 3.
        runs, homeless = self.fold("1h 4 1 link-down 2d\n2h 6 4 link-down 1d\n3h 8 7 link-down 1d\n4h 0-99 5 switch-down 1h\n")
        a, b, c = runs[0].placed
        self.assertEqual((a.ports, b.ports, c.ports), ([(0, 1)], [(0, 2)], [(1, 1)]))
        self.assertEqual([f.kind for f in homeless], ["switch-down"])  # each rail is broken or the last one somewhere

    def test_a_nic_that_died_is_not_used_again_in_the_run_and_ends_it(self):
        runs, _ = self.fold("1h 4 1 nic-down 1h\n3h 4 1 link-down 1h\n")
        self.assertEqual([[p.failure.kind for p in run.placed] for run in runs], [["nic-down"], ["link-down"]])

    def test_whatever_is_folded_leaves_each_host_a_port(self):
        model = failurerates.Model(hosts=64, links_per_month=1.0, switches_per_month=0.5, flaps_per_month=0.5)
        for seed in range(10):
            trace = failurerates.generate(model, 20, seed)
            runs, homeless = fold.fold(trace, 2, 4, 50000, 300)
            network = sum(f.is_network() for f in trace.failures)
            self.assertEqual(sum(len(run.placed) for run in runs) + len(homeless), network)
            self.assertLess(len(homeless), network / 4)
            for run in runs:
                lines = sorted((line.split(" ", 1) for line in run.script().splitlines()), key=lambda words: float(words[0]))
                for i in range(1, len(lines) + 1):
                    down = ports_down(words for _, words in lines[:i])
                    self.assertTrue(all(len({rail for host, rail in down if host == h}) < 4 for h in (0, 1)), (seed, lines[:i]))
                self.assertEqual(ports_down(words for _, words in lines), set())  # in the end all is mended

    def test_a_flap_goes_down_three_times_and_ends_up(self):
        runs, _ = self.fold("1h 4 1 link-flap 500ms\n")
        self.assertEqual(runs[0].script(), "".join(f"{1500 + 100 * i}.0 link 0 1 {'up' if i % 2 else 'down'}\n" for i in range(6)))


class Understanding(unittest.TestCase):
    def test_pauses_go_to_the_failure_whose_step_came_last(self):
        runs, _ = fold.fold(failuretrace.parse(HEAD + "1h 4 1 link-down 2d\n2h 7 2 silent-cut 1d\n"), 2, 3, 100000, 500)
        words = sorted(((at, what) for p in runs[0].placed for at, what in fold.steps(p)), key=lambda s: s[0])
        result = {
            "steps": [{"text": what, "at_ms": at + 5, "breaks": True} for at, what in words],
            "stalls": [{"rank": 0, "at_ms": 200.0, "ms": 999.0}, {"rank": 0, "at_ms": 1501.0, "ms": 20.0}, {"rank": 1, "at_ms": 2004.0, "ms": 300.0}],
            "complaints": [],
        }
        a, b = runs[0].placed
        pauses = replay.pauses_ms(runs[0], result)
        self.assertEqual((pauses[id(a)], pauses[id(b)]), (20.0, 300.0))
        steps = replay.own_steps(runs[0], result)
        self.assertTrue(replay.fired(steps[id(a)], result))
        result["complaints"] = ["'link 0 1 down' cost not one packet and nobody noticed: it proves nothing"]
        self.assertFalse(replay.fired(steps[id(a)], result))
        self.assertTrue(replay.fired(steps[id(b)], result))
        result["steps"][-1]["at_ms"] = None
        self.assertFalse(all(replay.fired(own, {**result, "complaints": []}) for own in steps.values()))

    def costs(self, trace, **more):
        found = {kind: {"tried": 1, "died": 1, "median_error_ms": 500.0} for kind in failuretrace.NETWORK}
        pauses = {id(f): 100.0 for f in trace.failures if f.is_network()}
        return account.Costs(3600.0, 34.0, pauses, more.get("killed", set()), {}, more.get("without", found))

    def test_the_model_adds_up(self):
        trace = failuretrace.parse(HEAD + "1h 1 1 link-down 1h\n1h30m 2 2 silent-cut 1h\n5h 3 3 link-flap 10s\n1d 4 4 nic-down 5s\n2d 9 - host-down 0s\n")
        costs = self.costs(trace)
        without, with_it = (account.live(trace, cost, False) for cost in (costs.without_plugin, costs.with_plugin))
        # The second failure falls into the restart after the first; the flap is ridden out; a dead NIC is not.
        self.assertEqual((without.restarts, without.missed, without.paused), (2, 1, 1))
        self.assertAlmostEqual(without.down_s, 2 * 3600.5 + 10)
        self.assertEqual((with_it.restarts, with_it.paused), (0, 4))
        self.assertAlmostEqual(with_it.down_s, 0.4)
        self.assertAlmostEqual(without.availability(), 1 - 7211 / 864000)
        all_of_it = account.live(trace, costs.with_plugin, True)
        self.assertEqual(all_of_it.restarts, 1)
        self.assertAlmostEqual(all_of_it.down_s, 3600.4)

    def test_a_job_that_the_plugin_could_not_save_is_a_restart(self):
        trace = failuretrace.parse(HEAD + "1h 1 1 nic-down 1h\n")
        life = account.live(trace, self.costs(trace, killed={id(trace.failures[0])}).with_plugin, False)
        self.assertEqual(life.restarts, 1)
        self.assertAlmostEqual(life.down_s, 3600.1)

    def test_a_job_that_survives_without_the_plugin_is_no_restart(self):
        trace = failuretrace.parse(HEAD + "1h 1 1 one-way-cut 1h\n")
        costs = self.costs(trace, without={"one-way-cut": {"tried": 2, "died": 0, "median_error_ms": None}})
        self.assertEqual(account.live(trace, costs.without_plugin, False).down_s, 0)


if __name__ == "__main__":
    unittest.main()
