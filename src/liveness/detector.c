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

/* Pings in each part of an inquiry's time-out, which is never less than so many round trips, so
 * that a way that has become ten times as slow is not silent. */
#define PINGS_A_PART	    5
#define TIMEOUT_ROUND_TRIPS 16

/* A heartbeat that has no answer after so many of an inquiry's pauses begins one; and what was
 * asked elsewhere so long after a ping of this way, and answered, was answered while this way is
 * silent. */
#define OVERDUE_PINGS 2

/* A round trip this far above the baseline, and above half the interval, is slow; three, of pings
 * half an interval apart, are a reason for suspicion. */
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

static uint64_t quick_ns(const struct ha_detector *detector)
{
	uint64_t quick = detector->interval_ns / QUICK_FACTOR;

	return quick > QUICK_MIN_NS ? quick : QUICK_MIN_NS;
}

/* Silence after which a session is suspected: always before it would be DOWN. */
static uint64_t late_ns(const struct ha_detector *detector)
{
	uint64_t late = detector->interval_ns * 3 / 2 + LATE_SLACK_NS;
	uint64_t most = detector->interval_ns * 5 / 2;

	return late < most ? late : most;
}

static uint64_t silence_ns(const struct ha_detector *detector)
{
	return HA_DETECTOR_SILENCE * detector->interval_ns;
}

static uint64_t long_silence_ns(const struct ha_detector *detector)
{
	uint64_t silence = HA_DETECTOR_LONG_SILENCE * detector->interval_ns;

	return silence > HA_DETECTOR_LONG_MIN_NS ? silence : HA_DETECTOR_LONG_MIN_NS;
}

static uint64_t part_ns(const struct ha_detector *detector)
{
	uint64_t slow_ns = detector->baseline_ns * TIMEOUT_ROUND_TRIPS / HA_DETECTOR_INQUIRY_PARTS;

	return slow_ns > detector->stall_ns ? slow_ns : detector->stall_ns;
}

static uint64_t inquiry_timeout_ns(const struct ha_detector *detector)
{
	return HA_DETECTOR_INQUIRY_PARTS * part_ns(detector);
}

static uint64_t burst_ns(const struct ha_detector *detector)
{
	uint64_t burst = part_ns(detector) / PINGS_A_PART;

	return burst > QUICK_MIN_NS ? burst : QUICK_MIN_NS;
}

/*
 * Between the questions of two rounds, and from an inquiry to the first one. All fit its time-out,
 * although the ping that begins one may be late by the time between two.
 */
static uint64_t round_ns(const struct ha_detector *detector)
{
	return part_ns(detector) * (PINGS_A_PART - 1) / PINGS_A_PART;
}

static uint64_t overdue_ns(const struct ha_detector *detector)
{
	return OVERDUE_PINGS * burst_ns(detector);
}

static uint64_t waiting(const struct ha_detector *detector)
{
	return detector->sent - detector->answered;
}

static bool may_inquire(const struct ha_detector *detector)
{
	return detector->stall_ns != 0 && !ha_detector_inquires(detector) &&
	       inquiry_timeout_ns(detector) < silence_ns(detector);
}

/* When a heartbeat that waits for its answer begins an inquiry: the oldest, and that once. */
static uint64_t overdue_at_ns(const struct ha_detector *detector)
{
	return waiting(detector) != 0 && detector->overdue <= detector->answered &&
		       may_inquire(detector)
		   ? detector->waiting_ns + overdue_ns(detector)
		   : UINT64_MAX;
}

/* Pings of the inquiry without an answer. */
static uint64_t inquiring(const struct ha_detector *detector)
{
	return detector->sent - (detector->inquiry.first_seq - 1);
}

void ha_detector_init(struct ha_detector *detector, uint64_t interval_ns, uint64_t stall_ns,
		      uint64_t seed, uint64_t now_ns)
{
	memset(detector, 0, sizeof(*detector));
	detector->interval_ns = interval_ns;
	detector->stall_ns = stall_ns;
	detector->state = HA_SESSION_INIT;
	detector->random = (uint32_t)(seed ^ (seed >> 32)) | 1; /* xorshift never leaves 0 */
	detector->next_ping_ns = now_ns;
	detector->heard_ns = detector->alive_ns = now_ns;
}

