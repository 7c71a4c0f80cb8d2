/* SPDX-License-Identifier: Apache-2.0 */
/*
 * irecv: tell the sender where its messages may go, and learn from immediates that they came.
 *
 * A receive keeps everything needed to ask again, on another path and in another epoch, until
 * test has reported it.
 */
#include "transport/recv.h"
#include "base/hot.h"
#include "base/invariant.h"
#include "base/log.h"
#include "memory/mr.h"
#include "transport/clear_path.h"
#include "transport/complete.h"
#include "transport/failover_ops.h"
#include "transport/path_error.h"
#include "transport/stripe.h"
#include "transport/user_mr.h"

#include <limits.h>

void ha_recv_init(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;

	r->next_seq = 1;
	r->cts_seq = 1;
	r->done.base = 1;
	for (unsigned i = 0; i < HA_WINDOW; i++)
		r->slots[i].expect = HA_IMM_NEVER;
	r->cts_wr.sg_list = &r->cts_sge;
	r->cts_wr.num_sge = 1;
	r->cts_wr.opcode = IBV_WR_RDMA_WRITE;
}

/* ---- clear-to-send ------------------------------------------------------------------------- */

/*
 * Completes our copy of a row for this path and epoch. False when memory is not registered on the
 * path's device, or not yet.
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
		keys = ha_comm_keys(comm, path, path->nic_index, slot->mrs[i], "a receive buffer");
		if (keys == 0)
			return false;
		row[i].rkey = ha_mr_rkey(keys);
	}
	return true;
}

/*
 * Posts a row that is stamped, in a queue that has room. What it changes is noted before the verb,
 * so that nothing has to be kept in mind across it; on failure the caller takes it back.
 */
static inline int post_row(struct ha_comm *comm, struct ha_recv_side *r, const struct ha_path *path,
			   struct ha_qp *qp, size_t row_index, unsigned n)
{
	struct ha_cts *row = comm->recv_ring->cts[row_index];
	const uint32_t length = n * (uint32_t)sizeof(*row);
	struct ibv_send_wr *bad;
	unsigned flags = n == 1			      ? path->element_flags
			 : length <= path->max_inline ? IBV_SEND_INLINE
						      : 0;
	uint32_t place = qp->sq_posted + 1;

	row[0].delivered = r->done.base;
	r->cts_sge.addr = (uintptr_t)row;
	HA_INVARIANT(ha_path_ready(path) && !comm->epoch_changing);
	HA_INVARIANT(row[0].stamp == ha_stamp(r->cts_seq, ha_comm_epoch(comm)));
	HA_INVARIANT(row[n - 1].stamp_end == row[0].stamp);
	HA_INVARIANT((r->cts_seq & comm->slot_mask) == row_index);
	r->cts_sge.length = length;
	r->cts_wr.wr.rdma.remote_addr = path->remote_ring + row_index * HA_GROUP_MAX * sizeof(*row);
	if (__builtin_expect(ha_sq_makes_room(place), 0)) {
		flags |= IBV_SEND_SIGNALED;
		r->cts_wr.wr_id = ha_wr_make(qp->wr_base, HA_WR_CTS, place);
	}
	r->cts_wr.send_flags = flags;
	qp->sq_posted = place;
	comm->count.work_requests++;
	r->cts_seq++;
	return ibv_post_send(qp->qp, &r->cts_wr, &bad);
}

static __attribute__((cold, noinline)) void not_posted(struct ha_comm *comm, struct ha_path *path,
						       struct ha_qp *qp, int rc)
{
	comm->recv->cts_seq--;
	comm->silent |= HA_SILENT_HELD;
	qp->sq_posted--;
	comm->count.work_requests--;
	ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send", rc);
}

/* The queue pair that carries a row. */
static inline unsigned qp_of(const struct ha_path *path, uint64_t seq)
{
	return __builtin_expect(path->nqps == 1, 1) ? 0 : (unsigned)(seq % path->nqps);
}

