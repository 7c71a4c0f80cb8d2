# SPDX-License-Identifier: Apache-2.0
"""The judge of the lab's drills: a drill that went well passes, and each thing that can be wrong with it
is complained of. No lab: reports and events are made up."""

import copy
import dataclasses
import unittest

from drills import Drill
from judge import MANY, Episode, Fault, Judge, LinkDowns, Row, Timeline, Times, complaint_of, percentile
from standstill import Record
from table import of_events
from workload import Connection, status_of_the_leaving

MS = 1_000_000
HOSTS = ("a", "b")
DOWN_MS, UP_MS, END_MS = 1000, 1040, 2000  # the fault, the first byte after it, the drill's end

DRILL = Drill(
    "link-down",
    "",
    steps=(),
    reasons=("local port down",),
    switches=(1, 2),
    by_event=True,
    blackout_ms=50,
    ends_on="spare",
    witnesses=(("a", "used", "rdma.link_downed", 1),),
)


def both(ms):
    return {host: ms * MS for host in HOSTS}


def event(kind, ms, **more):
    return {
        "kind": kind, "end": "a", "monotonic_ns": ms * MS, "connection": "1", "name": "recv 1", "reason": "local port down",
        "detail": "", "replayed_messages": 3, "detection_ms": 5.0, **more,
    }  # fmt: skip


def timeline(pause_from_ms, pause_to_ms):
    """A byte each millisecond, but for the pause."""
    return [0 if pause_from_ms <= ms < pause_to_ms else 1 for ms in range(END_MS)]


class Case:
    """A drill that went well, to be spoilt."""

    def __init__(self):
        fault = Fault("link a active down", True, both(DOWN_MS), both(DOWN_MS), both(500), both(END_MS))
        self.episode = Episode(
            DRILL,
            begin=both(0),
            end=both(END_MS),
            faults=[fault],
            counters={("a", 0): {"rdma.link_downed": 1}},
            tail={("a", 0): 100, ("a", 1): 100_000},
            standstill=Record(0, {}),
            offsets=both(0),
        )
        self.events = [event("failure", DOWN_MS + 4), event("switch", DOWN_MS + 20)]
        self.report = {
            "wrong": 0,
            "rows": [{"checked": 9, "iterations": 9}],
            "counters": {"connections": {"failovers": 1, "replayed_messages": 3}},
            "clock": {"monotonic_ns": [0, 0]},
            "timeline": {"interval_ms": 1, "bytes_received": [timeline(DOWN_MS, UP_MS)] * 2},
        }
        self.statuses = {"a": 0, "b": 0}
        self.held, self.end_ms, self.output = {}, 500, {}

    def lose(self, *times_ms):
        """Between these the guests stood still."""
        self.episode.standstill = Record(0, {})
        lost = 0
        for began, ended in zip(times_ms[::2], times_ms[1::2]):
            lost += (ended - began) * MS
            self.episode.standstill.read(began * MS, {("waited", 1): lost - (ended - began) * MS})
            self.episode.standstill.read(ended * MS, {("waited", 1): lost})

    def tell(self, ms):
        """Then the kernel told of the fault; None: nobody knows when."""
        self.episode.faults[0].told = {} if ms is None else both(ms)

    def row(self):
        judge = Judge(
            "one", HOSTS, self.events, self.report, self.statuses, self.output, held=self.held, end_ms=self.end_ms
        )
        judge.learn_noise([self.episode])
        return judge.judge(self.episode)


