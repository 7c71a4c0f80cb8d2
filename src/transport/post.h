/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting a group the moment its last send comes, when nothing is in the way: what isend does
 * nearly always, and therefore inline. All else is post.c's. Under the token.
 */
#ifndef HA_TRANSPORT_POST_H
#define HA_TRANSPORT_POST_H

#include "base/invariant.h"
#include "transport/comm.h"
#include "transport/path_error.h"
#include "transport/send.h"
#include "transport/split.h"
#include "transport/user_mr.h"

#include <arpa/inet.h>

/* The queue pair a message takes when it is not spread. */
static inline unsigned ha_qp_of(const struct ha_path *path, uint64_t seq)
{
	return ha_qp_in_turn(seq, path->nqps);
}

/*
 * Data of `len` bytes at `offset` of a send. False when the memory is not registered here, or
 * not yet. num_sge stays what it is.
 */
static inline bool ha_fill_data(struct ha_comm *comm, const struct ha_path *path,
				const struct ha_request *req, uint64_t offset, uint32_t len,
				struct ibv_send_wr *wr)
{
	struct ibv_sge *sge = wr->sg_list;
	uint64_t keys = ha_comm_keys(comm, path, path->nic_index, req->mr, "a send buffer");

	if (__builtin_expect(keys == 0, 0))
		return false;
	wr->wr.rdma.remote_addr = req->remote_addr + offset;
	wr->wr.rdma.rkey = req->remote_rkey;
	wr->send_flags = len <= path->max_inline && ha_mr_is_host(req->mr) ? IBV_SEND_INLINE : 0;
	sge->addr = req->addr + offset;
	sge->length = len;
	sge->lkey = ha_mr_lkey(keys);
	return true;
}

/* Makes `wr` the last of its part: it tells the receiver, and asks for our completion. */
static inline void ha_finish_part(struct ha_comm *comm, const struct ha_qp *qp,
				  const struct ha_send_group *group, unsigned parts, bool record,
				  struct ibv_send_wr *wr)
{
	wr->imm_data = htonl(ha_imm_pack(group->seq, group->epoch, parts, record));
	wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr_id = ha_wr_make(qp->wr_base, HA_WR_DATA, (uint32_t)(group->seq & comm->slot_mask));
}

/* Posts a list of `count`. */
static inline bool ha_post(struct ha_comm *comm, struct ha_path *path, struct ha_qp *qp,
			   struct ibv_send_wr *first, uint32_t count)
{
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(qp->qp, first, &bad);

	if (__builtin_expect(rc != 0, 0)) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send", rc);
		return false;
	}
	qp->sq_posted += count;
	HA_INVARIANT(qp->sq_posted - qp->sq_done <= qp->sq_depth);
	comm->count.work_requests += count;
	return true;
}

/* Posts a write of nothing on a queue that has room, which says when it is through: a completion of
 * this kind with its place in the queue. [T] */
bool ha_post_nothing(struct ha_comm *comm, struct ha_path *path, unsigned qp, enum ha_wr_kind kind);

/* Set-up of the work-request templates. */
void ha_send_init(struct ha_comm *comm);
/* Posts a group with the keys of a new row, in its turn or not: one that was posted before. False:
 * later, or the path failed. [T] */
bool ha_send_post_again(struct ha_comm *comm, struct ha_send_group *group);
/* Posts what was held back, in order, as far as queues have room. [T] */
void ha_send_pump(struct ha_comm *comm);

enum ha_renewal {
	HA_RENEWAL_DONE,  /* the group can be posted in this epoch */
	HA_RENEWAL_SKIP,  /* it is complete */
	HA_RENEWAL_LATER, /* its rows are not there yet, or the connection failed */
};

/* For a group of an older epoch, or turn: takes the new keys. */
enum ha_renewal ha_send_renew(struct ha_comm *comm, struct ha_send_group *group);
/* The same of one that is posted already, and is to be posted in part again. */
enum ha_renewal ha_send_take_row(struct ha_comm *comm, struct ha_send_group *group);

#endif