static bool post_cts(struct ha_comm *comm, struct ha_path *path, const struct ha_recv_slot *slot)
{
	struct ha_qp *qp = &path->qps[qp_of(path, slot->seq)];
	const size_t row_index = slot->seq & comm->slot_mask;
	int rc;

	if (ha_qp_room(qp) == 0 || !stamp_row(comm, path, slot, comm->recv_ring->cts[row_index]))
		return false;
	if (__builtin_expect(comm->recv->members != 0, 0))
		ha_stripe_name(comm, slot, comm->recv_ring->cts[row_index]);
	rc = post_row(comm, comm->recv, path, qp, row_index, slot->n);
	if (rc == 0)
		return true;
	not_posted(comm, path, qp, rc);
	return false;
}

/* The row of the receive that was started last, if nothing is in the way; false: it is the pump's.
 */
static inline bool post_at_once(struct ha_comm *comm, struct ha_recv_side *r, struct ha_path *path,
				uint64_t seq, size_t row_index, unsigned n)
{
	int rc;

	if (__builtin_expect(r->cts_seq != seq || ha_qp_room(&path->qps[0]) == 0, 0))
		return false;
	rc = post_row(comm, r, path, &path->qps[0], row_index, n);
	if (__builtin_expect(rc != 0, 0))
		not_posted(comm, path, &path->qps[0], rc);
	return true;
}

HA_NO_CANARY void ha_recv_pump(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;
	struct ha_path *path = ha_comm_path(comm);

	ha_comm_find_clear_path(comm);
	if (r->cts_seq != r->next_seq)
		comm->silent |= HA_SILENT_HELD;
	if (!ha_comm_may_post(comm))
		return;
	if (__builtin_expect(r->members != 0, 0) && path->nqps == 1)
		r->names_on = path;
	while (r->cts_seq != r->next_seq) {
		const struct ha_recv_slot *slot = &r->slots[r->cts_seq & comm->slot_mask];

		/* After a failover some of those between have arrived already. */
		if (slot->expect == HA_IMM_NEVER)
			r->cts_seq++;
		else if (!post_cts(comm, path, slot))
			return;
	}
	comm->silent &= (uint8_t)~HA_SILENT_HELD;
}

/* ---- arrival ------------------------------------------------------------------------------- */

static ha_result_t bad_record(struct ha_comm *comm, const struct ha_recv_slot *slot)
{
	return ha_comm_fail(comm, HA_ERR_INTERNAL,
			    "the sizes record of message %llu is missing or impossible",
			    (unsigned long long)slot->seq);
}

/*
 * Of messages that an int may be too small for. They are read a second time, so again no more is
 * taken than there is room for.
 */
static __attribute__((cold, noinline)) void
clamp_sizes(struct ha_recv_slot *slot, const struct ha_sizes *record, const struct ha_cts *row)
{
	for (unsigned i = 0; i < slot->n; i++) {
		uint64_t size = __atomic_load_n(&record->size[i], __ATOMIC_RELAXED);

		slot->sizes[i] = ha_int_size(size < row[i].size ? size : row[i].size);
	}
}

/* The record was written on the same queue pair before its immediate, so it is there. */
static bool take_record(struct ha_comm *comm, struct ha_recv_slot *slot, uint64_t *all)
{
	const struct ha_sizes *record = &comm->recv_ring->sizes[slot->seq & comm->slot_mask];
	const struct ha_cts *row = comm->recv_ring->cts[slot->seq & comm->slot_mask];
	const unsigned n = slot->n;
	uint64_t bytes = 0;

	if (__atomic_load_n(&record->stamp, __ATOMIC_ACQUIRE) !=
	    ha_stamp(slot->seq, ha_comm_epoch(comm)))
		return false;
	for (unsigned i = 0; i < n; i++) {
		uint64_t size = record->size[i];

		/* Read once, whatever the peer writes meanwhile; an atomic load costs eight
		 * instructions more in a group of eight. */
		__asm__("" : "+r"(size));
		if (__builtin_expect(size > row[i].size, 0))
			return false;
		bytes += size;
		slot->sizes[i] = (int)size;
	}
	*all = bytes;
	if (__builtin_expect(bytes > INT_MAX, 0))
		clamp_sizes(slot, record, row);
	return true;
}

