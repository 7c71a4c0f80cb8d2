/* SPDX-License-Identifier: Apache-2.0 */
/* From what happens to a connection to the state machine, and the progress thread's visits. */
#include "failover/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "failover/fsm.h"
#include "failover/path_build.h"
#include "failover/path_select.h"
#include "failover/port_pair.h"
#include "failover/preferred.h"
#include "failover/rails.h"
#include "failover/reconnect.h"
#include "failover/reconnect_server.h"
#include "failover/shared.h"
#include "failover/signaling.h"
#include "failover/standby.h"
#include "failover/standby_memory.h"
#include "failover/switchover.h"
#include "transport/comm.h"
#include "transport/comm_event.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/fence.h"
#include "transport/path_msg.h"
#include "transport/peer_end.h"
#include "transport/shared.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what happens --------------------------------------------------------------------------- */

static bool is_current(const struct ha_comm *comm, const struct ha_path *path)
{
	return comm->paths[path->index] == path && !ha_path_stopped(path);
}

static void report_failure(struct ha_comm *comm, const struct ha_path *path, enum ha_reason reason,
			   const char *detail)
{
	struct ha_event event = ha_event_init(HA_EVENT_FAILURE, reason);

	/* Each one that traffic has to leave is told, however many fail at once. */
	event.again = !ha_carries(comm, path->index);
	event.from = ha_event_path(path);
	event.epoch = comm->failover->epoch;
	event.detail = detail;
	ha_event_report(comm, &event);
}

static void note_failure(struct ha_slot *slot, const struct ha_path *path, enum ha_reason reason)
{
	slot->notes.failed_gen = path->generation;
	slot->notes.reason = (uint8_t)reason;
}

void ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *fmt, ...)
{
	char text[256];
	bool deferred;
	va_list args;

	if (!is_current(comm, path) || ha_failover_is_over(comm))
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	/* Also where the application polls: the peer is to know first. */
	deferred = ha_log_defer(true);
	report_failure(comm, path, reason, text);
	ha_log_defer(deferred);
	ha_path_stop(path);
	note_failure(&comm->failover->slots[path->index], path, reason);
	ha_progress_call(comm->inst->progress, &comm->poller);
}

void ha_failover_leave(struct ha_comm *comm, enum ha_reason reason)
{
	comm->failover->leave = (uint8_t)reason;
	ha_progress_call(comm->inst->progress, &comm->poller);
}

/* ---- what was noted ------------------------------------------------------------------------- */

static enum ha_on failure_of(const struct ha_comm *comm, unsigned p)
{
	if (!ha_carries(comm, p))
		return HA_ON_STANDBY_FAILED;
	return ha_rails_may_shed(comm, p) ? HA_ON_RAIL_FAILED : HA_ON_FAILED;
}

static void take_failure(struct ha_comm *comm, unsigned p)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	uint32_t failed_gen = slot->notes.failed_gen;
	struct ha_fsm_event o = {
	    .on = failure_of(comm, p),
	    .reason = (enum ha_reason)slot->notes.reason,
	    .path = (uint8_t)p,
	};

	slot->notes.failed_gen = 0;
	if (failed_gen > slot->want_gen) /* it was not fenced meanwhile */
		ha_fsm_step(comm, &o);
}

void ha_failover_take_failures(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	enum ha_reason leave = (enum ha_reason)fo->leave;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (fo->slots[p].notes.failed_gen != 0)
			take_failure(comm, p);
	fo->leave = HA_REASON_NONE;
	if (leave != HA_REASON_NONE && fo->state == HA_FO_ACTIVE)
		ha_fsm_step(comm, &(struct ha_fsm_event){
				      .on = HA_ON_FAILED, .reason = leave, .path = comm->active});
}

/* The receiver's probes; at the sender, messages of the receiver, which sends them over what it has
 * proved. */
static void take_proofs(struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_slot *slot = &comm->failover->slots[p];

		if (slot->notes.alive)
			ha_liveness_note_life(comm->inst->liveness, &comm->failover->links[p].live);
		slot->notes.alive = false;
		if (!slot->notes.proved)
			continue;
		slot->notes.proved = false;
		if (!comm->is_send && slot->state != HA_SLOT_PROBING)
			continue;
		slot->proved_ns = slot->notes.proved_ns;
		slot->up_ns = 0;
		ha_liveness_note_life(comm->inst->liveness, &comm->failover->links[p].live);
		ha_slot_on(comm, p, HA_SLOT_ON_PROVED);
		if (!comm->is_send)
			ha_standby_proved(comm);
	}
}

