/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking generations of a path out of use: from the wish that everything up to a watermark be
 * fenced to the confirmation that it is.
 */
#include "ha/machine.h"

#include "base/log.h"
#include "transport/comm.h"

uint32_t ha_active_generation(const struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);

	return path ? path->generation : 0;
}

bool ha_is_active(const struct ha_comm *comm, unsigned p)
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
bool ha_slots_drain(struct ha_comm *comm, uint64_t now_ns)
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
