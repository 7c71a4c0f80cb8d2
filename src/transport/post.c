/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From matched groups to the hardware: how a group of messages becomes work requests, and that
 * groups are posted in order as far as the send queue has room.
 *
 * One message in one write is the common case and has a template of its own; groups are one list;
 * what is larger than a write or spread over queue pairs is cut up.
 */
#include "transport/post.h"
#include "transport/clear_path.h"
#include "transport/send.h"
#include "transport/stripe.h"

#include "base/log.h"

/* The last work request of a template list. */
#define LAST HA_GROUP_MAX

/* ---- templates ----------------------------------------------------------------------------- */

static void link_sge(struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	wr->sg_list = sge;
	wr->num_sge = 1;
}

void ha_send_init(struct ha_comm *comm)
{
	struct ha_send_side *s = comm->send;

	s->match_seq = 1;
	s->post_seq = 1;
	s->completed.base = 1;
	s->count_wait.row = 1;
	s->delivered = 1;
	link_sge(&s->single, &s->single_sge);
	s->single.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	for (unsigned i = 0; i <= LAST; i++) {
		link_sge(&s->wr[i], &s->sge[i]);
		s->wr[i].opcode = IBV_WR_RDMA_WRITE;
		s->wr[i].next = i < LAST ? &s->wr[i + 1] : NULL;
	}
	s->wr[LAST].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* ---- a write of nothing --------------------------------------------------------------------- */

bool ha_post_nothing(struct ha_comm *comm, struct ha_path *path, unsigned qp, enum ha_wr_kind kind)
{
	struct ibv_send_wr wr = {
	    .wr_id = ha_wr_make(path->qps[qp].wr_base, kind, path->qps[qp].sq_posted + 1),
	    .opcode = IBV_WR_RDMA_WRITE,
	    .send_flags = IBV_SEND_SIGNALED,
	    .wr.rdma = {.remote_addr = path->remote_ring, .rkey = path->remote_rkey},
	};

	return ha_post(comm, path, &path->qps[qp], &wr, 1);
}

/* ---- posting ------------------------------------------------------------------------------- */

/* Data as ha_fill_data has it, which may be none. */
static inline bool fill_data(struct ha_comm *comm, const struct ha_path *path,
			     const struct ha_request *req, uint64_t offset, uint32_t len,
			     struct ibv_send_wr *wr)
{
	wr->num_sge = len != 0;
	if (__builtin_expect(len != 0, 1))
		return ha_fill_data(comm, path, req, offset, len, wr);
	wr->send_flags = 0;
	wr->wr.rdma.remote_addr = req->remote_addr + offset;
	wr->wr.rdma.rkey = req->remote_rkey;
	return true;
}

/* Sizes record of a group, written to the receiver's ring in front of or with the immediate. */
static void fill_record(struct ha_comm *comm, const struct ha_path *path,
			const struct ha_send_group *group, struct ibv_send_wr *wr)
{
	uint32_t slot = (uint32_t)(group->seq & comm->slot_mask);
	struct ha_sizes *record = &comm->send_ring->sizes[slot];
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);

	record->stamp = ha_stamp(group->seq, epoch);
	for (unsigned i = 0; i < group->n; i++)
		record->size[i] = group->reqs[i]->size;
	wr->num_sge = 1;
	wr->sg_list->addr = (uintptr_t)record;
	wr->sg_list->length = ha_sizes_length(group->n);
	wr->wr.rdma.remote_addr =
	    path->remote_ring + offsetof(struct ha_recv_ring, sizes) + slot * sizeof(*record);
	wr->send_flags = wr->sg_list->length <= path->max_inline ? IBV_SEND_INLINE : 0;
}

/* `index`: the queue pair. */
static void part_posted(const struct ha_path *path, struct ha_send_group *group, unsigned index)
{
	if (group->parts == 1)
		group->sq_mark = path->qps[index].sq_posted;
	else
		group->sq_marks[index] = path->qps[index].sq_posted;
}

