/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/preferred.h"

#include "failover/engine.h"
#include "failover/port_pair.h"
#include "liveness/liveness.h"
#include "liveness/session_report.h"
#include "transport/comm.h"
#include "transport/failover_ops.h"

#include <stdio.h>

/*
 * What a session says. It begins anew with each attempt to build a path between its ports, so one
 * that was never up says that nobody answers if traffic had to leave.
 */
static uint32_t marks_of_heartbeats(const struct ha_session *session, bool left)
{
	if (!session)
		return 0;
	switch (ha_session_state(session)) {
	case HA_SESSION_UP:
		return NCCL_HA_PREFERRED_ANSWERS;
	case HA_SESSION_DOWN:
		return NCCL_HA_PREFERRED_SILENT;
	case HA_SESSION_INIT:
		return left ? NCCL_HA_PREFERRED_SILENT : 0;
	default:
		return 0;
	}
}

static bool works(const struct ha_comm *comm, const struct ha_failover_view *view, unsigned p)
{
	return comm->paths[p] &&
	       (view->health[p] == NCCL_HA_PATH_GOOD || view->health[p] == NCCL_HA_PATH_SUSPECTED);
}

/* Paths that cross (each between one of the two ports and another one) prove both, too. */
static uint32_t marks_of_slots(const struct ha_comm *comm, const struct ha_failover_view *view)
{
	const struct ha_failover *fo = comm->failover;
	bool port = false, peer_port = false;
	uint32_t marks = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_pair pair = ha_pair_of(&fo->slots[p]);

		if (ha_pair_shared(pair, ha_pair_preferred) == 2)
			marks |=
			    marks_of_heartbeats(fo->links[p].live.session, view->off_preferred);
		if (works(comm, view, p)) {
			port |= pair.port == ha_pair_preferred.port;
			peer_port |= pair.peer_port == ha_pair_preferred.peer_port;
		}
	}
	return port && peer_port ? marks | NCCL_HA_PREFERRED_READY : marks;
}

static uint32_t marks_of_ports(const struct ha_comm *comm)
{
	uint32_t marks = NCCL_HA_PREFERRED_KNOWN;

	if (!ha_offer_usable(comm, ha_pair_preferred.port))
		marks |= NCCL_HA_PREFERRED_PORT_DOWN;
	if (!(comm->failover->peer_ports_up & 1u << ha_pair_preferred.peer_port))
		marks |= NCCL_HA_PREFERRED_PEER_PORT_DOWN;
	if (ha_pair_drained(comm, ha_pair_preferred) != 0)
		marks |= NCCL_HA_PREFERRED_DRAINED;
	return marks;
}

void ha_preferred_describe(const struct ha_comm *comm, struct ha_failover_view *out)
{
	const struct ha_failover *fo = comm->failover;
	const struct ha_offer *remote = &fo->peer_ports.offers[ha_pair_preferred.peer_port];

	out->off_preferred = false;
	out->preferred = (struct nccl_ha_preferred_stats){0};
	if (fo->peer_ports.count == 0 || fo->noffers == 0)
		return;
	out->off_preferred =
	    ha_pair_shared(ha_pair_of(&fo->slots[comm->active]), ha_pair_preferred) != 2;
	out->preferred.marks = marks_of_ports(comm) | marks_of_slots(comm, out);
	out->preferred.device = fo->offers[ha_pair_preferred.port]->index;
	snprintf(out->preferred.peer_port, sizeof(out->preferred.peer_port), "%.31s:%u",
		 remote->device, remote->port_num);
}