static uint32_t next_random(struct ha_detector *detector)
{
	detector->random ^= detector->random << 13;
	detector->random ^= detector->random >> 17;
	detector->random ^= detector->random << 5;
	return detector->random;
}

static uint64_t jitter_ns(const struct ha_detector *detector)
{
	return detector->interval_ns / 8;
}

/* Up to an eighth less than the interval, so that many processes do not ping in bursts. */
static uint64_t steady_ns(struct ha_detector *detector)
{
	return detector->interval_ns - next_random(detector) % (jitter_ns(detector) + 1);
}

/* So long before the silence is over there is still time for an answer. */
static uint64_t notice_ns(const struct ha_detector *detector)
{
	return detector->interval_ns / 2;
}

/* In doubt, or on the way up. */
static bool pings_quickly(const struct ha_detector *detector, uint64_t now_ns)
{
	switch (detector->state) {
	case HA_SESSION_UP:
		return false;
	case HA_SESSION_SUSPECTED:
		return since(now_ns, detector->alive_ns) < 2 * silence_ns(detector);
	case HA_SESSION_INIT:
		if (detector->sent < QUICK_START)
			return true;
		break;
	case HA_SESSION_DOWN:
		break;
	}
	return detector->in_row > 0 && since(now_ns, detector->heard_ns) < detector->interval_ns;
}

uint64_t ha_detector_due_ns(const struct ha_detector *detector)
{
	uint64_t due = detector->next_ping_ns, judge = due;

	if (detector->state == HA_SESSION_UP) {
		judge = detector->heard_ns + late_ns(detector);
		if (overdue_at_ns(detector) < judge)
			judge = overdue_at_ns(detector);
	} else if (detector->state == HA_SESSION_SUSPECTED && !detector->held &&
		   waiting(detector) >= HA_DETECTOR_ROW)
		judge = detector->alive_ns + silence_ns(detector);
	else if (detector->state == HA_SESSION_SUSPECTED && detector->held)
		judge = detector->alive_ns + long_silence_ns(detector) -
			(detector->noticed_ns == detector->alive_ns ? 0 : notice_ns(detector));
	return judge < due ? judge : due;
}

bool ha_detector_is_steady(const struct ha_detector *detector, uint64_t now_ns)
{
	return detector->next_ping_ns != UINT64_MAX && !ha_detector_inquires(detector) &&
	       !pings_quickly(detector, now_ns);
}

bool ha_detector_may_join(const struct ha_detector *detector, uint64_t now_ns)
{
	return ha_detector_is_steady(detector, now_ns) &&
	       detector->next_ping_ns <= now_ns + jitter_ns(detector);
}

/* To the next ping. A peer that answers nobody is not pressed for long. */
static uint64_t pause_ns(struct ha_detector *detector, uint64_t now_ns)
{
	if (!ha_detector_inquires(detector))
		return pings_quickly(detector, now_ns) ? quick_ns(detector) : steady_ns(detector);
	return since(now_ns, detector->inquiry.begun_ns) < 2 * inquiry_timeout_ns(detector)
		   ? burst_ns(detector)
		   : quick_ns(detector);
}

uint64_t ha_detector_ping(struct ha_detector *detector, uint64_t now_ns)
{
	if (waiting(detector) == 0)
		detector->waiting_ns = now_ns;
	detector->sent++;
	detector->sent_ns[detector->sent % HA_DETECTOR_PINGS] = now_ns;
	detector->next_ping_ns = now_ns + pause_ns(detector, now_ns);
	return detector->sent;
}

void ha_detector_ping_sent(struct ha_detector *detector, uint64_t seq, uint64_t now_ns)
{
	if (detector->sent - seq < HA_DETECTOR_PINGS)
		detector->sent_ns[seq % HA_DETECTOR_PINGS] = now_ns;
}