class JudgeTest(unittest.TestCase):
    def setUp(self):
        self.case = Case()

    def complains(self, words):
        complaints = self.case.row().complaints
        self.assertTrue(any(words in complaint for complaint in complaints), complaints)

    def test_what_went_well_passes_and_is_told(self):
        row = self.case.row()
        self.assertEqual(row.complaints, [])
        self.assertEqual(row.detected_by, "local port down")
        self.assertAlmostEqual(row.detection_ms, 4)
        self.assertAlmostEqual(row.blackout_ms, UP_MS - DOWN_MS)
        self.assertEqual(row.noise_ms, 0)
        self.assertEqual((row.switches, row.replayed, row.wrong), (1, 3, 0))

    def test_wrong_bytes(self):
        self.case.report["wrong"] = 1
        self.complains("1 bytes are wrong")

    def test_an_iteration_that_was_not_checked(self):
        self.case.report["rows"][0]["checked"] = 8
        self.complains("not every iteration was checked")

    def test_a_rank_that_failed(self):
        self.case.statuses["b"] = 3
        self.complains("ended with status 3")

    def test_no_report(self):
        self.case.report = None
        self.complains("nothing is known of the data")

    def test_a_fault_that_the_kernel_did_not_see(self):
        self.case.episode.counters = {("a", 0): {"rdma.link_downed": 0}}
        self.complains("was the fault there?")

    def test_a_fault_that_the_plugin_did_not_see(self):
        del self.case.events[0]
        self.complains("nobody noticed")

    def test_a_reason_that_does_not_fit(self):
        self.case.events[0]["reason"] = "heartbeats lost"
        self.complains("noticed by 'heartbeats lost'")

    def test_too_few_switches_and_too_many(self):
        self.case.events.append(event("switch", DOWN_MS + 21))
        self.case.events.append(event("switch", DOWN_MS + 22))
        self.complains("at most 2")
        del self.case.events[1:]
        self.complains("at least 1")

    def test_logs_and_counters_that_disagree(self):
        self.case.report["counters"]["connections"]["replayed_messages"] = 4
        self.complains("replayed_messages")

    def test_a_connection_that_failed_for_good(self):
        self.case.events.append(event("latch", DOWN_MS + 30, detail="no path"))
        self.complains("failed for good: no path")

    def test_a_blackout_beyond_the_limit(self):
        self.case.report["timeline"]["bytes_received"][1] = timeline(DOWN_MS, DOWN_MS + 51)
        self.complains("nothing arrived for 51 ms")

    def test_a_guest_without_a_processor_is_excused_for_that_share_alone(self):
        self.case.report["timeline"]["bytes_received"][1] = timeline(DOWN_MS, DOWN_MS + 100)
        self.case.lose(DOWN_MS + 20, DOWN_MS + 70)
        row = self.case.row()
        self.assertEqual(row.complaints, [])
        self.assertIn("blackout of 50 ms at most after the kernel had told", row.notes[0])
        self.assertEqual((row.times[0].blackout, row.times[0].ran), (100, 50))
        self.assertIn("100.0 ms beyond the noise of 0.0 ms\nafter the kernel", of_events([row]))
        self.assertIn(": 50.0 ms, 50.0 ms beyond it", of_events([row]))
        self.case.lose(DOWN_MS + 20, DOWN_MS + 68)
        self.complains("nothing arrived for 52 ms")

    def test_a_guest_without_a_processor_at_another_time_excuses_nothing(self):
        self.case.report["timeline"]["bytes_received"][1] = timeline(DOWN_MS, DOWN_MS + 51)
        for began, ended in ((DOWN_MS - 90, DOWN_MS - 1), (DOWN_MS + 52, DOWN_MS + 140)):
            self.case.lose(began, ended)
            self.complains("nothing arrived for 51 ms")

    def test_the_pause_that_counts_may_be_another_without_the_time_the_guest_stood_still(self):
        counts = timeline(DOWN_MS, DOWN_MS + 100)
        counts[1500:1560] = [0] * 60
        self.case.report["timeline"]["bytes_received"] = [counts, counts]
        self.case.lose(DOWN_MS, DOWN_MS + 90)
        row = self.case.row()
        self.assertEqual(row.blackout_ms, 100)
        self.assertIn("nothing arrived for 60 ms", row.complaints[0])
        self.case.lose(1500, 1590)
        self.complains("nothing arrived for 100 ms")
        # Both excused: a pause long after the fault, when the cable comes back, as well.
        self.case.lose(DOWN_MS, DOWN_MS + 90, 1500, 1560)
        self.assertEqual(self.case.row().complaints, [])

    def test_a_blackout_begins_when_the_kernel_tells_of_the_fault(self):
        self.case.report["timeline"]["bytes_received"][1] = timeline(DOWN_MS, DOWN_MS + 80)
        self.case.events[0]["monotonic_ns"] = (DOWN_MS + 33) * MS
        self.case.tell(DOWN_MS + 30)
        row = self.case.row()
        self.assertEqual(row.complaints, [])
        self.assertEqual((row.blackout_ms, row.times[0].blackout, row.times[0].ran), (80, 80, 50))
        self.assertIn("blackout of 50 ms at most after the kernel had told", row.notes[0])
        self.case.tell(DOWN_MS + 29)
        self.complains("nothing arrived for 51 ms")

    def test_nor_does_a_fault_excuse_a_pause_that_began_before_it(self):
        second = dataclasses.replace(
            self.case.episode.faults[0], before=both(1500), after=both(1500), quiet=both(1400), told=both(1530)
        )
        self.case.episode.faults.append(second)
        self.case.episode.drill = dataclasses.replace(DRILL, each=False)
        counts = timeline(1500, 1560)
        self.case.report["timeline"]["bytes_received"] = [counts, counts]
        self.assertEqual(self.case.row().complaints, [])
        counts[1480:1500] = [0] * 20
        self.complains("nothing arrived for 80 ms")

    def test_or_when_an_end_notices_before_that(self):
        self.case.report["timeline"]["bytes_received"][1] = timeline(DOWN_MS, DOWN_MS + 80)
        self.case.events[0]["monotonic_ns"] = (DOWN_MS + 29) * MS
        self.case.tell(DOWN_MS + 35)
        self.complains("nothing arrived for 51 ms")

    def test_a_pause_that_begins_at_another_time_is_all_the_plugin_s(self):
        """Before it was told, which no other pause of the drill has to do with; or not known when it was."""
        for told, began in ((DOWN_MS + 30, DOWN_MS + 31), (DOWN_MS + 30, DOWN_MS + 500), (None, DOWN_MS)):
            self.case.report["timeline"]["bytes_received"][1] = timeline(began, began + 51)
            self.case.events[0]["monotonic_ns"] = (DOWN_MS + 33) * MS
            self.case.tell(told)
            self.complains("nothing arrived for 51 ms")

    def test_what_was_lost_before_the_kernel_told_does_not_count_twice(self):
        self.case.report["timeline"]["bytes_received"][1] = timeline(DOWN_MS, DOWN_MS + 90)
        self.case.events[0]["monotonic_ns"] = (DOWN_MS + 33) * MS
        self.case.tell(DOWN_MS + 30)
        self.case.lose(DOWN_MS, DOWN_MS + 30)
        self.complains("nothing arrived for 60 ms")
        self.case.lose(DOWN_MS + 30, DOWN_MS + 40)
        self.assertEqual(self.case.row().complaints, [])

    def test_each_host_has_its_own_clock(self):
        """Ours says 7000 ms less than a's, and 9000 less than b's."""
        case = self.case
        case.report["timeline"]["bytes_received"] = [timeline(DOWN_MS, DOWN_MS + 100)] * 2
        case.report["clock"]["monotonic_ns"] = [7000 * MS, 9000 * MS]
        case.episode.offsets = {"a": 7000 * MS, "b": 9000 * MS}
        for times in (case.episode.begin, case.episode.end, *(vars(case.episode.faults[0])[n] for n in ("before", "after", "quiet", "until"))):
            times.update({host: times[host] + case.episode.offsets[host] for host in HOSTS})
        for e in case.events:
            e["monotonic_ns"] += 7000 * MS
        case.lose(DOWN_MS + 20, DOWN_MS + 70)
        row = case.row()
        self.assertEqual(row.complaints, [])
        self.assertEqual((row.times[0].blackout, row.times[0].ran), (100, 50))

    def test_noise_excuses_as_much_as_it_is(self):
        counts = timeline(DOWN_MS, DOWN_MS + 51)
        counts[800:810] = [0] * 10
        self.case.report["timeline"]["bytes_received"] = [counts, counts]
        self.assertEqual(self.case.row().complaints, [])

    def test_traffic_on_the_wrong_rail(self):
        self.case.episode.tail = {("a", 0): 100_000, ("a", 1): 100}
        self.complains("traffic is not where it belongs")

    def test_a_drill_that_could_not_be_conducted(self):
        self.case.episode.trouble = "waited in vain"
        self.complains("waited in vain")

    def test_a_process_that_the_kernel_holds(self):
        """Is a complaint, unless the drill says that it may be, and the verbs are where it is held."""
        verbs = "nccl-net-perf in 0: \nnccl-ha-errand in __rxe_cleanup: __rxe_cleanup+0x1 ib_uverbs_ioctl+0x2\n"
        self.case.held = {"a": verbs}
        self.complains("did not end")
        self.case.episode.drill = dataclasses.replace(DRILL, held=True)
        row = self.case.row()
        self.assertEqual(row.complaints, [])
        self.assertIn("nccl-ha-errand in __rxe_cleanup", row.notes[0])
        self.case.held = {"a": verbs + "nccl-ha in futex_wait: futex_wait+0x1\n"}
        self.complains("did not end")

    def test_ranks_that_take_long_to_end(self):
        self.case.episode.drill = dataclasses.replace(DRILL, ends_within_ms=1000)
        self.assertEqual(self.case.row().complaints, [])
        self.case.end_ms = 1001
        self.complains("ended after 1001 ms")
        self.case.end_ms = None
        self.complains("limit 1000 ms")

    def test_a_queue_pair_that_is_stuck(self):
        """Only one that takes itself for ready is; and the device must have told nothing."""
        self.case.episode.drill = dataclasses.replace(DRILL, stuck_at="a", reasons=("no completion in time",))
        self.case.output = {"a": "lab-deaf: withheld 'port error' of a0"}
        failure = self.case.events[0]
        failure.update(reason="no completion in time", detail="a message did not complete; QP 17 is in RTS")
        row = self.case.row()
        self.assertEqual(row.complaints, [])
        self.assertIn("QP 17", row.notes[0])
        self.case.output = {}
        self.complains("told of its port")
        self.case.output = {"a": "lab-deaf: withheld 'port error' of a0"}
        for change in ({"detail": "QP 17 is in ERR"}, {"reason": "error completion"}, {"end": "b"}):
            self.case.events[0] = {**failure, **change}
            self.complains("no queue pair was left stuck")

    def test_a_failure_where_nothing_may_fail(self):
        quiet = Drill("healthy", "", steps=())
        self.case.episode = Episode(quiet, begin=both(0), end=both(END_MS))
        self.complains("nothing may fail here")


