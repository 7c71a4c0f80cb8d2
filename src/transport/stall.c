/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/stall.h"

#include "base/clock.h"
#include "transport/comm.h"
#include "transport/failover_ops.h"
#include "transport/recv.h"
#include "transport/send.h"

/* So many looks of polls that find it unchanged are one look at the clock. */
#define LOOKS 8

static uint64_t oldest(const struct ha_comm *comm)
{
	if (comm->outstanding == 0 || !ha_comm_may_post(comm))
		return 0;
	return comm->is_send ? comm->send->completed.base : comm->recv->done.base;
}

static uint64_t stall_ns(const struct ha_comm *comm)
{
	return (unsigned)comm->config->stall_ms * HA_NS_PER_MS;
}

/* False: it moves, or nothing is outstanding. */
static bool stands_still(struct ha_comm *comm)
{
	struct ha_stall_watch *stall = &comm->stall;
	uint64_t seq = oldest(comm);

	if (seq != 0 && seq == stall->oldest)
		return true;
	stall->oldest = seq;
	stall->due_ns = 0;
	stall->polls = 0;
	return false;
}

/*
 * Asks less and less often: who waits for the peer's application waits for as long as that takes.
 * From an interval of heartbeats on those do it.
 */
static void ask(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_stall_watch *stall = &comm->stall;
	uint64_t interval_ns = (unsigned)comm->config->heartbeat_ms * HA_NS_PER_MS;

	stall->due_ns = stall->pause_ns < interval_ns ? now_ns + stall->pause_ns : UINT64_MAX;
	stall->pause_ns *= 2;
	comm->ops->stalled(comm);
}

static void look(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_stall_watch *stall = &comm->stall;

	if (stall->due_ns == 0) {
		stall->pause_ns = stall_ns(comm);
		stall->due_ns = now_ns + stall->pause_ns;
	} else if (now_ns >= stall->due_ns) {
		ask(comm, now_ns);
	}
}

uint64_t ha_stall_visit(struct ha_comm *comm, uint64_t now_ns)
{
	bool still;

	if (comm->config->stall_ms == 0)
		return 0;
	still = stands_still(comm);
	look(comm, now_ns);
	return still && comm->stall.due_ns != UINT64_MAX ? comm->stall.due_ns : 0;
}

void ha_stall_poll(struct ha_comm *comm)
{
	if (comm->config->stall_ms != 0 && stands_still(comm) && ++comm->stall.polls % LOOKS == 0)
		look(comm, ha_now_ns());
}
