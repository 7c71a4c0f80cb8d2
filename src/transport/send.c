/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isend: match a send with what the receiver asked for. What becomes of it when the hardware is
 * through with its group is in complete.h.
 *
 * The receiver's row says where each message of a group may be put, and how much of it. A group is
 * posted (post.c) when all its sends are in.
 */
#include "transport/send.h"
#include "base/hot.h"
#include "base/invariant.h"
#include "base/log.h"
#include "transport/clear_path.h"
#include "transport/complete.h"
#include "transport/e2e.h"
#include "transport/path_error.h"
#include "transport/post.h"

/* ---- what the peer's end settles ------------------------------------------------------------- */

void ha_send_settle(struct ha_comm *comm, const struct ha_window *delivered)
{
	struct ha_send_side *s = comm->send;

	for (unsigned i = 0; i <= comm->slot_mask; i++) {
		struct ha_send_group *group = &s->groups[i];

		if (group->state == HA_GROUP_POSTED && ha_window_has(delivered, group->seq))
			ha_send_group_complete(comm, group);
	}
}

/* ---- isend --------------------------------------------------------------------------------- */

static ha_result_t bad_row(struct ha_comm *comm, const struct ha_cts *cts, uint64_t seq)
{
	return ha_comm_fail(
	    comm, HA_ERR_INTERNAL,
	    "the peer's clear-to-send number %llu makes no sense (element %u of %u)",
	    (unsigned long long)seq, cts->index, cts->n);
}

/* A request for what goes to this element. NULL: all are in use. */
static inline struct ha_request *request_for(struct ha_comm *comm, const struct ha_cts *cts,
					     void *data, size_t size, int tag, struct ha_mr *mr)
{
	struct ha_request *req = ha_request_get(&comm->pool, HA_REQ_SEND);

	if (__builtin_expect(!req, 0))
		return NULL;
	req->addr = (uintptr_t)data;
	req->size = size;
	req->mr = mr;
	req->tag = tag;
	req->remote_addr = cts->addr;
	req->remote_rkey = cts->rkey;
	comm->outstanding++;
	comm->count.requests++;
	return req;
}

/* Nothing was started: an error, or the receiver is not ready. */
static __attribute__((noinline)) ha_result_t not_started(struct ha_comm *comm)
{
	ha_result_t result = ha_comm_error(comm);

	if (result != HA_OK)
		return result;
	if (atomic_load_explicit(&comm->peer_bye, memory_order_relaxed))
		return ha_comm_fail(comm, HA_ERR_REMOTE,
				    "a send on a connection that the peer has closed");
	ha_comm_not_ready(comm);
	return HA_OK;
}

/* ---- whatever is not plain ------------------------------------------------------------------ */

/* The element of the oldest group that this tag belongs to; its number, or n: none, or not there.
 */
static unsigned search(const struct ha_send_side *s, const struct ha_cts *row, uint64_t stamp,
		       unsigned n, int tag)
{
	for (unsigned i = s->first; i < n; i++)
		if (!(s->taken >> i & 1) && ha_cts_arrived(&row[i], stamp) && row[i].tag == tag)
			return i;
	return n;
}

/* Element `index` of the group goes to `req`. Under the token. */
static inline void take(struct ha_comm *comm, struct ha_send_group *group, unsigned index,
			struct ha_request *req)
{
	struct ha_send_side *s = comm->send;
	const unsigned taken = s->taken | 1u << index;

	HA_INVARIANT(index < group->n);
	HA_INVARIANT(!(s->taken >> index & 1));
	HA_INVARIANT(group->state == HA_GROUP_MATCHING);
	HA_INVARIANT(group->seq == s->match_seq);
	group->reqs[index] = req;
	if (req->size > group->largest)
		group->largest = req->size;
	if (taken != s->all) {
		s->taken = (uint8_t)taken;
		s->first = (uint8_t)__builtin_ctz(~taken);
		return;
	}
	s->taken = 0;
	s->first = 0;
	s->match_seq++;
	group->state = HA_GROUP_MATCHED;
	ha_send_pump(comm);
}

