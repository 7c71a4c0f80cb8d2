/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a connection, also with requests in flight: NCCL joins its thread, deregisters and
 * closes. Always succeeds.
 *
 * The order is what keeps late packets out of freed memory: say goodbye, fence, drain for as long
 * as it takes but not for ever, destroy the queue pairs, and only then give memory back.
 */
#include "transport/comm.h"

#include "base/clock.h"
#include "base/log.h"
#include "ha/control.h"
#include "transport/lane.h"

/* Flushing a queue takes a device microseconds; one that has not by now is dead. */
#define DRAIN_NS (20 * HA_NS_PER_MS)

static void drain(struct ha_comm *comm)
{
	uint64_t until_ns;
	uint32_t left;

	for (unsigned i = 0; i < comm->npaths; i++)
		ha_path_fence(comm->paths[i]);
	left = comm->outstanding;
	if (left == 0)
		return;
	until_ns = ha_now_ns() + DRAIN_NS;
	while (ha_comm_poll(comm, comm->poll_batch) + ha_comm_poll_standby(comm) > 0 &&
	       ha_now_ns() < until_ns)
		;
	HA_INFO(HA_SUBSYS_NET, "connection %s closes with %u requests in flight", comm->name, left);
}

static void close_comm(struct ha_comm *comm)
{
	struct ha_bye bye;

	if (!comm)
		return;
	ha_comm_stop(comm);
	ha_token_acquire(comm);
	if (ha_comm_error(comm) == HA_OK) {
		ha_comm_poll(comm, comm->poll_batch);
		ha_comm_fill_bye(comm, &bye);
		ha_lane_bye(comm->lane, &bye);
		if (ha_comm_has_failover(comm))
			ha_control_goodbye(comm);
	}
	drain(comm);
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
