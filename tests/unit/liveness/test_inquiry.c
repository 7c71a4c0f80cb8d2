/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inquiries of the detector, driven by hand: when a way is given up because traffic stands still,
 * and what is no reason to.
 */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "liveness/detector.h"

#include <string.h>

#define MS	 HA_NS_PER_MS
#define INTERVAL (200 * MS)
#define PART	 (10 * MS)
#define TIMEOUT	 (4 * PART)
/* A ping each fifth of a part, and a judgement with each. */
#define STEP (PART / 5)

/* Pings that the peer has not answered yet. */
struct way {
	struct ha_detector detector;
	uint64_t round_trip_ns;
	bool cut;
	uint64_t seqs[1024], heard_ns[1024];
	unsigned first, last;
	uint64_t pings;
};

static uint64_t now_ns;
static struct way way, other; /* of the same peer */
static bool peer_runs;

static void open_way(struct way *w, uint64_t round_trip_ns, uint64_t stall_ns)
{
	memset(w, 0, sizeof(*w));
	w->round_trip_ns = round_trip_ns;
	ha_detector_init(&w->detector, INTERVAL, stall_ns, 0x1234567, now_ns);
}

static void hear(struct way *w)
{
	uint64_t ignored;

	for (; w->first < w->last && w->heard_ns[w->first] <= now_ns; w->first++) {
		(void)ha_detector_pong(&w->detector, w->seqs[w->first], now_ns, &ignored);
		ha_detector_judge(&w->detector, false, now_ns);
	}
}

static void ping(struct way *w)
{
	uint64_t seq;

	if (!ha_detector_ping_due(&w->detector, now_ns))
		return;
	seq = ha_detector_ping(&w->detector, now_ns);
	w->pings++;
	if (w->cut || !peer_runs)
		return;
	assert_true(w->last < sizeof(w->seqs) / sizeof(w->seqs[0]));
	w->seqs[w->last] = seq;
	w->heard_ns[w->last++] = now_ns + w->round_trip_ns;
}

/* What a session does at a visit. */
static void visit(struct way *w, struct way *helper)
{
	hear(w);
	if (ha_detector_inquires(&w->detector))
		ha_detector_note_other(&w->detector, &helper->detector, now_ns);
	ha_detector_judge(&w->detector, false, now_ns);
	ping(w);
	if (ha_detector_wants_help(&w->detector))
		ha_detector_help(&helper->detector, now_ns);
}

static void run_us(uint64_t us)
{
	uint64_t until_ns = now_ns + us * HA_NS_PER_US;

	while (now_ns < until_ns) {
		now_ns += 10 * HA_NS_PER_US;
		visit(&way, &other);
		visit(&other, &way);
	}
}

static void run_ms(uint64_t ms)
{
	run_us(1000 * ms);
}

static void bring_up(uint64_t round_trip_ns, uint64_t stall_ns)
{
	now_ns = 1000 * HA_NS_PER_S;
	peer_runs = true;
	open_way(&way, round_trip_ns, stall_ns);
	open_way(&other, round_trip_ns, stall_ns);
	run_ms(5 * 200);
	assert_int_equal(way.detector.state, HA_SESSION_UP);
	assert_int_equal(other.detector.state, HA_SESSION_UP);
}

static void inquire(void)
{
	ha_detector_inquire(&way.detector, now_ns);
}

/* Nothing is under way that was asked just now, wherever between two heartbeats. */
static void wait_for_quiet(uint64_t ms)
{
	run_ms(ms);
	while (now_ns - way.detector.answers[0].sent_ns < way.detector.stall_ns)
		run_ms(1);
}

static void assert_goes_down_after(uint64_t at_least_ns, uint64_t at_most_ns)
{
	uint64_t since_ns = now_ns;

	while (way.detector.state != HA_SESSION_DOWN) {
		assert_true(now_ns - since_ns <= at_most_ns);
		run_us(10);
	}
	assert_true(now_ns - since_ns >= at_least_ns);
	assert_int_equal(other.detector.state, HA_SESSION_UP);
}