/* Under the token, with the first element here that is not taken. */
static ha_result_t start(struct ha_comm *comm, const struct ha_cts *row, uint64_t stamp,
			 uint32_t epoch, void *data, size_t size, int tag, struct ha_mr *mr,
			 struct ha_request **out)
{
	struct ha_send_side *s = comm->send;
	const uint64_t seq = s->match_seq;
	struct ha_send_group *group = &s->groups[seq & comm->slot_mask];
	const bool begun = s->taken != 0;
	const unsigned n = begun ? group->n : row[0].n;
	const struct ha_cts *cts;
	unsigned index;

	if (n - 1 >= HA_GROUP_MAX)
		return bad_row(comm, &row[0], seq);
	if (!begun && group->state != HA_GROUP_FREE) {
		/* A whole window back: still on the wire, or nobody waits for its count. */
		ha_e2e_look(comm);
		if (group->state != HA_GROUP_FREE)
			return HA_OK;
	}
	index = search(s, row, stamp, n, tag);
	if (index == n)
		return HA_OK;
	cts = &row[index];
	if (cts->index != index)
		return bad_row(comm, cts, seq);
	/* As NCCL's own transport does: what the receive has no room for is not sent. */
	if (size > cts->size)
		size = cts->size;
	*out = request_for(comm, cts, data, size, tag, mr);
	if (!*out)
		return HA_OK;
	if (!begun) {
		group->seq = seq;
		group->n = (uint8_t)n;
		group->epoch = epoch;
		group->state = HA_GROUP_MATCHING;
		group->largest = 0;
		s->all = (uint8_t)((1u << n) - 1);
	}
	take(comm, group, index, *out);
	return HA_OK;
}

static __attribute__((noinline)) ha_result_t isend_any(struct ha_comm *comm, void *data,
						       size_t size, int tag, struct ha_mr *mr,
						       struct ha_request **out)
{
	const struct ha_send_side *s = comm->send;
	const struct ha_cts *row = comm->send_ring->cts[s->match_seq & comm->slot_mask];
	uint32_t epoch = ha_comm_epoch(comm);
	uint64_t stamp = ha_stamp(s->match_seq, epoch);
	ha_result_t result;

	*out = NULL;
	if (!ha_cts_arrived(&row[s->first], stamp) || ha_comm_error(comm) != HA_OK)
		return not_started(comm);
	if (!mr && size != 0)
		return HA_ERR_ARGUMENT;
	if (!ha_token_try(comm) && !ha_token_ask(comm)) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	result = start(comm, row, stamp, epoch, data, size, tag, mr, out);
	ha_token_release(comm);
	return result;
}

/* ---- the next one of a group ---------------------------------------------------------------- */

/* Of a group that has begun, where NCCL's sends come in order. */
static __attribute__((noinline)) ha_result_t isend_next(struct ha_comm *comm, void *data,
							size_t size, int tag, struct ha_mr *mr,
							struct ha_request **out)
{
	struct ha_send_side *s = comm->send;
	const size_t slot = s->match_seq & comm->slot_mask;
	const unsigned index = s->first;
	const struct ha_cts *cts = &comm->send_ring->cts[slot][index];
	struct ha_request *req;

	if (!ha_cts_arrived(cts, ha_stamp(s->match_seq, ha_comm_epoch(comm))) || cts->tag != tag ||
	    cts->index != index || size > cts->size || !mr || ha_comm_error(comm) != HA_OK ||
	    !ha_token_try(comm))
		return isend_any(comm, data, size, tag, mr, out);
	req = request_for(comm, cts, data, size, tag, mr);
	*out = req;
	if (__builtin_expect(req != NULL, 1))
		take(comm, &s->groups[slot], index, req);
	ha_token_release(comm);
	return HA_OK;
}

/* ---- a message of its own ------------------------------------------------------------------- */

/* Takes back what post_at_once did before it posted. */
static __attribute__((cold, noinline)) void not_posted(struct ha_comm *comm, struct ha_path *path,
						       int rc)
{
	struct ha_send_side *s = comm->send;

	s->groups[--s->post_seq & comm->slot_mask].state = HA_GROUP_MATCHED;
	comm->silent |= HA_SILENT_HELD;
	path->qps[0].sq_posted--;
	comm->count.work_requests--;
	ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send", rc);
}

/*
 * Posts the group that was matched last, if nothing is in the way; false: it is the pump's. All but
 * the failure is noted before the verb, so that nothing has to be kept in mind across it.
 */