/* Pings in quick succession that are answered together are slow once. */
static void note_slow(struct ha_detector *detector, uint64_t sent_ns)
{
	if (detector->slow_row != 0 && sent_ns < detector->slow_ns + detector->interval_ns / 2)
		return;
	detector->slow_ns = sent_ns;
	detector->slow_row++;
}

static void note_round_trip(struct ha_detector *detector, uint64_t round_trip_ns, uint64_t now_ns)
{
	if (detector->baseline_ns == 0)
		detector->baseline_ns = round_trip_ns;
	if (round_trip_ns > detector->interval_ns / 2 &&
	    round_trip_ns > SLOW_FACTOR * detector->baseline_ns) {
		note_slow(detector, now_ns - round_trip_ns);
		/* What is far off becomes the baseline only if it lasts for hundreds. */
		detector->baseline_ns += detector->baseline_ns / 64 + 1;
	} else {
		detector->slow_row = 0;
		detector->baseline_ns += (round_trip_ns / 8) - (detector->baseline_ns / 8);
	}
}

/*
 * What was asked after the last answer was heard, and not at once, the peer answered another time.
 * What was asked before that came at once, and it is the youngest question that tells when.
 */
static void note_round(struct ha_detector *detector, struct ha_detector_answer answer)
{
	struct ha_detector_answer *rounds = detector->rounds;

	if (answer.sent_ns < rounds[0].heard_ns) {
		rounds[0].sent_ns = answer.sent_ns;
		return;
	}
	if (answer.sent_ns < rounds[0].sent_ns + round_ns(detector))
		return;
	memmove(&rounds[1], &rounds[0], sizeof(detector->rounds) - sizeof(rounds[0]));
	rounds[0] = answer;
}

/* Something was heard: back to the pace of before. */
static void end_inquiry(struct ha_detector *detector, uint64_t now_ns)
{
	if (!ha_detector_inquires(detector))
		return;
	detector->inquiry = (struct ha_inquiry){0};
	if (detector->next_ping_ns != UINT64_MAX)
		detector->next_ping_ns = detector->sent_ns[detector->sent % HA_DETECTOR_PINGS] +
					 pause_ns(detector, now_ns);
}

bool ha_detector_pong(struct ha_detector *detector, uint64_t seq, uint64_t now_ns,
		      uint64_t *round_trip_ns)
{
	if (seq <= detector->answered || seq > detector->sent ||
	    detector->sent - seq >= HA_DETECTOR_PINGS)
		return false;
	detector->in_row = seq == detector->answered + 1 ? detector->in_row + 1 : 1;
	detector->lost += seq - detector->answered - 1;
	detector->answered = seq;
	detector->waiting_ns = detector->sent_ns[(seq + 1) % HA_DETECTOR_PINGS];
	detector->heard_ns = detector->alive_ns = now_ns;
	detector->held = false;
	detector->answers[1] = detector->answers[0];
	detector->answers[0] = (struct ha_detector_answer){
	    .sent_ns = detector->sent_ns[seq % HA_DETECTOR_PINGS],
	    .heard_ns = now_ns,
	};
	*round_trip_ns = now_ns - detector->sent_ns[seq % HA_DETECTOR_PINGS];
	note_round_trip(detector, *round_trip_ns, now_ns);
	note_round(detector, detector->answers[0]);
	if (seq >= detector->inquiry.first_seq)
		end_inquiry(detector, now_ns);
	/* Who is on the way up does not wait for the next slow ping. */
	if (pings_quickly(detector, now_ns)) {
		uint64_t quick =
		    detector->sent_ns[detector->sent % HA_DETECTOR_PINGS] + quick_ns(detector);

		if (quick < detector->next_ping_ns)
			detector->next_ping_ns = quick;
	}
	return true;
}

void ha_detector_ask(struct ha_detector *detector, uint64_t now_ns)
{
	if (detector->next_ping_ns != UINT64_MAX && detector->next_ping_ns > now_ns)
		detector->next_ping_ns = now_ns;
}

/* ---- inquiries ------------------------------------------------------------------------------ */

/* What was heard so recently says enough. */
static bool was_heard_now(const struct ha_detector *detector, uint64_t now_ns)
{
	return detector->answers[0].sent_ns != 0 &&
	       since(now_ns, detector->answers[0].sent_ns) < detector->stall_ns / 2;
}