class LinkDownsTest(unittest.TestCase):
    """The mark: 50 ms beyond the noise, 95th percentile of many."""

    def row(self, *pauses_ms, by_event=True, noise_ms=10.0):
        times = [Times(5.0, pause_ms + 7, noise_ms, pause_ms) for pause_ms in pauses_ms]
        return Row("link-down", "one", times=times, by_event=by_event)

    def test_one_of_twenty_may_be_slow_and_two_may_not(self):
        ordinary = [60] * (MANY - 2)
        self.assertEqual(complaint_of([self.row(*ordinary, 60, 400)]), "")
        self.assertIn("51 ms beyond the noise", complaint_of([self.row(*ordinary, 61, 400)]))

    def test_drills_of_a_round_count_together(self):
        rows = [self.row(61), self.row(61), self.row(*[60] * (MANY - 2))]
        self.assertIn(f"of {MANY} links", complaint_of(rows))
        self.assertEqual(LinkDowns.of(rows), (MANY, 68, 10, 61))

    def test_of_few_there_is_no_percentile(self):
        self.assertEqual(complaint_of([self.row(*[400] * (MANY - 1))]), "")
        self.assertIn(f"the limit is for {MANY} and more", of_events([self.row(400)]))

    def test_other_faults_do_not_count(self):
        self.assertEqual(complaint_of([self.row(*[400] * MANY, by_event=False)]), "")
        self.assertEqual(of_events([self.row(400, by_event=False)]), "")

    def test_noise_that_nobody_knows_excuses_nothing(self):
        self.assertIn("60 ms beyond", complaint_of([self.row(*[60] * MANY, noise_ms=None)]))

    def test_a_drill_of_many_is_judged_by_itself(self):
        case = Case()
        case.episode.faults = [case.episode.faults[0]] * MANY
        case.episode.drill = dataclasses.replace(DRILL, blackout_ms=500)
        self.assertEqual(case.row().complaints, [])
        case.report["timeline"]["bytes_received"][1] = timeline(DOWN_MS, DOWN_MS + 51)
        self.assertIn("51 ms beyond the noise", case.row().complaints[0])


