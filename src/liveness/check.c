/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/check.h"

#include "base/invariant.h"
#include "liveness/session.h"

static void check_inquiry(const struct ha_detector *d)
{
	const struct ha_inquiry *inquiry = &d->inquiry;

	HA_INVARIANT(inquiry->rounds <= HA_DETECTOR_INQUIRY_ROUNDS);
	HA_INVARIANT(inquiry->first_seq <= d->sent + 1);
	HA_INVARIANT(inquiry->first_seq == 0 || d->stall_ns != 0);
	HA_INVARIANT(inquiry->first_seq == 0 || inquiry->begun_ns != 0);
	/* Where a heartbeat has begun it, silence counts from that. */
	HA_INVARIANT(inquiry->first_seq == 0 || inquiry->since_ns >= inquiry->begun_ns ||
		     inquiry->first_seq == d->overdue);
}

static void check_detector(const struct ha_detector *d)
{
	HA_INVARIANT(d->interval_ns != 0);
	HA_INVARIANT(d->state >= HA_SESSION_INIT && d->state <= HA_SESSION_DOWN);
	HA_INVARIANT(d->answered <= d->sent);
	HA_INVARIANT(d->in_row <= d->answered);
	HA_INVARIANT(d->lost <= d->sent);
	HA_INVARIANT(d->suspected <= d->sent);
	HA_INVARIANT(d->answers[0].heard_ns >= d->answers[1].heard_ns);
	HA_INVARIANT(d->answers[0].sent_ns <= d->answers[0].heard_ns);
	HA_INVARIANT(d->answers[1].sent_ns <= d->answers[1].heard_ns);
	for (unsigned i = 0; i < HA_DETECTOR_INQUIRY_ROUNDS; i++) {
		HA_INVARIANT(d->rounds[i].sent_ns <= d->rounds[i].heard_ns);
		HA_INVARIANT(i == 0 || d->rounds[i].heard_ns <= d->rounds[i - 1].sent_ns);
	}
	check_inquiry(d);
}

static void check_links(const struct ha_session *s)
{
	const struct ha_list *pos;

	HA_INVARIANT(!ha_list_empty(&s->links));
	ha_list_for_each (pos, &s->links) {
		const struct ha_live_link *link =
		    ha_container_of(pos, struct ha_live_link, in_session);

		HA_INVARIANT(link->session == s);
		HA_INVARIANT(pos->next->prev == pos && pos->prev->next == pos);
	}
}

void ha_session_check(const struct ha_session *s)
{
	const struct ha_live_port *port = s->port;
	int state = atomic_load(&s->state);

	check_detector(&s->detector);
	check_links(s);
	HA_INVARIANT(port->state == HA_LIVE_PORT_OPEN);
	HA_INVARIANT(port->live->asked[port->port->index] == port);
	HA_INVARIANT(port->ud_qp);
	HA_INVARIANT(state == (int)s->detector.state);
	HA_INVARIANT(!s->of_use || state == HA_SESSION_UP || state == HA_SESSION_SUSPECTED);
	HA_INVARIANT(s->of_use || state != HA_SESSION_UP);
	HA_INVARIANT(s->ups == s->downs + s->of_use);
	HA_INVARIANT(s->pongs <= s->pings);
	HA_INVARIANT(s->remote.id != 0);
	HA_INVARIANT(s->remote.qpn != 0 && s->remote.qpn <= 0xffffff);
	HA_INVARIANT(!s->query || port->live->queries != 0);
	HA_INVARIANT(!s->address || s->address->ah);
	HA_INVARIANT(!s->address || s->address != s->query);
	HA_INVARIANT(s->flow_label <= 0xfffff);
	HA_INVARIANT(!s->held.ping || s->held.ping_seq - s->first_seq <= s->detector.sent);
	HA_INVARIANT(state != HA_SESSION_DOWN || s->down_ns != 0);
}
