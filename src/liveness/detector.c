/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/detector.h"

#include "base/clock.h"

#include <string.h>

/* A session that was never up pings quickly so often, then at the interval. */
#define QUICK_START 16
/* How much more often a session pings that is in doubt, and how quickly at most. */
#define QUICK_FACTOR 8
#define QUICK_MIN_NS HA_NS_PER_MS

/*
 * One ping is missing: beyond the interval, a half for the answer to come and some time for two
 * threads to wake up.
 */
#define LATE_SLACK_NS (2 * HA_NS_PER_MS)

/* A round trip this far above the baseline, and above half the interval, is slow; three are a
 * reason for suspicion. */
#define SLOW_FACTOR 8
#define SLOW_ROW    3

/*
 * How long ago. A visit reads the clock once, and an answer that it takes after that is heard later
 * than the visit's own time: that is no silence of hundreds of years.
 */
static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

static uint64_t quick_ns(const struct ha_pulse *pulse)
{
	uint64_t quick = pulse->interval_ns / QUICK_FACTOR;

	return quick > QUICK_MIN_NS ? quick : QUICK_MIN_NS;
}

/* Silence after which a session is suspected: always before it would be DOWN. */
static uint64_t late_ns(const struct ha_pulse *pulse)
{
	uint64_t late = pulse->interval_ns * 3 / 2 + LATE_SLACK_NS;
	uint64_t most = pulse->interval_ns * 5 / 2;

	return late < most ? late : most;
}

static uint64_t silence_ns(const struct ha_pulse *pulse)
{
	return HA_PULSE_SILENCE * pulse->interval_ns;
}

static uint64_t long_silence_ns(const struct ha_pulse *pulse)
{
	uint64_t silence = HA_PULSE_LONG_SILENCE * pulse->interval_ns;

	return silence > HA_PULSE_LONG_MIN_NS ? silence : HA_PULSE_LONG_MIN_NS;
}

static uint64_t waiting(const struct ha_pulse *pulse)
{
	return pulse->sent - pulse->answered;
}

void ha_pulse_init(struct ha_pulse *pulse, uint64_t interval_ns, uint64_t seed, uint64_t now_ns)
{
	memset(pulse, 0, sizeof(*pulse));
	pulse->interval_ns = interval_ns;
	pulse->state = HA_SESSION_INIT;
	pulse->random = (uint32_t)(seed ^ (seed >> 32)) | 1; /* xorshift never leaves 0 */
	pulse->next_ping_ns = now_ns;
	pulse->heard_ns = pulse->alive_ns = now_ns;
}

static uint32_t next_random(struct ha_pulse *pulse)
{
	pulse->random ^= pulse->random << 13;
	pulse->random ^= pulse->random >> 17;
	pulse->random ^= pulse->random << 5;
	return pulse->random;
}

static uint64_t jitter_ns(const struct ha_pulse *pulse)
{
	return pulse->interval_ns / 8;
}

/* Up to an eighth less than the interval, so that many processes do not ping in bursts. */
static uint64_t steady_ns(struct ha_pulse *pulse)
{
	return pulse->interval_ns - next_random(pulse) % (jitter_ns(pulse) + 1);
}

/* In doubt, or on the way up. */
static bool in_a_hurry(const struct ha_pulse *pulse, uint64_t now_ns)
{
	switch (pulse->state) {
	case HA_SESSION_UP:
		return false;
	case HA_SESSION_SUSPECTED:
		return since(now_ns, pulse->alive_ns) < 2 * silence_ns(pulse);
	case HA_SESSION_INIT:
		if (pulse->sent < QUICK_START)
			return true;
		break;
	case HA_SESSION_DOWN:
		break;
	}
	return pulse->in_row > 0 && since(now_ns, pulse->heard_ns) < pulse->interval_ns;
}

uint64_t ha_pulse_due_ns(const struct ha_pulse *pulse)
{
	uint64_t due = pulse->next_ping_ns, judge = due;

	if (pulse->state == HA_SESSION_UP)
		judge = pulse->heard_ns + late_ns(pulse);
	else if (pulse->state == HA_SESSION_SUSPECTED && !pulse->held &&
		 waiting(pulse) >= HA_PULSE_ROW)
		judge = pulse->alive_ns + silence_ns(pulse);
	else if (pulse->state == HA_SESSION_SUSPECTED && pulse->held)
		judge = pulse->alive_ns + long_silence_ns(pulse);
	return judge < due ? judge : due;
}

