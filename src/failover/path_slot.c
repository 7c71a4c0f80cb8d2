/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/path_slot.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/usdt.h"
#include "failover/engine.h"
#include "failover/notes.h"
#include "failover/preregister.h"
#include "failover/standby.h"
#include "transport/comm.h"
#include "transport/fence.h"
#include "transport/flush_old.h"
#include "transport/path_close.h"
#include "transport/shared.h"

/* ---- the table ------------------------------------------------------------------------------ */

#define ROW(state) [HA_SLOT_##state]
#define ON(event)  [HA_SLOT_ON_##event]
#define TO(next, action)                                                                           \
	{                                                                                          \
		HA_SLOT_##next, HA_SLOT_##action                                                   \
	}

static const struct ha_slot_step table[HA_SLOT_COUNT][HA_SLOT_EVENT_COUNT] =
    {
	ROW(EMPTY) =
	    {
		ON(OPENS) = TO(OPENING, NOTHING),
		ON(OPENED) = TO(EMPTY, IMPOSSIBLE),
		ON(CONNECTS) = TO(EMPTY, IMPOSSIBLE),
		ON(CONNECTED) = TO(EMPTY, IMPOSSIBLE),
		ON(PROVED) = TO(EMPTY, NOTHING), /* late news of a generation that is fenced */
		ON(MISSED) = TO(EMPTY, NOTHING),
		/* The ports reach each other again: build, do not wait. */
		ON(ANSWERED) = TO(EMPTY, RETRY),
		ON(EXPIRED) = TO(EMPTY, NOTHING),
		ON(FENCED) = TO(EMPTY, NOTHING),
	    },
	ROW(OPENING) =
	    {
		ON(OPENS) = TO(OPENING, IMPOSSIBLE),
		ON(OPENED) = TO(REBUILDING, NOTHING),
		/* The sender knows the peer's end before it makes its own. */
		ON(CONNECTS) = TO(CONNECTING, NOTHING),
		ON(CONNECTED) = TO(OPENING, IMPOSSIBLE),
		ON(PROVED) = TO(OPENING, NOTHING),
		ON(MISSED) = TO(OPENING, NOTHING),
		ON(ANSWERED) = TO(OPENING, RETRY),
		ON(EXPIRED) = TO(OPENING, NOTHING),
		ON(FENCED) = TO(EMPTY, NOTHING),
	    },
	ROW(REBUILDING) =
	    {
		ON(OPENS) = TO(REBUILDING, IMPOSSIBLE),
		ON(OPENED) = TO(REBUILDING, IMPOSSIBLE),
		ON(CONNECTS) = TO(CONNECTING, NOTHING),
		ON(CONNECTED) = TO(REBUILDING, IMPOSSIBLE),
		ON(PROVED) = TO(REBUILDING, NOTHING),
		ON(MISSED) = TO(REBUILDING, NOTHING),
		ON(ANSWERED) = TO(REBUILDING, RETRY),
		ON(EXPIRED) = TO(REBUILDING, NOTHING),
		ON(FENCED) = TO(EMPTY, NOTHING),
	    },
	ROW(CONNECTING) =
	    {
		ON(OPENS) = TO(CONNECTING, IMPOSSIBLE),
		ON(OPENED) = TO(CONNECTING, IMPOSSIBLE),
		ON(CONNECTS) = TO(CONNECTING, IMPOSSIBLE),
		ON(CONNECTED) = TO(PROBING, NOTHING),
		ON(PROVED) = TO(CONNECTING, NOTHING),
		ON(MISSED) = TO(CONNECTING, NOTHING),
		ON(ANSWERED) = TO(CONNECTING, RETRY),
		ON(EXPIRED) = TO(CONNECTING, NOTHING),
		ON(FENCED) = TO(EMPTY, NOTHING),
	    },
	ROW(PROBING) =
	    {
		ON(OPENS) = TO(PROBING, IMPOSSIBLE),
		ON(OPENED) = TO(PROBING, IMPOSSIBLE),
		ON(CONNECTS) = TO(PROBING, IMPOSSIBLE),
		ON(CONNECTED) = TO(PROBING, IMPOSSIBLE),
		ON(PROVED) = TO(GOOD, NOTHING),
		/* The probe decides. */
		ON(MISSED) = TO(PROBING, NOTHING),
		ON(ANSWERED) = TO(PROBING, NOTHING),
		ON(EXPIRED) = TO(PROBING, LEAVE),
		ON(FENCED) = TO(EMPTY, NOTHING),
	    },
	ROW(GOOD) =
	    {
		ON(OPENS) = TO(GOOD, IMPOSSIBLE),
		ON(OPENED) = TO(GOOD, IMPOSSIBLE),
		ON(CONNECTS) = TO(GOOD, IMPOSSIBLE),
		ON(CONNECTED) = TO(GOOD, IMPOSSIBLE),
		ON(PROVED) = TO(GOOD, NOTHING),
		ON(MISSED) = TO(SUSPECTED, PREREGISTER),
		ON(ANSWERED) = TO(GOOD, NOTHING),
		ON(EXPIRED) = TO(GOOD, LEAVE),
		ON(FENCED) = TO(EMPTY, NOTHING),
	    },
	ROW(SUSPECTED) =
	    {
		ON(OPENS) = TO(SUSPECTED, IMPOSSIBLE),
		ON(OPENED) = TO(SUSPECTED, IMPOSSIBLE),
		ON(CONNECTS) = TO(SUSPECTED, IMPOSSIBLE),
		ON(CONNECTED) = TO(SUSPECTED, IMPOSSIBLE),
		/* The queue pair works; the heartbeats are still missing. */
		ON(PROVED) = TO(SUSPECTED, NOTHING),
		ON(MISSED) = TO(SUSPECTED, NOTHING),
		ON(ANSWERED) = TO(GOOD, RELAX),
		ON(EXPIRED) = TO(SUSPECTED, LEAVE),
		ON(FENCED) = TO(EMPTY, NOTHING),
	    },
};

