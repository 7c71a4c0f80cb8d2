/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/session_send.h"

#include "liveness/packet.h"
#include "liveness/session.h"
#include "liveness/session_address.h"
#include "liveness/session_peer.h"

/* Until the address is there; the newest is enough. */
static void hold(struct ha_session *s, enum ha_heartbeat_kind kind, uint64_t seq)
{
	if (!s->query)
		return;
	if (kind == HA_HEARTBEAT_PING) {
		s->held.ping = true;
		s->held.ping_seq = seq;
	} else {
		s->held.pong = true;
		s->held.pong_seq = seq;
	}
}

void ha_session_say(struct ha_session *s, enum ha_heartbeat_kind kind, uint64_t seq,
		    uint64_t now_ns)
{
	struct ha_heartbeat packet = {
	    .kind = (uint8_t)kind, .from = s->port->id, .to = s->remote.id, .seq = seq};
	const struct ha_job_key *key = s->port->live->key;
	uint8_t bytes[HA_HEARTBEAT_SEALED];

	/* It could only fail, which stops the queue pair of soft RoCE, and be restarted, each time.
	 */
	if (atomic_load(&s->port->port->state) != IBV_PORT_ACTIVE)
		return;
	if (!ha_session_has_address(s, now_ns)) {
		hold(s, kind, seq);
		return;
	}
	ha_heartbeat_encode(&packet, bytes);
	if (key && !ha_heartbeat_seal(key, bytes))
		return; /* a child of the process that has the key */
	if (ha_ud_qp_send(s->port->ud_qp, s->address->ah, s->remote.qpn, ha_live_qkey(s->remote.id),
			  bytes, key ? sizeof(bytes) : HA_HEARTBEAT_BYTES) != 0)
		s->port->count.send_errors++;
}

/* What waited for the address. An address that is not to be had loses it. */
void ha_session_say_held(struct ha_session *s, uint64_t now_ns)
{
	struct ha_held held = s->held;

	if (!ha_session_take_address(s, now_ns))
		return;
	s->held = (struct ha_held){0};
	if (!s->address)
		return;
	if (held.ping) {
		ha_detector_ping_sent(&s->detector, held.ping_seq - s->first_seq, now_ns);
		ha_session_say(s, HA_HEARTBEAT_PING, held.ping_seq, now_ns);
	}
	if (held.pong)
		ha_session_say(s, HA_HEARTBEAT_PONG, held.pong_seq, now_ns);
}

/* ---- in step -------------------------------------------------------------------------------- */

/*
 * So many sessions ping in step: more would not all have room in a port's queue, nor their answers
 * in that of a peer's. The next so many do in a batch of their own.
 */
#define MOST_IN_STEP 64

/* A batch is to come, and there is room in it. */
static bool has_place(const struct ha_ping_batch *batch, uint64_t now_ns)
{
	return batch->next_ns > now_ns && batch->places > 0;
}

/* Who has pinged, and pings at the interval, does so next with the others. */
static void keep_step(struct ha_session *s, uint64_t now_ns)
{
	struct ha_ping_batch *batch = &s->port->live->batch;

	if (!ha_detector_is_steady(&s->detector, now_ns))
		return;
	if (!has_place(batch, now_ns)) {
		batch->next_ns = s->detector.next_ping_ns;
		batch->places = MOST_IN_STEP;
	}
	ha_detector_keep_step(&s->detector, batch->next_ns);
	batch->places--;
	batch->pinged++;
}

/* Its ping is due, or somebody's is and this one's nearly; and the queue is not full of others. */
bool ha_session_wants_to_ping(const struct ha_session *s, uint64_t now_ns)
{
	const struct ha_ping_batch *batch = &s->port->live->batch;

	if (batch->pinged >= MOST_IN_STEP && ha_detector_is_steady(&s->detector, now_ns))
		return false; /* in a millisecond */
	return ha_detector_ping_due(&s->detector, now_ns) ||
	       (batch->on && ha_detector_may_join(&s->detector, now_ns));
}

void ha_session_ping(struct ha_session *s, uint64_t now_ns)
{
	/* One that cannot be sent is a missing one, too. */
	uint64_t seq = ha_detector_ping(&s->detector, now_ns);

	s->pings++;
	s->port->count.pings++;
	keep_step(s, now_ns);
	ha_session_say(s, HA_HEARTBEAT_PING, s->first_seq + seq, now_ns);
	if (ha_detector_wants_help(&s->detector))
		ha_session_ask_others(s, now_ns);
}
