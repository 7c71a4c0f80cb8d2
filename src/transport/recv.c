/* SPDX-License-Identifier: Apache-2.0 */
/*
 * irecv: tell the sender where its messages may go, and learn from immediates that they came.
 *
 * A receive keeps everything needed to ask again, on another path and in another epoch, until
 * test has reported it.
 */
#include "transport/comm.h"

#include "base/log.h"
#include "memory/mr.h"

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

static inline struct ha_recv_slot *slot_of(struct ha_comm *comm, uint64_t seq)
{
	return &comm->recv->slots[seq & comm->slot_mask];
}

/* ---- clear-to-send ------------------------------------------------------------------------- */

/*
 * Completes our copy of a row for this path and epoch. False when memory cannot be registered on
 * the path's device.
 */
static inline bool stamp_row(struct ha_comm *comm, const struct ha_path *path,
			     const struct ha_recv_slot *slot, struct ha_cts *row)
{
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);
	uint64_t stamp = ha_stamp(slot->seq, epoch);

	for (unsigned i = 0; i < slot->n; i++) {
		struct ibv_mr *mr;

		row[i].stamp = stamp;
		row[i].stamp_end = stamp;
		if (__builtin_expect(!slot->mrs[i], 0))
			continue; /* of a receive of nothing */
		if (ha_mr_on(slot->mrs[i], path->nic, &mr) != HA_OK) {
			ha_comm_registration_failed(comm, path, "a receive buffer");
			return false;
		}
		row[i].rkey = mr->rkey;
	}
	row[0].delivered = comm->recv->done.base;
	return true;
}

static inline bool post_cts(struct ha_comm *comm, struct ha_path *path, struct ha_recv_slot *slot)
{
	struct ha_recv_side *r = comm->recv;
	unsigned index = path->nqps == 1 ? 0 : (unsigned)(slot->seq % path->nqps);
	struct ha_qp *qp = &path->qps[index];
	size_t row_index = slot->seq & comm->slot_mask;
	struct ha_cts *row = comm->recv_ring->cts[row_index];
	struct ibv_send_wr *bad;
	int rc;

	if (ha_qp_room(qp) == 0 || !stamp_row(comm, path, slot, row))
		return false;
	r->cts_sge.addr = (uintptr_t)row;
	r->cts_sge.length = (uint32_t)(slot->n * sizeof(*row));
	r->cts_wr.wr.rdma.remote_addr = path->remote_ring + row_index * HA_GROUP_MAX * sizeof(*row);
	r->cts_wr.send_flags = r->cts_sge.length <= path->max_inline ? IBV_SEND_INLINE : 0;
	if (++qp->cts_unsignalled == HA_CTS_SIGNAL_INTERVAL) {
		qp->cts_unsignalled = 0;
		r->cts_wr.send_flags |= IBV_SEND_SIGNALED;
		r->cts_wr.wr_id =
		    ha_wr_id(HA_WR_CTS, path->index, path->generation, index, qp->sq_posted + 1);
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

void ha_recv_pump(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;
	struct ha_path *path = ha_comm_path(comm);

	if (!ha_comm_may_post(comm))
		return;
	for (; r->cts_seq != r->next_seq; r->cts_seq++) {
		struct ha_recv_slot *slot = slot_of(comm, r->cts_seq);

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
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);

	if (__atomic_load_n(&record->stamp, __ATOMIC_ACQUIRE) != ha_stamp(slot->seq, epoch))
		return false;
	for (unsigned i = 0; i < slot->n; i++) {
		slot->sizes[i] = record->size[i];
		if (slot->sizes[i] > row[i].size)
			return false;
	}
	return true;
}

static inline void complete_receive(struct ha_comm *comm, struct ha_recv_slot *slot)
{
	if (slot->record) {
		if (!take_record(comm, slot)) {
			bad_record(comm, slot);
			return;
		}
	} else if (slot->n == 1) {
		slot->sizes[0] = slot->bytes;
	} else {
		bad_record(comm, slot);
		return;
	}
	slot->expect = HA_IMM_NEVER;
	ha_window_mark(&comm->recv->done, slot->seq);
	comm->count.messages += slot->n;
	for (unsigned i = 0; i < slot->n; i++)
		comm->count.bytes += slot->sizes[i];
	ha_comm_count(comm, -1);
	ha_request_done(slot->req);
}

/* What took this receive counts, whether or not another can be put in its place. */
static inline void refill(struct ha_comm *comm, struct ha_path *path, struct ha_qp *qp)
{
	int rc;

	if (++qp->rq_used < HA_RQ_BATCH)
		return;
	if (ha_path_stopped(path))
		return; /* nothing will come any more: what is taken is what had come */
	rc = ha_qp_refill(qp, HA_RQ_BATCH);
	if (__builtin_expect(rc != 0, 0)) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_recv", rc);
		return;
	}
	qp->rq_used -= HA_RQ_BATCH;
}

void ha_recv_immediate(struct ha_comm *comm, struct ha_path *path, unsigned qp, uint32_t imm,
		       uint32_t bytes)
{
	struct ha_recv_slot *slot;

	refill(comm, path, &path->qps[qp]);
	if (!comm->recv) { /* a sender gets no messages */
		if (ha_imm_kind(imm) == HA_IMM_KIND_CONTROL)
			ha_failover_mail(comm, path);
		return;
	}
	slot = slot_of(comm, ha_imm_seq(imm));
	if (__builtin_expect(!ha_imm_is(imm, slot->expect), 0)) {
		if (ha_imm_kind(imm) == HA_IMM_KIND_CONTROL)
			ha_failover_mail(comm, path);
		else
			comm->count.stale_completions++;
		return;
	}
	if (ha_imm_record(imm))
		slot->record = true;
	else
		slot->bytes += bytes;
	if (++slot->parts_seen == ha_imm_parts(imm))
		complete_receive(comm, slot);
}

/* ---- irecv --------------------------------------------------------------------------------- */

static inline void fill_slot(struct ha_comm *comm, struct ha_recv_slot *slot,
			     struct ha_request *req, uint64_t seq, int n, void *const *data,
			     const size_t *sizes, const int *tags, struct ha_mr *const *mrs)
{
	struct ha_cts *row = comm->recv_ring->cts[seq & comm->slot_mask];
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);

	slot->req = req;
	slot->seq = seq;
	slot->n = (uint8_t)n;
	slot->expect = ha_imm_pack(seq, epoch, 1, false);
	slot->in_use = true;
	slot->parts_seen = 0;
	slot->record = false;
	slot->bytes = 0;
	for (int i = 0; i < n; i++) {
		slot->mrs[i] = mrs[i];
		row[i].addr = (uintptr_t)data[i];
		row[i].size = sizes[i];
		row[i].tag = tags[i];
		row[i].n = (uint8_t)n;
		row[i].index = (uint8_t)i;
	}
}

