/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Back-pressure: a port gives its link, and that of the destination, little more than they can
 * carry at once. What is to come stays on its send queue: nothing is lost for want of room and
 * nothing is copied, and who else uses the same link gets in between.
 *
 * For fairness each process keeps no more than AHEAD_NS of its own before a link: links carry what
 * they are given in turn, so those that always have something there get the same of it.
 *
 * A process comes late, by as much as the machine lets it, to a link that has room again or to a
 * packet that is there. What it sends then counts as sent when it could have been, up to CREDIT_NS
 * ago: that the machine is busy is nothing that links lose.
 *
 * Requests and acknowledgements, which have no payload, are not held back.
 */
#include "core.h"
#include "link.h"

#include <errno.h>
#include <stdlib.h>

#define AHEAD_NS 150000u
#define RESUME_NS                                                                                  \
	100000u /* who found no room goes on when so little is left: not for each packet */
#define CREDIT_NS 100000000u

int sv_pace_init(struct sv_port *port)
{
	const struct sv_links *links = port->cfg.links;
	struct sv_pace *pace = &port->pace;

	sv_list_init(&pace->wait);
	atomic_init(&pace->resume_ns, SV_NEVER);
	if (!links)
		return 0;
	/* Two of each. */
	pace->there_ns =
	    calloc(2 * (size_t)links->plan->devices * links->plan->ports, sizeof(*pace->there_ns));
	if (!pace->there_ns)
		return ENOMEM;
	pace->left_to_ns = pace->there_ns + (size_t)links->plan->devices * links->plan->ports;
	return 0;
}

/* An aggregator has a link for each destination. */
static uint64_t *left_ns(struct sv_port *port, const struct sv_packet *pkt)
{
	const struct sv_link_plan *plan = port->cfg.links->plan;

	if (sv_links_is_aggregator(plan, pkt->src_port) &&
	    pkt->dst_port < plan->devices * plan->ports)
		return &port->pace.left_to_ns[pkt->dst_port];
	return &port->pace.left_ns[pkt->src_port / port->cfg.devices];
}

static uint64_t *there_ns(struct sv_port *port, const struct sv_packet *pkt)
{
	const struct sv_link_plan *plan = port->cfg.links->plan;

	return pkt->dst_port < plan->devices * plan->ports ? &port->pace.there_ns[pkt->dst_port]
							   : NULL;
}

/* Until when the links that this packet takes have something of this process to carry. */
static uint64_t busy_until_ns(struct sv_port *port, const struct sv_packet *pkt)
{
	uint64_t busy_ns = *left_ns(port, pkt);
	const uint64_t *there = there_ns(port, pkt);

	if (there && *there > busy_ns)
		busy_ns = *there;
	return busy_ns;
}

bool sv_pace_admits(struct sv_qp *qp, const struct sv_packet *pkt)
{
	struct sv_port *port = qp->port;
	struct sv_pace *pace = &port->pace;
	uint64_t busy_ns, at_ns;

	if (!pkt->payload_len || pkt->src_port == pkt->dst_port)
		return true;
	busy_ns = busy_until_ns(port, pkt);
	if (busy_ns <= sv_now(port) + AHEAD_NS)
		return true;
	at_ns = busy_ns - RESUME_NS;
	qp->paced = true;
	if (at_ns < atomic_load_explicit(&pace->resume_ns, memory_order_relaxed)) {
		atomic_store_explicit(&pace->resume_ns, at_ns, memory_order_relaxed);
		if (port->ops->arm_timer)
			port->ops->arm_timer(port, at_ns);
	}
	return false;
}

void sv_port_as_of(struct sv_port *port, uint64_t ns)
{
	port->pace.as_of_ns = ns;
}

/* When it is, for what is sent. */
static uint64_t set_off_ns(struct sv_port *port)
{
	uint64_t now_ns = sv_now(port), as_of_ns = port->pace.as_of_ns;

	if (!as_of_ns || as_of_ns >= now_ns)
		return now_ns;
	return now_ns - as_of_ns > CREDIT_NS ? now_ns - CREDIT_NS : as_of_ns;
}

uint64_t sv_port_pass(struct sv_port *port, const struct sv_packet *pkt)
{
	struct sv_pace *pace = &port->pace;
	struct sv_passage p;
	uint64_t *there;

	if (!port->cfg.links || pkt->src_port == pkt->dst_port)
		return 0;
	p = sv_links_leave(port->cfg.links, pkt, set_off_ns(port), 0);
	p.there_ns = sv_links_arrive(port->cfg.links, pkt, p.there_ns);
	if (pkt->payload_len) {
		pace->passed++;
		*left_ns(port, pkt) = p.left_ns;
		there = there_ns(port, pkt);
		if (there)
			*there = p.there_ns -
				 sv_links_latency_ns(port->cfg.links, pkt->src_port, pkt->dst_port);
	}
	return p.there_ns;
}

uint64_t sv_port_resume_ns(const struct sv_port *port)
{
	return atomic_load_explicit(&port->pace.resume_ns, memory_order_relaxed);
}

/* Behind those who got nothing this time come those who did. */
static void take_turns(struct sv_port *port)
{
	struct sv_pace *pace = &port->pace;
	struct sv_list turn, served;

	sv_list_init(&turn);
	sv_list_init(&served);
	sv_list_move_all(&turn, &pace->wait);
	while (!sv_list_empty(&turn)) {
		struct sv_qp *qp = sv_container_of(turn.next, struct sv_qp, tx_link);
		uint64_t passed = pace->passed;

		sv_list_del(&qp->tx_link);
		sv_port_take_turn(qp);
		if (pace->passed != passed && pace->wait.prev == &qp->tx_link) {
			sv_list_del(&qp->tx_link);
			sv_list_add_tail(&served, &qp->tx_link);
		}
	}
	sv_list_move_all(&pace->wait, &served);
}

void sv_port_resume(struct sv_port *port)
{
	struct sv_pace *pace = &port->pace;
	uint64_t since_ns = sv_port_resume_ns(port);

	if (since_ns == SV_NEVER || sv_now(port) < since_ns)
		return;
	/* Those that still find no room set it again. */
	atomic_store_explicit(&pace->resume_ns, SV_NEVER, memory_order_relaxed);
	sv_port_as_of(port, since_ns);
	take_turns(port);
	sv_port_as_of(port, 0);
}