/* A group of one message in one write. False when there is no room now, or the path failed. */
static bool post_single(struct ha_comm *comm, struct ha_path *path, struct ha_send_group *group)
{
	struct ibv_send_wr *wr = &comm->send->single;
	const struct ha_request *req = group->reqs[0];
	struct ha_qp *qp = &path->qps[ha_qp_of(path, group->seq)];

	if (ha_qp_room(qp) == 0 || !ha_fill_data(comm, path, req, 0, (uint32_t)req->size, wr))
		return false;
	ha_finish_part(comm, qp, group, 1, false, wr);
	group->parts = 1;
	group->parts_left = 1;
	if (!ha_post(comm, path, qp, wr, 1))
		return false;
	group->sq_mark = qp->sq_posted;
	group->state = HA_GROUP_POSTED;
	return true;
}

/* A group of one message of nothing. */
static bool post_empty(struct ha_comm *comm, struct ha_path *path, struct ha_send_group *group)
{
	struct ibv_send_wr *wr = &comm->send->single;
	const unsigned index = ha_qp_of(path, group->seq);
	struct ha_qp *qp = &path->qps[index];
	bool ok;

	if (ha_qp_room(qp) == 0)
		return false;
	(void)fill_data(comm, path, group->reqs[0], 0, 0, wr);
	ha_finish_part(comm, qp, group, 1, false, wr);
	ok = ha_post(comm, path, qp, wr, 1);
	wr->num_sge = 1;
	if (ok)
		part_posted(path, group, index);
	return ok;
}

/* A write for each message and one for the record, from the template list. */
static bool post_list(struct ha_comm *comm, struct ha_path *path, struct ha_send_group *group,
		      unsigned qp)
{
	struct ha_send_side *s = comm->send;
	struct ibv_send_wr *first = &s->wr[LAST - group->n];

	for (unsigned i = 0; i < group->n; i++)
		if (!fill_data(comm, path, group->reqs[i], 0, (uint32_t)group->reqs[i]->size,
			       &first[i]))
			return false;
	fill_record(comm, path, group, &s->wr[LAST]);
	ha_finish_part(comm, &path->qps[qp], group, 1, true, &s->wr[LAST]);
	if (!ha_post(comm, path, &path->qps[qp], first, group->n + 1u))
		return false;
	part_posted(path, group, qp);
	return true;
}

/* ---- the general case: cut into pieces, spread over queue pairs ------------------------------ */

struct piece {
	uint64_t offset, length;
};

/* What queue pair `part` of `parts` carries of a message. */
static struct piece share(uint64_t size, unsigned part, unsigned parts)
{
	uint64_t step = (size + parts - 1) / parts;
	struct piece piece;

	step = (step + HA_SPLIT_ALIGN - 1) / HA_SPLIT_ALIGN * HA_SPLIT_ALIGN;
	piece.offset = step * part < size ? step * part : size;
	piece.length = size - piece.offset < step ? size - piece.offset : step;
	return piece;
}

static uint32_t writes_of_part(const struct ha_path *path, const struct ha_send_group *group,
			       unsigned part, unsigned parts)
{
	uint64_t count = 1; /* the one with the immediate */

	for (unsigned i = 0; i < group->n; i++) {
		uint64_t length = share(group->reqs[i]->size, part, parts).length;

		count += (length + path->max_message - 1) / path->max_message;
	}
	return count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
}

/* What ends a part: the sizes record on the first queue pair, nothing but the notice on others. */
static void fill_last(struct ha_comm *comm, const struct ha_path *path,
		      const struct ha_send_group *group, unsigned part, unsigned parts, unsigned qp)
{
	struct ibv_send_wr *last = &comm->send->wr[LAST];

	if (part == 0) {
		fill_record(comm, path, group, last);
	} else {
		last->num_sge = 0;
		last->send_flags = 0;
		last->wr.rdma.remote_addr = path->remote_ring;
	}
	ha_finish_part(comm, &path->qps[qp], group, parts, part == 0, last);
}

/* Posts the data writes in wr[0 … n) without what ends the part. */
static bool post_data(struct ha_comm *comm, struct ha_path *path, unsigned qp, unsigned n)
{
	struct ha_send_side *s = comm->send;
	bool ok;

	s->wr[n - 1].next = NULL;
	ok = ha_post(comm, path, &path->qps[qp], &s->wr[0], n);
	s->wr[n - 1].next = &s->wr[n];
	return ok;
}