static bool has_notes(const struct ha_failover *fo)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot_notes *notes = &fo->slots[p].notes;

		if (notes->failed_gen != 0 || notes->proved || notes->alive || notes->msg)
			return true;
	}
	return fo->leave != HA_REASON_NONE || fo->stalled;
}

/* ---- what is heard --------------------------------------------------------------------------- */

static const enum ha_on event_of[HA_MSG_END] = {
    [HA_MSG_SUSPECT] = HA_ON_SUSPECT, [HA_MSG_FENCE] = HA_ON_FENCE,
    [HA_MSG_FENCED] = HA_ON_FENCED,   [HA_MSG_RESUME] = HA_ON_RESUME,
    [HA_MSG_RESUMED] = HA_ON_RESUMED, [HA_MSG_REBUILD] = HA_ON_REBUILD,
    [HA_MSG_REBUILT] = HA_ON_REBUILT, [HA_MSG_REFUSED] = HA_ON_REFUSED,
    [HA_MSG_STATE] = HA_ON_STATE,     [HA_MSG_ABORT] = HA_ON_ABORT,
    [HA_MSG_BYE] = HA_ON_BYE,	      [HA_MSG_SHED] = HA_ON_SHED,
    [HA_MSG_MENDED] = HA_ON_MENDED,
};

/*
 * Numbers are merged and never go back, so one that nobody can have would stay: a message that was
 * never sent would be there, a path could not be built any more.
 */
static bool can_be(struct ha_comm *comm, const struct ha_message *m)
{
	if (!ha_comm_peer_can_have(comm, &m->window))
		return false;
	if (ha_fsm_can_be(comm, m))
		return true;
	ha_comm_fail(comm, HA_ERR_INTERNAL,
		     "%s of the peer names an epoch or a generation that cannot be: it is broken, "
		     "or somebody else speaks in its place",
		     ha_message_name(m->kind));
	return false;
}

void ha_failover_hear(struct ha_comm *comm, const struct ha_message *m)
{
	HA_TRACE(2, "connection %s: hears %s, epoch %u, path %u.%u", comm->name,
		 ha_message_name(m->kind), m->epoch, m->path, m->generation);
	if (!can_be(comm, m))
		return; /* the next visit gives up */
	/* An end that has failed does nothing it is asked for. */
	if (ha_comm_error(comm) != HA_OK && comm->failover->state != HA_FO_LATCHED)
		ha_fsm_on(comm, HA_ON_GIVE_UP);
	ha_signaling_heard(comm, m);
	ha_failover_take_failures(comm); /* of what it says of the peer's ports */
	switch (m->kind) {
	case HA_MSG_PING:
		ha_say(comm, HA_SAY_PONG);
		comm->failover->stalled = true; /* there, and nothing may be outstanding here */
		return;
	case HA_MSG_PONG:
		return;
	default:
		ha_fsm_step(comm, &(struct ha_fsm_event){.on = event_of[m->kind], .m = m});
	}
}

/* ---- the progress thread --------------------------------------------------------------------- */

/* Whether something has to be done before anything else happens. */
static bool busy(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	if (fo->say || has_notes(fo) || fo->socket_broken || ha_slots_wait(comm) ||
	    ha_rails_lack(comm))
		return true;
	switch (fo->state) {
	case HA_FO_ACTIVE:
		return !fo->resumed && !comm->is_send;
	case HA_FO_LATCHED:
	case HA_FO_CLOSED:
		return false;
	default:
		return true;
	}
}

/* Whether the heartbeats of a path that is in use tell something new. */
static bool suspicion_changed(const struct ha_failover *fo, unsigned p)
{
	const struct ha_session *session = fo->links[p].live.session;
	bool suspected;

	if (!session || !ha_slot_is_up(&fo->slots[p]))
		return false;
	suspected = ha_session_state(session) == HA_SESSION_SUSPECTED;
	return suspected != (fo->slots[p].state == HA_SLOT_SUSPECTED);
}

static bool sessions_spoke(const struct ha_failover *fo)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (fo->links[p].down || fo->links[p].up || fo->links[p].doomed ||
		    suspicion_changed(fo, p))
			return true;
	return false;
}

