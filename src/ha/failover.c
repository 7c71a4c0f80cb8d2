/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of a failover: two tables, one per end, of what an event does in a state. The
 * handlers change state, start fences and note what is to be said (control.c says it); none waits.
 */
#include "ha/failover.h"

#include "base/clock.h"
#include "base/log.h"
#include "ha/control.h"
#include "ha/rebuild.h"
#include "ha/shadow.h"
#include "ha/switch.h"
#include "transport/comm.h"
#include "transport/instance.h"
#include "transport/lane.h"
#include "transport/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum event {
	EV_FAILED,  /* the active path failed, or is to be left */
	EV_SUSPECT, /* messages, by kind */
	EV_FENCE,
	EV_FENCED,
	EV_RESUME,
	EV_RESUMED,
	EV_REBUILD,
	EV_REBUILT,
	EV_REFUSED,
	EV_ABORT,
	EV_BYE,
	EV_DRAINED,  /* a fence was confirmed */
	EV_PROVED,   /* a path in reserve works */
	EV_DEADLINE, /* nothing has been left for too long */
	EV_GIVE_UP,  /* an error was latched at this end */
	EVENTS
};

struct occasion {
	enum event event;
	const struct ha_message *m; /* of the messages */
	enum ha_reason reason;	    /* of FAILED */
};

typedef void (*handler)(struct ha_comm *comm, const struct occasion *o);

static void step(struct ha_comm *comm, const struct occasion *o);

static void step_event(struct ha_comm *comm, enum event event)
{
	step(comm, &(struct occasion){.event = event});
}

const char *ha_failover_state_name(unsigned state)
{
	static const char *const names[HA_FO_STATES] = {
	    [HA_FO_ACTIVE] = "ACTIVE",	 [HA_FO_SUSPECTED] = "SUSPECTED", [HA_FO_FENCED] = "FENCED",
	    [HA_FO_FENCING] = "FENCING", [HA_FO_LATCHED] = "LATCHED",	  [HA_FO_CLOSED] = "CLOSED",
	};

	return state < HA_FO_STATES ? names[state] : "unknown";
}

/* ---- fences -------------------------------------------------------------------------------- */

static uint32_t active_gen(const struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);

	return path ? path->generation : 0;
}

static bool is_active(const struct ha_comm *comm, unsigned p)
{
	return comm->failover.state == HA_FO_ACTIVE && comm->active == p;
}

void ha_slot_fence(struct ha_comm *comm, unsigned p, uint32_t generation)
{
	struct ha_slot *slot = &comm->failover.slots[p];
	struct ha_path *path = comm->paths[p];

	if (generation > slot->want_gen)
		slot->want_gen = generation;
	if (generation > slot->newest_gen)
		slot->newest_gen = generation;
	if (path && path->generation > slot->want_gen)
		return;
	slot->state = HA_SLOT_EMPTY;
	if (comm->failover.state == HA_FO_FENCING)
		comm->failover.say |= HA_SAY_STATEMENT; /* with the new watermark */
	if (path)
		ha_path_fence(path); /* drain() confirms it */
	else
		slot->fenced_gen = slot->want_gen; /* there is nothing that could carry them */
}

bool ha_slots_fenced(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->failover.slots[p].fenced_gen < comm->failover.slots[p].want_gen)
			return false;
	return true;
}

/* Asks after the fences that are under way. True: one was confirmed. */
static bool drain(struct ha_comm *comm, uint64_t now_ns)
{
	bool confirmed = false;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_slot *slot = &comm->failover.slots[p];
		struct ha_path *path = comm->paths[p];

		if (!path || !ha_path_stopped(path))
			continue;
		switch (ha_path_fenced(comm, path, now_ns)) {
		case HA_FENCE_PENDING:
			break;
		case HA_FENCE_DONE:
			comm->paths[p] = NULL;
			ha_path_close(path);
			slot->fenced_gen = slot->want_gen;
			confirmed = true;
			break;
		case HA_FENCE_FAILED:
			ha_comm_fail(
			    comm, HA_ERR_SYSTEM,
			    "path %u.%u on %s:%d cannot be fenced: its queue pairs neither "
			    "drain nor can be destroyed",
			    p, path->generation, path->nic->name, path->port->port_num);
			break;
		}
	}
	return confirmed;
}

