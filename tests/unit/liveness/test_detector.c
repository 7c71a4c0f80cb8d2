/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The detector of a session at each interval that may be configured, driven by hand: pace,
 * transitions at their exact times, answers that do not count. And the bytes of a heartbeat.
 */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "liveness/detector.h"
#include "liveness/packet.h"

#include <string.h>

static const unsigned intervals_ms[] = {1, 2, 10, 50, 200, 60000};

/* Time goes on in steps that a punctual thread makes: to whatever is due, or a tick. */
struct driven {
	struct ha_detector detector;
	uint64_t now_ns, interval_ns;
	bool peer_answers;
	uint64_t pings;
};

static void begin(struct driven *d, unsigned interval_ms)
{
	memset(d, 0, sizeof *d);
	d->now_ns = 1000 * HA_NS_PER_S;
	d->interval_ns = interval_ms * HA_NS_PER_MS;
	ha_detector_init(&d->detector, d->interval_ns, 0, 0x123456789abcull + interval_ms,
			 d->now_ns);
	d->peer_answers = true;
}

static enum ha_session_state step(struct driven *d)
{
	uint64_t due = ha_detector_due_ns(&d->detector), round_trip_ns;

	if (due > d->now_ns)
		d->now_ns = due;
	ha_detector_judge(&d->detector, true, d->now_ns);
	if (ha_detector_ping_due(&d->detector, d->now_ns)) {
		uint64_t seq = ha_detector_ping(&d->detector, d->now_ns);

		d->pings++;
		if (d->peer_answers) {
			assert_true(
			    ha_detector_pong(&d->detector, seq, d->now_ns + 5000, &round_trip_ns));
			assert_int_equal(round_trip_ns, 5000);
			ha_detector_judge(&d->detector, true, d->now_ns + 5000);
		}
	}
	return d->detector.state;
}

static void bring_up(struct driven *d, unsigned interval_ms)
{
	begin(d, interval_ms);
	for (int i = 0; i < 3; i++)
		assert_int_equal(d->detector.state, HA_SESSION_INIT), step(d);
	assert_int_equal(d->detector.state, HA_SESSION_UP);
}

#define FOR_EACH_INTERVAL(i)                                                                       \
	for (size_t i = 0; i < sizeof intervals_ms / sizeof intervals_ms[0]; i++)

static void it_comes_up_within_an_interval_and_stays_at_its_pace(void **state)
{
	(void)state;
	FOR_EACH_INTERVAL(i)
	{
		struct driven d;
		uint64_t from, pings;

		bring_up(&d, intervals_ms[i]);
		assert_true(d.now_ns - 1000 * HA_NS_PER_S <=
			    (d.interval_ns > 2 * HA_NS_PER_MS ? d.interval_ns : 2 * HA_NS_PER_MS));
		from = d.now_ns;
		pings = d.pings;
		while (d.pings < pings + 1000)
			assert_int_equal(step(&d), HA_SESSION_UP);
		/* Jitter of up to an eighth. */
		assert_in_range(d.now_ns - from, 1000 * d.interval_ns * 7 / 8,
				1000 * d.interval_ns);
		assert_true(d.now_ns - from < 1000 * d.interval_ns);
		assert_int_equal(d.detector.lost, 0);
	}
}

static void silence_is_suspected_then_down_at_three_intervals(void **state)
{
	(void)state;
	FOR_EACH_INTERVAL(i)
	{
		uint64_t heard, suspected = 0;
		struct driven d;

		bring_up(&d, intervals_ms[i]);
		for (int n = 0; n < 20; n++)
			step(&d);
		heard = d.detector.heard_ns;
		d.peer_answers = false;
		while (d.detector.state != HA_SESSION_DOWN) {
			step(&d);
			if (d.detector.state == HA_SESSION_SUSPECTED && suspected == 0)
				suspected = d.now_ns;
		}
		assert_in_range(suspected - heard, d.interval_ns * 3 / 2, d.interval_ns * 5 / 2);
		/* To the nanosecond where there was time for three pings, else one tick later. */
		if (intervals_ms[i] > 2)
			assert_int_equal(d.now_ns - heard, 3 * d.interval_ns);
		else
			assert_in_range(d.now_ns - heard, 3 * d.interval_ns,
					3 * d.interval_ns + 2 * HA_NS_PER_MS);
		assert_true(d.pings >= 3);
		/* It goes on asking, at the interval. */
		d.pings = 0;
		heard = d.now_ns;
		while (d.now_ns - heard < 20 * d.interval_ns)
			assert_int_equal(step(&d), HA_SESSION_DOWN);
		assert_in_range(d.pings, 19, 24);
		/* And comes back with three answers. */
		d.peer_answers = true;
		d.pings = 0;
		while (d.detector.state != HA_SESSION_UP)
			step(&d);
		assert_int_equal(d.pings, 3);
	}
}