struct ha_slot_step ha_slot_next(enum ha_slot_state state, enum ha_slot_event event)
{
	return table[state][event];
}

static const char *const state_names[HA_SLOT_COUNT] = {
#define NAME(name, text) [HA_SLOT_##name] = (text),
    HA_SLOT_STATES(NAME)
#undef NAME
};

static const char *const event_names[HA_SLOT_EVENT_COUNT] = {
#define NAME(name, text) [HA_SLOT_ON_##name] = (text),
    HA_SLOT_EVENTS(NAME)
#undef NAME
};

const char *ha_slot_state_name(unsigned state)
{
	return state < HA_SLOT_COUNT ? state_names[state] : "unknown";
}

const char *ha_slot_event_name(unsigned event)
{
	return event < HA_SLOT_EVENT_COUNT ? event_names[event] : "unknown";
}

/* ---- steps ---------------------------------------------------------------------------------- */

void ha_slot_begin(struct ha_slot *slot, uint32_t generation)
{
	slot->state = HA_SLOT_GOOD;
	slot->newest_gen = generation;
}

static void leave(struct ha_comm *comm, unsigned p)
{
	struct ha_path *path = comm->paths[p];

	if (ha_path_ready(path))
		ha_failover_trigger(comm, path, HA_REASON_LIVENESS,
				    "heartbeats to the peer's port are not answered any more");
}

static void act(struct ha_comm *comm, unsigned p, enum ha_slot_action action, const char *state,
		const char *event)
{
	switch (action) {
	case HA_SLOT_NOTHING:
		break;
	case HA_SLOT_PREREGISTER:
		ha_preregister(comm, p);
		break;
	case HA_SLOT_RELAX:
		HA_TRACE(1, "connection %s: path %u answers again", comm->name, p);
		break;
	case HA_SLOT_LEAVE:
		leave(comm, p);
		break;
	case HA_SLOT_RETRY:
		ha_standby_retry(comm, p);
		break;
	case HA_SLOT_IMPOSSIBLE:
		ha_comm_fail(comm, HA_ERR_INTERNAL,
			     "the failover protocol is broken: path %u is %s, and now: %s", p,
			     state, event);
		break;
	}
}