static void say(struct ha_comm *comm, uint32_t what)
{
	comm->failover.say |= what;
	ha_progress_wake(comm->inst->progress);
}

/* What this end says from now on has changed: at once, and then at short intervals again. */
static void enter(struct ha_comm *comm, enum ha_failover_state state)
{
	struct ha_failover *fo = &comm->failover;

	HA_TRACE(1, "connection %s: %s -> %s, epoch %u", comm->name,
		 ha_failover_state_name(fo->state), ha_failover_state_name(state), fo->epoch);
	fo->state = (uint8_t)state;
	comm->epoch_changing = state != HA_FO_ACTIVE;
	ha_control_new_statement(comm);
	say(comm, HA_SAY_STATEMENT);
}

/* ---- the peer's knowledge -------------------------------------------------------------------- */

static void merge_window(struct ha_window *into, const struct ha_window *w)
{
	for (; into->base < w->base; into->base++)
		into->bits >>= 1;
	if (into->base - w->base < 64)
		into->bits |= w->bits >> (into->base - w->base);
	while (into->bits & 1) {
		into->bits >>= 1;
		into->base++;
	}
}

/* Merged, never dropped as seen: messages repeat and overtake each other. */
static void merge(struct ha_comm *comm, const struct ha_message *m)
{
	struct ha_failover *fo = &comm->failover;

	merge_window(&fo->peer_window, &m->window);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (m->fenced_gen[p] > fo->slots[p].peer_fenced_gen)
			fo->slots[p].peer_fenced_gen = m->fenced_gen[p];
}

static void fence_as_peer(struct ha_comm *comm, const struct ha_message *m)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (m->fenced_gen[p] > comm->failover.slots[p].want_gen)
			ha_slot_fence(comm, p, m->fenced_gen[p]);
}

/* ---- receiver ------------------------------------------------------------------------------ */

/* The active path is given up: fence it, take the next epoch, say FENCE. */
static void new_epoch(struct ha_comm *comm, enum ha_reason reason)
{
	struct ha_failover *fo = &comm->failover;

	ha_switch_begin(comm, reason);
	ha_shadow_left(comm);
	ha_slot_fence(comm, comm->active, active_gen(comm));
	fo->epoch++;
	fo->resumed = false;
	enter(comm, HA_FO_FENCING);
}

static void r_failed(struct ha_comm *comm, const struct occasion *o)
{
	new_epoch(comm, o->reason);
}

/* Completed by the sender, fenced here, and not there: its write was acknowledged and never placed.
 */
static bool lost_a_message(struct ha_comm *comm)
{
	const struct ha_window *sent = &comm->failover.peer_window, *done = &comm->recv->done;
	uint64_t end = sent->base + 64;

	for (uint64_t seq = done->base; seq < end; seq++)
		if (ha_window_has(sent, seq) && !ha_window_has(done, seq)) {
			ha_comm_fail(
			    comm, HA_ERR_REMOTE,
			    "message %llu is lost: a device that has failed acknowledged it "
			    "and did not write it to memory; HA_NCCL_COMPLETION=e2e "
			    "survives this",
			    (unsigned long long)seq);
			return true;
		}
	return false;
}

/* Nothing can arrive on a fenced generation any more, at either end. */
static bool agreed(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->failover.slots[p].peer_fenced_gen < comm->failover.slots[p].want_gen)
			return false;
	return true;
}

static void resume_on(struct ha_comm *comm, unsigned p)
{
	struct ha_failover *fo = &comm->failover;

	atomic_store_explicit(&comm->epoch, fo->epoch, memory_order_relaxed);
	ha_comm_use_path(comm, (uint8_t)p);
	fo->asked.messages = comm->recv->next_seq - comm->recv->done.base -
			     (uint64_t)__builtin_popcountll(comm->recv->done.bits);
	enter(comm, HA_FO_ACTIVE);
	ha_recv_resume(comm);
	ha_flush_resume(comm);
}

void ha_failover_try_resume(struct ha_comm *comm)
{
	int p;

	if (comm->failover.state != HA_FO_FENCING || !ha_slots_fenced(comm))
		return;
	if (lost_a_message(comm) || !agreed(comm))
		return;
	p = ha_shadow_choose(comm);
	if (p >= 0)
		resume_on(comm, (unsigned)p);
}

