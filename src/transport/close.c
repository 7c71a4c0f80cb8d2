/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a connection, also with requests in flight: NCCL joins its thread, deregisters and
 * closes. Always succeeds.
 *
 * The order is what keeps late packets out of freed memory: say goodbye, fence, drain, destroy the
 * queue pairs, and only then give memory back. The kernel may take a minute to destroy a queue
 * pair, so what is fenced for certain is left to the background when it takes long (ha_path_close).
 *
 * Which of the application's memory may a queue pair still use, whose end we do not see?
 *  - None, if no request was under way. What is acknowledged, or was received, is through: a
 * reliable connection does nothing for a packet that comes again but to acknowledge it.
 *  - None over a path that never carried traffic of the connection.
 *  - None, if the fence was confirmed: the sentinels came back, so each work request before them
 * has left the queues, and in ERR no packet is taken (fence.c).
 *  - None, if the peer has fenced its end, and what was under way has arrived or is lost: the path
 *    is settled.
 *  - Else the buffers of the requests under way. NCCL deregisters memory before it closes, which
 *    takes the keys away. But pages that another handle covers keep their registration, and so does
 *    memory that stays registered for the next communicator. So close waits there, however long.
 */
#include "transport/comm.h"
#include "transport/complete.h"
#include "transport/fence.h"
#include "transport/flush_old.h"
#include "transport/peer_end.h"
#include "transport/rail_agent.h"
#include "transport/rail_share.h"

#include "base/clock.h"
#include "base/log.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/shared.h"

#include <sched.h>

/* Flushing a queue takes a device microseconds; one that has not by now is dead. */
#define DRAIN_NS (20 * HA_NS_PER_MS)

static int poll_all(struct ha_comm *comm)
{
	return ha_comm_poll(comm, comm->poll_batch) + ha_comm_poll_standby(comm);
}

static bool all_drained(const struct ha_comm *comm)
{
	for (unsigned i = 0; i < comm->npaths; i++)
		if (comm->paths[i] && !ha_path_harmless(comm->paths[i]))
			return false;
	return true;
}

static void expose(struct ha_path *path)
{
	if (path)
		path->exposed = !ha_path_harmless(path);
}

/* Fences the paths, and finds out which of them are fenced for certain if that matters. */
static void drain(struct ha_comm *comm)
{
	uint32_t left = comm->outstanding;
	uint64_t until_ns;

	ha_flush_old_end(comm);
	for (unsigned i = 0; i < comm->npaths; i++)
		ha_path_fence(comm->paths[i]);
	if (left == 0)
		return;
	for (unsigned i = 0; i < comm->npaths; i++)
		if (comm->paths[i] && !ha_path_harmless(comm->paths[i]))
			(void)ha_path_wait(comm->paths[i], DRAIN_NS);
	until_ns = ha_now_ns() + DRAIN_NS;
	while (poll_all(comm) > 0 || (!all_drained(comm) && comm->inst->threads)) {
		if (ha_now_ns() >= until_ns)
			break;
		sched_yield();
	}
	for (unsigned i = 0; i < comm->npaths; i++) {
		expose(comm->paths[i]);
		expose(comm->ops->left(comm, i));
	}
	HA_INFO(HA_SUBSYS_NET, "connection %s closes with %u requests in flight", comm->name, left);
}

/*
 * The application's sends are done, and the peer may still have to be sent the copies of some: it
 * says in time that it has them, unless it is frozen, or no path works.
 */
static void await_count(struct ha_comm *comm)
{
	const uint64_t until_ns = ha_real_ns() + HA_RETAIN_CLOSE_NS;
	unsigned left;

	do {
		left = ha_retain_awaited(comm);
		/* Where there are no threads no time passes within a call. */
		if (left == 0 || !comm->inst->threads)
			return;
		sched_yield();
	} while (ha_real_ns() < until_ns);
	HA_WARN("connection %s is closed, and the peer has not said yet that it has the last %u "
		"messages: should its NIC have lost one, it gets an error",
		comm->name, left);
}

static void close_comm(struct ha_comm *comm)
{
	bool failed;

	if (!comm)
		return;
	await_count(comm);
	ha_comm_stop(comm);
	ha_token_acquire(comm);
	failed = ha_comm_error(comm) != HA_OK;
	if (!failed) {
		ha_comm_poll(comm, comm->poll_batch);
		comm->ops->goodbye(comm);
	}
	drain(comm);
	if (failed)
		comm->ops->goodbye(comm);
	ha_flush_old_expose(comm);
	ha_rail_agent_leave(comm);
	ha_rail_shares_leave(comm);
	HA_INFO(HA_SUBSYS_NET,
		"connection %s is closed: %llu messages, %llu bytes, %llu completions found in the "
		"background, %llu stale",
		comm->name, (unsigned long long)comm->count.messages,
		(unsigned long long)comm->count.bytes,
		(unsigned long long)comm->count.thread_completions,
		(unsigned long long)comm->count.stale_completions);
	ha_comm_free(comm);
}

void ha_close_send(struct ha_comm *comm)
{
	close_comm(comm);
}

void ha_close_recv(struct ha_comm *comm)
{
	close_comm(comm);
}
