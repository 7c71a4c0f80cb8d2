/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/path_slot.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/usdt.h"
#include "failover/engine.h"
#include "failover/preregister.h"
#include "failover/standby.h"
#include "transport/comm.h"
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
		ON(MISSED) = TO(SUSPECTED, PREPARE),
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
				    "no answer from the peer's port for 3 heartbeats of %d ms",
				    comm->config->heartbeat_ms);
}

static void act(struct ha_comm *comm, unsigned p, enum ha_slot_action action, const char *state,
		const char *event)
{
	switch (action) {
	case HA_SLOT_NOTHING:
		break;
	case HA_SLOT_PREPARE:
		ha_prepare(comm, p);
		break;
	case HA_SLOT_RELAX:
		HA_TRACE(1, "connection %s: path %u answers again", comm->name, p);
		break;
	case HA_SLOT_LEAVE:
		leave(comm, p);
		break;
	case HA_SLOT_RETRY:
		ha_shadow_retry(comm, p);
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

/* Out of use, to be closed when there is time. */
static void retire(struct ha_comm *comm, struct ha_path *path)
{
	path->next_retired = comm->failover->retired;
	comm->failover->retired = path;
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
		ha_path_fence(path); /* drain() confirms it */
	else
		slot->fenced_gen = slot->want_gen; /* there is nothing that could carry them */
}

bool ha_slots_fenced(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->failover->slots[p].fenced_gen < comm->failover->slots[p].want_gen)
			return false;
	return true;
}

/* Asks after the fences that are under way. True: one was confirmed. */
bool ha_slots_drain(struct ha_comm *comm, uint64_t now_ns)
{
	bool confirmed = false;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_slot *slot = &comm->failover->slots[p];
		struct ha_path *path = comm->paths[p];

		if (!path || !ha_path_stopped(path) || slot->notes.failed_gen == path->generation)
			continue; /* what was noted of it comes first */
		switch (ha_path_fenced(comm, path, now_ns)) {
		case HA_FENCE_PENDING:
			break;
		case HA_FENCE_DONE:
			comm->paths[p] = NULL;
			retire(comm, path);
			slot->fenced_gen = slot->want_gen;
			HA_USDT4(failover_fence, ha_comm_number(comm), (int)comm->is_send, p,
				 slot->fenced_gen);
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

/* A fenced path harms nobody: what is left of it is destroyed when there is time. */
void ha_slots_tidy(struct ha_comm *comm)
{
	struct ha_path **at = &comm->failover->retired;

	while (*at) {
		struct ha_path *path = *at, *next = path->next_retired;

		if (ha_path_closing(path))
			at = &path->next_retired;
		else
			*at = next;
	}
}

bool ha_slots_untidy(const struct ha_comm *comm)
{
	const struct ha_path *path = comm->failover->retired;

	while (path && ha_path_away(path))
		path = path->next_retired;
	return path;
}
