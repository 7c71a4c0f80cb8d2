/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/peer_end.h"
#include "transport/fence.h"
#include "transport/recv.h"
#include "transport/send.h"

#include "base/clock.h"
#include "transport/comm.h"
#include "transport/complete.h"

/* Takes what has completed already, so that it is not lost to the failure that follows. */
static void drain(struct ha_comm *comm)
{
	for (int i = 0; i < 64; i++)
		if (ha_comm_poll(comm, comm->poll_batch) + ha_comm_poll_standby(comm) == 0)
			break;
}

void ha_comm_peer_lost(struct ha_comm *comm, const char *how)
{
	drain(comm);
	ha_comm_fail(
	    comm, HA_ERR_REMOTE,
	    "the peer left without a goodbye (%s): process %u on host %s is gone, or it failed "
	    "and its log says why; %u requests outstanding here",
	    how, comm->peer_pid, comm->peer_host, comm->outstanding);
}

void ha_comm_peer_aborted(struct ha_comm *comm, const struct ha_abort *given_up)
{
	drain(comm);
	comm->abort_said = true; /* it knows */
	ha_comm_fail(comm, HA_ERR_REMOTE,
		     "the peer has given up (result %u, its log says why) with %u requests "
		     "outstanding here",
		     given_up->code, comm->outstanding);
}

void ha_comm_message_lost(struct ha_comm *comm, uint64_t seq)
{
	ha_comm_fail(comm, HA_ERR_REMOTE,
		     "message %llu is lost: a device that has failed acknowledged it and did not "
		     "write it to memory; HA_NCCL_COMPLETION=e2e survives this",
		     (unsigned long long)seq);
}

bool ha_comm_peer_can_have(struct ha_comm *comm, const struct ha_window *has)
{
	uint64_t end = comm->is_send ? ha_send_posted_end(comm->send) : comm->recv->next_seq;

	if (ha_window_below(has, end))
		return true;
	ha_comm_fail(comm, HA_ERR_INTERNAL,
		     "the peer counts %llu messages and more, and there were only %llu: it is "
		     "broken, or somebody else speaks in its place",
		     (unsigned long long)has->base - 1, (unsigned long long)end - 1);
	return false;
}

void ha_comm_peer_bye(struct ha_comm *comm, const struct ha_bye *bye)
{
	comm->peer_done = (struct ha_window){.base = bye->done, .bits = bye->done_bits};
	comm->peer_bye_ns = ha_now_ns();
	atomic_store_explicit(&comm->peer_bye, true, memory_order_release);
}

void ha_comm_settle(struct ha_comm *comm)
{
	comm->settling = true;
	for (unsigned i = 0; i < comm->npaths; i++)
		ha_path_fence(comm->paths[i]);
}

/* For a device that is being taken away: to destroy thousands of queue pairs takes seconds. */
#define TAKEN_AWAY_NS (10 * HA_NS_PER_S)

/* Nothing more is to be expected of its NIC. */
static bool is_hopeless(const struct ha_path *path, enum ha_fence fence, uint64_t now_ns)
{
	return fence == HA_FENCE_FAILED ||
	       (ha_path_unconfirmed(path) && now_ns > path->fencing_since_ns + TAKEN_AWAY_NS);
}

static bool all_fenced(struct ha_comm *comm, uint64_t now_ns)
{
	bool all = true;

	for (unsigned i = 0; i < comm->npaths; i++) {
		struct ha_path *path = comm->paths[i];
		enum ha_fence fence = path ? ha_path_fenced(comm, path, now_ns) : HA_FENCE_DONE;

		if (fence == HA_FENCE_DONE || ha_path_harmless(path))
			continue;
		all = false;
		if (!is_hopeless(path, fence, now_ns))
			continue;
		ha_comm_fail(comm, HA_ERR_SYSTEM,
			     "a path to the peer, which has closed, cannot be fenced: %u requests "
			     "are not known to be through",
			     comm->outstanding);
		return false;
	}
	return all;
}

/* Goes on with it. What is delivered is not complete before the hardware has let go of its memory.
 */
void ha_comm_settle_on(struct ha_comm *comm)
{
	ha_comm_settle(comm);
	if (!all_fenced(comm, ha_now_ns()))
		return;
	if (comm->is_send)
		ha_send_settle(comm, &comm->peer_done);
	if (comm->outstanding != 0)
		ha_comm_fail(comm, HA_ERR_REMOTE,
			     "the peer closed the connection with %u requests outstanding here",
			     comm->outstanding);
}

void ha_comm_fill_bye(const struct ha_comm *comm, struct ha_bye *bye)
{
	const struct ha_window *w = comm->is_send ? &comm->send->completed : &comm->recv->done;

	bye->done = w->base;
	bye->done_bits = w->bits;
}

bool ha_comm_waits_for_peer(const struct ha_comm *comm)
{
	uint32_t flushes = comm->recv ? comm->recv->flushes : 0;

	return comm->outstanding > flushes;
}

bool ha_peer_end_frame(struct ha_comm *comm, const struct ha_frame_header *header,
		       const uint8_t *payload)
{
	struct ha_abort given_up;
	struct ha_bye bye;

	switch (header->type) {
	case HA_FRAME_BYE:
		if (ha_bye_decode(payload, header->length, &bye) == HA_WIRE_OK &&
		    ha_comm_peer_can_have(comm, &(struct ha_window){bye.done, bye.done_bits}))
			ha_comm_peer_bye(comm, &bye);
		return true;
	case HA_FRAME_ABORT:
		if (ha_abort_decode(payload, header->length, &given_up) == HA_WIRE_OK)
			ha_comm_peer_aborted(comm, &given_up);
		return true;
	default:
		return false;
	}
}