/* ---- a cut ----------------------------------------------------------------------------------- */

static void a_cut_is_known_after_the_timeout(void **state)
{
	(void)state;
	for (uint64_t phase_ms = 0; phase_ms < 200; phase_ms += 13) {
		uint64_t pings, since_ns;

		bring_up(20 * HA_NS_PER_US, PART);
		wait_for_quiet(phase_ms);
		way.cut = true;
		run_ms(1);
		pings = way.pings;
		since_ns = now_ns;
		inquire();
		assert_goes_down_after(TIMEOUT, TIMEOUT + 2 * STEP);
		assert_in_range(way.pings - pings, HA_DETECTOR_INQUIRY_PINGS, 22);
		/* What others answered since then they answered after the failure. */
		assert_int_equal(way.detector.failed_before_ns, since_ns);
	}
}

/* Nobody asks: the next heartbeat does, wherever between two the cut was. */
static void a_heartbeat_that_has_no_answer_begins_one(void **state)
{
	(void)state;
	for (uint64_t phase_ms = 0; phase_ms < 200; phase_ms += 13) {
		uint64_t since_ns;

		bring_up(20 * HA_NS_PER_US, PART);
		wait_for_quiet(phase_ms);
		way.cut = true;
		since_ns = now_ns;
		while (way.detector.state == HA_SESSION_UP)
			run_us(10);
		assert_int_equal(way.detector.state, HA_SESSION_SUSPECTED);
		assert_in_range(now_ns - since_ns, 3 * STEP, INTERVAL + 10 * MS);
		assert_goes_down_after(TIMEOUT - 5 * STEP, TIMEOUT);
		assert_true(now_ns - since_ns <= INTERVAL + TIMEOUT + 2 * STEP);
	}
}

/* What a probe has shown to be a matter of datagrams alone is not asked again at once. */
static void a_silence_begins_one_by_itself_once(void **state)
{
	uint64_t pings;

	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	way.cut = true;
	while (!ha_detector_inquires(&way.detector))
		run_us(10);
	run_us(100);
	ha_detector_note_life(&way.detector, now_ns);
	pings = way.pings;
	run_ms(90);
	assert_false(ha_detector_inquires(&way.detector));
	assert_int_equal(way.pings, pings);
	inquire();
	assert_true(ha_detector_inquires(&way.detector));
	way.cut = false;
	run_ms(500);
	assert_int_equal(way.detector.state, HA_SESSION_UP);
	way.cut = true;
	while (!ha_detector_inquires(&way.detector))
		run_us(10);
	assert_int_equal(way.detector.state, HA_SESSION_UP);
}

static void without_inquiries_it_takes_three_intervals(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, 0);
	way.cut = true;
	inquire();
	assert_false(ha_detector_inquires(&way.detector));
	run_ms(390);
	assert_int_not_equal(way.detector.state, HA_SESSION_DOWN);
	run_ms(210);
	assert_int_equal(way.detector.state, HA_SESSION_SUSPECTED); /* no witness is looked for */
}

/* And comes back like any other. */
static void a_way_that_was_given_up_comes_back_with_three_answers(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(0);
	way.cut = true;
	inquire();
	assert_goes_down_after(TIMEOUT, TIMEOUT + 2 * STEP);
	assert_false(ha_detector_inquires(&way.detector));
	inquire(); /* means nothing while it is DOWN */
	assert_false(ha_detector_inquires(&way.detector));
	way.cut = false;
	run_ms(600);
	assert_int_equal(way.detector.state, HA_SESSION_UP);
}

/* ---- an answer ------------------------------------------------------------------------------- */

