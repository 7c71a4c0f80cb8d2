/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/group_peers.h"

#include "base/log.h"
#include "gin/verbs/group_memory.h"
#include "gin/verbs/group_own.h"
#include "gin/verbs/sender_post.h"

#include <sched.h>
#include <stdlib.h>

/* What takes time is looked at each so many rounds, unless something does not run. */
#define MEND_EVERY 16

/* ---- who is who ----------------------------------------------------------------------------- */

static ha_result_t connect_to(struct ha_gin_group *group, struct ha_gin_peer *peer)
{
	struct ha_gin_message hello = {.say = HA_GIN_HELLO,
				       .hello = {.rank = group->rank, .nranks = group->ranks}};
	struct ha_comm *comm;

	HA_TRY(ha_connect(group->inst, group->dev, HA_TRAFFIC_CLASS_UNDEF, peer->handle, &comm));
	if (!comm)
		return HA_OK;
	HA_TRY(ha_gin_out_open(&peer->out, comm));
	return ha_gin_out_say(&peer->out, &hello);
}

static ha_result_t accept_one(struct ha_gin_group *group)
{
	struct ha_gin_stranger *stranger;
	struct ha_comm *comm;

	HA_TRY(ha_accept(group->listen, &comm));
	if (!comm)
		return HA_OK;
	stranger = calloc(1, sizeof(*stranger));
	if (!stranger) {
		ha_close_recv(comm);
		return HA_ERR_SYSTEM;
	}
	stranger->next = group->strangers;
	group->strangers = stranger;
	group->accepted++;
	return ha_gin_in_open(&stranger->in, comm);
}

static ha_result_t is_who(struct ha_gin_group *group, const struct ha_gin_message *hello,
			  struct ha_gin_peer **out)
{
	if (hello->say == HA_GIN_HELLO && hello->hello.nranks == group->ranks &&
	    hello->hello.rank < group->ranks && !group->peers[hello->hello.rank].in.comm) {
		*out = &group->peers[hello->hello.rank];
		return HA_OK;
	}
	HA_WARN("GIN: somebody connected as rank %u of %u; this is rank %u of %u, and each rank "
		"connects once",
		hello->hello.rank, hello->hello.nranks, group->rank, group->ranks);
	return HA_ERR_REMOTE;
}

/* *at: the stranger, or the next one when it is none any more. */
static ha_result_t ask(struct ha_gin_group *group, struct ha_gin_stranger **at)
{
	struct ha_gin_stranger *stranger = *at;
	struct ha_gin_message hello;
	struct ha_gin_peer *peer;
	bool is_heard;

	HA_TRY(ha_gin_in_hear(&stranger->in, &hello, &is_heard));
	if (!is_heard)
		return HA_OK;
	HA_TRY(is_who(group, &hello, &peer));
	peer->in = stranger->in;
	ha_gin_receiver_init(&peer->receiver, peer->in.comm);
	*at = stranger->next;
	free(stranger);
	return HA_OK;
}

static ha_result_t meet(struct ha_gin_group *group)
{
	struct ha_gin_stranger **at = &group->strangers;

	if (group->accepted < group->ranks)
		HA_TRY(accept_one(group));
	while (*at) {
		struct ha_gin_stranger *before = *at;

		HA_TRY(ask(group, at));
		if (*at == before)
			at = &before->next;
	}
	for (uint32_t r = 0; r < group->ranks; r++) {
		if (!group->peers[r].out.comm)
			HA_TRY(connect_to(group, &group->peers[r]));
		if (group->peers[r].out.comm)
			HA_TRY(ha_gin_out_progress(&group->peers[r].out));
	}
	return HA_OK;
}

/* ---- progress ------------------------------------------------------------------------------- */

static ha_result_t hears_region(struct ha_gin_group *group, uint32_t rank,
				const struct ha_gin_message *message)
{
	if (message->number >= HA_GIN_REGIONS) {
		HA_WARN("GIN: rank %u has registered memory more than %d times", rank,
			HA_GIN_REGIONS);
		return HA_ERR_REMOTE;
	}
	HA_TRY(ha_gin_group_know(group, message->number));
	ha_gin_remote_is(&group->memories[message->number]->remotes[rank], message);
	return HA_OK;
}

