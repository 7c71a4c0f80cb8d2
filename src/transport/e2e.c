/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End-to-end completion (HA_NCCL_COMPLETION=e2e): a send is complete when the receiver's software
 * has the message, not when its hardware has acknowledged it. A device that dies between the two
 * then loses nothing: the sender still has the data, the application's or a copy (retain.h).
 *
 * The receiver counts how many messages it has, in order. Each clear-to-send carries the count, so
 * that while receives are asked for it costs neither end a write. Nobody tells it otherwise: a
 * sender that waits reads it out of the receiver's memory, one read at a time, which needs nothing
 * of the receiver's software. That may be asleep, since it has all it wanted.
 *
 * A count only grows and is true in every epoch, wherever it is found and however late. The sender
 * completes a message when it is counted *and* the hardware has completed it: before that the
 * device may read the buffer again. A read that is lost with its path fails that path, and RESUME
 * says what the receiver has.
 */
#include "transport/e2e.h"
#include "base/hot.h"
#include "transport/clear_path.h"
#include "transport/complete.h"
#include "transport/path_error.h"
#include "transport/peer_end.h"

#include "base/clock.h"

/* ---- what is counted ------------------------------------------------------------------------ */

static bool is_acknowledged(const struct ha_send_group *group)
{
	return group->state == HA_GROUP_POSTED && group->parts_left == 0;
}

/* One queue pair does; rails of a bundle do not, one with another. */
static bool completes_in_order(const struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_clear_path(comm);

	return path && path->split != HA_SPLIT_RAILS;
}

/* Of messages that were never posted: what a peer can have where two rings differ. */
static __attribute__((noinline)) bool can_have(struct ha_comm *comm, uint64_t count)
{
	return ha_comm_peer_can_have(comm, &(struct ha_window){.base = count});
}

/* The peer's software has every message before this one. True: that is news. */
static inline __attribute__((always_inline)) bool counted(struct ha_comm *comm,
							  struct ha_send_side *s, uint64_t count)
{
	if (count <= s->delivered)
		return false;
	if (__builtin_expect(count > ha_send_posted_end(s), 0) && !can_have(comm, count))
		return false;
	/* What is to be posted again, and is there, is completed when traffic goes on. */
	s->delivered = count < s->post_seq ? count : s->post_seq;
	s->count_wait.interval_ns = 0;
	for (uint64_t seq = s->completed.base; seq < s->delivered; seq++) {
		struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

		if (is_acknowledged(group))
			ha_send_group_complete(comm, group);
		else if (group->state != HA_GROUP_FREE && completes_in_order(comm))
			break; /* FREE: it was counted when it was acknowledged */
	}
	return true;
}

void ha_e2e_heard(struct ha_comm *comm, uint64_t count)
{
	if (comm->silent & HA_SILENT_COUNT)
		(void)counted(comm, comm->send, count);
}

/* ---- counts that ride on clear-to-sends ------------------------------------------------------ */

/*
 * The count in this row, 0: the row is not there. What was there before is of a receive a whole
 * window back: it was asked for when it was not counted, and is by now.
 */
static uint64_t count_in(const struct ha_comm *comm, uint64_t row)
{
	uint64_t count = ha_cts_count(comm->send_ring->cts[row & comm->slot_mask]);

	return count + comm->slot_mask >= row ? count : 0;
}

/*
 * Takes those that came since the last look. True: there is news. Rows up to match_seq were there
 * when their sends came: the last of them says most, and less than what came after it.
 */
static inline __attribute__((always_inline)) bool look_at_rows(struct ha_comm *comm)
{
	struct ha_send_side *s = comm->send;
	struct ha_count_wait *wait = &s->count_wait;
	const uint64_t from = wait->row < s->match_seq ? s->match_seq : wait->row;
	const uint64_t end = from + comm->slot_mask;
	uint64_t count = 0, next, row = from;

	/* Not for ever, whatever the peer writes. */
	do {
		next = count_in(comm, row);
		if (next == 0)
			break;
		count = next;
	} while (++row < end);
	if (row > wait->row && count == 0)
		count = count_in(comm, row - 1);
	wait->row = row;
	if (!counted(comm, s, count))
		return false;
	s->count_ahead = (uint32_t)(row - count);
	wait->in_vain = 0;
	return true;
}

HA_NO_CANARY void ha_e2e_acknowledged(struct ha_comm *comm, struct ha_send_group *group)
{
	(void)look_at_rows(comm);
	if (is_acknowledged(group))
		ha_retain(comm, group);
}

/* ---- counts that are asked for -------------------------------------------------------------- */

static bool post_read(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_qp *qp = &path->qps[0];
	uint64_t *word = &comm->send_ring->count;
	struct ibv_sge sge = {
	    .addr = (uintptr_t)word, .length = sizeof(*word), .lkey = path->ring_lkey};
	struct ibv_send_wr *bad,
	    wr = {
		.wr_id = ha_wr_make(qp->wr_base, HA_WR_COUNT, qp->sq_posted + 1),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = path->remote_ring + offsetof(struct ha_recv_ring, count),
			    .rkey = path->remote_rkey},
	    };
	int rc = ibv_post_send(qp->qp, &wr, &bad);

	if (rc != 0) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send", rc);
		return false;
	}
	qp->sq_posted++;
	path->count_busy = true;
	comm->count.work_requests++;
	return true;
}

/* How long to wait for a count that rides: no longer, where they have not come for some time. */
static uint32_t first_interval_ns(const struct ha_count_wait *wait)
{
	return wait->in_vain < HA_COUNT_IN_VAIN || wait->in_vain % HA_COUNT_TRY_AGAIN == 0
		   ? HA_COUNT_ASK_FIRST_NS
		   : HA_COUNT_ASK_MIN_NS;
}

static void ask(struct ha_comm *comm)
{
	struct ha_send_side *s = comm->send;
	struct ha_count_wait *wait = &s->count_wait;
	struct ha_path *path = ha_comm_path(comm);
	uint64_t now_ns;

	/* Only when the oldest waits for nothing else. */
	if (s->completed.base == s->post_seq ||
	    !is_acknowledged(&s->groups[s->completed.base & comm->slot_mask]) ||
	    !ha_comm_may_post(comm) || path->count_busy || ha_qp_room(&path->qps[0]) == 0)
		return;
	now_ns = ha_now_ns();
	if (wait->interval_ns == 0) {
		wait->interval_ns = first_interval_ns(wait);
		wait->ask_ns = now_ns + wait->interval_ns;
	} else if (now_ns >= wait->ask_ns && post_read(comm, path)) {
		if (wait->interval_ns < HA_COUNT_ASK_MAX_NS)
			wait->interval_ns *= 2;
		wait->ask_ns = now_ns + wait->interval_ns;
	}
}

void ha_e2e_answered(struct ha_comm *comm, struct ha_path *path, uint32_t mark)
{
	path->count_busy = false;
	ha_qp_left(&path->qps[0], mark);
	if (counted(comm, comm->send, __atomic_load_n(&comm->send_ring->count, __ATOMIC_ACQUIRE)))
		comm->send->count_wait.in_vain++;
}

/* ---- both ----------------------------------------------------------------------------------- */

void ha_e2e_look(struct ha_comm *comm)
{
	if (!(comm->silent & HA_SILENT_COUNT) || look_at_rows(comm))
		return;
	if (atomic_load_explicit(&comm->peer_bye, memory_order_acquire))
		/* What an orderly end says counts as well. */
		(void)counted(comm, comm->send, comm->peer_done.base);
	else
		ask(comm);
}