/* A path that is about to be left for its heartbeats: a write of nothing over its own queue pair.
 */
static void ask_path(struct ha_comm *comm, unsigned p)
{
	struct ha_slot_link *link = &comm->failover->links[p];

	link->doomed = false;
	if (!ha_slot_is_up(&comm->failover->slots[p]) || !ha_path_ready(comm->paths[p]))
		return;
	link->asked_ns = ha_now_ns();
	(void)ha_path_probe(comm, comm->paths[p]); /* one that is under way will do */
}

/* At once, by its heartbeats and over its own queue pair. */
static void ask_stalled(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	if (!fo->stalled)
		return;
	fo->stalled = false;
	if (fo->state != HA_FO_ACTIVE)
		return;
	ask_path(comm, comm->active);
	ha_liveness_inquire(comm->inst->liveness, &fo->links[comm->active].live);
}

/* It is polled for the answer, which comes soon or not in time. */
static bool awaits_answer(const struct ha_comm *comm, uint64_t now_ns)
{
	uint64_t patience_ns = (unsigned)comm->config->heartbeat_ms * HA_NS_PER_MS;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot_link *link = &comm->failover->links[p];

		if (link->asked_ns != 0 && now_ns < link->asked_ns + patience_ns)
			return true;
	}
	return false;
}

static void look_at_sessions(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_slot_link *link = &fo->links[p];
		bool down = link->down, up = link->up;

		link->down = link->up = false;
		if (link->doomed)
			ask_path(comm, p);
		if (down)
			ha_slot_on(comm, p, HA_SLOT_ON_EXPIRED);
		else if (up)
			ha_slot_on(comm, p, HA_SLOT_ON_ANSWERED);
		else if (suspicion_changed(fo, p))
			ha_slot_on(comm, p,
				   fo->slots[p].state == HA_SLOT_SUSPECTED ? HA_SLOT_ON_ANSWERED
									   : HA_SLOT_ON_MISSED);
	}
}

static enum ha_reason why_unusable(const struct ha_nic *nic)
{
	if (atomic_load(&nic->fatal))
		return HA_REASON_DEVICE_FATAL;
	return atomic_load(&nic->sick) ? HA_REASON_SICK : HA_REASON_PORT_DOWN;
}

/*
 * Paths that nothing has been heard of and that are of no use all the same: a first one that could
 * not be connected, and what was made while the event of its port was under way.
 */
static void look_at_ports(struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_path *path = comm->paths[p];

		if (!path || ha_path_stopped(path))
			continue;
		if (!ha_port_usable(path->port))
			ha_failover_trigger(comm, path, why_unusable(path->nic), "%s:%d is down",
					    path->nic->name, path->port->port_num);
		else if (ha_is_active(comm, p) && !ha_path_ready(path))
			ha_failover_trigger(comm, path, HA_REASON_POST, "cannot be connected");
	}
}

/* Longer between two visits than this, and we were not running ourselves: it proves nothing. */
#define MAX_TICK_NS (100 * HA_NS_PER_MS)

/* A switch that has a path to go to takes less. */
#define OUTAGE_TOLD_NS (500 * HA_NS_PER_MS)

/*
 * The deadline runs while no path is left, and stands still for a peer that is frozen: whose
 * socket is up and which says nothing at all.
 */
static void count_outage(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	uint64_t tick_ns = now_ns - fo->tick_ns;

	fo->tick_ns = now_ns;
	if (fo->state == HA_FO_ACTIVE || fo->state == HA_FO_CLOSED || fo->state == HA_FO_LATCHED) {
		fo->outage_ns = 0;
		fo->outage_told = false;
		return;
	}
	if (ha_signaling_peer_frozen(comm, now_ns))
		return;
	fo->outage_ns += tick_ns < MAX_TICK_NS ? tick_ns : MAX_TICK_NS;
	if (fo->outage_ns > OUTAGE_TOLD_NS && !fo->outage_told) {
		fo->outage_told = true;
		ha_switchover_outage(comm);
	}
	if (fo->outage_ns > ha_signaling_deadline_ns(comm))
		ha_fsm_on(comm, HA_ON_DEADLINE);
}

/* Traffic flows here, but other connections of the process may be moving. 0 or past: they are not.
 */
