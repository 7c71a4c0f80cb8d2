/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking generations of a path out of use: from the wish that everything up to a watermark be
 * fenced to the confirmation that it is.
 */
#include "failover/fsm.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/usdt.h"
#include "failover/engine.h"
#include "failover/preregister.h"
#include "failover/standby.h"
#include "transport/comm.h"
#include "transport/shared.h"

uint32_t ha_active_generation(const struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);

	return path ? path->generation : 0;
}

bool ha_is_active(const struct ha_comm *comm, unsigned p)
{
	return comm->failover->state == HA_FO_ACTIVE && comm->active == p;
}

void ha_slot_fence(struct ha_comm *comm, unsigned p, uint32_t generation)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	struct ha_path *path = comm->paths[p];

	if (generation > slot->want_gen)
		slot->want_gen = generation;
	if (generation > slot->newest_gen)
		slot->newest_gen = generation;
	if (path && path->generation > slot->want_gen)
		return;
	slot->state = HA_SLOT_EMPTY;
	ha_slot_heed(comm, p, HA_HEALTH_EVENT_FENCED);
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

		if (!path || !ha_path_stopped(path))
			continue;
		switch (ha_path_fenced(comm, path, now_ns)) {
		case HA_FENCE_PENDING:
			break;
		case HA_FENCE_DONE:
			comm->paths[p] = NULL;
			path->next_retired = comm->failover->retired;
			comm->failover->retired = path;
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

/* ---- health -------------------------------------------------------------------------------- */

static void leave(struct ha_comm *comm, unsigned p)
{
	struct ha_path *path = comm->paths[p];

	if (ha_path_ready(path))
		ha_failover_trigger(comm, path, HA_REASON_LIVENESS,
				    "no answer from the peer's port for 3 heartbeats of %d ms",
				    comm->config->heartbeat_ms);
}

void ha_slot_heed(struct ha_comm *comm, unsigned p, enum ha_health_event event)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	struct ha_health_step step = ha_health_step(slot->health, event);

	if (step.next != slot->health) {
		HA_TRACE(1, "connection %s: path %u is %s: %s", comm->name, p,
			 ha_health_name(step.next), ha_health_event_name(event));
		HA_USDT5(path_health, ha_comm_number(comm), (int)comm->is_send, p,
			 ha_health_name(slot->health), ha_health_name(step.next));
	}
	slot->health = step.next;
	switch (step.action) {
	case HA_HEALTH_PREPARE:
		ha_prepare(comm, p);
		break;
	case HA_HEALTH_RELAX:
		HA_TRACE(1, "connection %s: path %u answers again", comm->name, p);
		break;
	case HA_HEALTH_LEAVE:
		leave(comm, p);
		break;
	case HA_HEALTH_RETRY:
		ha_shadow_retry(comm, p);
		break;
	case HA_HEALTH_PROBE: /* the receiver does, when both ends are connected */
	default:
		break;
	}
}
