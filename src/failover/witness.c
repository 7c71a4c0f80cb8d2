/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/witness.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "liveness/session_report.h"
#include "transport/comm.h"

/*
 * A peer that was away answers over its ports in the same turn of its thread as over its socket: it
 * is believed to have answered over the socket alone when this is over.
 */
static uint64_t turn_ns(const struct ha_comm *comm)
{
	return (unsigned)comm->config->stall_ms * HA_NS_PER_MS / 2;
}

/* Since when the peer is asked in vain, wherever there is a session; 0: it is not. */
static uint64_t alone_since_ns(const struct ha_comm *comm, uint64_t now_ns)
{
	const struct ha_slot_link *link = &comm->failover->links[comm->active];

	if (link->asked_ns == 0 || !link->live.session || comm->failover->state != HA_FO_ACTIVE)
		return 0;
	return ha_session_alone_since_ns(link->live.session, now_ns);
}

void ha_witness_visit(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	uint64_t since_ns = alone_since_ns(comm, now_ns);

	if (since_ns == 0 || fo->witness.asked_ns >= since_ns)
		return;
	fo->witness.asked_ns = now_ns;
	fo->say |= HA_SAY_PING;
}

bool ha_witness_is_wanted(const struct ha_comm *comm, uint64_t now_ns)
{
	const struct ha_failover *fo = comm->failover;
	uint64_t since_ns = alone_since_ns(comm, now_ns);

	return since_ns != 0 && fo->witness.asked_ns >= since_ns &&
	       fo->heard_ns > fo->witness.asked_ns && now_ns >= fo->heard_ns + turn_ns(comm);
}