/* One step of a detector that nobody answers, with nobody else who is answered. */
static void step_alone(struct driven *d)
{
	uint64_t due = ha_detector_due_ns(&d->detector);

	assert_true(due >= d->now_ns); /* no hurry that leads nowhere */
	d->now_ns = due;
	if (ha_detector_ping_due(&d->detector, d->now_ns))
		ha_detector_ping(&d->detector, d->now_ns);
	ha_detector_judge(&d->detector, false, d->now_ns);
}

static void without_a_witness_it_takes_longer(void **state)
{
	(void)state;
	FOR_EACH_INTERVAL(i)
	{
		uint64_t heard, expected;
		struct driven d;

		bring_up(&d, intervals_ms[i]);
		heard = d.detector.heard_ns;
		expected =
		    10 * d.interval_ns > 2 * HA_NS_PER_S ? 10 * d.interval_ns : 2 * HA_NS_PER_S;
		while (d.detector.state != HA_SESSION_DOWN)
			step_alone(&d);
		assert_int_equal(d.now_ns - heard, expected);
	}
}

static void a_witness_answers_what_was_asked_later(void **state)
{
	struct driven d, other;
	uint64_t ignored;

	(void)state;
	bring_up(&d, 200);
	bring_up(&other, 200);
	while (!ha_detector_expired(&d.detector, d.now_ns))
		step_alone(&d);
	/* What it answered before the silence says nothing. */
	assert_false(ha_detector_witnesses(&other.detector, &d.detector, d.now_ns));
	/* It is there again; so may this one be, in a moment. */
	other.now_ns = d.now_ns;
	assert_true(ha_detector_pong(&other.detector, ha_detector_ping(&other.detector, d.now_ns),
				     d.now_ns, &ignored));
	assert_false(ha_detector_witnesses(&other.detector, &d.detector, d.now_ns));
	/* The moment is over. */
	d.now_ns += d.interval_ns / 4;
	assert_true(ha_detector_witnesses(&other.detector, &d.detector, d.now_ns));
	ha_detector_judge(&d.detector, true, d.now_ns);
	assert_int_equal(d.detector.state, HA_SESSION_DOWN);
}

/* The clock of a visit is read before the answers that the visit takes. */
static void an_answer_younger_than_the_visit_is_no_silence(void **state)
{
	struct driven d, other;
	uint64_t seq, visit_ns, ignored;

	(void)state;
	bring_up(&d, 200);
	visit_ns = d.now_ns;
	seq = ha_detector_ping(&d.detector, visit_ns);
	assert_true(ha_detector_pong(&d.detector, seq, visit_ns + 5000, &ignored));
	assert_int_equal(ha_detector_judge(&d.detector, true, visit_ns), HA_SESSION_UP);

	bring_up(&d, 200);
	bring_up(&other, 200);
	while (!ha_detector_expired(&d.detector, d.now_ns))
		step_alone(&d);
	visit_ns = d.now_ns;
	seq = ha_detector_ping(&other.detector, visit_ns);
	assert_true(ha_detector_pong(&other.detector, seq, visit_ns + 5000, &ignored));
	assert_false(ha_detector_witnesses(&other.detector, &d.detector, visit_ns));
	seq = d.detector.sent - 2; /* three more have no answer yet */
	ha_detector_ping(&d.detector, visit_ns);
	assert_true(ha_detector_pong(&d.detector, seq, visit_ns + 5000, &ignored));
	assert_false(ha_detector_expired(&d.detector, visit_ns));
	assert_int_not_equal(ha_detector_judge(&d.detector, true, visit_ns), HA_SESSION_DOWN);
}

static void answers_from_before_it_was_down_do_not_bring_it_up(void **state)
{
	uint64_t first, last, ignored;
	struct driven d;

	(void)state;
	bring_up(&d, 10);
	d.peer_answers = false;
	first = d.detector.sent + 1;
	while (d.detector.state != HA_SESSION_DOWN)
		step(&d);
	last = d.detector.sent;
	assert_true(last - first >= 3);
	for (uint64_t seq = first; seq <= last; seq++)
		assert_false(ha_detector_pong(&d.detector, seq, d.now_ns, &ignored));
	assert_int_equal(ha_detector_judge(&d.detector, true, d.now_ns), HA_SESSION_DOWN);
	assert_int_equal(d.detector.lost, last - first + 1);
}

