/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/session_recv.h"

#include "base/clock.h"
#include "liveness/packet.h"
#include "liveness/session.h"
#include "liveness/session_label.h"
#include "liveness/session_send.h"
#include "liveness/ud_qp.h"

#include <string.h>

static void answered(struct ha_session *s, uint64_t seq, uint64_t now_ns)
{
	struct ha_live_port_report *count = &s->port->count;
	uint64_t round_trip_ns, lost = s->detector.lost;

	if (seq <= s->first_seq ||
	    !ha_detector_pong(&s->detector, seq - s->first_seq, now_ns, &round_trip_ns)) {
		count->stale++;
		return;
	}
	s->pongs++;
	count->pongs++;
	count->lost += s->detector.lost - lost;
	ha_hist_add(&s->round_trips, round_trip_ns);
	ha_hist_add(&count->round_trips, round_trip_ns);
	ha_detector_judge(&s->detector, false, now_ns);
	ha_session_update(s, now_ns);
}

static void refuse(const struct ha_live_port *port)
{
	if (port->live->refused)
		port->live->refused(port->live->refused_arg);
}

/* It is the peer's queue pair, at the peer's address as far as the packet has one. */
static bool comes_from(const struct ha_session *s, const struct ha_datagram *datagram)
{
	if (datagram->from_qpn != s->remote.qpn)
		return false;
	if (datagram->has_gid)
		return memcmp(datagram->from_gid, s->remote.gid, sizeof(s->remote.gid)) == 0;
	return s->remote.link_layer == IBV_LINK_LAYER_ETHERNET ||
	       datagram->from_lid == s->remote.lid;
}

static struct ha_session *speaker_of(const struct ha_datagram *datagram,
				     const struct ha_heartbeat *packet, struct ha_live_port *port)
{
	struct ha_session *s = packet->to == port->id ? ha_session_find(port, packet->from) : NULL;

	return s && comes_from(s, datagram) ? s : NULL;
}

#define HEARD_BEFORE 64

/* Whether this ping is none that was recorded. They may overtake one another. */
static bool is_new(struct ha_heard *heard, uint64_t seq)
{
	uint64_t ahead = seq - heard->newest, back = heard->newest - seq, bit;

	if (seq > heard->newest) {
		heard->before = ahead > HEARD_BEFORE ? 0
				: ahead == HEARD_BEFORE
				    ? 1ull << (HEARD_BEFORE - 1)
				    : heard->before << ahead | 1ull << (ahead - 1);
		heard->newest = seq;
		return true;
	}
	if (back == 0 || back > HEARD_BEFORE)
		return false;
	bit = 1ull << (back - 1);
	if (heard->before & bit)
		return false;
	heard->before |= bit;
	return true;
}

static void pinged(struct ha_session *s, uint64_t seq, uint64_t now_ns)
{
	/* Without a key who makes up a number would have the peer's own ones refused. */
	if (s->port->live->key && !is_new(&s->heard, seq)) {
		s->port->count.stale++;
		refuse(s->port);
		return;
	}
	s->port->count.answered++;
	ha_session_note_ping(s, now_ns);
	ha_session_say(s, HA_HEARTBEAT_PONG, seq, now_ns);
	ha_detector_ping_sooner(&s->detector, now_ns);
}

void ha_session_received(void *live_port, const struct ha_datagram *datagram)
{
	struct ha_live_port *port = live_port;
	struct ha_heartbeat packet;
	struct ha_session *s;
	size_t len = datagram->len;
	uint64_t due_ns, now_ns = ha_now_ns();

	if (port->live->key && ha_heartbeat_is_genuine(port->live->key, datagram->data, len))
		len = HA_HEARTBEAT_BYTES;
	else if (port->live->key)
		len = 0;
	if (!ha_heartbeat_decode(datagram->data, len, &packet)) {
		port->count.malformed++;
		refuse(port);
		return;
	}
	s = speaker_of(datagram, &packet, port);
	if (!s) {
		port->count.strangers++;
		refuse(port);
		return;
	}
	if (packet.kind == HA_HEARTBEAT_PONG)
		answered(s, packet.seq, now_ns);
	else
		pinged(s, packet.seq, now_ns);
	due_ns = ha_detector_due_ns(&s->detector);
	if (due_ns < port->live->due_ns)
		port->live->due_ns = due_ns;
}
