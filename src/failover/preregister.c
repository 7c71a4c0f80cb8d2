/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/preregister.h"

#include "base/log.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "memory/mr.h"
#include "transport/comm.h"
#include "transport/recv.h"
#include "transport/send.h"

/* What fails here is tried again, and reported, when the path is really needed. */
static void register_on(struct ha_mr *mr, struct ha_nic *nic)
{
	struct ibv_mr *unused;

	if (mr && ha_mr_on(mr, nic, &unused) != HA_OK)
		HA_TRACE(1, "memory of a request cannot be registered on %s ahead of need",
			 nic->name);
}

static void register_sends(struct ha_comm *comm, struct ha_nic *nic)
{
	struct ha_send_side *s = comm->send;

	for (uint64_t seq = s->completed.base; seq != s->match_seq; seq++) {
		const struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

		if (group->state != HA_GROUP_POSTED && group->state != HA_GROUP_MATCHED)
			continue;
		for (unsigned i = 0; i < group->n; i++)
			register_on(group->reqs[i]->mr, nic);
	}
}

static void register_receives(struct ha_comm *comm, struct ha_nic *nic)
{
	struct ha_recv_side *r = comm->recv;

	for (uint64_t seq = r->done.base; seq != r->next_seq; seq++) {
		const struct ha_recv_slot *slot = &r->slots[seq & comm->slot_mask];

		if (ha_window_has(&r->done, seq))
			continue;
		for (unsigned i = 0; i < slot->n; i++)
			register_on(slot->mrs[i], nic);
	}
}

void ha_prepare(struct ha_comm *comm, unsigned p)
{
	unsigned ready = 0;

	if (!ha_is_active(comm, p))
		return;
	for (unsigned q = 0; q < HA_MAX_PATHS; q++) {
		const struct ha_path *path = comm->paths[q];

		if (q == p || comm->failover->slots[q].state < HA_SLOT_PROBING ||
		    !ha_path_ready(path))
			continue;
		ready++;
		if (comm->is_send)
			register_sends(comm, path->nic);
		else
			register_receives(comm, path->nic);
	}
	/* The session warns; it is the same for all connections over these ports. */
	HA_TRACE(1, "connection %s: path %u is suspected, %u path(s) in reserve are ready",
		 comm->name, p, ready);
}
