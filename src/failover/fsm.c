/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/fsm.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/usdt.h"
#include "failover/engine.h"
#include "failover/path_build.h"
#include "failover/path_select.h"
#include "failover/path_slot.h"
#include "failover/rails.h"
#include "failover/repair.h"
#include "failover/signaling.h"
#include "failover/standby.h"
#include "failover/switchover.h"
#include "transport/clear_path.h"
#include "transport/comm.h"
#include "transport/flush.h"
#include "transport/peer_end.h"
#include "transport/recv.h"
#include "transport/replay.h"
#include "transport/shared.h"

const char *ha_failover_state_name(unsigned state)
{
	static const char *const names[HA_FO_STATES] = {
	    [HA_FO_ACTIVE] = "ACTIVE",	 [HA_FO_SUSPECTED] = "SUSPECTED", [HA_FO_FENCED] = "FENCED",
	    [HA_FO_FENCING] = "FENCING", [HA_FO_LATCHED] = "LATCHED",	  [HA_FO_CLOSED] = "CLOSED",
	};

	return state < HA_FO_STATES ? names[state] : "unknown";
}

typedef void (*handler)(struct ha_comm *comm, const struct ha_fsm_event *o);

void ha_say(struct ha_comm *comm, uint32_t what)
{
	comm->failover->say |= what;
	ha_progress_call(comm->inst->progress, &comm->poller);
}

/* What may come after what. An end that has given up or was told that the peer closed moves no
 * more. */
static bool may_follow(const struct ha_comm *comm, enum ha_failover_state before,
		       enum ha_failover_state state)
{
	switch (state) {
	case HA_FO_ACTIVE:
		return before == (comm->is_send ? HA_FO_FENCED : HA_FO_FENCING);
	case HA_FO_SUSPECTED:
		return comm->is_send && before == HA_FO_ACTIVE;
	case HA_FO_FENCED:
		return comm->is_send && before <= HA_FO_FENCED;
	case HA_FO_FENCING:
		return !comm->is_send && before == HA_FO_ACTIVE;
	case HA_FO_LATCHED:
		return before != HA_FO_LATCHED;
	case HA_FO_CLOSED:
		return before != HA_FO_LATCHED && before != HA_FO_CLOSED;
	default:
		return false;
	}
}

/* The only writer of the state. */
static void change_state(struct ha_comm *comm, enum ha_failover_state state)
{
	struct ha_failover *fo = comm->failover;

	HA_TRACE(1, "connection %s: %s -> %s, epoch %u", comm->name,
		 ha_failover_state_name(fo->state), ha_failover_state_name(state), fo->epoch);
	HA_USDT5(connection_state, ha_comm_number(comm), (int)comm->is_send,
		 ha_failover_state_name(fo->state), ha_failover_state_name(state), fo->epoch);
	HA_INVARIANT(may_follow(comm, (enum ha_failover_state)fo->state, state));
	fo->state = (uint8_t)state;
}

/* What this end says from now on has changed: at once, and then at short intervals again. */
static void enter(struct ha_comm *comm, enum ha_failover_state state)
{
	change_state(comm, state);
	if (state != HA_FO_ACTIVE)
		ha_rails_end(comm);
	comm->epoch_changing = state != HA_FO_ACTIVE;
	ha_comm_not_clear(comm);
	ha_signaling_new_statement(comm);
	ha_say(comm, HA_SAY_STATEMENT);
}

/* ---- the peer's knowledge -------------------------------------------------------------------- */

/* A sender that was asked for its end of a path before it had fenced the last one in that place has
 * dropped what it was asked. */
static void peer_fenced(struct ha_comm *comm, unsigned p, uint32_t generation)
{
	struct ha_slot *slot = &comm->failover->slots[p];

	slot->peer_fenced_gen = generation;
	if (!comm->is_send && slot->state == HA_SLOT_REBUILDING)
		ha_say(comm, ha_say_of(HA_SAY_REBUILD, p));
}