static void r_try(struct ha_comm *comm, const struct occasion *o)
{
	(void)o;
	ha_failover_try_resume(comm);
}

/* SUSPECT, FENCED and what else the sender says of itself. */
static void r_merge(struct ha_comm *comm, const struct occasion *o)
{
	const struct ha_message *m = o->m;
	bool names_active = m->kind == HA_MSG_SUSPECT && m->path == comm->active &&
			    m->generation == active_gen(comm);

	merge(comm, m);
	if (comm->failover.state == HA_FO_ACTIVE &&
	    (names_active || m->fenced_gen[comm->active] >= active_gen(comm)))
		new_epoch(comm, m->reason ? (enum ha_reason)m->reason : HA_REASON_PEER);
	fence_as_peer(comm, m);
	if (m->kind == HA_MSG_SUSPECT && m->generation > comm->failover.slots[m->path].want_gen) {
		ha_shadow_failed(comm, m->path);
		ha_slot_fence(comm, m->path, m->generation);
	}
	ha_failover_try_resume(comm);
}

static void r_resumed(struct ha_comm *comm, const struct occasion *o)
{
	struct ha_failover *fo = &comm->failover;

	r_merge(comm, o);
	if (fo->state != HA_FO_ACTIVE || fo->resumed || o->m->epoch != fo->epoch)
		return; /* a late one of an earlier epoch says nothing about this one */
	fo->resumed = true;
	ha_switch_end(comm, &fo->asked);
}

static void r_rebuilt(struct ha_comm *comm, const struct occasion *o)
{
	r_merge(comm, o);
	if (comm->failover.state != HA_FO_LATCHED)
		ha_shadow_rebuilt(comm, o->m);
}

static void r_refused(struct ha_comm *comm, const struct occasion *o)
{
	r_merge(comm, o);
	ha_shadow_refused(comm, o->m);
}

/* ---- sender -------------------------------------------------------------------------------- */

static void s_failed(struct ha_comm *comm, const struct occasion *o)
{
	struct ha_failover *fo = &comm->failover;

	ha_switch_begin(comm, o->reason);
	fo->suspect_path = comm->active;
	fo->suspect_gen = active_gen(comm);
	ha_slot_fence(comm, comm->active, active_gen(comm));
	enter(comm, HA_FO_SUSPECTED);
}

/* Everything is in order to go on as the receiver said. */
static void s_try_resume(struct ha_comm *comm)
{
	struct ha_failover *fo = &comm->failover;
	const struct ha_resume *r = &fo->resume;
	struct ha_replay replay;
	const struct ha_path *path;

	if (fo->state != HA_FO_FENCED || r->epoch != fo->epoch || !ha_slots_fenced(comm))
		return;
	path = comm->paths[r->path];
	if (!ha_path_ready(path) || path->generation != r->generation)
		return;
	atomic_store_explicit(&comm->epoch, fo->epoch, memory_order_relaxed);
	ha_comm_use_path(comm, r->path);
	enter(comm, HA_FO_ACTIVE);
	ha_send_resume(comm, &fo->peer_window, &replay);
	say(comm, HA_SAY_RESUMED);
	ha_switch_end(comm, &replay);
}

/* FENCE and RESUME: a new epoch, and everything up to the watermarks goes out of use. */
static void s_merge(struct ha_comm *comm, const struct occasion *o)
{
	struct ha_failover *fo = &comm->failover;
	const struct ha_message *m = o->m;

	merge(comm, m);
	if (m->epoch > fo->epoch) {
		if (fo->state == HA_FO_ACTIVE) {
			ha_switch_begin(comm,
					m->reason ? (enum ha_reason)m->reason : HA_REASON_PEER);
			ha_slot_fence(comm, comm->active, active_gen(comm));
		}
		fo->epoch = m->epoch;
		enter(comm, HA_FO_FENCED);
	}
	fence_as_peer(comm, m);
	say(comm, HA_SAY_STATEMENT); /* the answer, also to one that was heard before */
}

static void s_resume(struct ha_comm *comm, const struct occasion *o)
{
	struct ha_failover *fo = &comm->failover;
	const struct ha_message *m = o->m;

	s_merge(comm, o);
	if (m->epoch != fo->epoch)
		return; /* of an epoch that is over */
	if (fo->state == HA_FO_ACTIVE) {
		say(comm, HA_SAY_RESUMED); /* it has not heard */
		return;
	}
	fo->resume =
	    (struct ha_resume){.epoch = m->epoch, .path = m->path, .generation = m->generation};
	s_try_resume(comm);
}