/* Its first ping is the next one, and silence counts from here. */
static void begin_inquiry(struct ha_detector *detector, uint64_t now_ns)
{
	detector->inquiry = (struct ha_inquiry){.first_seq = detector->sent + 1,
						.since_ns = now_ns,
						.begun_ns = detector->inquiry.begun_ns};
}

static void ask_at_once(struct ha_detector *detector, uint64_t now_ns)
{
	detector->inquiry.begun_ns = now_ns;
	/* Of what completed before it, nothing is known. */
	detector->sampled_ns = 0;
	detector->next_ping_ns = now_ns;
}

void ha_detector_inquire(struct ha_detector *detector, uint64_t now_ns)
{
	bool answers = detector->state == HA_SESSION_UP || detector->state == HA_SESSION_SUSPECTED;

	if (!answers || !may_inquire(detector) || was_heard_now(detector, now_ns))
		return;
	begin_inquiry(detector, now_ns);
	ask_at_once(detector, now_ns);
}

/* The heartbeat that has no answer is its first ping. */
static void inquire_by_heartbeat(struct ha_detector *detector, uint64_t now_ns)
{
	begin_inquiry(detector, detector->waiting_ns);
	detector->overdue = detector->inquiry.first_seq = detector->answered + 1;
	ask_at_once(detector, now_ns);
}

bool ha_detector_wants_help(const struct ha_detector *detector)
{
	return ha_detector_inquires(detector) && inquiring(detector) > 1;
}

bool ha_detector_lacks_witness(const struct ha_detector *detector, uint64_t now_ns)
{
	return ha_detector_inquires(detector) && detector->inquiry.rounds == 0 &&
	       since(now_ns, detector->inquiry.since_ns) >= part_ns(detector) * 3 / 2;
}

void ha_detector_help(struct ha_detector *detector, uint64_t now_ns)
{
	uint64_t next_ns =
	    detector->sent_ns[detector->sent % HA_DETECTOR_PINGS] + burst_ns(detector);

	/* Two that inquire would press each other for as long as nobody answers. */
	if (detector->state == HA_SESSION_DOWN || ha_detector_inquires(detector))
		return;
	if (next_ns < now_ns)
		next_ns = now_ns;
	if (next_ns < detector->next_ping_ns)
		detector->next_ping_ns = next_ns;
}

/* That the peer answered over other ports since: as many as count at most. */
static unsigned rounds_of(const struct ha_detector *other, const struct ha_detector *detector)
{
	unsigned n = 0;

	while (n < HA_DETECTOR_INQUIRY_ROUNDS &&
	       other->rounds[n].sent_ns >= detector->inquiry.since_ns + round_ns(detector))
		n++;
	return n;
}

static bool overtakes(const struct ha_detector *other, const struct ha_detector *detector,
		      uint64_t now_ns)
{
	const struct ha_detector_answer *newest = &other->answers[0];

	return newest->sent_ns >= detector->inquiry.since_ns + overdue_ns(detector) &&
	       since(now_ns, newest->heard_ns) >= burst_ns(detector) / 2;
}

void ha_detector_note_other(struct ha_detector *detector, const struct ha_detector *other,
			    uint64_t now_ns)
{
	const unsigned rounds = rounds_of(other, detector);

	if (rounds > detector->inquiry.rounds)
		detector->inquiry.rounds = rounds;
	if (overtakes(other, detector, now_ns))
		detector->inquiry.overtaken = true;
}

/* For so many parts nothing came back, where another way the peer answered. */
static bool inquired_in_vain(const struct ha_detector *detector, unsigned parts, unsigned rounds,
			     uint64_t now_ns)
{
	return ha_detector_inquires(detector) && detector->inquiry.rounds >= rounds &&
	       since(now_ns, detector->inquiry.since_ns) >= parts * part_ns(detector);
}

static bool is_cut(const struct ha_detector *detector, uint64_t now_ns)
{
	return inquired_in_vain(detector, HA_DETECTOR_INQUIRY_PARTS, HA_DETECTOR_INQUIRY_ROUNDS,
				now_ns) &&
	       inquiring(detector) >= HA_DETECTOR_INQUIRY_PINGS;
}