static void an_answer_ends_it_and_costs_one_ping(void **state)
{
	uint64_t pings, others;

	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	pings = way.pings;
	others = other.pings;
	inquire();
	assert_true(ha_detector_inquires(&way.detector));
	run_us(100);
	assert_false(ha_detector_inquires(&way.detector));
	assert_int_equal(way.pings, pings + 1);
	/* The next one at the interval. */
	run_ms(170);
	assert_int_equal(way.pings, pings + 1);
	run_ms(40);
	assert_int_equal(way.pings, pings + 2);
	assert_in_range(other.pings, others, others + 2);
}

/* Hundreds of connections ask at once. */
static void who_was_just_heard_is_not_asked(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	inquire();
	run_us(100);
	inquire();
	assert_false(ha_detector_inquires(&way.detector));
	run_us(PART / 2 / 1000);
	inquire();
	assert_true(ha_detector_inquires(&way.detector));
}

/* What lossy networks lose: each answer but the last that would still do. */
static void one_answer_of_many_is_enough(void **state)
{
	uint64_t pings;

	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	pings = way.pings;
	way.cut = true;
	inquire();
	run_us((TIMEOUT - STEP) / 1000 - 100);
	assert_true(way.pings - pings > HA_DETECTOR_INQUIRY_PINGS);
	way.cut = false;
	run_ms(1000);
	assert_int_equal(way.detector.state, HA_SESSION_UP);
}

/* ---- what takes its time --------------------------------------------------------------------- */

static void a_way_that_is_ten_times_as_slow_is_not_silent(void **state)
{
	static const uint64_t round_trips_us[] = {5, 100, 1000, 2000, 4000, 8000, 20000};

	(void)state;
	for (size_t i = 0; i < sizeof(round_trips_us) / sizeof(round_trips_us[0]); i++) {
		bring_up(round_trips_us[i] * HA_NS_PER_US, PART);
		for (int n = 0; n < 40; n++) /* it is what it is used to */
			run_ms(200);
		wait_for_quiet(50);
		way.round_trip_ns *= 10;
		for (int n = 0; n < 100; n++) {
			inquire();
			run_ms(20);
			assert_int_not_equal(way.detector.state, HA_SESSION_DOWN);
		}
	}
}

/* Where three intervals are not longer there is nothing to gain. */
static void a_timeout_of_three_intervals_is_none(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, INTERVAL * 3 / 4);
	wait_for_quiet(50);
	inquire();
	assert_false(ha_detector_inquires(&way.detector));
	bring_up(20 * HA_NS_PER_US, INTERVAL * 3 / 4 - 1);
	wait_for_quiet(50);
	inquire();
	assert_true(ha_detector_inquires(&way.detector));
}

/* ---- a peer without a processor -------------------------------------------------------------- */

/* It is asked for a while, not for ever; then three intervals, and ten without a witness, count. */
static void a_peer_that_answers_nowhere_is_not_given_up(void **state)
{
	uint64_t pings;

	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	pings = way.pings;
	peer_runs = false;
	inquire();
	for (int ms = 0; ms < 1900; ms++) {
		run_ms(1);
		assert_int_not_equal(way.detector.state, HA_SESSION_DOWN);
		if (ms == 0 || ms == 599)
			assert_int_equal(ha_detector_inquires(&way.detector), ms == 0);
	}
	/* Two time-outs in quick succession, then like one that is suspected. */
	assert_in_range(way.pings - pings, 40, 40 + 80);
	peer_runs = true;
	run_ms(100);
	assert_int_equal(way.detector.state, HA_SESSION_UP);
}

/* Nor is it suspected before it would be without any. */
static void a_peer_that_answers_nowhere_is_suspected_as_late_as_ever(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	peer_runs = false;
	while (way.detector.state == HA_SESSION_UP)
		run_us(10);
	assert_in_range(now_ns - way.detector.heard_ns, INTERVAL * 3 / 2,
			INTERVAL * 3 / 2 + 3 * MS);
}