/* Merged, never dropped as seen: messages repeat and overtake each other. */
static void merge(struct ha_comm *comm, const struct ha_message *m)
{
	struct ha_failover *fo = comm->failover;

	ha_window_merge(&fo->peer_window, &m->window);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_slot *slot = &fo->slots[p];

		if (m->fenced_gen[p] > slot->peer_fenced_gen)
			peer_fenced(comm, p, m->fenced_gen[p]);
		if (m->yielded_gen[p] > slot->peer_yielded_gen)
			slot->peer_yielded_gen = m->yielded_gen[p];
	}
}

/* What the peer has given up of a path, confirmed or not. */
static uint32_t given_up(const struct ha_message *m, unsigned p)
{
	return m->fenced_gen[p] > m->yielded_gen[p] ? m->fenced_gen[p] : m->yielded_gen[p];
}

static void fence_as_peer(struct ha_comm *comm, const struct ha_message *m)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_path *path = comm->paths[p];

		if (given_up(m, p) <= comm->failover->slots[p].want_gen)
			continue;
		/* It failed at the peer, or could not be made there: not again at once. */
		if (!comm->is_send && path && !ha_path_stopped(path))
			ha_standby_failed(comm, p);
		ha_slot_fence(comm, p, given_up(m, p));
	}
}

/* Numbers that the receiver gives out, one at a time, never get there. */
#define NUMBERS_MAX (UINT32_MAX / 2)

static bool generation_can_be(const struct ha_comm *comm, unsigned p, uint32_t generation)
{
	const struct ha_slot *slot = &comm->failover->slots[p];

	if (comm->is_send)
		return generation <= NUMBERS_MAX;
	return generation <= slot->newest_gen || generation <= slot->want_gen;
}

bool ha_fsm_can_be(const struct ha_comm *comm, const struct ha_message *m)
{
	if (m->epoch > (comm->is_send ? NUMBERS_MAX : comm->failover->epoch))
		return false;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (!generation_can_be(comm, p, given_up(m, p)) ||
		    !generation_can_be(comm, p, m->mended_gen[p]))
			return false;
	return m->path >= HA_MAX_PATHS || generation_can_be(comm, m->path, m->generation);
}

/* ---- what carries ---------------------------------------------------------------------------- */

/* Beside the active path: the others go on. */
static void rail_lost(struct ha_comm *comm, unsigned p, enum ha_reason reason)
{
	if (comm->is_send)
		comm->count.suspects++;
	else
		ha_standby_failed(comm, p); /* it is not built again at once */
	ha_rails_lost(comm, p, reason);
}

static void rail_failed(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	rail_lost(comm, o->path, o->reason);
}

/* A sender that has stopped all that carries in this epoch waits for another one. */
static bool has_stopped(const struct ha_comm *comm, const struct ha_message *m)
{
	return m->kind == HA_MSG_SUSPECT && m->port == HA_SUSPECT_ALL &&
	       m->epoch == comm->failover->epoch;
}

/* Which path that carries the peer has given up, or suspects, so that an epoch ends: rather the one
 * that it names. -1: none. */
static int left_by_peer(const struct ha_comm *comm, const struct ha_message *m)
{
	int left = -1;

	if (has_stopped(comm, m) && comm->failover->turn.pending)
		return comm->active;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		if (!ha_carries(comm, p) || (ha_rails_may_shed(comm, p) && !has_stopped(comm, m)))
			continue;
		if (m->kind == HA_MSG_SUSPECT && m->path == p &&
		    m->generation >= comm->paths[p]->generation)
			return (int)p;
		if (left < 0 && given_up(m, p) >= comm->paths[p]->generation)
			left = (int)p;
	}
	return left;
}

/* What carries beside the active path, of what the peer has given up or suspects. */
static void lose_as_peer(struct ha_comm *comm, const struct ha_message *m)
{
	const enum ha_reason reason = m->reason ? (enum ha_reason)m->reason : HA_REASON_PEER;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		if (!ha_carries(comm, p) || !ha_rails_may_shed(comm, p))
			continue;
		if (given_up(m, p) >= comm->paths[p]->generation ||
		    (m->kind == HA_MSG_SUSPECT && m->path == p &&
		     m->generation >= comm->paths[p]->generation))
			rail_lost(comm, p, reason);
	}
}

/*
 * Until both ends go on, the active path is the one that was left: where to is decided by what was
 * wrong with it. What NCCL has to have flushed came over the one that was active before.
 */