bool ha_pulse_is_steady(const struct ha_pulse *pulse, uint64_t now_ns)
{
	return pulse->next_ping_ns != UINT64_MAX && !in_a_hurry(pulse, now_ns);
}

bool ha_pulse_may_join(const struct ha_pulse *pulse, uint64_t now_ns)
{
	return ha_pulse_is_steady(pulse, now_ns) &&
	       pulse->next_ping_ns <= now_ns + jitter_ns(pulse);
}

uint64_t ha_pulse_ping(struct ha_pulse *pulse, uint64_t now_ns)
{
	if (waiting(pulse) == 0)
		pulse->waiting_ns = now_ns;
	pulse->sent++;
	pulse->sent_ns[pulse->sent % HA_PULSE_PINGS] = now_ns;
	pulse->next_ping_ns =
	    now_ns + (in_a_hurry(pulse, now_ns) ? quick_ns(pulse) : steady_ns(pulse));
	return pulse->sent;
}

void ha_pulse_ping_sent(struct ha_pulse *pulse, uint64_t seq, uint64_t now_ns)
{
	if (pulse->sent - seq < HA_PULSE_PINGS)
		pulse->sent_ns[seq % HA_PULSE_PINGS] = now_ns;
}

static void note_round_trip(struct ha_pulse *pulse, uint64_t round_trip_ns)
{
	if (pulse->baseline_ns == 0)
		pulse->baseline_ns = round_trip_ns;
	if (round_trip_ns > pulse->interval_ns / 2 &&
	    round_trip_ns > SLOW_FACTOR * pulse->baseline_ns) {
		pulse->slow_row++;
		/* What is far off becomes the baseline only if it lasts for hundreds. */
		pulse->baseline_ns += pulse->baseline_ns / 64 + 1;
	} else {
		pulse->slow_row = 0;
		pulse->baseline_ns += (round_trip_ns / 8) - (pulse->baseline_ns / 8);
	}
}

bool ha_pulse_pong(struct ha_pulse *pulse, uint64_t seq, uint64_t now_ns, uint64_t *round_trip_ns)
{
	if (seq <= pulse->answered || seq > pulse->sent || pulse->sent - seq >= HA_PULSE_PINGS)
		return false;
	pulse->in_row = seq == pulse->answered + 1 ? pulse->in_row + 1 : 1;
	pulse->lost += seq - pulse->answered - 1;
	pulse->answered = seq;
	pulse->waiting_ns = pulse->sent_ns[(seq + 1) % HA_PULSE_PINGS];
	pulse->heard_ns = pulse->alive_ns = now_ns;
	pulse->held = false;
	pulse->answers[1] = pulse->answers[0];
	pulse->answers[0] = (struct ha_pulse_answer){
	    .sent_ns = pulse->sent_ns[seq % HA_PULSE_PINGS],
	    .heard_ns = now_ns,
	};
	*round_trip_ns = now_ns - pulse->sent_ns[seq % HA_PULSE_PINGS];
	note_round_trip(pulse, *round_trip_ns);
	/* Who is on the way up does not wait for the next slow ping. */
	if (in_a_hurry(pulse, now_ns)) {
		uint64_t quick = pulse->sent_ns[pulse->sent % HA_PULSE_PINGS] + quick_ns(pulse);

		if (quick < pulse->next_ping_ns)
			pulse->next_ping_ns = quick;
	}
	return true;
}

void ha_pulse_ask(struct ha_pulse *pulse, uint64_t now_ns)
{
	if (pulse->next_ping_ns != UINT64_MAX && pulse->next_ping_ns > now_ns)
		pulse->next_ping_ns = now_ns;
}

void ha_pulse_hurry(struct ha_pulse *pulse, uint64_t now_ns)
{
	uint64_t last = pulse->sent_ns[pulse->sent % HA_PULSE_PINGS];
	bool stopped = pulse->next_ping_ns == UINT64_MAX;

	if (stopped || (pulse->state != HA_SESSION_INIT && pulse->state != HA_SESSION_DOWN))
		return;
	if (pulse->next_ping_ns > last + quick_ns(pulse))
		pulse->next_ping_ns =
		    last + quick_ns(pulse) > now_ns ? last + quick_ns(pulse) : now_ns;
}

bool ha_pulse_wants_traffic(const struct ha_pulse *pulse)
{
	return pulse->state == HA_SESSION_SUSPECTED;
}