static ha_result_t hears(struct ha_gin_group *group, uint32_t rank,
			 const struct ha_gin_message *message)
{
	struct ha_gin_peer *peer = &group->peers[rank];

	switch (message->say) {
	case HA_GIN_REGION:
		return hears_region(group, rank, message);
	case HA_GIN_OFFER:
	case HA_GIN_READY:
		ha_gin_sender_hears(&peer->sender, message);
		return HA_OK;
	case HA_GIN_ANSWER:
	case HA_GIN_SUSPECT:
		return ha_gin_receiver_hears(&peer->receiver, message);
	default:
		HA_WARN("GIN: rank %u says %u, which this version does not know: all ranks must "
			"have the same nccl-ha",
			rank, message->say);
		return HA_ERR_REMOTE;
	}
}

static ha_result_t talk(struct ha_gin_group *group, uint32_t rank)
{
	struct ha_gin_peer *peer = &group->peers[rank];
	struct ha_gin_message message;
	bool is_heard = true;

	HA_TRY(ha_gin_out_progress(&peer->out));
	while (is_heard) {
		HA_TRY(ha_gin_in_hear(&peer->in, &message, &is_heard));
		if (is_heard && hears(group, rank, &message) != HA_OK)
			return ha_gin_group_latch(group, HA_ERR_REMOTE);
	}
	return ha_gin_out_progress(&peer->out);
}

static bool is_met(const struct ha_gin_peer *peer)
{
	return peer->out.comm && peer->in.comm;
}

static bool runs(const struct ha_gin_peer *peer)
{
	return peer->sender.state == HA_GIN_SENDER_RUNS &&
	       peer->receiver.state == HA_GIN_RECEIVER_RUNS && !peer->sender.qp.fault &&
	       !peer->receiver.qp.fault;
}

/* A rank that has ended, or cannot be reached, matters to who wants something of it. What it had
 * written by then still counts. */
static void is_gone(struct ha_gin_group *group, struct ha_gin_peer *peer, ha_result_t why)
{
	const struct ha_gin_journal *journal = &peer->sender.journal;

	peer->sender.is_gone = true;
	peer->why = why;
	if (group->error == HA_OK &&
	    (!peer->has_run || ha_gin_completed(journal) != journal->issued ||
	     peer->sender.reads.done != peer->sender.reads.issued))
		ha_gin_group_latch(group, why);
}

static void mend(struct ha_gin_group *group, uint32_t rank)
{
	struct ha_gin_peer *peer = &group->peers[rank];
	ha_result_t result = talk(group, rank);

	if (result != HA_OK) {
		is_gone(group, peer, result);
		return;
	}
	result = ha_gin_receiver_mends(&peer->receiver);
	if (result == HA_OK)
		result = ha_gin_sender_mends(&peer->sender);
	if (result == HA_OK)
		result = ha_gin_out_progress(&peer->out);
	if (result != HA_OK)
		ha_gin_group_latch(group, result);
	peer->has_run |= runs(peer);
}

static ha_result_t work(struct ha_gin_group *group, uint32_t rank, bool is_time)
{
	struct ha_gin_peer *peer = &group->peers[rank];

	if (!is_met(peer))
		return HA_OK;
	ha_gin_sender_works(&peer->sender);
	HA_TRY(ha_gin_receiver_works(&peer->receiver));
	if (is_time)
		HA_TRY(ha_gin_receiver_is_in_time(&peer->receiver));
	if (!peer->sender.is_gone && (is_time || !runs(peer)))
		mend(group, rank);
	return HA_OK;
}

static ha_result_t progress(struct ha_gin_group *group)
{
	const bool is_time = group->rounds++ % MEND_EVERY == 0;
	bool all_are_met = true;

	for (uint32_t r = 0; r < group->ranks; r++)
		all_are_met &= group->peers[r].out.comm && group->peers[r].in.comm;
	if (!all_are_met)
		HA_TRY(meet(group));
	ha_gin_adder_poll(&group->adder);
	if (is_time || group->adder.applier.is_orphaned)
		ha_gin_adder_mend(&group->adder);
	for (uint32_t r = 0; r < group->ranks; r++)
		HA_TRY(work(group, r, is_time));
	return group->error;
}

ha_result_t ha_gin_group_progress(struct ha_gin_group *group)
{
	ha_result_t result;

	if (!ha_gin_group_try_lock(group)) {
		sched_yield();
		return HA_OK;
	}
	result = group->error;
	if (result == HA_OK) {
		result = progress(group);
		if (result != HA_OK)
			ha_gin_group_latch(group, result);
	}
	ha_gin_group_unlock(group);
	return result;
}

bool ha_gin_group_is_connected(struct ha_gin_group *group)
{
	bool all_have_run = true;

	ha_gin_group_lock(group);
	for (uint32_t r = 0; r < group->ranks; r++)
		all_have_run &= group->peers[r].has_run;
	ha_gin_group_unlock(group);
	return all_have_run;
}