/* Under the token. */
static inline ha_result_t start_receive(struct ha_comm *comm, int n, void *const *data,
					const size_t *sizes, const int *tags,
					struct ha_mr *const *mrs, struct ha_request **out)
{
	struct ha_recv_side *r = comm->recv;
	uint64_t seq = r->next_seq;
	struct ha_recv_slot *slot = slot_of(comm, seq);
	struct ha_request *req;

	if (r->unreported == HA_MAX_OUTSTANDING || slot->in_use) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	req = ha_request_get(&comm->pool, HA_REQ_RECV);
	if (!req)
		return HA_OK;
	req->seq = seq;
	req->slot = (uint16_t)(seq & comm->slot_mask);
	fill_slot(comm, slot, req, seq, n, data, sizes, tags, mrs);
	r->unreported++;
	r->next_seq++;
	ha_comm_count(comm, 1);
	comm->count.requests++;
	*out = req;
	ha_recv_pump(comm);
	return HA_OK;
}

ha_result_t ha_irecv(struct ha_comm *comm, int n, void *const *data, const size_t *sizes,
		     const int *tags, struct ha_mr *const *mrs, bool optional,
		     struct ha_request **out)
{
	ha_result_t result = ha_comm_error(comm);

	/* What is not tracked cannot be sent again after a failure: the hint changes nothing. */
	(void)optional;
	*out = NULL;
	if (__builtin_expect(result != HA_OK, 0))
		return result;
	if (__builtin_expect(n < 1 || n > comm->max_recvs, 0)) {
		HA_WARN("connection %s: a receive of %d buffers, 1 to %d are possible", comm->name,
			n, comm->max_recvs);
		return HA_ERR_ARGUMENT;
	}
	for (int i = 0; i < n; i++)
		if (__builtin_expect(sizes[i] != 0 && !mrs[i], 0))
			return HA_ERR_ARGUMENT;
	if (__builtin_expect(atomic_load_explicit(&comm->peer_bye, memory_order_relaxed), 0))
		return ha_comm_fail(comm, HA_ERR_REMOTE,
				    "a receive on a connection that the peer has closed");
	if (!ha_token_try(comm)) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	result = start_receive(comm, n, data, sizes, tags, mrs, out);
	ha_token_release(comm);
	return result;
}

void ha_recv_release(struct ha_comm *comm, struct ha_recv_slot *slot)
{
	slot->in_use = false;
	comm->recv->unreported--;
}