void ha_pulse_traffic(struct ha_pulse *pulse, bool any, uint64_t now_ns)
{
	/* The first sample after a long time says nothing about when. */
	if (any && pulse->sampled_ns > pulse->alive_ns) {
		pulse->alive_ns = pulse->sampled_ns;
		pulse->held = false;
	}
	pulse->sampled_ns = now_ns;
}

void ha_pulse_vouch(struct ha_pulse *pulse, uint64_t now_ns)
{
	if (now_ns > pulse->alive_ns)
		pulse->alive_ns = now_ns;
	pulse->held = false;
}

void ha_pulse_restart(struct ha_pulse *pulse, uint64_t now_ns)
{
	pulse->heard_ns = pulse->alive_ns = now_ns;
	pulse->next_ping_ns = now_ns;
	pulse->held = false;
}

static void enter(struct ha_pulse *pulse, enum ha_session_state state)
{
	pulse->state = state;
	pulse->sampled_ns = 0;
	pulse->held = false;
	if (state != HA_SESSION_DOWN)
		return;
	/* Answers that are under way belong to the time before. */
	pulse->lost += waiting(pulse);
	pulse->answered = pulse->sent;
	pulse->in_row = 0;
	pulse->slow_row = 0;
	pulse->baseline_ns = 0;
}

static void suspect(struct ha_pulse *pulse, uint64_t now_ns)
{
	enter(pulse, HA_SESSION_SUSPECTED);
	pulse->suspected = pulse->sent;
	pulse->next_ping_ns = now_ns;
}

bool ha_pulse_expired(const struct ha_pulse *pulse, uint64_t now_ns)
{
	uint64_t silence;

	if (pulse->state == HA_SESSION_SUSPECTED)
		silence = silence_ns(pulse);
	else if (pulse->state == HA_SESSION_INIT) /* the peer may have other things to set up */
		silence = long_silence_ns(pulse);
	else
		return false;
	return since(now_ns, pulse->alive_ns) >= silence && waiting(pulse) >= HA_PULSE_ROW;
}

/*
 * An answer to a ping that went out half an interval after one of ours, and that is here for a
 * quarter: a peer that answers one answers the other, in the same round of its thread.
 */
bool ha_pulse_witnesses(const struct ha_pulse *other, const struct ha_pulse *pulse, uint64_t now_ns)
{
	for (size_t i = 0; i < sizeof(other->answers) / sizeof(other->answers[0]); i++) {
		const struct ha_pulse_answer *a = &other->answers[i];

		if (a->sent_ns >= pulse->waiting_ns + pulse->interval_ns / 2 &&
		    since(now_ns, a->heard_ns) >= pulse->interval_ns / 4)
			return true;
	}
	return false;
}

enum ha_session_state ha_pulse_judge(struct ha_pulse *pulse, bool witness, uint64_t now_ns)
{
	bool late = since(now_ns, pulse->heard_ns) >= late_ns(pulse);
	bool slow = pulse->slow_row >= SLOW_ROW;

	switch (pulse->state) {
	case HA_SESSION_INIT:
		if (pulse->in_row >= HA_PULSE_ROW)
			enter(pulse, HA_SESSION_UP);
		else if (late && (pulse->answered != 0 || witness)) {
			/* Not that nobody there answers. Traffic is asked for before it is DOWN. */
			suspect(pulse, now_ns);
			pulse->alive_ns = now_ns;
		}
		break;
	case HA_SESSION_DOWN:
		if (pulse->in_row >= HA_PULSE_ROW)
			enter(pulse, HA_SESSION_UP);
		break;
	case HA_SESSION_UP:
		if (late || slow)
			suspect(pulse, now_ns);
		break;
	case HA_SESSION_SUSPECTED:
		if (ha_pulse_expired(pulse, now_ns) &&
		    (witness || since(now_ns, pulse->alive_ns) >= long_silence_ns(pulse)))
			enter(pulse, HA_SESSION_DOWN);
		else if (ha_pulse_expired(pulse, now_ns))
			pulse->held = true;
		else if (!late && !slow && pulse->answered > pulse->suspected)
			enter(pulse, HA_SESSION_UP);
		break;
	}
	return pulse->state;
}

void ha_pulse_stop(struct ha_pulse *pulse)
{
	if (pulse->state != HA_SESSION_INIT)
		enter(pulse, HA_SESSION_DOWN);
	pulse->in_row = 0;
	pulse->next_ping_ns = UINT64_MAX;
}
