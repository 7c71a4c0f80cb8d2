/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End-to-end completion (HA_NCCL_COMPLETION=e2e): a send is complete when the receiver's software
 * has the message, not when its hardware has acknowledged it. A device that dies between the two
 * then loses nothing: the sender still has the data.
 *
 * The receiver writes how many messages it has, in order, into a word of the sender's ring. The
 * word only grows, so it does not matter on which path or in which epoch it was written. The sender
 * completes a message when the word counts it *and* the hardware has completed it: before that the
 * device may read the buffer again.
 */
#include "transport/e2e.h"
#include "transport/complete.h"
#include "transport/path_error.h"
#include "transport/recv.h"
#include "transport/send.h"

#include "event/reason.h"

/* ---- sender -------------------------------------------------------------------------------- */

/* Pairs with the peer's RDMA write. What an orderly end says counts as well. */
static uint64_t counted(const struct ha_comm *comm)
{
	uint64_t word = __atomic_load_n(&comm->send_ring->delivered, __ATOMIC_ACQUIRE);

	if (atomic_load_explicit(&comm->peer_bye, memory_order_acquire) &&
	    comm->peer_done.base > word)
		return comm->peer_done.base;
	return word;
}

static void take_count(struct ha_comm *comm)
{
	struct ha_send_side *s = comm->send;
	uint64_t count = counted(comm);

	if (count <= s->delivered)
		return;
	/* More than was sent cannot be there. */
	s->delivered = count < s->post_seq ? count : s->post_seq;
	for (uint64_t seq = s->completed.base; seq < s->delivered; seq++) {
		struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

		if (group->state == HA_GROUP_POSTED && group->parts_left == 0)
			ha_send_group_complete(comm, group);
	}
}

/* ---- receiver ------------------------------------------------------------------------------ */

static bool post_count(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_recv_side *r = comm->recv;
	struct ha_qp *qp = &path->qps[0];
	struct ibv_sge sge = {
	    .addr = (uintptr_t)&comm->recv_ring->delivered,
	    .length = sizeof(comm->recv_ring->delivered),
	    .lkey = path->ring_lkey,
	};
	struct ibv_send_wr wr = {
	    .sg_list = &sge,
	    .num_sge = 1,
	    .opcode = IBV_WR_RDMA_WRITE,
	    .send_flags = sge.length <= path->max_inline ? IBV_SEND_INLINE : 0,
	    .wr.rdma = {.remote_addr = path->remote_ring + offsetof(struct ha_send_ring, delivered),
			.rkey = path->remote_rkey},
	};
	struct ibv_send_wr *bad;
	int rc;

	/* Where it cannot go inline an earlier write may take this value along: it is true, too. */
	__atomic_store_n(&comm->recv_ring->delivered, r->done.base, __ATOMIC_RELAXED);
	if (ha_sq_makes_room(qp->sq_posted + 1)) {
		wr.send_flags |= IBV_SEND_SIGNALED;
		wr.wr_id = ha_wr_make(qp->wr_base, HA_WR_CTS, qp->sq_posted + 1);
	}
	rc = ibv_post_send(qp->qp, &wr, &bad);
	if (rc != 0) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send", rc);
		return false;
	}
	qp->sq_posted++;
	r->told = r->done.base;
	r->told_mark = qp->sq_posted;
	comm->count.work_requests++;
	return true;
}

static void tell_count(struct ha_comm *comm)
{
	struct ha_path *path = ha_comm_path(comm);

	if (comm->recv->done.base == comm->recv->told)
		return;
	/* Even with nothing outstanding here there is somebody who waits. */
	atomic_store_explicit(&comm->telling, true, memory_order_relaxed);
	if (ha_path_ready(path) && ha_qp_room(&path->qps[0]) != 0)
		(void)post_count(comm, path);
}

bool ha_e2e_confirm(struct ha_comm *comm, const struct ha_path *path)
{
	const struct ha_recv_side *r = comm->recv;

	if (r->told != r->done.base || (int32_t)(r->told_mark - path->qps[0].sq_done) > 0)
		return false;
	atomic_store_explicit(&comm->telling, false, memory_order_relaxed);
	return true;
}

void ha_e2e_resume(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;
	const struct ha_path *path = ha_comm_path(comm);

	/* RESUME tells it. */
	r->told = r->done.base;
	r->told_mark = path ? path->qps[0].sq_done : 0;
}

/* ---- both ---------------------------------------------------------------------------------- */

void ha_e2e_look(struct ha_comm *comm)
{
	if (!(comm->silent & HA_SILENT_COUNT))
		return;
	if (comm->is_send)
		take_count(comm);
	else
		tell_count(comm);
}