static void s_rebuild(struct ha_comm *comm, const struct occasion *o)
{
	merge_window(&comm->failover.peer_window, &o->m->window);
	/* While it is active, what it has completed is still growing: the FENCE comes first. */
	if (!is_active(comm, o->m->path))
		ha_rebuild_answer(comm, o->m);
}

static void s_drained(struct ha_comm *comm, const struct occasion *o)
{
	(void)o;
	if (ha_slots_fenced(comm))
		say(comm, HA_SAY_STATEMENT);
	s_try_resume(comm);
}

/* ---- both ---------------------------------------------------------------------------------- */

static void nothing(struct ha_comm *comm, const struct occasion *o)
{
	(void)comm;
	(void)o;
}

/* No peer of ours says this to this end, and no event of ours comes here. */
static void impossible(struct ha_comm *comm, const struct occasion *o)
{
	ha_comm_fail(comm, HA_ERR_INTERNAL, "the failover protocol is broken: %s %s in state %s",
		     comm->is_send ? "sender" : "receiver",
		     o->m ? ha_message_name(o->m->kind) : "event",
		     ha_failover_state_name(comm->failover.state));
}

static void answer_abort(struct ha_comm *comm, const struct occasion *o)
{
	(void)o;
	say(comm, HA_SAY_ABORT);
}

static void aborted(struct ha_comm *comm, const struct occasion *o)
{
	struct ha_abort given_up = {.epoch = o->m->epoch, .code = o->m->code};

	ha_comm_peer_aborted(comm, &given_up);
}

static void closed(struct ha_comm *comm, const struct occasion *o)
{
	struct ha_bye bye = {.done = o->m->window.base, .done_bits = o->m->window.bits};

	merge_window(&comm->failover.peer_window, &o->m->window);
	comm->failover.state = HA_FO_CLOSED;
	ha_comm_peer_bye(comm, &bye);
}

static void expired(struct ha_comm *comm, const struct occasion *o)
{
	(void)o;
	ha_comm_fail(
	    comm, HA_ERR_REMOTE,
	    "no path to the peer for %llu ms (last failure: %s); longer outages are survived "
	    "with HA_NCCL_OUTAGE_MS",
	    (unsigned long long)(comm->failover.outage_ns / HA_NS_PER_MS),
	    ha_reason_text(comm->failover.now.reason));
}

/* No path may bring anything any more to memory that is given back after an error. */
static void give_up(struct ha_comm *comm, const struct occasion *o)
{
	(void)o;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		ha_slot_fence(comm, p, comm->failover.slots[p].newest_gen);
	enter(comm, HA_FO_LATCHED);
	say(comm, HA_SAY_ABORT);
}

/* ---- the tables ----------------------------------------------------------------------------- */

/* clang-format off */
static const handler receiver[HA_FO_STATES][EVENTS] = {
	/*                     ACTIVE                        FENCING */
#define ROW(event, active, fencing, latched, closed)                                               \
	[HA_FO_ACTIVE][event] = (active), [HA_FO_FENCING][event] = (fencing),                      \
	[HA_FO_LATCHED][event] = (latched), [HA_FO_CLOSED][event] = (closed),
	ROW(EV_FAILED,   r_failed,   nothing,    nothing,      nothing)
	ROW(EV_SUSPECT,  r_merge,    r_merge,    answer_abort, nothing)
	ROW(EV_FENCED,   r_merge,    r_merge,    answer_abort, nothing)
	ROW(EV_RESUMED,  r_resumed,  r_merge,    answer_abort, nothing)
	ROW(EV_REBUILT,  r_rebuilt,  r_rebuilt,  answer_abort, nothing)
	ROW(EV_REFUSED,  r_refused,  r_refused,  answer_abort, nothing)
	ROW(EV_FENCE,    impossible, impossible, nothing,      nothing)
	ROW(EV_RESUME,   impossible, impossible, nothing,      nothing)
	ROW(EV_REBUILD,  impossible, impossible, nothing,      nothing)
	ROW(EV_DRAINED,  nothing,    r_try,      nothing,      nothing)
	ROW(EV_PROVED,   nothing,    r_try,      nothing,      nothing)
	ROW(EV_DEADLINE, nothing,    expired,    nothing,      nothing)
	ROW(EV_GIVE_UP,  give_up,    give_up,    nothing,      give_up)
	ROW(EV_ABORT,    aborted,    aborted,    nothing,      nothing)
	ROW(EV_BYE,      closed,     closed,     nothing,      nothing)
#undef ROW
};

