/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End-to-end completion (HA_NCCL_COMPLETION=e2e): a send is complete when the receiver's software
 * has the message, not when its hardware has acknowledged it. A device that dies between the two
 * then loses nothing: the sender still has the data.
 *
 * The receiver writes how many messages it has, in order, into the sender's ring. That number only
 * grows, and each has a place of its own there (rings.h), so it never seems to go back, in whatever
 * order a device places those writes. The sender completes a message when it is counted *and* the
 * hardware has completed it: before that the device may read the buffer again.
 *
 * A count that is under way when its path fails is told by RESUME. One that does not come although
 * nothing has failed is asked for (timeout.c), since every message of the failover protocol says
 * what its end has.
 */
#include "transport/e2e.h"
#include "base/hot.h"
#include "transport/complete.h"
#include "transport/path_error.h"
#include "transport/peer_end.h"
#include "transport/recv.h"
#include "transport/send.h"

#include "event/reason.h"

/* ---- sender -------------------------------------------------------------------------------- */

static bool is_acknowledged(const struct ha_send_group *group)
{
	return group->state == HA_GROUP_POSTED && group->parts_left == 0;
}

/* The peer's software has every message before this one. */
static __attribute__((noinline)) HA_NO_CANARY void counted(struct ha_comm *comm, uint64_t count)
{
	struct ha_send_side *s = comm->send;

	if (count <= s->delivered ||
	    !ha_comm_peer_can_have(comm, &(struct ha_window){.base = count}))
		return;
	/* What is to be posted again, and is there, is completed when traffic goes on. */
	s->delivered = count < s->post_seq ? count : s->post_seq;
	for (uint64_t seq = s->completed.base; seq < s->delivered; seq++) {
		struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

		if (is_acknowledged(group))
			ha_send_group_complete(comm, group);
	}
}

/* Pairs with the peer's RDMA write. */
static uint64_t word_at(const struct ha_comm *comm, uint32_t place)
{
	return __atomic_load_n(&comm->send_ring->counts[place % HA_COUNTS], __ATOMIC_ACQUIRE);
}

/* `word` is a new one, in the place where it is to be. All that are there behind it, too. */
static __attribute__((noinline)) void take_counts(struct ha_comm *comm, uint64_t word)
{
	struct ha_send_side *s = comm->send;

	do {
		s->count_seen = word;
		word = word_at(comm, ++s->count_place);
	} while (ha_count_later(word, s->count_seen));
	counted(comm, ha_count_of(s->count_seen));
}

/* One more, and it is the last that was posted: no need to look further. */
static bool take_last(struct ha_comm *comm, uint64_t word)
{
	struct ha_send_side *s = comm->send;
	const uint64_t seq = s->completed.base;
	struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

	if (ha_count_of(word) != seq + 1 || s->post_seq != seq + 1 || !is_acknowledged(group))
		return false;
	s->count_seen = word;
	s->count_place++;
	s->delivered = seq + 1;
	ha_send_group_complete(comm, group);
	return true;
}

static void look_at_counts(struct ha_comm *comm)
{
	const struct ha_send_side *s = comm->send;
	const uint64_t word = word_at(comm, s->count_place);

	if (ha_count_later(word, s->count_seen)) {
		if (!take_last(comm, word))
			take_counts(comm, word);
	} else if (atomic_load_explicit(&comm->peer_bye, memory_order_acquire)) {
		/* What an orderly end says counts as well. */
		counted(comm, comm->peer_done.base);
	}
}

/* Goes on behind the last count that is there, in case one before it never comes. */
static void find_place(struct ha_comm *comm)
{
	struct ha_send_side *s = comm->send;

	for (uint32_t place = 0; place < HA_COUNTS; place++)
		if (ha_count_later(word_at(comm, place), s->count_seen)) {
			s->count_seen = word_at(comm, place);
			s->count_place = place + 1;
		}
}

void ha_e2e_heard(struct ha_comm *comm, uint64_t count)
{
	if (!(comm->silent & HA_SILENT_COUNT) || count <= comm->send->delivered)
		return;
	find_place(comm);
	counted(comm, count);
}