static void leave(struct ha_comm *comm, unsigned p)
{
	if (p == comm->active)
		return;
	if (ha_carries(comm, comm->active)) /* not lost itself, and its place not taken yet */
		ha_slot_fence(comm, comm->active, ha_active_generation(comm));
	comm->active = (uint8_t)p;
}

/* All of it: a message may have parts on each, and is sent again whole. */
static void fence_what_carries(struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_carries(comm, p))
			ha_slot_fence(comm, p, comm->paths[p]->generation);
}

/* ---- receiver ------------------------------------------------------------------------------ */

/* Path p, which carries, is given up: fence what carries, take the next epoch, say FENCE. */
static void new_epoch(struct ha_comm *comm, unsigned p, enum ha_reason reason)
{
	struct ha_failover *fo = comm->failover;

	HA_INVARIANT(!comm->is_send && fo->state == HA_FO_ACTIVE);
	HA_INVARIANT(fo->epoch == ha_comm_traffic_epoch(comm));
	leave(comm, p);
	ha_switchover_begin(comm, reason);
	ha_standby_left(comm);
	ha_path_select_begin(comm, reason);
	ha_repair_begin(comm, reason);
	fence_what_carries(comm);
	fo->epoch++;
	fo->resumed = false;
	enter(comm, HA_FO_FENCING);
}

static void standby_gone(struct ha_comm *comm, unsigned p)
{
	const struct ha_path *path = comm->paths[p];

	HA_INFO_LIMITED(HA_SUBSYS_NET, "connection %s: standby path %u.%u on %s:%d is given up",
			comm->name, p, path->generation, path->nic->name, path->port->port_num);
	ha_slot_fence(comm, p, path->generation);
}

/* A standby that fails while nothing was resumed on it needs no new epoch. */
static void r_standby_failed(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	ha_standby_failed(comm, o->path);
	standby_gone(comm, o->path);
}

static void r_failed(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	new_epoch(comm, o->path, o->reason);
}

/* Completed by the sender, fenced here, and not there: its write was acknowledged and never placed.
 */
static bool lost_a_message(struct ha_comm *comm)
{
	const struct ha_window *sent = &comm->failover->peer_window, *done = &comm->recv->done;
	uint64_t end = sent->base + 64;

	for (uint64_t seq = done->base; seq < end; seq++)
		if (ha_window_has(sent, seq) && !ha_window_has(done, seq)) {
			ha_comm_message_lost(comm, seq);
			return true;
		}
	return false;
}

/* Traffic goes on in the epoch that both ends have agreed on, over this path. */
static void take_path(struct ha_comm *comm, uint8_t p)
{
	const struct ha_failover *fo = comm->failover;

	HA_INVARIANT(fo->epoch > ha_comm_traffic_epoch(comm));
	HA_INVARIANT(ha_path_ready(comm->paths[p]));
	HA_INVARIANT(comm->paths[p]->generation > fo->slots[p].want_gen);
	HA_INVARIANT(!comm->paths[p]->carried ||
		     comm->paths[p]->generation == fo->slots[p].newest_gen);
	atomic_store_explicit(&comm->turn, 0, memory_order_relaxed);
	atomic_store_explicit(&comm->epoch, fo->epoch, memory_order_relaxed);
	ha_comm_use_path(comm, p);
	HA_USDT5(failover_resume, ha_comm_number(comm), (int)comm->is_send, fo->epoch, (int)p,
		 ha_active_generation(comm));
}

static void resume_on(struct ha_comm *comm, unsigned p)
{
	struct ha_failover *fo = comm->failover;

	HA_INVARIANT(!comm->is_send && fo->state == HA_FO_FENCING);
	HA_INVARIANT(ha_slots_agreed(comm) && !ha_slots_wait(comm));
	HA_INVARIANT(ha_slot_is_up(&fo->slots[p]));
	HA_INVARIANT(ha_window_below(&fo->peer_window, comm->recv->next_seq));
	take_path(comm, (uint8_t)p);
	fo->asked.messages = comm->recv->next_seq - comm->recv->done.base -
			     (uint64_t)__builtin_popcountll(comm->recv->done.bits);
	enter(comm, HA_FO_ACTIVE);
	ha_recv_resume(comm);
	ha_flush_resume(comm);
}

