/* SPDX-License-Identifier: Apache-2.0 */
/*
 * irecv: tell the sender where its messages may go, and learn from immediates that they came.
 *
 * A receive keeps everything needed to ask again, on another path and in another epoch, until
 * test has reported it.
 */
#include "base/log.h"
#include "memory/mr.h"
#include "transport/complete.h"

void ha_recv_init(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;

	r->next_seq = 1;
	r->cts_seq = 1;
	r->done.base = 1;
	r->told = 1;
	for (unsigned i = 0; i < HA_WINDOW; i++)
		r->slots[i].expect = HA_IMM_NEVER;
	r->cts_wr.sg_list = &r->cts_sge;
	r->cts_wr.num_sge = 1;
	r->cts_wr.opcode = IBV_WR_RDMA_WRITE;
}

/* ---- clear-to-send ------------------------------------------------------------------------- */

/*
 * Completes our copy of a row for this path and epoch. False when memory cannot be registered on
 * the path's device.
 */
static bool stamp_row(struct ha_comm *comm, const struct ha_path *path,
		      const struct ha_recv_slot *slot, struct ha_cts *row)
{
	uint64_t stamp = ha_stamp(slot->seq, ha_comm_epoch(comm));

	for (unsigned i = 0; i < slot->n; i++) {
		uint64_t keys;

		row[i].stamp = stamp;
		row[i].stamp_end = stamp;
		if (__builtin_expect(!slot->mrs[i], 0))
			continue; /* of a receive of nothing */
		if (ha_mr_keys_on(slot->mrs[i], path->nic, path->nic_index, &keys) != HA_OK) {
			ha_comm_registration_failed(comm, path, "a receive buffer");
			return false;
		}
		row[i].rkey = ha_mr_rkey(keys);
	}
	return true;
}

/* Posts a row that is stamped, in a queue that has room. */
static inline bool post_row(struct ha_comm *comm, struct ha_path *path, unsigned index,
			    uint64_t seq, unsigned n)
{
	struct ha_recv_side *r = comm->recv;
	struct ha_qp *qp = &path->qps[index];
	const size_t row_index = seq & comm->slot_mask;
	struct ha_cts *row = comm->recv_ring->cts[row_index];
	const uint32_t length = n * (uint32_t)sizeof(*row);
	struct ibv_send_wr *bad;
	int rc;

	row[0].delivered = r->done.base;
	r->cts_sge.addr = (uintptr_t)row;
	r->cts_sge.length = length;
	r->cts_wr.wr.rdma.remote_addr = path->remote_ring + row_index * HA_GROUP_MAX * sizeof(*row);
	r->cts_wr.send_flags = length <= path->max_inline ? IBV_SEND_INLINE : 0;
	if (__builtin_expect(ha_qp_makes_room(qp), 0)) {
		r->cts_wr.send_flags |= IBV_SEND_SIGNALED;
		r->cts_wr.wr_id = ha_wr_make(qp->wr_base, HA_WR_CTS, qp->sq_posted + 1);
	}
	rc = ibv_post_send(qp->qp, &r->cts_wr, &bad);
	if (__builtin_expect(rc != 0, 0)) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send", rc);
		return false;
	}
	qp->sq_posted++;
	comm->count.work_requests++;
	return true;
}

/* The queue pair that carries a row. */
static inline unsigned qp_of(const struct ha_path *path, uint64_t seq)
{
	return __builtin_expect(path->nqps == 1, 1) ? 0 : (unsigned)(seq % path->nqps);
}

static bool post_cts(struct ha_comm *comm, struct ha_path *path, const struct ha_recv_slot *slot)
{
	unsigned index = qp_of(path, slot->seq);

	return ha_qp_room(&path->qps[index]) != 0 &&
	       stamp_row(comm, path, slot, comm->recv_ring->cts[slot->seq & comm->slot_mask]) &&
	       post_row(comm, path, index, slot->seq, slot->n);
}