/* Answers to pings in quick succession that come together are late once. */
static void a_peer_that_was_away_once_is_not_slow(void **state)
{
	uint64_t ignored;

	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	peer_runs = false;
	run_ms(280);
	assert_int_equal(way.detector.state, HA_SESSION_UP);
	for (uint64_t seq = way.detector.answered + 1; seq <= way.detector.sent; seq++) {
		(void)ha_detector_pong(&way.detector, seq, now_ns, &ignored);
		assert_int_equal(ha_detector_judge(&way.detector, false, now_ns), HA_SESSION_UP);
	}
	peer_runs = true;
	for (int ms = 0; ms < 400; ms++) {
		run_ms(1);
		assert_int_equal(way.detector.state, HA_SESSION_UP);
	}
}

/*
 * Its thread takes one port after the other: between the answers over two of them it may lose the
 * processor, as long as hogs like. It came by here only when it came by there again.
 */
static void a_peer_that_stops_between_two_ports_is_not_given_up(void **state)
{
	(void)state;
	for (unsigned rounds = 0; rounds <= HA_DETECTOR_INQUIRY_ROUNDS; rounds++) {
		bring_up(20 * HA_NS_PER_US, PART);
		wait_for_quiet(50);
		way.cut = true;
		inquire();
		while (way.detector.inquiry.rounds < rounds)
			run_us(10);
		other.cut = true; /* from now on it answers nowhere */
		for (int ms = 0; ms < 500 && way.detector.state != HA_SESSION_DOWN; ms++)
			run_ms(1);
		assert_int_equal(way.detector.state == HA_SESSION_DOWN,
				 rounds == HA_DETECTOR_INQUIRY_ROUNDS);
	}
}

/* What it finds in its queue when it gets one is one visit, however many pings those are. */
static void answers_of_one_moment_are_one_round(void **state)
{
	uint64_t ignored, early;

	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	way.cut = true;
	other.cut = true;
	inquire();
	run_ms(12);
	early = other.detector.sent;
	run_ms(33);
	(void)ha_detector_pong(&other.detector, early, now_ns, &ignored);
	(void)ha_detector_pong(&other.detector, other.detector.sent, now_ns, &ignored);
	run_us(10);
	assert_int_equal(way.detector.inquiry.rounds, 1);
	run_ms(400);
	assert_int_not_equal(way.detector.state, HA_SESSION_DOWN);
}

/* ---- other signs of life --------------------------------------------------------------------- */

static void a_probe_that_comes_back_ends_it(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	way.cut = true; /* for datagrams */
	inquire();
	run_ms(30);
	ha_detector_note_life(&way.detector, now_ns);
	assert_false(ha_detector_inquires(&way.detector));
	run_ms(100);
	assert_int_not_equal(way.detector.state, HA_SESSION_DOWN);
}

static void traffic_begins_it_anew(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	way.cut = true;
	inquire();
	/* What completed before the inquiry is no sign. */
	assert_true(ha_detector_wants_traffic(&way.detector));
	ha_detector_traffic(&way.detector, true, now_ns);
	run_ms(20);
	ha_detector_traffic(&way.detector, false, now_ns);
	run_ms(10);
	ha_detector_traffic(&way.detector, true, now_ns);
	assert_goes_down_after(TIMEOUT - STEP, TIMEOUT + 2 * STEP);
}

/* Half way, where the peer is there to answer: time to ask the queue pairs. */
static void doom_is_told_once_half_way(void **state)
{
	(void)state;
	for (int silent = 0; silent < 2; silent++) {
		unsigned told = 0;
		uint64_t since_ns;

		bring_up(20 * HA_NS_PER_US, PART);
		wait_for_quiet(50);
		way.cut = true;
		other.cut = silent;
		inquire();
		since_ns = now_ns;
		for (int us = 0; us < 39000; us += 10) {
			run_us(10);
			if (!ha_detector_take_doom(&way.detector))
				continue;
			told++;
			assert_in_range(now_ns - since_ns, TIMEOUT / 2, TIMEOUT / 2 + STEP);
		}
		assert_int_equal(told, !silent);
	}
}