/* Less than any message: what comes is for ha_recv_part. */
#define ROOM_OF_GROUP (-1)

int64_t ha_recv_room(const struct ha_comm *comm, const struct ha_recv_slot *slot)
{
	const struct ha_cts *row = comm->recv_ring->cts[slot->seq & comm->slot_mask];

	return slot->n == 1 ? (int64_t)row[0].size : ROOM_OF_GROUP;
}

/* Of n = 1, whose buffer it has to fit into: what its sender says is not believed. */
static __attribute__((noinline)) void single_part(struct ha_comm *comm, struct ha_recv_slot *slot,
						  uint32_t imm, uint32_t bytes)
{
	const int64_t room = ha_recv_room(comm, slot);

	slot->bytes -= bytes;
	if (slot->bytes < 0)
		(void)ha_comm_fail(comm, HA_ERR_INTERNAL,
				   "message %llu is longer than its buffer of %lld bytes",
				   (unsigned long long)slot->seq, (long long)room);
	else if (++slot->parts_seen == ha_imm_parts(imm))
		ha_recv_complete(comm, comm->recv, slot, 1, (uint64_t)(room - slot->bytes));
}

void ha_recv_part(struct ha_comm *comm, struct ha_recv_slot *slot, uint32_t imm, uint32_t bytes)
{
	uint64_t all;

	if (ha_imm_record(imm))
		slot->record = true;
	if (!slot->record && slot->n == 1) {
		single_part(comm, slot, imm, bytes);
		return;
	}
	if (++slot->parts_seen != ha_imm_parts(imm))
		return;
	if (slot->record && take_record(comm, slot, &all))
		ha_recv_complete(comm, comm->recv, slot, slot->n, all);
	else
		bad_record(comm, slot);
}

void ha_recv_unexpected(struct ha_comm *comm, struct ha_path *path, uint32_t imm, uint32_t bytes)
{
	if (ha_imm_kind(imm) == HA_IMM_KIND_CONTROL)
		comm->ops->msg(comm, path);
	else if (!comm->recv)
		return; /* a sender gets no messages */
	else if (ha_imm_kind(imm) == HA_IMM_KIND_STRIPE)
		ha_stripe_came(comm, path, imm, bytes);
	else
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
	HA_INVARIANT(qp->rq_used >= HA_RQ_BATCH);
	qp->rq_used -= HA_RQ_BATCH;
}

/* ---- irecv --------------------------------------------------------------------------------- */

/* Buffer i of n in our copy of the row, all but its key. */
static inline void fill_element(struct ha_cts *element, uint64_t stamp, unsigned n, unsigned i,
				void *data, size_t size, int tag)
{
	element->stamp = stamp;
	element->addr = (uintptr_t)data;
	element->size = size;
	element->tag = tag;
	element->n = (uint8_t)n;
	element->index = (uint8_t)i;
	element->stamp_end = stamp;
}

/* The receive that `slot` describes is under way. */
static inline void start(struct ha_comm *comm, struct ha_recv_side *r, struct ha_request *req,
			 struct ha_recv_slot *slot, uint64_t seq, uint32_t epoch, unsigned n,
			 struct ha_request **out)
{
	HA_INVARIANT(!slot->in_use);
	HA_INVARIANT(slot->expect == HA_IMM_NEVER);
	HA_INVARIANT(seq == r->next_seq);
	HA_INVARIANT(slot == &r->slots[seq & comm->slot_mask]);
	ha_request_take(&comm->pool, req, HA_REQ_RECV);
	slot->seq = seq;
	slot->n = (uint8_t)n;
	slot->parts_seen = 0;
	slot->record = false;
	slot->in_use = true;
	slot->expect = ha_imm_expected(seq, epoch, n);
	slot->req = req;
	req->recv = slot;
	r->next_seq = seq + 1;
	comm->outstanding++;
	comm->count.requests++;
	*out = req;
}