void ha_failover_try_resume(struct ha_comm *comm)
{
	int p;

	if (comm->failover->state != HA_FO_FENCING || ha_slots_wait(comm))
		return;
	if (lost_a_message(comm) || !ha_slots_agreed(comm))
		return;
	ha_path_select_agreed(comm);
	p = ha_path_select_best(comm);
	if (p >= 0)
		resume_on(comm, (unsigned)p);
}

static void r_try(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	(void)o;
	ha_failover_try_resume(comm);
}

/* SUSPECT, FENCED and what else the sender says of itself. */
static void r_merge(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	const struct ha_message *m = o->m;
	int left = left_by_peer(comm, m);

	merge(comm, m);
	if (left >= 0)
		new_epoch(comm, (unsigned)left,
			  m->reason ? (enum ha_reason)m->reason : HA_REASON_PEER);
	lose_as_peer(comm, m);
	left = left_by_peer(comm, m);
	if (left >= 0) /* two at once, of which one was the other's turn */
		new_epoch(comm, (unsigned)left, HA_REASON_PEER);
	fence_as_peer(comm, m);
	if (m->kind == HA_MSG_SUSPECT && m->generation > comm->failover->slots[m->path].want_gen) {
		ha_standby_failed(comm, m->path);
		ha_slot_fence(comm, m->path, m->generation);
	}
	ha_failover_try_resume(comm);
}

/* The sender's NIC confirmed a fence late: what was kept for that can go. */
static void r_state(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	merge(comm, o->m);
	ha_failover_try_resume(comm);
}

static void r_resumed(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	struct ha_failover *fo = comm->failover;

	r_merge(comm, o);
	if (fo->state != HA_FO_ACTIVE || fo->resumed || o->m->epoch != fo->epoch)
		return; /* a late one of an earlier epoch says nothing about this one */
	fo->resumed = true;
	ha_switchover_end(comm, &fo->asked);
}

static void r_rebuilt(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	r_merge(comm, o);
	if (comm->failover->state != HA_FO_LATCHED)
		ha_standby_rebuilt(comm, o->m);
}

static void r_refused(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	r_merge(comm, o);
	ha_standby_refused(comm, o->m);
}

/* ---- sender -------------------------------------------------------------------------------- */

static void s_failed(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	struct ha_failover *fo = comm->failover;

	HA_INVARIANT(comm->is_send && fo->state == HA_FO_ACTIVE);
	leave(comm, o->path);
	ha_switchover_begin(comm, o->reason);
	fo->suspect_path = comm->active;
	fo->suspect_gen = ha_active_generation(comm);
	if (fo->suspect_gen == 0) /* it is gone, as its place was to be taken */
		fo->suspect_gen = fo->slots[comm->active].want_gen;
	comm->count.suspects++;
	fence_what_carries(comm);
	enter(comm, HA_FO_SUSPECTED);
}

static void s_standby_failed(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	comm->count.suspects++;
	ha_say(comm, ha_say_of(HA_SAY_SUSPECT, o->path));
	standby_gone(comm, o->path);
}

/* Everything is in order to go on as the receiver said. */
static void s_try_resume(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	const struct ha_resume *r = &fo->resume;
	struct ha_replay replay;
	const struct ha_path *path;

	if (fo->state != HA_FO_FENCED || r->epoch != fo->epoch || !ha_slots_stopped(comm))
		return;
	path = comm->paths[r->path];
	if (!ha_path_ready(path) || path->generation != r->generation)
		return;
	HA_INVARIANT(comm->is_send && ha_slots_stopped(comm));
	HA_INVARIANT(r->generation == fo->slots[r->path].newest_gen);
	take_path(comm, r->path);
	ha_slots_peer_goes_on(comm);
	enter(comm, HA_FO_ACTIVE);
	ha_send_resume(comm, &fo->peer_window, &replay);
	if (!ha_path_ready(path))
		return; /* posting failed: this path is the next to be left */
	ha_say(comm, HA_SAY_RESUMED);
	ha_switchover_end(comm, &replay);
}