/* It is told when a peer that answered elsewhere would have been heard, until one is. */
static void that_nobody_testifies_is_told(void **state)
{
	(void)state;
	for (int alone = 0; alone < 2; alone++) {
		bring_up(20 * HA_NS_PER_US, PART);
		wait_for_quiet(50);
		way.cut = true;
		other.cut = alone;
		assert_false(ha_detector_lacks_witness(&way.detector, now_ns));
		inquire();
		run_us(3 * PART / 2 / HA_NS_PER_US - 10);
		assert_false(ha_detector_lacks_witness(&way.detector, now_ns));
		run_us(10);
		assert_int_equal(ha_detector_lacks_witness(&way.detector, now_ns), alone);
		other.cut = false;
		run_ms(2 * PART / MS);
		assert_false(ha_detector_lacks_witness(&way.detector, now_ns));
	}
}

/* A way that was made for it, and was never up. */
static void a_new_way_testifies_as_soon_as_it_answers(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	way.cut = true;
	inquire();
	run_ms(PART / MS);
	open_way(&other, 20 * HA_NS_PER_US, PART);
	assert_goes_down_after(TIMEOUT - PART - STEP, TIMEOUT - PART + 2 * STEP);
}

static void our_own_sleep_ends_it(void **state)
{
	(void)state;
	bring_up(20 * HA_NS_PER_US, PART);
	wait_for_quiet(50);
	way.cut = true;
	inquire();
	run_ms(30);
	ha_detector_restart(&way.detector, now_ns);
	/* And what was asked before that begins no other. */
	for (int ms = 0; ms < 100; ms++) {
		assert_false(ha_detector_inquires(&way.detector));
		run_ms(1);
	}
	assert_int_not_equal(way.detector.state, HA_SESSION_DOWN);
	/* Nor where it had not got to one. */
	bring_up(20 * HA_NS_PER_US, PART);
	way.cut = true;
	while (way.detector.sent == way.detector.answered)
		run_us(10);
	ha_detector_restart(&way.detector, now_ns);
	for (int ms = 0; ms < 100; ms++) {
		assert_false(ha_detector_inquires(&way.detector));
		run_ms(1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_cut_is_known_after_the_timeout),
	    cmocka_unit_test(a_heartbeat_that_has_no_answer_begins_one),
	    cmocka_unit_test(a_silence_begins_one_by_itself_once),
	    cmocka_unit_test(without_inquiries_it_takes_three_intervals),
	    cmocka_unit_test(a_way_that_was_given_up_comes_back_with_three_answers),
	    cmocka_unit_test(an_answer_ends_it_and_costs_one_ping),
	    cmocka_unit_test(who_was_just_heard_is_not_asked),
	    cmocka_unit_test(one_answer_of_many_is_enough),
	    cmocka_unit_test(a_way_that_is_ten_times_as_slow_is_not_silent),
	    cmocka_unit_test(a_timeout_of_three_intervals_is_none),
	    cmocka_unit_test(a_peer_that_answers_nowhere_is_not_given_up),
	    cmocka_unit_test(a_peer_that_answers_nowhere_is_suspected_as_late_as_ever),
	    cmocka_unit_test(a_peer_that_was_away_once_is_not_slow),
	    cmocka_unit_test(a_peer_that_stops_between_two_ports_is_not_given_up),
	    cmocka_unit_test(answers_of_one_moment_are_one_round),
	    cmocka_unit_test(a_probe_that_comes_back_ends_it),
	    cmocka_unit_test(traffic_begins_it_anew),
	    cmocka_unit_test(doom_is_told_once_half_way),
	    cmocka_unit_test(that_nobody_testifies_is_told),
	    cmocka_unit_test(a_new_way_testifies_as_soon_as_it_answers),
	    cmocka_unit_test(our_own_sleep_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
