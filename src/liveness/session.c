/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/session.h"

#include "base/clock.h"
#include "base/log.h"
#include "device/gid.h"
#include "liveness/session_address.h"
#include "liveness/session_label.h"
#include "liveness/session_peer.h"
#include "liveness/session_send.h"

#include <stdlib.h>
#include <string.h>

/* Between two warnings of suspicion. */
#define WARN_PAUSE_NS (60 * HA_NS_PER_S)

static struct ha_list *bucket_of(struct ha_live_port *port, uint64_t id)
{
	return &port->buckets[(id ^ (id >> 32)) % HA_LIVE_BUCKETS];
}

struct ha_session *ha_session_find(struct ha_live_port *port, uint64_t id)
{
	struct ha_list *pos, *bucket = bucket_of(port, id);

	ha_list_for_each (pos, bucket) {
		struct ha_session *s = ha_container_of(pos, struct ha_session, in_bucket);

		if (s->remote.id == id)
			return s;
	}
	return NULL;
}

/* ---- state ---------------------------------------------------------------------------------- */

static const char *remote_text(const struct ha_session *s, char *buf, size_t size)
{
	union ibv_gid gid;

	memcpy(gid.raw, s->remote.gid, sizeof(gid.raw));
	return ha_gid_text(&gid, buf, size);
}

static void tell_links(struct ha_session *s, enum ha_session_state state)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &s->links) {
		struct ha_live_link *link = ha_container_of(pos, struct ha_live_link, in_session);

		if (state == HA_SESSION_DOWN && link->down)
			link->down(link);
		if (state == HA_SESSION_UP && link->up)
			link->up(link);
	}
}

static void tell_links_of_doubt(struct ha_session *s)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &s->links) {
		struct ha_live_link *link = ha_container_of(pos, struct ha_live_link, in_session);

		if (link->suspected)
			link->suspected(link);
	}
}

static void tell_links_of_doom(struct ha_session *s)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &s->links) {
		struct ha_live_link *link = ha_container_of(pos, struct ha_live_link, in_session);

		if (link->doomed)
			link->doomed(link);
	}
}

static void log_change(const struct ha_session *s, enum ha_session_state state, uint64_t now_ns)
{
	const struct ha_port *port = s->port->port;
	char gid[HA_GID_TEXT_MAX];

	remote_text(s, gid, sizeof(gid));
	if (state == HA_SESSION_DOWN)
		HA_WARN("%s:%d: heartbeats to %s (LID %u) are not answered any more: silent for "
			"%llu ms",
			port->nic->name, port->port_num, gid, s->remote.lid,
			(unsigned long long)((now_ns - s->detector.heard_ns) / HA_NS_PER_MS));
	else if (state == HA_SESSION_UP)
		HA_INFO(HA_SUBSYS_NET, "%s:%d: heartbeats to %s (LID %u) are answered",
			port->nic->name, port->port_num, gid, s->remote.lid);
}

/* Once in a while: it may come and go, and is no failure yet. */
static void warn_of_suspicion(struct ha_session *s, uint64_t now_ns)
{
	const struct ha_port *port = s->port->port;
	char gid[HA_GID_TEXT_MAX];

	if (s->warned_ns != 0 && now_ns - s->warned_ns < WARN_PAUSE_NS)
		return;
	s->warned_ns = now_ns;
	HA_WARN("%s:%d: a heartbeat to %s (LID %u) is missing or far too slow; what uses this pair "
		"of ports gets ready to leave it",
		port->nic->name, port->port_num, remote_text(s, gid, sizeof(gid)), s->remote.lid);
}

/* The event that would say so may be late, or never come. */
static void doubt_port(const struct ha_session *s)
{
	const struct ha_liveness *live = s->port->live;

	if (live->doubt)
		live->doubt(live->doubt_arg, s->port->port);
}

