/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/session_peer.h"

#include "liveness/session.h"

typedef bool look_at_other(struct ha_session *s, struct ha_session *other, uint64_t now_ns);

/*
 * At each session that may say something about this one, until `look` says true. A NIC that is sick
 * may have lost the questions as well as the answers: it is no witness, and no one is against it.
 */
static bool any_other(struct ha_session *s, look_at_other *look, uint64_t now_ns)
{
	const struct ha_liveness *live = s->port->live;
	uint64_t process = ha_live_process(s->remote.id);

	if (ha_session_is_sick(s))
		return false;
	for (int p = 0; p < live->nports; p++)
		for (int b = 0; b < HA_LIVE_BUCKETS; b++) {
			struct ha_list *pos, *bucket = &live->ports[p]->buckets[b];

			ha_list_for_each (pos, bucket) {
				struct ha_session *other =
				    ha_container_of(pos, struct ha_session, in_bucket);

				if (other != s && !ha_session_is_sick(other) &&
				    ha_live_process(other->remote.id) == process &&
				    look(s, other, now_ns))
					return true;
			}
		}
	return false;
}

static bool witnesses(struct ha_session *s, struct ha_session *other, uint64_t now_ns)
{
	return ha_detector_witnesses(&other->detector, &s->detector, now_ns);
}

/* Has the peer answered over other ports while it did not over these? */
bool ha_session_has_witness(struct ha_session *s, uint64_t now_ns)
{
	return any_other(s, witnesses, now_ns);
}

static bool note_other(struct ha_session *s, struct ha_session *other, uint64_t now_ns)
{
	ha_detector_note_other(&s->detector, &other->detector, now_ns);
	return false;
}

void ha_session_hear_others(struct ha_session *s, uint64_t now_ns)
{
	(void)any_other(s, note_other, now_ns);
}

static bool help(struct ha_session *s, struct ha_session *other, uint64_t now_ns)
{
	struct ha_liveness *live = s->port->live;

	ha_detector_help(&other->detector, now_ns);
	if (other->detector.next_ping_ns < live->due_ns)
		live->due_ns = other->detector.next_ping_ns; /* it may have had its visit */
	return false;
}

void ha_session_ask_others(struct ha_session *s, uint64_t now_ns)
{
	(void)any_other(s, help, now_ns);
}