/* ---- one buffer ----------------------------------------------------------------------------- */

/* Under the token, on a path that it may be posted on, or NULL. False: nothing was done. */
static inline __attribute__((always_inline)) bool
start_single(struct ha_comm *comm, struct ha_path *path, bool names, void *const *data,
	     const size_t *sizes, const int *tags, struct ha_mr *mr, struct ha_request **out)
{
	struct ha_recv_side *r = comm->recv;
	const uint64_t seq = r->next_seq;
	const size_t index = seq & comm->slot_mask;
	struct ha_recv_slot *slot = &r->slots[index];
	struct ha_request *req = comm->pool.free;
	struct ha_cts *element = comm->recv_ring->cts[index];
	const uint32_t epoch = ha_comm_epoch(comm);
	uint64_t keys;

	if (__builtin_expect(!path || !req || slot->in_use, 0))
		return false;
	keys = ha_mr_keys(mr, path->nic_index);
	if (__builtin_expect(keys == 0, 0))
		return false;
	slot->mrs[0] = mr;
	fill_element(element, ha_stamp(seq, epoch), 1, 0, data[0], sizes[0], tags[0]);
	element->rkey = ha_mr_rkey(keys);
	slot->bytes = (int64_t)element->size;
	start(comm, r, req, slot, seq, epoch, 1, out);
	if (names)
		ha_stripe_name(comm, slot, element);
	if (!post_at_once(comm, r, path, seq, index, 1))
		ha_recv_pump(comm);
	return true;
}

/* ---- one buffer, and rows that name other paths -------------------------------------------- */

/* Of no receive that anybody posts: 0 and -1 are what mistakes are. */
#define NONE_PLAIN INT_MIN

/*
 * Then no receive is a plain one, and a group is one of too many: what is plain does not look for
 * it.
 */
static void begin_naming(struct ha_comm *comm)
{
	if (!comm->recv->names_on)
		return;
	comm->plain_n = NONE_PLAIN;
	comm->group_limit = 0;
}

static void end_naming(struct ha_comm *comm)
{
	comm->plain_n = 1;
	comm->group_limit = comm->max_recvs;
}

static __attribute__((noinline)) HA_NO_CANARY bool
start_naming(struct ha_comm *comm, int n, void *const *data, const size_t *sizes, const int *tags,
	     struct ha_mr *const *mrs, struct ha_request **out)
{
	bool started;

	if (n != 1 || !mrs[0] || atomic_load_explicit(&comm->peer_bye, memory_order_relaxed) ||
	    !ha_token_try(comm))
		return false;
	started = start_single(comm, comm->recv->names_on, true, data, sizes, tags, mrs[0], out);
	ha_token_release(comm);
	return started;
}

/* ---- a group, and whatever is not plain ----------------------------------------------------- */

/* Stamps and keys come with it where they are known. False: a buffer without memory. */
static inline bool fill_row(struct ha_comm *comm, struct ha_recv_slot *slot, struct ha_cts *row,
			    uint64_t stamp, unsigned n, void *const *data, const size_t *sizes,
			    const int *tags, struct ha_mr *const *mrs, bool *complete)
{
	const struct ha_path *path = ha_comm_clear_path(comm);
	const unsigned nic_index = path ? path->nic_index : 0;
	uint64_t known = path != NULL;
	unsigned i = 0;

	do {
		const struct ha_mr *mr = mrs[i];
		uint64_t keys;

		slot->mrs[i] = mrs[i];
		fill_element(&row[i], stamp, n, i, data[i], sizes[i], tags[i]);
		if (__builtin_expect(!mr, 0)) {
			if (sizes[i] != 0)
				return false;
			continue;
		}
		keys = ha_mr_keys(mr, nic_index);
		row[i].rkey = ha_mr_rkey(keys);
		if (__builtin_expect(keys == 0, 0))
			known = 0;
	} while (++i < n);
	*complete = known;
	return true;
}