/* FENCE and RESUME: a new epoch, and everything up to the watermarks goes out of use. */
static void s_merge(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	struct ha_failover *fo = comm->failover;
	const struct ha_message *m = o->m;
	int left;

	merge(comm, m);
	if (m->epoch > fo->epoch) {
		if (fo->state == HA_FO_ACTIVE) {
			ha_switchover_begin(comm,
					    m->reason ? (enum ha_reason)m->reason : HA_REASON_PEER);
			fence_what_carries(comm);
		}
		fo->epoch = m->epoch;
		enter(comm, HA_FO_FENCED);
	}
	/* No peer of ours does that, but nobody must be left with a path that is gone. */
	left = left_by_peer(comm, m);
	if (left >= 0)
		s_failed(comm, &(struct ha_fsm_event){.on = HA_ON_FAILED,
						      .reason = HA_REASON_PEER,
						      .path = (uint8_t)left});
	lose_as_peer(comm, m);
	left = left_by_peer(comm, m);
	if (left >= 0)
		s_failed(comm, &(struct ha_fsm_event){.on = HA_ON_FAILED,
						      .reason = HA_REASON_PEER,
						      .path = (uint8_t)left});
	fence_as_peer(comm, m);
	ha_say(comm, HA_SAY_STATEMENT); /* the answer, also to one that was heard before */
}

/* What the receiver has given back of its paths in reserve is of no use here, either. What carries
 * is left by FENCE alone. */
static void s_state(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		if (ha_carries(comm, p) || given_up(o->m, p) <= comm->failover->slots[p].want_gen)
			continue;
		ha_slot_fence(comm, p, given_up(o->m, p));
		ha_path_build_unwatch(comm, p);
	}
}

static void s_resume(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	struct ha_failover *fo = comm->failover;
	const struct ha_message *m = o->m;

	s_merge(comm, o);
	if (m->epoch != fo->epoch)
		return; /* of an epoch that is over */
	if (fo->state == HA_FO_ACTIVE) {
		ha_say(comm, HA_SAY_RESUMED); /* it has not heard */
		return;
	}
	fo->resume =
	    (struct ha_resume){.epoch = m->epoch, .path = m->path, .generation = m->generation};
	s_try_resume(comm);
}

static void s_rebuild(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	ha_window_merge(&comm->failover->peer_window, &o->m->window);
	/* While it carries, what it has completed is still growing: FENCE or SHED comes first. */
	if (!ha_carries(comm, o->m->path) && !ha_rails_is_lost(comm, o->m->path))
		ha_path_build_answer(comm, o->m);
}

static void s_drained(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	(void)o;
	if (ha_slots_stopped(comm))
		ha_say(comm, HA_SAY_STATEMENT);
	s_try_resume(comm);
}

/* ---- both ---------------------------------------------------------------------------------- */

static void nothing(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	(void)comm;
	(void)o;
}

/* No peer of ours says this to this end, and no event of ours comes here. */
static void impossible(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	ha_comm_fail(comm, HA_ERR_INTERNAL, "the failover protocol is broken: %s %s in state %s",
		     comm->is_send ? "sender" : "receiver",
		     o->m ? ha_message_name(o->m->kind) : "event",
		     ha_failover_state_name(comm->failover->state));
}

static void answer_abort(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	(void)o;
	ha_say(comm, HA_SAY_ABORT);
}

/* Its fence is enough for the memory of requests that both have given up. */
static void fenced_too(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	merge(comm, o->m);
	ha_slots_peer_fenced(comm);
}

static void aborted(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	struct ha_abort given_up = {.epoch = o->m->epoch, .code = o->m->code};

	fenced_too(comm, o);
	ha_comm_peer_aborted(comm, &given_up);
}

static void closed(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	struct ha_bye bye = {.done = o->m->window.base, .done_bits = o->m->window.bits};

	ha_window_merge(&comm->failover->peer_window, &o->m->window);
	change_state(comm, HA_FO_CLOSED); /* what errors from now on is no failure */
	ha_rails_end(comm);
	ha_comm_peer_bye(comm, &bye);
}