static uint64_t wait_ns(const struct ha_comm *comm, uint64_t now_ns)
{
	return comm->failover->state == HA_FO_ACTIVE
		   ? ha_hold_off_until_ns(&comm->inst->failover_shared->hold_off, now_ns)
		   : 0;
}

bool ha_failover_holds_off(const struct ha_comm *comm, uint64_t now_ns)
{
	return now_ns < wait_ns(comm, now_ns);
}

/* Its own errors first: an end that has given up says so and does nothing else. */
static void visit(struct ha_comm *comm, uint64_t now_ns, bool look)
{
	struct ha_failover *fo = comm->failover;
	bool drained;

	if (ha_comm_error(comm) != HA_OK && fo->state != HA_FO_LATCHED)
		ha_fsm_on(comm, HA_ON_GIVE_UP);
	ask_stalled(comm);
	ha_witness_visit(comm, now_ns);
	look_at_sessions(comm);
	if (look)
		look_at_ports(comm);
	ha_failover_take_failures(comm);
	take_proofs(comm);
	ha_signaling_read_path_msg(comm);
	ha_reconnect_visit(comm, now_ns);
	ha_path_build_visit(comm);
	ha_standby_memory_visit(comm, now_ns);
	drained = ha_slots_drain(comm, now_ns);
	drained |= ha_slots_go_without(comm, now_ns);
	if (drained)
		ha_fsm_on(comm, HA_ON_DRAINED);
	if (!comm->is_send && fo->state <= HA_FO_FENCING && ha_standby_visit(comm, now_ns))
		ha_fsm_on(comm, HA_ON_PROVED);
	ha_rails_visit(comm, now_ns);
	ha_failover_take_failures(comm); /* of what was polled and posted meanwhile */
	count_outage(comm, now_ns);
	if (ha_comm_error(comm) != HA_OK && fo->state != HA_FO_LATCHED)
		ha_fsm_on(comm, HA_ON_GIVE_UP);
	ha_signaling_send(comm, now_ns);
	/* Not while traffic is about to go on, but in an outage there are more and more of them. */
	if ((fo->state == HA_FO_ACTIVE && now_ns >= wait_ns(comm, now_ns)) ||
	    fo->state >= HA_FO_LATCHED || fo->outage_ns > MAX_TICK_NS)
		ha_slots_tidy(comm);
}

/* When to be visited again; 0: when something happens. */
static uint64_t due_ns(const struct ha_comm *comm, uint64_t now_ns)
{
	const struct ha_failover *fo = comm->failover;
	uint64_t waits_ns = wait_ns(comm, now_ns), tidy_ns = ha_slots_tidy_ns(comm), due = 0;

	if (busy(comm) || fo->look || awaits_answer(comm, now_ns))
		return now_ns + HA_NS_PER_MS;
	if (now_ns >= waits_ns && tidy_ns != 0)
		due = tidy_ns > now_ns + HA_NS_PER_MS ? tidy_ns : now_ns + HA_NS_PER_MS;
	if (!comm->is_send && fo->state == HA_FO_ACTIVE)
		due = ha_earlier_ns(due, ha_standby_due_ns(comm));
	if (fo->state == HA_FO_ACTIVE)
		due = ha_earlier_ns(due, ha_standby_memory_due_ns(comm));
	if (ha_slots_unconfirmed(comm))
		due = ha_earlier_ns(due, now_ns + HA_FENCE_NS);
	return now_ns < waits_ns && (due == 0 || due > waits_ns) ? waits_ns : due;
}

/* The command of a fence may have come back to a connection that waits for nothing else. */
static bool asks_after_fence(const struct ha_comm *comm)
{
	uint64_t due_ns = comm->failover->due_ns;

	return ha_slots_unconfirmed(comm) && (due_ns == 0 || due_ns > ha_now_ns() + HA_FENCE_NS);
}

static uint64_t visit_if_due(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	bool failed = ha_comm_error(comm) != HA_OK && fo->state != HA_FO_LATCHED, urgent, look;
	uint64_t tidy_ns = ha_slots_tidy_ns(comm), now_ns;

	urgent = failed || busy(comm) || fo->look || sessions_spoke(fo) ||
		 ha_path_build_due(comm) || ha_standby_memory_is_missing(comm) ||
		 asks_after_fence(comm) || ha_rails_judge(comm) || ha_rails_may_join(comm);
	if (!urgent && tidy_ns == 0 && fo->due_ns == 0)
		return fo->due_ns;
	now_ns = ha_now_ns();
	if (tidy_ns != 0 && now_ns >= tidy_ns && now_ns >= wait_ns(comm, now_ns))
		urgent = true;
	if (!urgent && now_ns < fo->due_ns)
		return fo->due_ns;
	look = fo->look;
	fo->look = false; /* until something asks for another one */
	visit(comm, now_ns, look);
	return fo->due_ns = due_ns(comm, now_ns);
}