static void only_an_answer_we_wait_for_counts(void **state)
{
	uint64_t seq, ignored;
	struct driven d;

	(void)state;
	bring_up(&d, 10);
	d.peer_answers = false;
	seq = d.detector.sent;
	assert_false(ha_detector_pong(&d.detector, 0, d.now_ns, &ignored));
	assert_false(ha_detector_pong(&d.detector, seq, d.now_ns, &ignored)); /* again */
	assert_false(
	    ha_detector_pong(&d.detector, seq + 1, d.now_ns, &ignored)); /* not asked yet */
	assert_false(ha_detector_pong(&d.detector, UINT64_MAX, d.now_ns, &ignored));
	while (d.detector.sent < seq + 3)
		step(&d);
	/* The second of three: the first is lost, the third may still come. */
	assert_true(ha_detector_pong(&d.detector, seq + 2, d.now_ns, &ignored));
	assert_int_equal(d.detector.lost, 1);
	assert_int_equal(d.detector.in_row, 1);
	assert_false(ha_detector_pong(&d.detector, seq + 1, d.now_ns, &ignored));
	assert_true(ha_detector_pong(&d.detector, seq + 3, d.now_ns, &ignored));
	assert_int_equal(d.detector.in_row, 2);
}

static void a_stopped_pulse_stays_down(void **state)
{
	struct driven d;
	uint64_t ignored;

	(void)state;
	bring_up(&d, 10);
	step(&d);
	ha_detector_stop(&d.detector);
	assert_int_equal(d.detector.state, HA_SESSION_DOWN);
	assert_int_equal(ha_detector_due_ns(&d.detector), UINT64_MAX);
	assert_false(ha_detector_pong(&d.detector, d.detector.sent, d.now_ns, &ignored));
	ha_detector_ping_sooner(&d.detector, d.now_ns + d.interval_ns * 10);
	assert_int_equal(ha_detector_due_ns(&d.detector), UINT64_MAX);
	begin(&d, 10);
	ha_detector_stop(&d.detector);
	assert_int_equal(d.detector.state, HA_SESSION_INIT);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void heartbeats_survive_encoding_and_no_damage_goes_unseen(void **state)
{
	const struct ha_heartbeat in = {.kind = HA_HEARTBEAT_PONG,
					.from = 0x1122334455667788,
					.to = 0x99aabbccddeeff00,
					.seq = 0x0102030405060708};
	uint8_t bytes[HA_HEARTBEAT_BYTES + 1];
	struct ha_heartbeat out;

	(void)state;
	ha_heartbeat_encode(&in, bytes);
	assert_true(ha_heartbeat_decode(bytes, HA_HEARTBEAT_BYTES, &out));
	assert_int_equal(out.kind, in.kind);
	assert_int_equal(out.from, in.from);
	assert_int_equal(out.to, in.to);
	assert_int_equal(out.seq, in.seq);
	for (size_t len = 0; len <= sizeof bytes; len++)
		if (len != HA_HEARTBEAT_BYTES)
			assert_false(ha_heartbeat_decode(bytes, len, &out));
	for (size_t bit = 0; bit < 8 * HA_HEARTBEAT_BYTES; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(ha_heartbeat_decode(bytes, HA_HEARTBEAT_BYTES, &out));
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_true(ha_heartbeat_decode(bytes, HA_HEARTBEAT_BYTES, &out));
	ha_heartbeat_encode(&(struct ha_heartbeat){.kind = 3}, bytes);
	assert_false(ha_heartbeat_decode(bytes, HA_HEARTBEAT_BYTES, &out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_comes_up_within_an_interval_and_stays_at_its_pace),
	    cmocka_unit_test(silence_is_suspected_then_down_at_three_intervals),
	    cmocka_unit_test(without_a_witness_it_takes_longer),
	    cmocka_unit_test(a_witness_answers_what_was_asked_later),
	    cmocka_unit_test(an_answer_younger_than_the_visit_is_no_silence),
	    cmocka_unit_test(answers_from_before_it_was_down_do_not_bring_it_up),
	    cmocka_unit_test(only_an_answer_we_wait_for_counts),
	    cmocka_unit_test(a_stopped_pulse_stays_down),
	    cmocka_unit_test(heartbeats_survive_encoding_and_no_damage_goes_unseen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