static const handler sender[HA_FO_STATES][EVENTS] = {
#define ROW(event, active, suspected, fenced, latched, closed)                                     \
	[HA_FO_ACTIVE][event] = (active), [HA_FO_SUSPECTED][event] = (suspected),                  \
	[HA_FO_FENCED][event] = (fenced), [HA_FO_LATCHED][event] = (latched),                      \
	[HA_FO_CLOSED][event] = (closed),
	/*                ACTIVE      SUSPECTED   FENCED      LATCHED       CLOSED */
	ROW(EV_FAILED,    s_failed,   nothing,    nothing,    nothing,      nothing)
	ROW(EV_FENCE,     s_merge,    s_merge,    s_merge,    answer_abort, nothing)
	ROW(EV_RESUME,    s_resume,   s_resume,   s_resume,   answer_abort, nothing)
	ROW(EV_REBUILD,   s_rebuild,  s_rebuild,  s_rebuild,  answer_abort, nothing)
	ROW(EV_SUSPECT,   impossible, impossible, impossible, nothing,      nothing)
	ROW(EV_FENCED,    impossible, impossible, impossible, nothing,      nothing)
	ROW(EV_RESUMED,   impossible, impossible, impossible, nothing,      nothing)
	ROW(EV_REBUILT,   impossible, impossible, impossible, nothing,      nothing)
	ROW(EV_REFUSED,   impossible, impossible, impossible, nothing,      nothing)
	ROW(EV_DRAINED,   s_drained,  s_drained,  s_drained,  nothing,      nothing)
	ROW(EV_PROVED,    nothing,    nothing,    nothing,    nothing,      nothing)
	ROW(EV_DEADLINE,  nothing,    expired,    expired,    nothing,      nothing)
	ROW(EV_GIVE_UP,   give_up,    give_up,    give_up,    nothing,      give_up)
	ROW(EV_ABORT,     aborted,    aborted,    aborted,    nothing,      nothing)
	ROW(EV_BYE,       closed,     closed,     closed,     nothing,      nothing)
#undef ROW
};
/* clang-format on */

static void step(struct ha_comm *comm, const struct occasion *o)
{
	unsigned state = comm->failover.state;
	handler handle = comm->is_send ? sender[state][o->event] : receiver[state][o->event];

	(handle ? handle : impossible)(comm, o);
}

/* ---- what happens --------------------------------------------------------------------------- */

static bool is_current(const struct ha_comm *comm, const struct ha_path *path)
{
	return comm->paths[path->index] == path && !ha_path_stopped(path);
}

/* A standby that fails while nothing was resumed on it needs no new epoch. */
static void standby_failed(struct ha_comm *comm, const struct ha_path *path)
{
	HA_INFO(HA_SUBSYS_NET, "connection %s: standby path %u.%u on %s:%d is given up", comm->name,
		path->index, path->generation, path->nic->name, path->port->port_num);
	if (comm->is_send)
		say(comm, HA_SAY_SUSPECT << path->index);
	else
		ha_shadow_failed(comm, path->index);
	ha_slot_fence(comm, path->index, path->generation);
	ha_progress_wake(comm->inst->progress);
}

void ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (!comm->failover.enabled) {
		ha_comm_fail(comm, HA_ERR_SYSTEM, "%s: %s", ha_reason_text(reason), text);
		ha_path_fence(path);
		return;
	}
	if (!is_current(comm, path) || comm->failover.state == HA_FO_CLOSED ||
	    comm->failover.state == HA_FO_LATCHED)
		return;
	HA_INFO(HA_SUBSYS_NET, "connection %s: path %u.%u on %s:%d: %s: %s", comm->name,
		path->index, path->generation, path->nic->name, path->port->port_num,
		ha_reason_text(reason), text);
	if (is_active(comm, path->index))
		step(comm, &(struct occasion){.event = EV_FAILED, .reason = reason});
	else
		standby_failed(comm, path);
}

