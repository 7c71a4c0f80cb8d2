/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread's visits of a connection: what is looked at, in which order, and when. */
#include "failover/visit.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/hold_off.h"
#include "failover/notes.h"
#include "failover/path_build.h"
#include "failover/rails.h"
#include "failover/reconnect.h"
#include "failover/shared.h"
#include "failover/signaling.h"
#include "failover/standby.h"
#include "failover/standby_memory.h"
#include "failover/switchover.h"
#include "failover/witness.h"
#include "liveness/session_report.h"
#include "transport/comm.h"
#include "transport/path_msg.h"
#include "transport/shared.h"

/* Longer between two visits than this, and we were not running ourselves: it proves nothing. */
#define MAX_TICK_NS (100 * HA_NS_PER_MS)

/* A switch that has a path to go to takes less. */
#define OUTAGE_TOLD_NS (500 * HA_NS_PER_MS)

/* ---- what is looked at --------------------------------------------------------------------- */

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

/* At once, each path that carries: by its heartbeats and over its own queue pair. */
static void ask_stalled(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	if (!fo->stalled)
		return;
	fo->stalled = false;
	if (fo->state != HA_FO_ACTIVE)
		return;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_carries(comm, p)) {
			ask_path(comm, p);
			ha_liveness_inquire(comm->inst->liveness, &fo->links[p].live);
		}
}

/* It is polled for the answer, which comes soon or not in time. */
static bool awaits_answer(const struct ha_comm *comm, uint64_t now_ns)
{
	uint64_t timeout_ns = (unsigned)comm->config->heartbeat_ms * HA_NS_PER_MS;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot_link *link = &comm->failover->links[p];

		if (link->asked_ns != 0 && now_ns < link->asked_ns + timeout_ns)
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

/*
 * The deadline runs while no path is left, and stands still for a peer that is frozen: whose
 * socket is up and which says nothing at all.
 */
static void count_outage(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	/* The last visit may be long ago; what was before the failure is none of it. */
	uint64_t since_ns = fo->tick_ns > fo->now.trigger_ns ? fo->tick_ns : fo->now.trigger_ns;
	uint64_t tick_ns = now_ns > since_ns ? now_ns - since_ns : 0;

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
	ha_failover_take_proofs(comm);
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
	    fo->state >= HA_FO_LATCHED || fo->outage_ns > HA_HOLD_OFF_MAX_MS * HA_NS_PER_MS)
		ha_slots_tidy(comm);
}

/* ---- when ---------------------------------------------------------------------------------- */

/* Whether something has to be done before anything else happens. */
static bool busy(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	if (fo->say || ha_failover_has_notes(fo) || fo->socket_broken || ha_slots_wait(comm) ||
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

/* When a fence is asked after that traffic goes on without: not while other connections move. */
static uint64_t fence_due_ns(const struct ha_comm *comm, uint64_t now_ns)
{
	const uint64_t soon_ns = now_ns + HA_FENCE_NS, waits_ns = wait_ns(comm, now_ns);

	return soon_ns > waits_ns ? soon_ns : waits_ns;
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
	if (ha_slots_fencing(comm))
		due = ha_earlier_ns(due, fence_due_ns(comm, now_ns));
	return now_ns < waits_ns && (due == 0 || due > waits_ns) ? waits_ns : due;
}

/* The command of a fence may have come back to a connection that waits for nothing else. */
static void ask_after_fence(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	if (ha_slots_fencing(comm))
		fo->due_ns = ha_earlier_ns(fo->due_ns, fence_due_ns(comm, ha_now_ns()));
}

static uint64_t visit_if_due(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	bool failed = ha_comm_error(comm) != HA_OK && fo->state != HA_FO_LATCHED, urgent, look;
	uint64_t tidy_ns = ha_slots_tidy_ns(comm), now_ns;

	urgent = failed || busy(comm) || fo->look || sessions_spoke(fo) ||
		 ha_path_build_due(comm) || ha_standby_memory_is_missing(comm) ||
		 ha_rails_judge(comm) || ha_rails_may_join(comm);
	if (!urgent)
		ask_after_fence(comm);
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

uint64_t ha_failover_visit(struct ha_comm *comm)
{
	uint64_t due_ns = visit_if_due(comm);

	ha_failover_check(comm);
	return due_ns;
}