void ha_recv_pump(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;
	struct ha_path *path = ha_comm_path(comm);

	if (!ha_comm_may_post(comm))
		return;
	for (; r->cts_seq != r->next_seq; r->cts_seq++) {
		struct ha_recv_slot *slot = &r->slots[r->cts_seq & comm->slot_mask];

		/* After a failover some of those between have arrived already. */
		if (__builtin_expect(slot->expect == HA_IMM_NEVER, 0))
			continue;
		if (!post_cts(comm, path, slot))
			return;
	}
}

/* ---- arrival ------------------------------------------------------------------------------- */

static ha_result_t bad_record(struct ha_comm *comm, const struct ha_recv_slot *slot)
{
	return ha_comm_fail(comm, HA_ERR_INTERNAL,
			    "the sizes record of message %llu is missing or impossible",
			    (unsigned long long)slot->seq);
}

/* The record was written on the same queue pair before its immediate, so it is there. */
static bool take_record(struct ha_comm *comm, struct ha_recv_slot *slot)
{
	const struct ha_sizes *record = &comm->recv_ring->sizes[slot->seq & comm->slot_mask];
	const struct ha_cts *row = comm->recv_ring->cts[slot->seq & comm->slot_mask];
	const unsigned n = slot->n;
	uint64_t bytes = 0;

	if (__atomic_load_n(&record->stamp, __ATOMIC_ACQUIRE) !=
	    ha_stamp(slot->seq, ha_comm_epoch(comm)))
		return false;
	for (unsigned i = 0; i < n; i++) {
		const uint64_t size = record->size[i];

		if (__builtin_expect(size > row[i].size, 0))
			return false;
		bytes += size;
		slot->sizes[i] = (int)size;
	}
	slot->bytes = bytes;
	if (__builtin_expect(bytes > INT_MAX, 0))
		for (unsigned i = 0; i < n; i++)
			slot->sizes[i] = ha_int_size(record->size[i]);
	return true;
}

bool ha_recv_part(struct ha_comm *comm, struct ha_recv_slot *slot, uint32_t imm, uint32_t bytes)
{
	if (ha_imm_record(imm))
		slot->record = true;
	else
		slot->bytes += bytes;
	if (++slot->parts_seen != ha_imm_parts(imm))
		return false;
	if (slot->record ? take_record(comm, slot) : slot->n == 1)
		return true;
	bad_record(comm, slot);
	return false;
}

void ha_recv_unexpected(struct ha_comm *comm, struct ha_path *path, uint32_t imm)
{
	if (ha_imm_kind(imm) == HA_IMM_KIND_CONTROL)
		ha_failover_mail(comm, path);
	else if (comm->recv) /* a sender gets no messages */
		comm->count.stale_completions++;
}

void ha_recv_refill(struct ha_comm *comm, struct ha_path *path, struct ha_qp *qp)
{
	int rc;

	if (ha_path_stopped(path))
		return; /* nothing will come any more: what is taken is what had come */
	rc = ha_qp_refill(qp, HA_RQ_BATCH);
	if (__builtin_expect(rc != 0, 0)) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_recv", rc);
		return;
	}
	qp->rq_used -= HA_RQ_BATCH;
}

/* ---- irecv --------------------------------------------------------------------------------- */

/*
 * Fills the slot and our copy of its row, complete with stamps and keys where they are known:
 * 1. 0: some are not. -1: a buffer without memory.
 */