void ha_failover_leave(struct ha_comm *comm, enum ha_reason reason)
{
	if (comm->failover.state == HA_FO_ACTIVE)
		step(comm, &(struct occasion){.event = EV_FAILED, .reason = reason});
}

static const enum event event_of[HA_MSG_END] = {
    [HA_MSG_SUSPECT] = EV_SUSPECT, [HA_MSG_FENCE] = EV_FENCE,	  [HA_MSG_FENCED] = EV_FENCED,
    [HA_MSG_RESUME] = EV_RESUME,   [HA_MSG_RESUMED] = EV_RESUMED, [HA_MSG_REBUILD] = EV_REBUILD,
    [HA_MSG_REBUILT] = EV_REBUILT, [HA_MSG_REFUSED] = EV_REFUSED, [HA_MSG_ABORT] = EV_ABORT,
    [HA_MSG_BYE] = EV_BYE,
};

void ha_failover_hear(struct ha_comm *comm, const struct ha_message *m)
{
	HA_TRACE(2, "connection %s: hears %s, epoch %u, path %u.%u", comm->name,
		 ha_message_name(m->kind), m->epoch, m->path, m->generation);
	ha_control_heard(comm, m);
	switch (m->kind) {
	case HA_MSG_PING:
		say(comm, HA_SAY_PONG);
		return;
	case HA_MSG_PONG:
	case HA_MSG_STATE:
		return;
	default:
		step(comm, &(struct occasion){.event = event_of[m->kind], .m = m});
	}
}

void ha_failover_probed(struct ha_comm *comm, struct ha_path *path)
{
	if (comm->failover.enabled && ha_shadow_proved(comm, path))
		ha_progress_wake(comm->inst->progress);
}

/* ---- the progress thread --------------------------------------------------------------------- */

/* Whether something has to be done before anything else happens. */
static bool busy(const struct ha_comm *comm)
{
	const struct ha_failover *fo = &comm->failover;

	if (fo->say || fo->mail || fo->socket_broken || !ha_slots_fenced(comm))
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

static bool sessions_spoke(const struct ha_failover *fo)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (fo->links[p].down || fo->links[p].up)
			return true;
	return false;
}

/* Heartbeats stopped on these pairs of ports. */
static void heed_sessions(struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_path *path = comm->paths[p];

		if (!comm->failover.links[p].down)
			continue;
		comm->failover.links[p].down = false;
		if (path && ha_path_ready(path))
			ha_failover_trigger(
			    comm, path, HA_REASON_LIVENESS,
			    "no answer from the peer's port for 3 heartbeats of %d ms",
			    comm->config->heartbeat_ms);
	}
}

/* Longer between two visits than this, and we were not running ourselves: it proves nothing. */
#define MAX_TICK_NS (100 * HA_NS_PER_MS)

/*
 * The deadline runs while no path is left, and stands still for a peer that is frozen: whose
 * socket is up and which says nothing at all.
 */
static void count_outage(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = &comm->failover;
	uint64_t tick_ns = now_ns - fo->tick_ns;

	fo->tick_ns = now_ns;
	if (fo->state == HA_FO_ACTIVE || fo->state == HA_FO_CLOSED || fo->state == HA_FO_LATCHED) {
		fo->outage_ns = 0;
		return;
	}
	if (ha_control_peer_frozen(comm, now_ns))
		return;
	fo->outage_ns += tick_ns < MAX_TICK_NS ? tick_ns : MAX_TICK_NS;
	if (fo->outage_ns > ha_control_deadline_ns(comm))
		step_event(comm, EV_DEADLINE);
}

/* Its own errors first: an end that has given up says so and does nothing else. */
static void visit(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = &comm->failover;

	if (ha_comm_error(comm) != HA_OK && fo->state != HA_FO_LATCHED)
		step_event(comm, EV_GIVE_UP);
	heed_sessions(comm);
	ha_control_read_mail(comm);
	if (drain(comm, now_ns))
		step_event(comm, EV_DRAINED);
	if (!comm->is_send && fo->state <= HA_FO_FENCING && ha_shadow_visit(comm, now_ns))
		step_event(comm, EV_PROVED);
	count_outage(comm, now_ns);
	if (ha_comm_error(comm) != HA_OK && fo->state != HA_FO_LATCHED)
		step_event(comm, EV_GIVE_UP);
	ha_control_speak(comm, now_ns);
}