/* ---- what else is heard --------------------------------------------------------------------- */

void ha_detector_ping_sooner(struct ha_detector *detector, uint64_t now_ns)
{
	uint64_t last = detector->sent_ns[detector->sent % HA_DETECTOR_PINGS];
	bool stopped = detector->next_ping_ns == UINT64_MAX;

	if (stopped || (detector->state != HA_SESSION_INIT && detector->state != HA_SESSION_DOWN))
		return;
	if (detector->next_ping_ns > last + quick_ns(detector))
		detector->next_ping_ns =
		    last + quick_ns(detector) > now_ns ? last + quick_ns(detector) : now_ns;
}

bool ha_detector_wants_traffic(const struct ha_detector *detector)
{
	return detector->state == HA_SESSION_SUSPECTED || ha_detector_inquires(detector);
}

void ha_detector_traffic(struct ha_detector *detector, bool any, uint64_t now_ns)
{
	/* The first sample after a long time says nothing about when. */
	if (any && detector->sampled_ns > detector->alive_ns) {
		detector->alive_ns = detector->sampled_ns;
		detector->held = false;
		if (ha_detector_inquires(detector))
			begin_inquiry(detector, now_ns);
	}
	detector->sampled_ns = now_ns;
}

void ha_detector_note_life(struct ha_detector *detector, uint64_t now_ns)
{
	if (now_ns > detector->alive_ns)
		detector->alive_ns = now_ns;
	detector->held = false;
	end_inquiry(detector, now_ns);
}

void ha_detector_restart(struct ha_detector *detector, uint64_t now_ns)
{
	end_inquiry(detector, now_ns);
	detector->heard_ns = detector->alive_ns = now_ns;
	detector->next_ping_ns = now_ns;
	detector->overdue = detector->sent;
	detector->held = false;
}

static void enter(struct ha_detector *detector, enum ha_session_state state)
{
	detector->state = state;
	detector->sampled_ns = 0;
	detector->held = false;
	if (state != HA_SESSION_DOWN)
		return;
	detector->inquiry = (struct ha_inquiry){0};
	/* Answers that are under way belong to the time before. */
	detector->lost += waiting(detector);
	detector->answered = detector->sent;
	detector->in_row = 0;
	detector->slow_row = 0;
	detector->baseline_ns = 0;
}

static void suspect(struct ha_detector *detector, uint64_t now_ns)
{
	enter(detector, HA_SESSION_SUSPECTED);
	detector->suspected = detector->sent;
	detector->next_ping_ns = now_ns;
}

static bool nearly_expired(const struct ha_detector *detector, bool witness, uint64_t now_ns)
{
	uint64_t limit_ns = witness ? silence_ns(detector) : long_silence_ns(detector);

	return detector->state == HA_SESSION_SUSPECTED &&
	       since(now_ns, detector->alive_ns) + notice_ns(detector) >= limit_ns;
}

/* Once in each silence. */
static void note_doom(struct ha_detector *detector, bool witness, uint64_t now_ns)
{
	if (detector->noticed_ns == detector->alive_ns ||
	    !nearly_expired(detector, witness, now_ns))
		return;
	detector->noticed_ns = detector->alive_ns;
	detector->doomed = true;
}

/* Likewise, in each inquiry. */
static void note_doomed_inquiry(struct ha_detector *detector, uint64_t now_ns)
{
	if (detector->inquiry.noticed ||
	    !inquired_in_vain(detector, HA_DETECTOR_INQUIRY_PARTS / 2, 1, now_ns))
		return;
	detector->inquiry.noticed = true;
	detector->doomed = true;
}

bool ha_detector_take_doom(struct ha_detector *detector)
{
	bool doomed = detector->doomed &&
		      (detector->state == HA_SESSION_SUSPECTED || ha_detector_inquires(detector));

	detector->doomed = false;
	return doomed;
}

bool ha_detector_wants_witness(const struct ha_detector *detector, uint64_t now_ns)
{
	return ha_detector_expired(detector, now_ns) || nearly_expired(detector, true, now_ns);
}