static inline int fill_slot(struct ha_comm *comm, struct ha_recv_slot *slot, struct ha_cts *row,
			    uint64_t seq, unsigned n, void *const *data, const size_t *sizes,
			    const int *tags, struct ha_mr *const *mrs)
{
	const struct ha_path *path = ha_comm_path(comm);
	const uint32_t epoch = ha_comm_epoch(comm);
	const uint64_t stamp = ha_stamp(seq, epoch);
	int complete = path != NULL;
	const unsigned nic_index = complete ? path->nic_index : 0;
	unsigned i = 0;

	do {
		const struct ha_mr *mr = mrs[i];
		uint64_t keys;

		slot->mrs[i] = mrs[i];
		row[i].stamp = stamp;
		row[i].addr = (uintptr_t)data[i];
		row[i].size = sizes[i];
		row[i].tag = tags[i];
		row[i].n = (uint8_t)n;
		row[i].index = (uint8_t)i;
		row[i].stamp_end = stamp;
		if (__builtin_expect(!mr, 0)) {
			if (sizes[i] != 0)
				return -1;
			continue;
		}
		keys = ha_mr_keys(mr, nic_index);
		if (__builtin_expect(keys == 0, 0))
			complete = 0;
		row[i].rkey = ha_mr_rkey(keys);
	} while (++i < n);
	slot->seq = seq;
	slot->n = (uint8_t)n;
	slot->parts_seen = 0;
	slot->record = false;
	slot->in_use = true;
	slot->bytes = 0;
	slot->expect = ha_imm_pack(seq, epoch, 1, false);
	return complete;
}

/* The row of the receive that was started last, if nothing is before it or in the way. */
static inline bool post_newest(struct ha_comm *comm, struct ha_path *path, uint64_t seq, unsigned n)
{
	unsigned index;

	if (__builtin_expect(comm->recv->cts_seq != seq || !ha_comm_may_post(comm), 0))
		return false;
	index = qp_of(path, seq);
	if (__builtin_expect(ha_qp_room(&path->qps[index]) == 0, 0))
		return false;
	if (post_row(comm, path, index, seq, n))
		comm->recv->cts_seq++;
	return true;
}

/* Under the token. */
static inline ha_result_t start_receive(struct ha_comm *comm, unsigned n, void *const *data,
					const size_t *sizes, const int *tags,
					struct ha_mr *const *mrs, struct ha_request **out)
{
	struct ha_recv_side *r = comm->recv;
	const uint64_t seq = r->next_seq;
	const size_t index = seq & comm->slot_mask;
	struct ha_recv_slot *slot = &r->slots[index];
	struct ha_request *req = comm->pool.free;
	int filled;

	if (__builtin_expect(r->unreported == HA_MAX_OUTSTANDING || slot->in_use || !req, 0)) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	filled = fill_slot(comm, slot, comm->recv_ring->cts[index], seq, n, data, sizes, tags, mrs);
	if (__builtin_expect(filled < 0, 0))
		return HA_ERR_ARGUMENT;
	req = ha_request_get(&comm->pool, HA_REQ_RECV);
	req->recv = slot;
	slot->req = req;
	r->unreported++;
	r->next_seq++;
	ha_comm_count(comm, 1);
	comm->count.requests++;
	*out = req;
	if (!filled || !post_newest(comm, ha_comm_path(comm), seq, n))
		ha_recv_pump(comm);
	return HA_OK;
}

/* Nothing was started: an error, or a receive that cannot be. */
static __attribute__((noinline)) ha_result_t not_started(struct ha_comm *comm, int n)
{
	ha_result_t result = ha_comm_error(comm);

	if (result != HA_OK)
		return result;
	if (n < 1 || n > comm->max_recvs) {
		HA_WARN("connection %s: a receive of %d buffers, 1 to %d are possible", comm->name,
			n, comm->max_recvs);
		return HA_ERR_ARGUMENT;
	}
	return ha_comm_fail(comm, HA_ERR_REMOTE,
			    "a receive on a connection that the peer has closed");
}

ha_result_t ha_irecv(struct ha_comm *comm, int n, void *const *data, const size_t *sizes,
		     const int *tags, struct ha_mr *const *mrs, struct ha_request **out)
{
	ha_result_t result;

	*out = NULL;
	if (__builtin_expect(ha_comm_error(comm) != HA_OK || (unsigned)n - 1 >= comm->max_recvs ||
				 atomic_load_explicit(&comm->peer_bye, memory_order_relaxed),
			     0))
		return not_started(comm, n);
	if (!ha_token_try(comm)) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	result = start_receive(comm, (unsigned)n, data, sizes, tags, mrs, out);
	ha_token_release(comm);
	return result;
}