void ha_failover_visit(struct ha_comm *comm)
{
	struct ha_failover *fo = &comm->failover;
	bool failed = ha_comm_error(comm) != HA_OK && fo->state != HA_FO_LATCHED;
	uint64_t now_ns;

	if (!failed && !busy(comm) && !fo->look && !sessions_spoke(fo) && fo->due_ns == 0)
		return;
	now_ns = ha_now_ns();
	if (!failed && !busy(comm) && !fo->look && !sessions_spoke(fo) && now_ns < fo->due_ns)
		return;
	visit(comm, now_ns);
	fo->look = false;
	fo->due_ns = 0;
	if (busy(comm))
		fo->due_ns = now_ns + HA_NS_PER_MS;
	else if (!comm->is_send && fo->state == HA_FO_ACTIVE)
		fo->due_ns = ha_shadow_due_ns(comm);
}

void ha_failover_port_changed(struct ha_comm *comm)
{
	if (!comm->failover.enabled)
		return;
	comm->failover.look = true;
	comm->failover.say |= HA_SAY_STATE;
}

void ha_failover_hear_ports(struct ha_comm *comm, const struct ha_ports *ports)
{
	struct ha_failover *fo = &comm->failover;

	if (!fo->enabled || fo->peer_ports.count != 0)
		return; /* said once */
	fo->peer_ports = *ports;
	for (unsigned i = 0; i < ports->count; i++)
		if (ports->offers[i].up)
			fo->peer_ports_up |= 1u << i;
	fo->look = true;
	if (comm->paths[0])
		ha_rebuild_watch(comm, 0);
}

/* ---- life ---------------------------------------------------------------------------------- */

ha_result_t ha_failover_open(struct ha_comm *comm, const struct ha_wire_endpoint *local)
{
	struct ha_failover *fo = &comm->failover;

	fo->enabled = (comm->features & HA_FEATURE_FAILOVER) != 0;
	if (!fo->enabled)
		return HA_OK;
	fo->state = HA_FO_ACTIVE;
	fo->resumed = true; /* the handshake did what RESUME and RESUMED do later */
	fo->epoch = 1;
	fo->sl = local->sl;
	fo->traffic_class = local->traffic_class;
	fo->nqps = local->nqps;
	fo->peer_window.base = 1;
	fo->heard_ns = fo->tick_ns = ha_now_ns();
	fo->slots[0].state = HA_SLOT_UP;
	fo->slots[0].newest_gen = comm->paths[0]->generation;
	fo->slots[0].mailed = true;
	comm->npaths = HA_MAX_PATHS;
	atomic_store_explicit(&comm->epoch, fo->epoch, memory_order_relaxed);
	return ha_shadow_open(comm);
}

static void offer_port(struct ha_comm *comm, struct ha_port *port, struct ha_offer *out)
{
	struct ha_live_endpoint live;
	struct ha_port_addr addr;

	ha_port_addr(port, &addr);
	memset(out, 0, sizeof(*out));
	out->link_layer = addr.link_layer;
	out->port_num = port->port_num;
	out->up = ha_port_usable(port);
	out->lid = addr.lid;
	out->speed_mbps = (uint32_t)port->speed_mbps;
	out->guid = port->nic->guid;
	memcpy(out->gid, addr.gid.raw, sizeof(out->gid));
	ha_copy_text(out->device, sizeof(out->device), port->nic->name);
	if (ha_liveness_endpoint(comm->inst->liveness, port, &live)) {
		out->live_qpn = live.qpn;
		out->live_id = live.id;
	}
}

void ha_failover_start(struct ha_comm *comm)
{
	const struct ha_failover *fo = &comm->failover;
	struct ha_ports ports = {.count = fo->noffers};
	uint8_t payload[HA_PORTS_MAX_BYTES];
	size_t length;

	if (!fo->enabled)
		return;
	for (unsigned i = 0; i < fo->noffers; i++)
		offer_port(comm, fo->offers[i], &ports.offers[i]);
	length = ha_ports_encode(&ports, payload);
	if (!ha_lane_say(comm->lane, HA_FRAME_PORTS, payload, (uint32_t)length))
		HA_WARN("connection %s: the peer cannot be told of our ports: no standby path",
			comm->name);
}

void ha_failover_free(struct ha_comm *comm)
{
	ha_shadow_free(comm);
}
