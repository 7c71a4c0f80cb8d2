/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/session_label.h"

#include "base/clock.h"
#include "base/random.h"
#include "liveness/session.h"
#include "liveness/session_address.h"

/* Between two flow labels of a session; and after so many, where it seems to be of no use. */
#define RELABEL_NS	  HA_NS_PER_S
#define RELABELS	  32
#define RELABEL_SELDOM_NS (64 * HA_NS_PER_S)
/* So many the peer tries while we stay with ours. */
#define PEERS_LABELS 2

/* 20 bits; 0 would be none. */
uint32_t ha_session_new_label(void)
{
	return (uint32_t)(ha_random() % 0xfffff) + 1;
}

/* The peer's pings come: the way they go is good. */
static bool hears_pings(const struct ha_session *s, uint64_t now_ns)
{
	return s->pinged_ns != 0 && now_ns < s->pinged_ns + 2 * s->detector.interval_ns;
}

/* A peer that was not heard has found a way: ours may be good, and is not changed before an answer
 * can have come. */
void ha_session_note_ping(struct ha_session *s, uint64_t now_ns)
{
	if (!hears_pings(s, now_ns)) {
		s->label_ns = now_ns;
		s->relabels = 0;
	}
	s->pinged_ns = now_ns;
}

/*
 * Heartbeats are missing, though the path is alive: the way they go is bad, ours or the peer's.
 * Where the peer's pings come, and ours are not answered, it is ours for certain. Where none come
 * it is the peer's, and ours may be good: then one of the two ends moves, the other stays. So the
 * end that stays never leaves a good way, and once it is on one its peer, which hears it, finds the
 * other.
 */
static bool moves_unheard(const struct ha_session *s)
{
	return s->port->id <= s->remote.id;
}

/* How long a label is given: time for an answer, and where we hear nothing for the peer to look. */
static uint64_t label_time_ns(const struct ha_session *s, bool hears)
{
	uint64_t ns = s->relabels < RELABELS ? RELABEL_NS : RELABEL_SELDOM_NS;

	if (ns < 2 * s->detector.interval_ns)
		ns = 2 * s->detector.interval_ns;
	return hears ? ns : PEERS_LABELS * ns;
}

/* What is alive and does not answer heartbeats: the way they go is bad, and another may be good. */
void ha_session_note_life(struct ha_session *s, uint64_t now_ns)
{
	bool hears = hears_pings(s, now_ns);

	ha_detector_note_life(&s->detector, now_ns);
	if (s->detector.state != HA_SESSION_SUSPECTED && s->detector.state != HA_SESSION_DOWN)
		return;
	if (now_ns < s->label_ns + label_time_ns(s, hears) || !(hears || moves_unheard(s)))
		return;
	s->label_ns = now_ns;
	s->relabels++;
	s->flow_label = ha_session_new_label();
	ha_session_drop_address(s);
}