static uint64_t visit_when_due(struct ha_comm *comm)
{
	uint64_t due_ns = visit_if_due(comm);

	ha_failover_check(comm);
	return due_ns;
}

static void probe_done(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_slot *slot = &comm->failover->slots[path->index];
	struct ha_slot_link *link = &comm->failover->links[path->index];

	if (comm->paths[path->index] != path || ha_path_stopped(path))
		return;
	slot->notes.alive = link->asked_ns != 0;
	link->asked_ns = 0;
	comm->failover->answered_ns = ha_now_ns();
	if (!comm->is_send) {
		slot->notes.proved = true;
		slot->notes.proved_ns = ha_now_ns();
	}
	ha_progress_call(comm->inst->progress, &comm->poller);
}

static void msg_came(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_slot *slot = &comm->failover->slots[path->index];

	/* Of a generation that is on its way out it would be taken for its successor's. */
	if (ha_path_stopped(path) || comm->paths[path->index] != path)
		return;
	slot->notes.msg = true;
	if (comm->is_send) {
		slot->notes.proved = true;
		slot->notes.proved_ns = ha_now_ns();
	}
	ha_progress_call(comm->inst->progress, &comm->poller);
}

/* So many sockets in a row that garbled what was said, each soon: it is the peer that is broken. */
#define GARBLED_MAX 8
#define SOON_NS	    (10 * HA_NS_PER_S)

/* False: it is, and another socket would not help. */
static bool may_be_the_socket(struct ha_failover *fo, const struct ha_frame_sock *frames)
{
	if (!ha_frame_sock_is_bad(frames))
		return true;
	if (ha_now_ns() - fo->joined_ns > SOON_NS)
		fo->garbled = 0;
	return ++fo->garbled <= GARBLED_MAX;
}

static bool socket_broken(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	if (fo->state == HA_FO_LATCHED)
		return false;
	if (!may_be_the_socket(fo, &comm->ctrl_sock->frames))
		return false;
	fo->socket_broken = true;
	fo->socket_end = (uint8_t)ha_frame_sock_end(&comm->ctrl_sock->frames);
	fo->broken_ns = ha_now_ns();
	fo->silence = (struct ha_silence){.asked_ns = 0};
	if (!ha_reconnect_begin(comm, fo->broken_ns) && !ha_signaling_has_ctrl_sock(comm))
		return false;
	HA_INFO(HA_SUBSYS_NET,
		"connection %s: the bootstrap socket is broken (%s); asking the peer over its "
		"paths, %s",
		comm->name, ha_frame_sock_why(&comm->ctrl_sock->frames),
		comm->is_send ? "and dialling again" : "it may dial again");
	ha_say(comm, HA_SAY_PING);
	return true;
}

/* Which of its ports the peer began on: its preferred one, unless that was down. */
static void find_first_pair(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	const struct ha_path *path = comm->paths[0];

	if (!path || path->generation != 1)
		return;
	for (uint8_t i = 0; i < fo->peer_ports.count; i++)
		if (fo->peer_ports.offers[i].port_num == path->remote.port_num &&
		    strcmp(fo->peer_ports.offers[i].device, path->remote.device) == 0)
			fo->slots[0].peer_port = i;
}

static bool same_endpoint(const struct ha_offer *a, const struct ha_offer *b)
{
	return a->live_id == b->live_id && a->live_qpn == b->live_qpn;
}

/*
 * Said again: with the socket that replaces a broken one, and when the peer's address or its end of
 * heartbeats on a port is another one. Which ports it has does not change.
 */
static void hear_ports_again(struct ha_comm *comm, const struct ha_port_offers *ports)
{
	struct ha_failover *fo = comm->failover;

	fo->look = true; /* what is worth more now */
	for (unsigned i = 0; i < fo->peer_ports.count && i < ports->count; i++) {
		struct ha_offer before = fo->peer_ports.offers[i];

		fo->peer_ports.offers[i] = ports->offers[i];
		if (same_endpoint(&before, &ports->offers[i]))
			continue;
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			if (comm->paths[p] && fo->slots[p].peer_port == i)
				ha_path_build_watch(comm, p);
	}
}