/* Posts the data writes in wr[0 … n) and what ends the part, as one list. */
static bool post_end(struct ha_comm *comm, struct ha_path *path, unsigned qp, unsigned n)
{
	struct ha_send_side *s = comm->send;
	bool ok;

	if (n == 0)
		return ha_post(comm, path, &path->qps[qp], &s->wr[LAST], 1);
	s->wr[n - 1].next = &s->wr[LAST];
	ok = ha_post(comm, path, &path->qps[qp], &s->wr[0], n + 1);
	s->wr[n - 1].next = &s->wr[n];
	return ok;
}

/* What is posted in several steps must not stop half way for want of a key. */
static bool have_keys(struct ha_comm *comm, const struct ha_path *path,
		      const struct ha_send_group *group)
{
	for (unsigned i = 0; i < group->n; i++)
		if (group->reqs[i]->size != 0 &&
		    ha_comm_keys(comm, path, path->nic_index, group->reqs[i]->mr,
				 "a send buffer") == 0)
			return false;
	return true;
}

/* Posts the full list, of which more is to come. */
static __attribute__((cold, noinline)) bool post_full(struct ha_comm *comm, struct ha_path *path,
						      const struct ha_send_group *group,
						      unsigned qp)
{
	return have_keys(comm, path, group) && post_data(comm, path, qp, LAST);
}

/* Posts what one queue pair carries. The room for it was checked. */
static bool post_part(struct ha_comm *comm, struct ha_path *path, struct ha_send_group *group,
		      unsigned part, unsigned parts, unsigned qp)
{
	unsigned n = 0;

	for (unsigned i = 0; i < group->n; i++) {
		struct piece piece = share(group->reqs[i]->size, part, parts);
		const uint64_t end = piece.offset + piece.length;

		for (uint64_t at = piece.offset; at < end;) {
			uint64_t left = end - at;
			uint64_t len = left < path->max_message ? left : path->max_message;

			if (__builtin_expect(n == LAST, 0)) { /* the template list is full */
				if (!post_full(comm, path, group, qp))
					return false;
				n = 0;
			}
			if (!fill_data(comm, path, group->reqs[i], at, (uint32_t)len,
				       &comm->send->wr[n]))
				return false;
			n++;
			at += len;
		}
	}
	fill_last(comm, path, group, part, parts, qp);
	if (!post_end(comm, path, qp, n))
		return false;
	part_posted(path, group, qp);
	return true;
}

/* True when it was posted; false when there is no room now, or the connection failed. */
static bool post_general(struct ha_comm *comm, struct ha_path *path, struct ha_send_group *group,
			 unsigned parts)
{
	unsigned first = 0;

	if (parts == 1)
		first = ha_qp_of(path, group->seq);
	else if (!have_keys(comm, path, group))
		return false;
	for (unsigned part = 0; part < parts; part++) {
		uint32_t count = writes_of_part(path, group, part, parts);
		const struct ha_qp *qp = &path->qps[first + part];

		if (count > qp->sq_depth) {
			ha_comm_fail(comm, HA_ERR_USAGE,
				     "a message needs %u writes of at most %llu bytes, more than "
				     "the %u the send queue of %s holds",
				     count, (unsigned long long)path->max_message, qp->sq_depth,
				     path->nic->name);
			return false;
		}
		if (ha_qp_room(qp) < count)
			return false;
	}
	for (unsigned part = 0; part < parts; part++)
		if (!post_part(comm, path, group, part, parts, first + part))
			return false;
	return true;
}

/* ---- groups in order ------------------------------------------------------------------------ */

/* Anything but one message in one write. */
static bool post_complex(struct ha_comm *comm, struct ha_path *path, struct ha_send_group *group)
{
	uint64_t largest = group->n == 1 ? group->reqs[0]->size : group->largest;
	unsigned qp = ha_qp_of(path, group->seq);
	unsigned parts = 1;

	if (path->split == HA_SPLIT_QPS && largest >= (uint64_t)path->nqps * HA_SPLIT_ALIGN)
		parts = path->nqps;
	group->parts = group->parts_left = (uint8_t)parts;
	if (parts > 1 || largest > path->max_message)
		return post_general(comm, path, group, parts);
	return ha_qp_room(&path->qps[qp]) > group->n && post_list(comm, path, group, qp);
}