static inline bool post_at_once(struct ha_comm *comm, struct ha_send_group *group, uint64_t seq,
				uint32_t epoch, const struct ha_request *req)
{
	struct ha_send_side *s = comm->send;
	struct ha_path *path = ha_comm_clear_path(comm);
	struct ibv_send_wr *wr = &s->single;
	struct ha_qp *qp;
	struct ibv_send_wr *bad;
	uint64_t keys;
	int rc;

	if (__builtin_expect(!path || s->post_seq != seq || ha_comm_epoch(comm) != epoch ||
				 req->size - 1 >= path->single_limit,
			     0))
		return false;
	qp = &path->qps[0];
	keys = ha_mr_keys(req->mr, path->nic_index);
	if (__builtin_expect(ha_qp_room(qp) == 0 || keys == 0, 0))
		return false;
	wr->wr.rdma.remote_addr = req->remote_addr;
	wr->wr.rdma.rkey = req->remote_rkey;
	wr->wr_id = qp->data_base | (seq & comm->slot_mask);
	wr->imm_data = htonl(ha_imm_pack(seq, epoch, 1, false));
	wr->send_flags = req->size <= path->max_inline && ha_mr_is_host(req->mr)
			     ? IBV_SEND_SIGNALED | IBV_SEND_INLINE
			     : IBV_SEND_SIGNALED;
	s->single_sge.addr = req->addr;
	s->single_sge.length = (uint32_t)req->size;
	s->single_sge.lkey = ha_mr_lkey(keys);
	HA_INVARIANT(group->state == HA_GROUP_MATCHED);
	HA_INVARIANT(ha_path_ready(path) && path->nqps == 1 && !comm->epoch_changing);
	group->state = HA_GROUP_POSTED;
	group->parts = 1;
	group->parts_left = 1;
	group->sq_mark = ++qp->sq_posted;
	s->post_seq = seq + 1;
	comm->count.work_requests++;
	rc = ibv_post_send(qp->qp, wr, &bad);
	if (__builtin_expect(rc != 0, 0))
		not_posted(comm, path, rc);
	return true;
}

/* Under the token. False: nothing was done, and it is not plain. */
static inline bool start_single(struct ha_comm *comm, const struct ha_cts *cts, uint32_t epoch,
				void *data, size_t size, int tag, struct ha_mr *mr,
				struct ha_request **out)
{
	struct ha_send_side *s = comm->send;
	const uint64_t seq = s->match_seq;
	struct ha_send_group *group = &s->groups[seq & comm->slot_mask];
	struct ha_request *req;

	if (__builtin_expect(group->state != HA_GROUP_FREE || cts->tag != tag || size > cts->size,
			     0))
		return false;
	req = request_for(comm, cts, data, size, tag, mr);
	if (__builtin_expect(!req, 0))
		return false;
	*out = req;
	group->seq = seq;
	group->n = 1;
	group->epoch = epoch;
	group->state = HA_GROUP_MATCHED;
	group->reqs[0] = req;
	s->match_seq = seq + 1;
	if (!post_at_once(comm, group, seq, epoch, req))
		ha_send_pump(comm);
	return true;
}

static __attribute__((noinline)) HA_NO_CANARY ha_result_t isend_first(struct ha_comm *comm,
								      void *data, size_t size,
								      int tag, struct ha_mr *mr,
								      struct ha_request **out)
{
	const struct ha_send_side *s = comm->send;
	const struct ha_cts *cts = comm->send_ring->cts[s->match_seq & comm->slot_mask];
	uint32_t epoch = ha_comm_epoch(comm);
	bool started;

	if (!ha_cts_arrived(cts, ha_stamp(s->match_seq, epoch)) || !ha_cts_alone(cts) || !mr ||
	    ha_comm_error(comm) != HA_OK || !ha_token_try(comm))
		return isend_any(comm, data, size, tag, mr, out);
	started = start_single(comm, cts, epoch, data, size, tag, mr, out);
	ha_token_release(comm);
	return __builtin_expect(started, 1) ? HA_OK : isend_any(comm, data, size, tag, mr, out);
}

/* Three ways, none of which saves registers for another. */
HA_CALLED_DIRECTLY ha_result_t ha_isend(struct ha_comm *comm, void *data, size_t size, int tag,
					struct ha_mr *mr, struct ha_request **out)
{
	if (comm->send->taken != 0)
		return isend_next(comm, data, size, tag, mr, out);
	return isend_first(comm, data, size, tag, mr, out);
}