bool ha_e2e_awaits_count(const struct ha_comm *comm)
{
	const struct ha_send_side *s = comm->send;

	if (!(comm->silent & HA_SILENT_COUNT) || s->completed.base == s->post_seq)
		return false;
	for (uint64_t seq = s->completed.base; seq != s->post_seq; seq++) {
		const struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

		if (group->state != HA_GROUP_FREE && group->parts_left != 0)
			return false;
	}
	return true;
}

/* ---- receiver ------------------------------------------------------------------------------ */

/* By the template of clear-to-sends, whose keys are those of the active path's rings. */
static void post_count(struct ha_comm *comm, struct ha_path *path, struct ha_qp *qp)
{
	struct ha_recv_side *r = comm->recv;
	const uint32_t place = r->count_place % HA_COUNTS, mark = qp->sq_posted + 1;
	uint64_t *word = &comm->recv_ring->counts[place];
	struct ibv_send_wr *bad;
	unsigned flags = sizeof(*word) <= path->max_inline ? IBV_SEND_INLINE : 0;
	int rc;

	*word = ha_count_word(r->done.base, ha_comm_epoch(comm));
	r->cts_sge.addr = (uintptr_t)word;
	r->cts_sge.length = sizeof(*word);
	r->cts_wr.wr.rdma.remote_addr =
	    path->remote_ring + offsetof(struct ha_send_ring, counts) + place * sizeof(*word);
	if (ha_sq_makes_room(mark)) {
		flags |= IBV_SEND_SIGNALED;
		r->cts_wr.wr_id = ha_wr_make(qp->wr_base, HA_WR_CTS, mark);
	}
	r->cts_wr.send_flags = flags;
	rc = ibv_post_send(qp->qp, &r->cts_wr, &bad);
	if (__builtin_expect(rc != 0, 0)) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send", rc);
		return;
	}
	qp->sq_posted = mark;
	r->count_place++;
	r->told = r->done.base;
	r->told_mark = mark;
	comm->count.work_requests++;
}

/* Of so many writes that the queue holds, the one that was written to a place before is none. */
_Static_assert(HA_COUNTS >= HA_RECV_SQ_DEPTH, "a place is not written to twice at a time");

static __attribute__((noinline)) HA_NO_CANARY void tell_count(struct ha_comm *comm)
{
	struct ha_path *path = ha_comm_path(comm);
	struct ha_qp *qp;

	if (comm->recv->done.base == comm->recv->told)
		return;
	/* Even with nothing outstanding here there is somebody who waits. */
	atomic_store_explicit(&comm->telling, true, memory_order_relaxed);
	/* Not between two epochs: RESUME tells it, and places are counted from then on. */
	if (!ha_comm_may_post(comm))
		return;
	qp = &path->qps[0];
	if (ha_qp_room(qp) != 0)
		post_count(comm, path, qp);
}

bool ha_e2e_confirm(struct ha_comm *comm, const struct ha_path *path)
{
	const struct ha_recv_side *r = comm->recv;

	if (r->told != r->done.base || (int32_t)(r->told_mark - path->qps[0].sq_done) > 0)
		return false;
	atomic_store_explicit(&comm->telling, false, memory_order_relaxed);
	return true;
}

/* ---- both ---------------------------------------------------------------------------------- */

void ha_e2e_begin(struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);

	if (comm->is_send) {
		comm->send->count_seen = ha_count_word(0, ha_comm_epoch(comm));
		comm->send->count_place = 0;
	} else {
		comm->recv->told = comm->recv->done.base;
		comm->recv->told_mark = path ? path->qps[0].sq_done : 0;
		comm->recv->count_place = 0;
	}
}

void ha_e2e_look(struct ha_comm *comm)
{
	if (!(comm->silent & HA_SILENT_COUNT))
		return;
	if (comm->is_send)
		look_at_counts(comm);
	else
		tell_count(comm);
}