void ha_slot_on(struct ha_comm *comm, unsigned p, enum ha_slot_event event)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	const char *before = ha_slot_state_name(slot->state);
	struct ha_slot_step step = ha_slot_next(slot->state, event);

	if (step.next != slot->state) {
		HA_TRACE(1, "connection %s: path %u is %s: %s", comm->name, p,
			 ha_slot_state_name(step.next), ha_slot_event_name(event));
		HA_USDT5(path_health, ha_comm_number(comm), (int)comm->is_send, p, before,
			 ha_slot_state_name(step.next));
	}
	HA_INVARIANT(p < HA_MAX_PATHS && event < HA_SLOT_EVENT_COUNT);
	HA_INVARIANT(step.next != HA_SLOT_REBUILDING || !comm->is_send);
	slot->state = step.next;
	act(comm, p, step.action, before, ha_slot_event_name(event));
}

/* ---- going out of use ------------------------------------------------------------------------ */

uint32_t ha_active_generation(const struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);

	return path ? path->generation : 0;
}

bool ha_is_active(const struct ha_comm *comm, unsigned p)
{
	return comm->failover->state == HA_FO_ACTIVE && comm->active == p;
}

bool ha_carries(const struct ha_comm *comm, unsigned p)
{
	const struct ha_path *path = comm->paths[p];

	return comm->failover->state == HA_FO_ACTIVE && path && path->carried &&
	       path->generation > comm->failover->slots[p].want_gen;
}

/* Out of use, to be closed when there is time. */
static void retire(struct ha_comm *comm, struct ha_path *path)
{
	HA_INVARIANT(ha_path_stopped(path) && !path->next_retired);
	HA_INVARIANT(path != comm->clear && path != comm->paths[path->index]);
	path->next_retired = comm->failover->retired;
	comm->failover->retired = path;
}

/* What came over it may still have to be flushed. */
static void fence_left(struct ha_comm *comm, struct ha_path *path)
{
	ha_flush_old_keep(comm, path);
	ha_path_fence(path);
}

void ha_slot_fence(struct ha_comm *comm, unsigned p, uint32_t generation)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	struct ha_path *path = comm->paths[p];

	if (generation > slot->want_gen)
		slot->want_gen = generation;
	if (generation > slot->newest_gen)
		slot->newest_gen = generation;
	if ((path && path->generation > slot->want_gen) ||
	    (slot->opening && slot->opening->generation > slot->want_gen))
		return;
	slot->notes.proved = false; /* of what is fenced */
	if (slot->opening) {	    /* nothing was ever posted on it */
		ha_path_fence(slot->opening);
		retire(comm, slot->opening);
		slot->opening = NULL;
	}
	ha_slot_on(comm, p, HA_SLOT_ON_FENCED);
	if (comm->failover->state == HA_FO_FENCING)
		comm->failover->say |= HA_SAY_STATEMENT; /* with the new watermark */
	if (path)
		fence_left(comm, path); /* drain() confirms it */
	else if (!slot->yielded)
		slot->fenced_gen = slot->want_gen; /* there is nothing that could carry them */
}

/* ---- without the NIC's word ------------------------------------------------------------------ */

/* A command that is not back by then is likely to take long. */
#define YIELD_NS (25 * HA_NS_PER_MS)

/* What the network may hold a packet for: see docs/protocol.md. */
#define HA_PACKET_LIFETIME_NS (20 * HA_NS_PER_MS)