static void expired(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	const struct ha_path *unconfirmed = ha_slots_unconfirmed(comm);

	(void)o;
	ha_comm_fail(
	    comm, HA_ERR_REMOTE,
	    "no path to the peer for %llu ms (last failure: %s%s%s); longer outages are survived "
	    "with HA_NCCL_OUTAGE_MS",
	    (unsigned long long)(comm->failover->outage_ns / HA_NS_PER_MS),
	    ha_reason_text(comm->failover->now.reason),
	    unconfirmed ? ", and a fence is not confirmed by " : "",
	    unconfirmed ? unconfirmed->nic->name : "");
}

/* No path may bring anything any more to memory that is given back after an error. */
static void give_up(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	(void)o;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		ha_slot_fence(comm, p, comm->failover->slots[p].newest_gen);
	comm->failover->say = comm->failover->repeat = 0; /* what it was about to say */
	enter(comm, HA_FO_LATCHED);
	ha_say(comm, HA_SAY_ABORT);
}

/* Of an epoch that is over it says what is fenced, as all does; and always what else is. */
static void s_shed(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	const struct ha_failover *fo = comm->failover;

	if (!(comm->features & HA_FEATURE_SHED)) {
		impossible(comm, o);
		return;
	}
	if (fo->state == HA_FO_ACTIVE && o->m->epoch == fo->epoch)
		ha_rails_hear_shed(comm, o->m);
	s_merge(comm, o);
}

/* What was lost beside the active path is on its way again. */
static void r_mended(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	if (!(comm->features & HA_FEATURE_SHED)) {
		impossible(comm, o);
		return;
	}
	r_merge(comm, o);
	ha_rails_hear_mended(comm, o->m);
}

/* ---- the tables ----------------------------------------------------------------------------- */

/* clang-format off */
static const handler receiver[HA_FO_STATES][HA_ON_END] = {
	/*                     ACTIVE                        FENCING */
#define ROW(on, active, fencing, latched, closed)                                               \
	[HA_FO_ACTIVE][on] = (active), [HA_FO_FENCING][on] = (fencing),                      \
	[HA_FO_LATCHED][on] = (latched), [HA_FO_CLOSED][on] = (closed),
	ROW(HA_ON_FAILED,   r_failed,   nothing,    nothing,      nothing)
	ROW(HA_ON_RAIL_FAILED, rail_failed, nothing, nothing,     nothing)
	ROW(HA_ON_STANDBY_FAILED, r_standby_failed, r_standby_failed, nothing, nothing)
	ROW(HA_ON_SUSPECT,  r_merge,    r_merge,    answer_abort, nothing)
	ROW(HA_ON_FENCED,   r_merge,    r_merge,    answer_abort, nothing)
	ROW(HA_ON_RESUMED,  r_resumed,  r_merge,    answer_abort, nothing)
	ROW(HA_ON_REBUILT,  r_rebuilt,  r_rebuilt,  answer_abort, nothing)
	ROW(HA_ON_REFUSED,  r_refused,  r_refused,  answer_abort, nothing)
	ROW(HA_ON_STATE,    r_state,    r_state,    nothing,      nothing)
	ROW(HA_ON_FENCE,    impossible, impossible, nothing,      nothing)
	ROW(HA_ON_RESUME,   impossible, impossible, nothing,      nothing)
	ROW(HA_ON_REBUILD,  impossible, impossible, nothing,      nothing)
	ROW(HA_ON_SHED,     impossible, impossible, nothing,      nothing)
	ROW(HA_ON_MENDED,   r_mended,   r_mended,   answer_abort, nothing)
	ROW(HA_ON_DRAINED,  nothing,    r_try,      answer_abort, nothing)
	ROW(HA_ON_PROVED,   nothing,    r_try,      nothing,      nothing)
	ROW(HA_ON_DEADLINE, nothing,    expired,    nothing,      nothing)
	ROW(HA_ON_GIVE_UP,  give_up,    give_up,    nothing,      give_up)
	ROW(HA_ON_ABORT,    aborted,    aborted,    fenced_too,   nothing)
	ROW(HA_ON_BYE,      closed,     closed,     nothing,      nothing)
#undef ROW
};