bool ha_detector_expired(const struct ha_detector *detector, uint64_t now_ns)
{
	uint64_t silence;

	if (detector->state == HA_SESSION_SUSPECTED)
		silence = silence_ns(detector);
	else if (detector->state == HA_SESSION_INIT) /* the peer may have other things to set up */
		silence = long_silence_ns(detector);
	else
		return false;
	return since(now_ns, detector->alive_ns) >= silence && waiting(detector) >= HA_DETECTOR_ROW;
}

/*
 * An answer to a ping that went out half an interval after one of ours, and that is here for a
 * quarter: a peer that answers one answers the other, in the same round of its thread.
 */
bool ha_detector_witnesses(const struct ha_detector *other, const struct ha_detector *detector,
			   uint64_t now_ns)
{
	for (size_t i = 0; i < sizeof(other->answers) / sizeof(other->answers[0]); i++) {
		const struct ha_detector_answer *a = &other->answers[i];

		if (a->sent_ns >= detector->waiting_ns + detector->interval_ns / 2 &&
		    since(now_ns, a->heard_ns) >= detector->interval_ns / 4)
			return true;
	}
	return false;
}

/*
 * What was asked later and answered elsewhere was answered after the failure. In general it was
 * silent for three intervals, of which one at most was before that: two are left, and of these half
 * an interval for the way there and back.
 */
static uint64_t failed_before_ns(const struct ha_detector *detector, uint64_t now_ns)
{
	return is_cut(detector, now_ns) ? detector->inquiry.since_ns
					: since(now_ns, detector->interval_ns * 3 / 2);
}

static void give_up(struct ha_detector *detector, uint64_t now_ns)
{
	detector->failed_before_ns = failed_before_ns(detector, now_ns);
	enter(detector, HA_SESSION_DOWN);
}

enum ha_session_state ha_detector_judge(struct ha_detector *detector, bool witness, uint64_t now_ns)
{
	bool late = since(now_ns, detector->heard_ns) >= late_ns(detector);
	bool slow = detector->slow_row >= SLOW_ROW;

	if (ha_detector_inquires(detector) &&
	    since(now_ns, detector->inquiry.begun_ns) >= silence_ns(detector))
		end_inquiry(detector, now_ns); /* that is for the intervals to find out */
	note_doom(detector, witness, now_ns);
	note_doomed_inquiry(detector, now_ns);
	switch (detector->state) {
	case HA_SESSION_INIT:
		if (detector->in_row >= HA_DETECTOR_ROW)
			enter(detector, HA_SESSION_UP);
		else if (late && (detector->answered != 0 || witness)) {
			/* Not that nobody there answers. Traffic is asked for before it is DOWN. */
			suspect(detector, now_ns);
			detector->alive_ns = now_ns;
		}
		break;
	case HA_SESSION_DOWN:
		if (detector->in_row >= HA_DETECTOR_ROW)
			enter(detector, HA_SESSION_UP);
		break;
	case HA_SESSION_UP:
		if (is_cut(detector, now_ns))
			give_up(detector, now_ns);
		else if (late || slow || detector->inquiry.overtaken)
			suspect(detector, now_ns);
		else if (now_ns >= overdue_at_ns(detector))
			inquire_by_heartbeat(detector, now_ns);
		break;
	case HA_SESSION_SUSPECTED:
		if (is_cut(detector, now_ns) ||
		    (ha_detector_expired(detector, now_ns) &&
		     (witness || since(now_ns, detector->alive_ns) >= long_silence_ns(detector))))
			give_up(detector, now_ns);
		else if (ha_detector_expired(detector, now_ns))
			detector->held = true;
		else if (!late && !slow && detector->answered > detector->suspected)
			enter(detector, HA_SESSION_UP);
		break;
	}
	return detector->state;
}

void ha_detector_stop(struct ha_detector *detector)
{
	if (detector->state != HA_SESSION_INIT)
		enter(detector, HA_SESSION_DOWN);
	detector->in_row = 0;
	detector->next_ping_ns = UINT64_MAX;
}