static uint32_t highest(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static bool is_stopped(const struct ha_slot *slot)
{
	return highest(slot->fenced_gen, slot->yielded_gen) >= slot->want_gen;
}

bool ha_slots_stopped(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (!is_stopped(&comm->failover->slots[p]))
			return false;
	return true;
}

bool ha_slot_is_final(const struct ha_slot *slot)
{
	return highest(slot->fenced_gen, slot->settled_gen) >= slot->want_gen;
}

static bool is_agreed(const struct ha_slot *slot)
{
	bool both = slot->fenced_gen >= slot->want_gen && slot->peer_fenced_gen >= slot->want_gen;

	return highest(slot->peer_fenced_gen, slot->peer_yielded_gen) >= slot->want_gen &&
	       (both || slot->settled_gen >= slot->want_gen);
}

bool ha_slots_agreed(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (!is_agreed(&comm->failover->slots[p]))
			return false;
	return true;
}

/* The NIC has had the time that a healthy one takes, and nothing else of the path's is under way.
 */
static bool is_overdue(const struct ha_path *path, uint64_t now_ns)
{
	return path && ha_path_stopped(path) && (ha_path_away(path) || ha_path_unconfirmed(path)) &&
	       now_ns >= path->fencing_since_ns + YIELD_NS;
}

/* Of a path that has carried traffic nothing is claimed, or relied on, that its NIC refuses. */
static bool is_refused(const struct ha_path *path, enum ha_fence fence)
{
	return fence == HA_FENCE_FAILED && path->carried;
}

/* Takes what has completed for the last time. */
static bool yield(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	struct ha_path *path = comm->paths[p];
	enum ha_fence fence;

	HA_INVARIANT(comm->is_send);
	if (slot->fenced_gen >= slot->want_gen)
		return false;
	if (slot->yielded) { /* what is ordered since has nothing that could carry it */
		bool more = slot->yielded_gen < slot->want_gen;

		slot->yielded_gen = slot->want_gen;
		return more;
	}
	if (!is_overdue(path, now_ns))
		return false;
	fence = ha_path_fenced(comm, path, now_ns);
	if (fence == HA_FENCE_DONE || is_refused(path, fence))
		return false;
	HA_INFO_LIMITED(
	    HA_SUBSYS_NET,
	    "connection %s: %s does not confirm that path %u.%u is fenced: relying on the peer",
	    comm->name, path->nic->name, p, path->generation);
	ha_path_unheard(path);
	comm->paths[p] = NULL;
	slot->yielded = path;
	slot->yielded_gen = slot->want_gen;
	return true;
}

/* One end's fence is enough when what was under way has arrived or is lost. */
static bool settle(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	struct ha_path *path = comm->paths[p];

	if (is_agreed(slot) || slot->settled_gen >= slot->want_gen ||
	    highest(slot->fenced_gen, slot->peer_fenced_gen) < slot->want_gen) {
		slot->lone_fence_ns = 0;
		return false;
	}
	if (slot->lone_fence_ns == 0 || slot->lone_gen != slot->want_gen) {
		slot->lone_fence_ns = now_ns;
		slot->lone_gen = slot->want_gen;
	}
	if (now_ns < slot->lone_fence_ns + HA_PACKET_LIFETIME_NS)
		return false;
	slot->lone_fence_ns = 0;
	if (path && path->generation <= slot->want_gen) {
		(void)ha_path_fenced(comm, path, now_ns); /* takes what has completed */
		path->settled = true;
	}
	slot->settled_gen = slot->want_gen;
	return true;
}

bool ha_slots_go_without(struct ha_comm *comm, uint64_t now_ns)
{
	bool changed = false;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		changed |= comm->is_send ? yield(comm, p, now_ns) : settle(comm, p, now_ns);
	ha_slots_peer_fenced(comm);
	return changed;
}

static void settle_up_to(struct ha_path *path, uint32_t generation)
{
	if (path && path->generation <= generation)
		path->settled = true;
}

void ha_slots_peer_goes_on(struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		settle_up_to(comm->failover->slots[p].yielded,
			     comm->failover->slots[p].peer_fenced_gen);
}

void ha_slots_peer_fenced(struct ha_comm *comm)
{
	for (unsigned p = 0; comm->is_send && p < HA_MAX_PATHS; p++) {
		const struct ha_slot *slot = &comm->failover->slots[p];

		settle_up_to(slot->yielded, slot->peer_yielded_gen);
		settle_up_to(comm->paths[p], slot->peer_yielded_gen);
	}
}

bool ha_slot_waits(const struct ha_comm *comm, unsigned p)
{
	const struct ha_slot *slot = &comm->failover->slots[p];

	return comm->is_send ? !is_stopped(slot) : !ha_slot_is_final(slot);
}

bool ha_slots_wait(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_slot_waits(comm, p))
			return true;
	return false;
}