/* After the detector may have changed. */
void ha_session_update(struct ha_session *s, uint64_t now_ns)
{
	enum ha_session_state before = (enum ha_session_state)atomic_load(&s->state);
	enum ha_session_state state = s->detector.state;

	if (state == before)
		return;
	atomic_store(&s->state, (int)state);
	switch (state) {
	case HA_SESSION_UP:
		s->relabels = 0;
		if (s->of_use) { /* and never stopped being */
			tell_links_of_doubt(s);
			return;
		}
		s->of_use = true;
		s->ups++;
		break;
	case HA_SESSION_DOWN:
		s->down_ns = now_ns;
		if (!s->of_use) { /* and never was: nothing is left for that alone */
			tell_links_of_doubt(s);
			return;
		}
		s->of_use = false;
		s->downs++;
		break;
	case HA_SESSION_SUSPECTED:
		s->label_ns = now_ns;
		s->suspicions++;
		doubt_port(s);
		if (s->of_use)
			warn_of_suspicion(s, now_ns);
		tell_links_of_doubt(s);
		return;
	case HA_SESSION_INIT:
		return;
	}
	log_change(s, state, now_ns);
	tell_links(s, state);
}

/* ---- time ----------------------------------------------------------------------------------- */

static bool any_traffic(struct ha_session *s)
{
	struct ha_list *pos;
	bool any = false;

	/* All of them, so that each counts from now on. */
	ha_list_for_each (pos, &s->links) {
		struct ha_live_link *link = ha_container_of(pos, struct ha_live_link, in_session);

		any |= link->alive && link->alive(link);
	}
	return any;
}

void ha_session_visit(struct ha_session *s, bool delayed, uint64_t now_ns)
{
	struct ha_detector *detector = &s->detector;
	uint64_t lost = detector->lost;
	bool suspected;

	ha_session_say_held(s, now_ns);
	if (s->port->dead) {
		ha_detector_stop(detector);
		ha_session_update(s, now_ns);
		return;
	}
	if (delayed)
		ha_detector_restart(detector, now_ns);
	suspected = ha_detector_wants_traffic(detector);
	if (suspected)
		ha_detector_traffic(detector, any_traffic(s), now_ns);
	if (ha_detector_inquires(detector))
		ha_session_hear_others(s, now_ns);
	ha_detector_judge(detector,
			  ha_detector_wants_witness(detector, now_ns) &&
			      ha_session_has_witness(s, now_ns),
			  now_ns);
	/* The first question sets the mark that the next one counts from. */
	if (!suspected && ha_detector_wants_traffic(detector))
		ha_detector_traffic(detector, any_traffic(s), now_ns);
	s->port->count.lost += detector->lost - lost;
	ha_session_update(s, now_ns);
	if (ha_detector_take_doom(detector) && s->of_use) {
		doubt_port(s);
		tell_links_of_doom(s);
	}
	if (ha_session_wants_to_ping(s, now_ns))
		ha_session_ping(s, now_ns);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct ha_session *ha_session_new(struct ha_live_port *port, const struct ha_live_endpoint *remote,
				  uint8_t sl, uint8_t traffic_class)
{
	struct ha_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->port = port;
	s->remote = *remote;
	s->sl = sl;
	s->traffic_class = traffic_class;
	s->flow_label = ha_session_new_label();
	s->first_seq = port->newest_seq;
	ha_list_init(&s->links);
	atomic_init(&s->state, HA_SESSION_INIT);
	ha_detector_init(&s->detector, port->live->interval_ns, port->live->stall_ns,
			 port->id ^ remote->id, ha_now_ns());
	ha_list_push_back(bucket_of(port, remote->id), &s->in_bucket);
	return s;
}

void ha_session_renew(struct ha_session *s)
{
	ha_session_drop_address(s);
	ha_detector_restart(&s->detector, ha_now_ns());
}

void ha_session_follow(struct ha_session *s, const struct ha_live_endpoint *remote)
{
	if (s->remote.qpn == remote->qpn && s->remote.lid == remote->lid &&
	    memcmp(s->remote.gid, remote->gid, sizeof(remote->gid)) == 0)
		return;
	s->remote = *remote;
	ha_session_drop_address(s);
}

void ha_session_free(struct ha_session *s)
{
	if (s->port->newest_seq < s->first_seq + s->detector.sent)
		s->port->newest_seq = s->first_seq + s->detector.sent;
	ha_session_drop_address(s);
	ha_list_remove(&s->in_bucket);
	free(s);
}