static const handler sender[HA_FO_STATES][HA_ON_END] = {
#define ROW(on, active, suspected, fenced, latched, closed)                                     \
	[HA_FO_ACTIVE][on] = (active), [HA_FO_SUSPECTED][on] = (suspected),                  \
	[HA_FO_FENCED][on] = (fenced), [HA_FO_LATCHED][on] = (latched),                      \
	[HA_FO_CLOSED][on] = (closed),
	/*                ACTIVE      SUSPECTED   FENCED      LATCHED       CLOSED */
	ROW(HA_ON_FAILED,    s_failed,   nothing,    nothing,    nothing,      nothing)
	ROW(HA_ON_RAIL_FAILED, rail_failed, nothing, nothing,    nothing,      nothing)
	ROW(HA_ON_STANDBY_FAILED, s_standby_failed, s_standby_failed, s_standby_failed, nothing, nothing)
	ROW(HA_ON_FENCE,     s_merge,    s_merge,    s_merge,    answer_abort, nothing)
	ROW(HA_ON_RESUME,    s_resume,   s_resume,   s_resume,   answer_abort, nothing)
	ROW(HA_ON_REBUILD,   s_rebuild,  s_rebuild,  s_rebuild,  answer_abort, nothing)
	ROW(HA_ON_STATE,     s_state,    nothing,    nothing,    nothing,      nothing)
	ROW(HA_ON_SUSPECT,   impossible, impossible, impossible, nothing,      nothing)
	ROW(HA_ON_FENCED,    impossible, impossible, impossible, nothing,      nothing)
	ROW(HA_ON_RESUMED,   impossible, impossible, impossible, nothing,      nothing)
	ROW(HA_ON_REBUILT,   impossible, impossible, impossible, nothing,      nothing)
	ROW(HA_ON_REFUSED,   impossible, impossible, impossible, nothing,      nothing)
	ROW(HA_ON_SHED,      s_shed,     s_shed,     s_shed,     answer_abort, nothing)
	ROW(HA_ON_MENDED,    impossible, impossible, impossible, nothing,      nothing)
	ROW(HA_ON_DRAINED,   s_drained,  s_drained,  s_drained,  answer_abort, nothing)
	ROW(HA_ON_PROVED,    nothing,    nothing,    nothing,    nothing,      nothing)
	ROW(HA_ON_DEADLINE,  nothing,    expired,    expired,    nothing,      nothing)
	ROW(HA_ON_GIVE_UP,   give_up,    give_up,    give_up,    nothing,      give_up)
	ROW(HA_ON_ABORT,     aborted,    aborted,    aborted,    fenced_too,   nothing)
	ROW(HA_ON_BYE,       closed,     closed,     closed,     nothing,      nothing)
#undef ROW
};
/* clang-format on */

/* What an end says in a state until it is answered; 0: nothing. */
static const uint8_t statements[HA_FO_STATES][2] = {
    /*			  receiver	 sender */
    [HA_FO_ACTIVE] = {HA_MSG_RESUME, 0},
    [HA_FO_SUSPECTED] = {0, HA_MSG_SUSPECT},
    [HA_FO_FENCED] = {0, HA_MSG_FENCED},
    [HA_FO_FENCING] = {HA_MSG_FENCE, 0},
    [HA_FO_LATCHED] = {0, 0},
    [HA_FO_CLOSED] = {0, 0},
};

unsigned ha_fsm_statement(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	unsigned kind = statements[fo->state][comm->is_send];

	if (kind == HA_MSG_RESUME && fo->resumed) /* it was answered */
		return ha_rails_lack(comm) ? HA_MSG_SHED : 0;
	if (kind == HA_MSG_FENCED && !ha_slots_stopped(comm))
		return 0; /* it is not so yet */
	return kind;
}

/* ---- a step ---------------------------------------------------------------------------------- */

void ha_fsm_step(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	struct ha_failover *fo = comm->failover;
	handler handle = comm->is_send ? sender[fo->state][o->on] : receiver[fo->state][o->on];

	if (fo->stepping) {
		ha_comm_fail(comm, HA_ERR_INTERNAL,
			     "the failover protocol is broken: a step inside another one");
		return;
	}
	HA_INVARIANT(o->on < HA_ON_END);
	fo->stepping = true;
	(handle ? handle : impossible)(comm, o);
	fo->stepping = false;
}