bool ha_slots_fencing(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_path *yielded = comm->failover->slots[p].yielded;

		if ((comm->paths[p] && ha_path_fencing(comm->paths[p])) ||
		    (yielded && ha_path_fencing(yielded)))
			return true;
	}
	return false;
}

const struct ha_path *ha_slots_unconfirmed(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_path *yielded = comm->failover->slots[p].yielded;

		if (comm->paths[p] && ha_path_unconfirmed(comm->paths[p]))
			return comm->paths[p];
		if (yielded && ha_path_unconfirmed(yielded))
			return yielded;
	}
	return NULL;
}

/* ---- confirmation ---------------------------------------------------------------------------- */

static bool drain_yielded(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_slot *slot = &comm->failover->slots[p];

	if (!slot->yielded || ha_path_fenced(comm, slot->yielded, now_ns) != HA_FENCE_DONE)
		return false; /* a NIC that cannot destroy may yet come to it */
	retire(comm, slot->yielded);
	slot->yielded = NULL;
	slot->fenced_gen = slot->want_gen;
	comm->failover->say |= HA_SAY_STATE; /* nothing else would tell of it */
	return true;
}

/* Receiver: the sender's fence was enough. What arrived over the path has counted for the last
 * time, and traffic may run elsewhere. */
static bool is_settled(const struct ha_slot *slot, const struct ha_path *path)
{
	return slot->settled_gen >= path->generation;
}

/* Asks after the fences that are under way. True: one was confirmed. */
bool ha_slots_drain(struct ha_comm *comm, uint64_t now_ns)
{
	bool confirmed = false;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_slot *slot = &comm->failover->slots[p];
		struct ha_path *path = comm->paths[p];

		confirmed |= drain_yielded(comm, p, now_ns);
		if (!path || !ha_path_stopped(path) || slot->notes.failed_gen == path->generation)
			continue; /* what was noted of it comes first */
		switch (ha_path_fenced(comm, path, now_ns)) {
		case HA_FENCE_PENDING:
			break;
		case HA_FENCE_DONE:
			comm->paths[p] = NULL;
			retire(comm, path);
			HA_INVARIANT(!slot->opening && !slot->yielded);
			slot->fenced_gen = slot->want_gen;
			HA_USDT4(failover_fence, ha_comm_number(comm), (int)comm->is_send, p,
				 slot->fenced_gen);
			confirmed = true;
			break;
		case HA_FENCE_FAILED:
			if (!path->carried)
				break; /* the peer's fence will do, and traffic goes on meanwhile */
			ha_path_unheard(path); /* asked again until it is gone */
			if (is_settled(slot, path))
				break;
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

/*
 * While the sender's NIC does not confirm its own fence, it may still send to our queue pair: kept
 * in ERR, its number is nobody else's.
 */
static bool is_kept(const struct ha_comm *comm, const struct ha_path *path)
{
	const struct ha_slot *slot = &comm->failover->slots[path->index];

	return !comm->is_send && slot->peer_fenced_gen < path->generation &&
	       slot->peer_yielded_gen >= path->generation;
}

/* A fenced path harms nobody: what is left of it is destroyed when there is time. */
void ha_slots_tidy(struct ha_comm *comm)
{
	struct ha_path **at = &comm->failover->retired;

	while (*at) {
		struct ha_path *path = *at, *next = path->next_retired;

		if (is_kept(comm, path) || path->flush.kept || ha_path_closing(path))
			at = &path->next_retired;
		else
			*at = next;
	}
}

uint64_t ha_slots_tidy_ns(const struct ha_comm *comm)
{
	uint64_t soonest_ns = 0;

	for (const struct ha_path *path = comm->failover->retired; path; path = path->next_retired)
		if (!ha_path_away(path) && !is_kept(comm, path) && !path->flush.kept)
			soonest_ns = ha_earlier_ns(soonest_ns, path->destroyed || !path->destroy_ns
								   ? 1
								   : path->destroy_ns);
	return soonest_ns;
}