static void hear_ports(struct ha_comm *comm, const struct ha_port_offers *ports)
{
	struct ha_failover *fo = comm->failover;

	if (fo->peer_ports.count != 0) {
		hear_ports_again(comm, ports);
		return;
	}
	fo->peer_ports = *ports;
	for (unsigned i = 0; i < ports->count; i++)
		if (ports->offers[i].up)
			fo->peer_ports_up |= (uint16_t)(1u << i);
	find_first_pair(comm);
	fo->look = true;
	if (comm->paths[0])
		ha_path_build_watch(comm, 0);
}

static void take_message(struct ha_comm *comm, const uint8_t *payload, uint32_t length)
{
	struct ha_message m;
	enum ha_wire_result decoded = ha_message_decode(payload, length, &m);

	comm->failover->unproven = false;
	if (decoded == HA_WIRE_OK) {
		ha_signaling_note_over_socket(comm, &m);
		ha_failover_hear(comm, &m);
	} else if (decoded != HA_WIRE_BAD_VALUE)
		ha_ctrl_sock_garbled(comm->ctrl_sock, decoded);
	else
		ha_comm_fail(comm, HA_ERR_INTERNAL, "a message of the failover protocol that is %s",
			     ha_wire_strerror(decoded));
}

static void take_ports(struct ha_comm *comm, const uint8_t *payload, uint32_t length)
{
	struct ha_port_offers ports;
	enum ha_wire_result decoded = ha_port_offers_decode(payload, length, &ports);

	if (decoded == HA_WIRE_OK)
		hear_ports(comm, &ports);
	else
		ha_ctrl_sock_garbled(comm->ctrl_sock, decoded);
}

static void frame(struct ha_comm *comm, const struct ha_frame_header *header,
		  const uint8_t *payload)
{
	ha_failover_take_failures(comm);
	switch (header->type) {
	case HA_FRAME_PORTS:
		take_ports(comm, payload, header->length);
		break;
	case HA_FRAME_CONTROL:
		take_message(comm, payload, header->length);
		break;
	default: /* of a newer peer */
		HA_TRACE(1, "connection %s: control message of unknown type %u ignored", comm->name,
			 header->type);
	}
}

/* ---- life ---------------------------------------------------------------------------------- */

static void reconnect_at(struct ha_instance *inst, bool is_send, struct ha_reconnect_at *out)
{
	if (ha_reconnect_server_open(inst, &out->addr) && !is_send)
		out->secrets = ha_secrets_new();
}

static ha_result_t open_failover(struct ha_comm *comm, const struct ha_hello *local,
				 const struct ha_hello *remote)
{
	struct ha_failover *fo = calloc(1, sizeof(*fo));

	if (!fo) {
		HA_WARN("out of memory for a connection's failover");
		return HA_ERR_SYSTEM;
	}
	comm->failover = fo;
	fo->resumed = true; /* the handshake did what RESUME and RESUMED do later */
	fo->epoch = 1;
	fo->sl = local->endpoint.sl;
	fo->traffic_class = local->endpoint.traffic_class;
	fo->nqps = local->endpoint.nqps;
	fo->reconnect_at = local->reconnect_at;
	fo->peer_reconnect_at = remote->reconnect_at;
	fo->peer_window.base = 1;
	fo->heard_ns = fo->tick_ns = fo->joined_ns = ha_now_ns();
	ha_slot_begin(&fo->slots[0], comm->paths[0]->generation);
	fo->look = true;
	comm->npaths = HA_MAX_PATHS;
	atomic_store_explicit(&comm->epoch, fo->epoch, memory_order_relaxed);
	return ha_standby_open(comm);
}