/* Of one message that other paths may carry parts of. */
static __attribute__((noinline)) bool post_over_rails(struct ha_comm *comm, struct ha_path *path,
						      struct ha_send_group *group)
{
	const uint64_t size = group->reqs[0]->size;

	switch (ha_stripe_post(comm, group)) {
	case HA_STRIPING_POSTED:
		return true;
	case HA_STRIPING_LATER:
		return false;
	case HA_STRIPING_NONE:
		break;
	}
	return size <= path->max_message && size <= path->ar_threshold
		   ? post_single(comm, path, group)
		   : post_complex(comm, path, group);
}

/* False when there is no room now, or the connection failed. */
static bool post_group(struct ha_comm *comm, struct ha_path *path, struct ha_send_group *group)
{
	bool ok;

	if (group->n == 1 && group->reqs[0]->size <= path->single_limit) {
		if (group->reqs[0]->size != 0)
			return post_single(comm, path, group);
		group->parts = group->parts_left = 1;
		ok = post_empty(comm, path, group);
	} else if (group->n == 1 && path->split == HA_SPLIT_RAILS) {
		ok = post_over_rails(comm, path, group);
	} else {
		ok = post_complex(comm, path, group);
	}
	if (ok)
		group->state = HA_GROUP_POSTED;
	return ok;
}

static enum ha_renewal disagree(struct ha_comm *comm, const struct ha_send_group *group,
				unsigned index)
{
	ha_comm_fail(comm, HA_ERR_INTERNAL,
		     "the peer asks again for message %llu, but not for the same (element %u of "
		     "%u)",
		     (unsigned long long)group->seq, index, group->n);
	return HA_RENEWAL_LATER;
}

enum ha_renewal ha_send_take_row(struct ha_comm *comm, struct ha_send_group *group)
{
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);
	const struct ha_cts *row = comm->send_ring->cts[group->seq & comm->slot_mask];
	uint64_t stamp = ha_stamp(group->seq, epoch);

	/* All of them: each element has a key of its own. */
	for (unsigned i = 0; i < group->n; i++)
		if (!ha_cts_arrived(&row[i], stamp))
			return HA_RENEWAL_LATER;
	for (unsigned i = 0; i < group->n; i++) {
		const struct ha_request *req = group->reqs[i];

		if (row[i].n != group->n || row[i].index != i || row[i].tag != req->tag ||
		    row[i].size < req->size)
			return disagree(comm, group, i);
	}
	for (unsigned i = 0; i < group->n; i++) {
		group->reqs[i]->remote_addr = row[i].addr;
		group->reqs[i]->remote_rkey = row[i].rkey;
	}
	group->epoch = epoch;
	return HA_RENEWAL_DONE;
}

enum ha_renewal ha_send_renew(struct ha_comm *comm, struct ha_send_group *group)
{
	/* Complete, or of parts that other rails have: it lies between others that are not. */
	if (group->state != HA_GROUP_MATCHED)
		return HA_RENEWAL_SKIP;
	return ha_send_take_row(comm, group);
}

bool ha_send_post_again(struct ha_comm *comm, struct ha_send_group *group)
{
	return ha_comm_may_post(comm) && ha_send_renew(comm, group) == HA_RENEWAL_DONE &&
	       post_group(comm, ha_comm_path(comm), group);
}

void ha_send_pump(struct ha_comm *comm)
{
	struct ha_send_side *s = comm->send;
	struct ha_path *path = ha_comm_path(comm);
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);

	ha_comm_find_clear_path(comm);
	if (s->post_seq != s->match_seq)
		comm->silent |= HA_SILENT_HELD;
	if (!ha_comm_may_post(comm))
		return;
	for (; s->post_seq != s->match_seq; s->post_seq++) {
		struct ha_send_group *group = &s->groups[s->post_seq & comm->slot_mask];

		if (__builtin_expect(group->epoch != epoch, 0)) {
			enum ha_renewal renewal = ha_send_renew(comm, group);

			if (renewal == HA_RENEWAL_SKIP)
				continue;
			if (renewal == HA_RENEWAL_LATER)
				return; /* polls look again */
		}
		if (!post_group(comm, path, group))
			return;
	}
	comm->silent &= (uint8_t)~HA_SILENT_HELD;
}
