/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/turn.h"

#include "base/invariant.h"
#include "transport/complete.h"
#include "transport/flush.h"
#include "transport/peer_end.h"
#include "transport/post.h"
#include "transport/recv.h"
#include "transport/replay.h"
#include "transport/send.h"
#include "transport/stripe.h"

/* Rows are stamped with another turn, messages with the same epoch. */
static void take_place(struct ha_comm *comm, unsigned to)
{
	const uint32_t epoch = ha_comm_traffic_epoch(comm);
	const uint32_t turn = atomic_load_explicit(&comm->turn, memory_order_relaxed) + 1;

	HA_INVARIANT(to != comm->active && ha_path_ready(comm->paths[to]));
	atomic_store_explicit(&comm->turn, turn, memory_order_relaxed);
	atomic_store_explicit(&comm->epoch, ha_epoch_word(epoch, turn), memory_order_relaxed);
	ha_comm_take_path(comm, (uint8_t)to);
}

/* ---- sender -------------------------------------------------------------------------------- */

/* Of a message that was not cut and is still under way: it is to be matched with a new row. */
static void post_again(struct ha_comm *comm, struct ha_send_group *group, struct ha_replay *replay)
{
	replay->messages += group->n;
	for (unsigned i = 0; i < group->n; i++)
		replay->bytes += group->reqs[i]->size;
	group->state = HA_GROUP_MATCHED;
	comm->send->moves = true;
}

/* One that was not cut, and so was the active path's as a whole. False: it is lost. */
static bool mend_whole(struct ha_comm *comm, struct ha_send_group *group, uint64_t seq,
		       const struct ha_window *done, struct ha_replay *replay)
{
	const bool complete = ha_window_has(&comm->send->completed, seq);

	if (complete && ha_window_has(done, seq))
		return true;
	if (complete) { /* its write was acknowledged and never placed */
		ha_comm_message_lost(comm, seq);
		return false;
	}
	if (group->state != HA_GROUP_POSTED)
		return true;
	if (!ha_window_has(done, seq)) {
		post_again(comm, group, replay);
		return true;
	}
	replay->known += group->n;
	ha_send_group_complete(comm, group);
	return true;
}

static bool mend_all(struct ha_comm *comm, unsigned to, const struct ha_window *done,
		     const uint64_t seen[HA_MAX_PATHS], struct ha_replay *replay)
{
	struct ha_send_side *s = comm->send;

	for (uint64_t seq = ha_stripe_oldest_open(comm, done); seq < s->post_seq; seq++) {
		struct ha_send_group *group = &s->groups[seq & comm->slot_mask];
		bool ok = ha_stripe_is_cut(group, seq)
			      ? ha_stripe_mend_active(comm, group, to, done, seen, replay)
			      : mend_whole(comm, group, seq, done, replay);

		if (!ok)
			return false;
	}
	return true;
}

/*
 * Rows of before do not count, and what is written on the new path comes after this. After 256
 * turns stamps are the same again.
 */
static void forget_rows(struct ha_comm *comm)
{
	for (unsigned row = 0; row <= comm->slot_mask; row++)
		for (unsigned i = 0; i < HA_GROUP_MAX; i++) {
			struct ha_cts *cts = &comm->send_ring->cts[row][i];

			__atomic_store_n(&cts->stamp, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&cts->stamp_end, 0, __ATOMIC_RELAXED);
		}
}

bool ha_send_turn(struct ha_comm *comm, unsigned to, const struct ha_window *done,
		  const uint64_t seen[HA_MAX_PATHS], struct ha_replay *replay)
{
	const unsigned from = comm->active;

	if (!mend_all(comm, to, done, seen, replay))
		return false;
	take_place(comm, to);
	forget_rows(comm);
	ha_stripe_turn(comm, from);
	ha_send_pump(comm);
	return true;
}

/* ---- receiver ------------------------------------------------------------------------------ */

void ha_recv_turn(struct ha_comm *comm, unsigned to)
{
	struct ha_recv_side *r = comm->recv;

	take_place(comm, to);
	ha_stripe_members(comm, r->members & ~(1u << to));
	/* What has come in part stays so: its other parts are on their way over other rails. */
	r->cts_seq = r->done.base;
	ha_recv_pump(comm);
	ha_flush_turn(comm);
}