static void offer_port(struct ha_comm *comm, unsigned i, struct ha_offer *out)
{
	struct ha_failover *fo = comm->failover;
	struct ha_port *port = fo->offers[i];
	struct ha_live_endpoint live;
	struct ha_port_addr addr;

	ha_port_addr(port, &addr);
	memset(out, 0, sizeof(*out));
	out->link_layer = addr.link_layer;
	out->port_num = port->port_num;
	out->up = ha_offer_usable(comm, i);
	out->lid = addr.lid;
	out->speed_mbps = (uint32_t)port->speed_mbps;
	out->guid = port->nic->guid;
	memcpy(out->gid, addr.gid.raw, sizeof(out->gid));
	ha_copy_text(out->device, sizeof(out->device), port->nic->name);
	if (ha_liveness_opened(comm->inst->liveness, port, &live)) {
		out->live_qpn = live.qpn;
		out->live_id = live.id;
		fo->heartbeats |= (uint16_t)(1u << i);
	}
	fo->told_qpn[i] = out->live_qpn;
	fo->told_addr_gen[i] = addr.addr_gen;
}

static void say_ports(struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_port_offers ports = {.count = fo->noffers, .rails = (uint8_t)ha_comm_rails(comm)};
	uint8_t payload[HA_PORT_OFFERS_MAX_BYTES];
	size_t length;

	for (unsigned i = 0; i < fo->noffers; i++)
		offer_port(comm, i, &ports.offers[i]);
	length = ha_port_offers_encode(&ports, payload);
	if (!ha_ctrl_sock_send(comm->ctrl_sock, HA_FRAME_PORTS, payload, (uint32_t)length))
		HA_WARN("connection %s: the peer cannot be told of our ports: no standby path",
			comm->name);
}

/* What is not open by now is told when a port changes the next time. */
static void open_heartbeats(struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_live_endpoint live;

	for (unsigned i = 0; i < fo->noffers; i++)
		(void)ha_liveness_endpoint(comm->inst->liveness, fo->offers[i], &live);
}

/* Paths over ports whose heartbeats could not begin before. */
static void watch_those_without(struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && !fo->links[p].live.session)
			ha_path_build_watch(comm, p);
}

/* The peer does not know whom to answer: our end is another one since a device came back. */
static bool heartbeats_changed(const struct ha_comm *comm, unsigned i)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_live_endpoint live;

	return ha_liveness_opened(comm->inst->liveness, fo->offers[i], &live) &&
	       live.qpn != fo->told_qpn[i];
}

/* By which the peer judges what a path to it is worth. */
static bool address_changed(const struct ha_comm *comm, unsigned i)
{
	struct ha_port_addr addr;

	ha_port_addr(comm->failover->offers[i], &addr);
	return addr.addr_gen != comm->failover->told_addr_gen[i];
}

static bool offers_changed(const struct ha_comm *comm)
{
	for (unsigned i = 0; i < comm->failover->noffers; i++)
		if (heartbeats_changed(comm, i) || address_changed(comm, i))
			return true;
	return false;
}

static void ports_changed(struct ha_comm *comm, uint64_t ports)
{
	struct ha_failover *fo = comm->failover;

	fo->look = true;
	for (unsigned i = 0; i < fo->noffers; i++)
		if (ports & ha_port_bit(fo->offers[i]) && ha_port_usable(fo->offers[i])) {
			fo->renewed |= (uint16_t)(1u << i);
			ha_standby_memory_renewed(comm, fo->offers[i]->nic);
		}
	if (ha_signaling_ports_up(comm) != fo->ports_said)
		fo->say |= HA_SAY_STATE;
	if (!fo->socket_broken && offers_changed(comm)) {
		say_ports(comm);
		watch_those_without(comm);
	}
}

static void start(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	open_heartbeats(comm);
	fo->ports_said = ha_signaling_ports_up(comm); /* before: what changes meanwhile is said */
	say_ports(comm);
	for (unsigned i = 0; i < fo->noffers; i++)
		if (ha_port_drained(fo->offers[i]))
			fo->say |= HA_SAY_STATE; /* PORTS says nothing of that */
}

bool ha_failover_reconnected(struct ha_comm *comm, struct ha_frame_sock *sock)
{
	struct ha_failover *fo = comm->failover;

	if (!ha_ctrl_sock_replace(comm->ctrl_sock, sock))
		return false;
	HA_INFO(HA_SUBSYS_NET, "connection %s: the bootstrap socket was dialled again and works",
		comm->name);
	fo->socket_broken = false;
	fo->unproven = true;
	fo->reconnected++;
	fo->heard_ns = fo->joined_ns = ha_now_ns();
	say_ports(comm);
	ha_signaling_new_statement(comm);
	ha_say(comm, HA_SAY_STATEMENT | HA_SAY_STATE |
			 (ha_comm_error(comm) != HA_OK ? HA_SAY_ABORT : 0u));
	return true;
}

