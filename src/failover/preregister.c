/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/preregister.h"

#include "base/log.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "transport/comm.h"
#include "transport/user_mr.h"

void ha_preregister(struct ha_comm *comm, unsigned p)
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
		ha_comm_register_ahead(comm, path->nic);
	}
	/* The session warns; it is the same for all connections over these ports. */
	HA_TRACE(1, "connection %s: path %u is suspected, %u path(s) in reserve are ready",
		 comm->name, p, ready);
}