class Parts(unittest.TestCase):
    def test_what_is_left_of_a_process_says_how_it_ended(self):
        stat = "7 (a) b) {} 1 7 7 0 -1 4194560 {}"
        self.assertIsNone(status_of_the_leaving(stat.format("R", 0)))
        self.assertIsNone(status_of_the_leaving(""))
        self.assertEqual(status_of_the_leaving(stat.format("Z", 0)), 0)
        self.assertEqual(status_of_the_leaving(stat.format("Z", 3 << 8)), 3)
        self.assertEqual(status_of_the_leaving(stat.format("Z", 9)), -9)

    def test_percentile_is_a_value_that_was_seen(self):
        self.assertEqual(percentile(range(1, 101), 95), 95)
        self.assertEqual(percentile([7], 95), 7)
        self.assertEqual(percentile([], 95), 0)

    def test_traffic_is_as_fast_as_in_its_best_window(self):
        """So a machine that stood still before a fault does not make slow traffic look as fast as before."""
        line = Timeline(0, 1, timeline(500, 760))
        self.assertEqual(line.best_rate(500 * MS, 1000 * MS), 960)
        self.assertEqual(line.best_rate(900 * MS, 1000 * MS), 1000)
        self.assertEqual(line.best_rate(500 * MS, 700 * MS), 0)

    def test_a_path_that_only_the_sender_called_broken_is_none_to_go_back_to(self):
        connection = Connection()

        def take(kind, end="recv", source=None, target=None):
            us, peer, arrow = ("b", "a", "<-") if end == "recv" else ("a", "b", "->")
            connection.take(
                {
                    "kind": kind,
                    "name": f"{end} 1 (h:1 {us}0:1 {arrow} h:2 {peer}0:1)",
                    "reason": "error completion",
                    "from": source and {"path": source[0], "generation": source[1], "port": f"{us}{source[0]}:1"},
                    "to": target and {"path": target[0], "generation": target[1], "port": f"{us}{target[0]}:1"},
                }
            )

        def switch(source, target):
            for end in ("send", "recv"):
                take("switch", end, source, target)

        take("recovery", target=(0, 1))
        take("recovery", target=(1, 1))
        take("rebuild", "send", target=(1, 1))
        self.assertTrue(connection.is_protected())
        switch((0, 1), (1, 1))
        self.assertFalse(connection.is_protected())
        take("recovery", target=(0, 2))
        self.assertTrue(connection.is_protected())
        # Its successor may be proved before the switch away from it is over, or be where that goes to.
        take("recovery", target=(1, 2))
        switch((1, 1), (0, 2))
        self.assertTrue(connection.is_protected())
        take("failure", source=(1, 2))
        self.assertFalse(connection.is_protected())
        take("recovery", target=(0, 3))
        take("recovery", target=(1, 3))
        switch((0, 2), (0, 3))
        self.assertTrue(connection.is_protected())

    def test_a_pause_counts_as_far_as_it_is_inside(self):
        line = Timeline(0, 1, copy.copy(timeline(100, 300)))
        self.assertEqual(line.longest_ms(0, 2000 * MS), 200)
        self.assertEqual(line.longest_ms(200 * MS, 2000 * MS), 100)
        self.assertEqual(line.longest_ms(0, 150 * MS, 150 * MS), 50)
        self.assertEqual(line.longest_ms(400 * MS, 2000 * MS), 0)


if __name__ == "__main__":
    unittest.main()