static void free_failover(struct ha_comm *comm)
{
	if (!comm->failover)
		return; /* the handshake did not get so far */
	while (comm->failover->retired) {
		struct ha_path *path = comm->failover->retired;

		comm->failover->retired = path->next_retired;
		ha_path_close(path);
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		ha_path_close(comm->failover->slots[p].opening);
		ha_path_close(comm->failover->slots[p].yielded);
	}
	ha_reconnect_free(comm);
	ha_standby_free(comm);
	free(comm->failover);
	comm->failover = NULL;
}

/* ---- for the transport ---------------------------------------------------------------------- */

static void path_failed(struct ha_comm *comm, struct ha_path *path,
			const struct ha_path_failure *failure)
{
	ha_failover_trigger(comm, path, failure->reason, "%s", failure->text);
}

bool ha_failover_is_moving(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return fo && ((fo->state != HA_FO_ACTIVE && fo->state != HA_FO_CLOSED) ||
		      fo->leave != HA_REASON_NONE);
}

bool ha_failover_is_over(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return fo && (fo->state == HA_FO_CLOSED || fo->state == HA_FO_LATCHED);
}

static enum nccl_ha_path_health health_of(const struct ha_comm *comm, unsigned p)
{
	static const enum nccl_ha_path_health healths[HA_SLOT_COUNT] = {
	    [HA_SLOT_EMPTY] = NCCL_HA_PATH_FAILED,
	    [HA_SLOT_OPENING] = NCCL_HA_PATH_FAILED,
	    [HA_SLOT_REBUILDING] = NCCL_HA_PATH_FAILED,
	    [HA_SLOT_CONNECTING] = NCCL_HA_PATH_FAILED,
	    [HA_SLOT_PROBING] = NCCL_HA_PATH_RECOVERING,
	    [HA_SLOT_GOOD] = NCCL_HA_PATH_GOOD,
	    [HA_SLOT_SUSPECTED] = NCCL_HA_PATH_SUSPECTED,
	};

	if (!ha_path_ready(comm->paths[p]))
		return NCCL_HA_PATH_FAILED;
	/* Proved, but the heartbeats of its ports are not back: it is not relied on yet. */
	if (p != comm->active && ha_path_select_is_silent(comm, p))
		return NCCL_HA_PATH_RECOVERING;
	return healths[comm->failover->slots[p].state];
}

static void stalled(struct ha_comm *comm)
{
	comm->failover->stalled = true;
	ha_progress_call(comm->inst->progress, &comm->poller);
}

static struct ha_path *left(const struct ha_comm *comm, unsigned p)
{
	return comm->failover->slots[p].yielded;
}

/* Closing may take a while, and a peer that has closed answers no heartbeats. */
static void goodbye(struct ha_comm *comm)
{
	if (ha_comm_error(comm) == HA_OK) {
		ha_signaling_goodbye(comm);
	} else if (comm->failover->state == HA_FO_LATCHED) {
		(void)ha_slots_drain(comm, ha_now_ns());
		comm->failover->say = HA_SAY_ABORT;
		ha_signaling_send(comm, ha_now_ns());
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		ha_path_build_unwatch(comm, p);
}

static void describe(const struct ha_comm *comm, struct ha_failover_view *out)
{
	out->moving = ha_failover_is_moving(comm);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		out->health[p] = health_of(comm, p);
	ha_preferred_describe(comm, out);
}

static bool memory_refused(struct ha_comm *comm, const struct ha_nic *nic)
{
	bool left = ha_standby_memory_refused(comm, nic);

	ha_progress_call(comm->inst->progress, &comm->poller);
	return left;
}

const struct ha_failover_ops ha_failover_engine = {
    .features = HA_FEATURE_FAILOVER,
    .reconnect_at = reconnect_at,
    .open = open_failover,
    .start = start,
    .free = free_failover,
    .path_failed = path_failed,
    .memory_refused = memory_refused,
    .probe_done = probe_done,
    .msg = msg_came,
    .frame = frame,
    .socket_broken = socket_broken,
    .ports_changed = ports_changed,
    .stalled = stalled,
    .visit = visit_when_due,
    .left = left,
    .goodbye = goodbye,
    .describe = describe,
};
