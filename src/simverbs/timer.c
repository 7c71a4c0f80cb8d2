/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of a port: the earlier of two deadlines per QP in a binary heap. An entry's key may be
 * earlier than that: moving a deadline back, which each ack does, only writes it, and the entry is
 * put right when it reaches the top.
 */
#include "core.h"
#include "posted.h"

static void heap_put(struct sv_port *port, uint32_t slot, struct sv_qp *qp)
{
	port->timers[slot] = qp;
	qp->heap_slot = slot;
}

static void heap_up(struct sv_port *port, uint32_t slot)
{
	struct sv_qp *qp = port->timers[slot];

	while (slot > 0) {
		uint32_t parent = (slot - 1) / 2;

		if (port->timers[parent]->heap_key_ns <= qp->heap_key_ns)
			break;
		heap_put(port, slot, port->timers[parent]);
		slot = parent;
	}
	heap_put(port, slot, qp);
}

static void heap_down(struct sv_port *port, uint32_t slot)
{
	struct sv_qp *qp = port->timers[slot];

	for (;;) {
		uint32_t child = slot * 2 + 1;

		if (child >= port->num_timers)
			break;
		if (child + 1 < port->num_timers &&
		    port->timers[child + 1]->heap_key_ns < port->timers[child]->heap_key_ns)
			child++;
		if (qp->heap_key_ns <= port->timers[child]->heap_key_ns)
			break;
		heap_put(port, slot, port->timers[child]);
		slot = child;
	}
	heap_put(port, slot, qp);
}

static void heap_remove(struct sv_port *port, struct sv_qp *qp)
{
	uint32_t slot = qp->heap_slot;
	struct sv_qp *last;

	if (slot == UINT32_MAX)
		return;
	qp->heap_slot = UINT32_MAX;
	last = port->timers[--port->num_timers];
	if (last == qp)
		return;
	heap_put(port, slot, last);
	heap_up(port, slot);
	heap_down(port, last->heap_slot);
}

void sv_timer_forget(struct sv_qp *qp)
{
	heap_remove(qp->port, qp);
}

static uint64_t next_of(const struct sv_qp *qp)
{
	return qp->place_ns < qp->deadline_ns ? qp->place_ns : qp->deadline_ns;
}

/* One of its deadlines is this, and may be earlier than the key. */
static void arm(struct sv_qp *qp, uint64_t deadline_ns)
{
	struct sv_port *port = qp->port;
	uint64_t earliest = port->num_timers ? port->timers[0]->heap_key_ns : SV_NEVER;

	if (qp->heap_slot == UINT32_MAX) {
		qp->heap_key_ns = deadline_ns;
		heap_put(port, port->num_timers++, qp);
		heap_up(port, qp->heap_slot);
	} else if (deadline_ns < qp->heap_key_ns) {
		qp->heap_key_ns = deadline_ns;
		heap_up(port, qp->heap_slot);
	}
	if (deadline_ns < earliest && port->ops->arm_timer)
		port->ops->arm_timer(port, deadline_ns);
}

void sv_qp_set_timer(struct sv_qp *qp, uint64_t deadline_ns)
{
	qp->deadline_ns = deadline_ns;
	arm(qp, deadline_ns);
}

void sv_qp_set_place_timer(struct sv_qp *qp, uint64_t place_ns)
{
	qp->place_ns = place_ns;
	if (place_ns != SV_NEVER)
		arm(qp, place_ns);
}

void sv_qp_stop_timer(struct sv_qp *qp)
{
	qp->deadline_ns = SV_NEVER;
}

/* Puts the top right: afterwards its key is a real deadline. */
static void heap_settle(struct sv_port *port)
{
	while (port->num_timers) {
		struct sv_qp *qp = port->timers[0];
		uint64_t next_ns = next_of(qp);

		if (next_ns == qp->heap_key_ns)
			return;
		if (next_ns == SV_NEVER) {
			heap_remove(port, qp);
		} else {
			qp->heap_key_ns = next_ns;
			heap_down(port, 0);
		}
	}
}

uint64_t sv_port_next_deadline(struct sv_port *port)
{
	uint64_t posted_ns = sv_posted_due_ns(port), qp_ns;

	heap_settle(port);
	qp_ns = port->num_timers ? port->timers[0]->heap_key_ns : SV_NEVER;
	return posted_ns < qp_ns ? posted_ns : qp_ns;
}

bool sv_port_run_timer(struct sv_port *port, uint64_t now_ns)
{
	struct sv_qp *qp;

	if (sv_port_next_deadline(port) > now_ns)
		return false;
	if (sv_posted_due_ns(port) <= now_ns) {
		sv_posted_run(port, now_ns);
		return true;
	}
	qp = port->timers[0];
	heap_remove(port, qp);
	if (qp->place_ns <= qp->deadline_ns) {
		qp->place_ns = SV_NEVER;
		sv_responder_place(qp);
	} else {
		qp->deadline_ns = SV_NEVER;
		sv_requester_timeout(qp);
	}
	/* The other deadline is still to come. */
	if (qp->heap_slot == UINT32_MAX && next_of(qp) != SV_NEVER)
		arm(qp, next_of(qp));
	return true;
}

uint64_t sv_port_run_timers(struct sv_port *port, uint64_t now_ns)
{
	uint64_t timer_ns, resume_ns;

	while (sv_port_run_timer(port, now_ns))
		;
	sv_port_resume(port);
	timer_ns = sv_port_next_deadline(port);
	resume_ns = sv_port_resume_ns(port);
	return timer_ns < resume_ns ? timer_ns : resume_ns;
}