/* Under the token. */
static inline ha_result_t start_group(struct ha_comm *comm, unsigned n, void *const *data,
				      const size_t *sizes, const int *tags,
				      struct ha_mr *const *mrs, struct ha_request **out)
{
	struct ha_recv_side *r = comm->recv;
	const uint64_t seq = r->next_seq;
	const size_t index = seq & comm->slot_mask;
	struct ha_recv_slot *slot = &r->slots[index];
	struct ha_request *req = comm->pool.free;
	const uint32_t epoch = ha_comm_epoch(comm);
	bool complete;

	if (__builtin_expect(!req || slot->in_use, 0)) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	if (!fill_row(comm, slot, comm->recv_ring->cts[index], ha_stamp(seq, epoch), n, data, sizes,
		      tags, mrs, &complete))
		return HA_ERR_ARGUMENT;
	start(comm, r, req, slot, seq, epoch, n, out);
	slot->bytes = ROOM_OF_GROUP;
	if (__builtin_expect(n == 1, 0))
		slot->bytes = ha_recv_room(comm, slot);
	if (!complete || !post_at_once(comm, r, ha_comm_clear_path(comm), seq, index, n)) {
		ha_recv_pump(comm);
		begin_naming(comm);
	}
	return HA_OK;
}

static ha_result_t too_many(const struct ha_comm *comm, int n)
{
	HA_WARN("connection %s: a receive of %d buffers, 1 to %d are possible", comm->name, n,
		comm->max_recvs);
	return HA_ERR_ARGUMENT;
}

static __attribute__((noinline)) HA_NO_CANARY ha_result_t
irecv_group(struct ha_comm *comm, int n, void *const *data, const size_t *sizes, const int *tags,
	    struct ha_mr *const *mrs, struct ha_request **out)
{
	ha_result_t result = ha_comm_error(comm);

	*out = NULL;
	if (__builtin_expect(result != HA_OK, 0))
		return result;
	if (__builtin_expect((unsigned)n - 1 >= comm->group_limit, 0)) {
		if (start_naming(comm, n, data, sizes, tags, mrs, out))
			return HA_OK;
		if ((unsigned)n - 1 >= comm->max_recvs)
			return too_many(comm, n);
		end_naming(comm);
	}
	if (__builtin_expect(atomic_load_explicit(&comm->peer_bye, memory_order_relaxed), 0))
		return ha_comm_fail(comm, HA_ERR_REMOTE,
				    "a receive on a connection that the peer has closed");
	if (!ha_token_try(comm) && !ha_token_ask(comm)) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	result = start_group(comm, (unsigned)n, data, sizes, tags, mrs, out);
	ha_token_release(comm);
	return result;
}

HA_CALLED_DIRECTLY HA_NO_CANARY ha_result_t ha_irecv(struct ha_comm *comm, int n, void *const *data,
						     const size_t *sizes, const int *tags,
						     struct ha_mr *const *mrs,
						     struct ha_request **out)
{
	bool started;

	if (n != comm->plain_n || !mrs[0] || ha_comm_error(comm) != HA_OK ||
	    atomic_load_explicit(&comm->peer_bye, memory_order_relaxed) || !ha_token_try(comm))
		return irecv_group(comm, n, data, sizes, tags, mrs, out);
	started =
	    start_single(comm, ha_comm_clear_path(comm), false, data, sizes, tags, mrs[0], out);
	ha_token_release(comm);
	return __builtin_expect(started, 1)
		   ? HA_OK
		   : irecv_group(comm, comm->plain_n, data, sizes, tags, mrs, out);
}
