/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isend: match a send with what the receiver asked for; and what becomes of it when the hardware is
 * through with its group.
 *
 * The receiver's row says where each message of a group may be put. A group is posted (post.c) when
 * all its sends are in.
 */
#include "transport/comm.h"

#include "base/log.h"

/* ---- completion ---------------------------------------------------------------------------- */

void ha_send_group_complete(struct ha_comm *comm, struct ha_send_group *group)
{
	ha_window_mark(&comm->send->completed, group->seq);
	comm->count.messages += group->n;
	for (unsigned i = 0; i < group->n; i++) {
		comm->count.bytes += group->reqs[i]->size;
		ha_request_done(group->reqs[i]);
	}
	group->state = HA_GROUP_FREE;
	ha_comm_count(comm, -(int)group->n);
}

void ha_send_complete(struct ha_comm *comm, struct ha_path *path, unsigned qp, uint32_t slot)
{
	struct ha_send_group *group = &comm->send->groups[slot & comm->slot_mask];

	if (__builtin_expect(group->state != HA_GROUP_POSTED || qp >= path->nqps, 0)) {
		comm->count.stale_completions++;
		return;
	}
	path->qps[qp].sq_done = group->sq_mark[qp];
	if (--group->parts_left != 0)
		return;
	if (__builtin_expect(comm->silent & HA_SILENT_COUNT, 0) &&
	    group->seq >= comm->send->delivered)
		return; /* the hardware has it, the peer's software does not say so yet */
	ha_send_group_complete(comm, group);
}

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

static ha_result_t too_large(struct ha_comm *comm, const struct ha_cts *cts, uint64_t seq,
			     size_t size)
{
	return ha_comm_fail(comm, HA_ERR_USAGE,
			    "a send of %zu bytes with tag 0x%x meets a receive of %llu bytes "
			    "(message %llu): the receive must be at least as large",
			    size, (unsigned)cts->tag, (unsigned long long)cts->size,
			    (unsigned long long)seq);
}

/* The element of the oldest group that this tag belongs to; NULL: none, or not there yet. */
static const struct ha_cts *match(const struct ha_send_group *group, const struct ha_cts *row,
				  uint64_t stamp, int tag)
{
	for (unsigned i = 0; i < group->n; i++)
		if (!group->reqs[i] && ha_cts_arrived(&row[i], stamp) && row[i].tag == tag)
			return &row[i];
	return NULL;
}

/* Under the token. */
static inline ha_result_t start_send(struct ha_comm *comm, const struct ha_cts *row, uint64_t stamp,
				     uint32_t epoch, void *data, size_t size, int tag,
				     struct ha_mr *mr, struct ha_request **out)
{
	struct ha_send_side *s = comm->send;
	uint64_t seq = s->match_seq;
	struct ha_send_group *group = &s->groups[seq & comm->slot_mask];
	const struct ha_cts *cts;
	struct ha_request *req;

	if (group->state == HA_GROUP_FREE) {
		unsigned n = row[0].n;

		if (n < 1 || n > HA_GROUP_MAX || row[0].index != 0)
			return bad_row(comm, &row[0], seq);
		group->seq = seq;
		group->n = (uint8_t)n;
		group->matched = 0;
		group->epoch = epoch;
		group->state = HA_GROUP_MATCHING;
		for (unsigned i = 0; i < n; i++)
			group->reqs[i] = NULL;
	} else if (group->state != HA_GROUP_MATCHING) {
		return HA_OK; /* a whole window back, still on the wire */
	}
	cts = match(group, row, stamp, tag);
	if (!cts)
		return HA_OK;
	if (cts->index >= group->n || cts != &row[cts->index])
		return bad_row(comm, cts, seq);
	if (size > cts->size)
		return too_large(comm, cts, seq, size);
	req = ha_request_get(&comm->pool, HA_REQ_SEND);
	if (!req)
		return HA_OK;
	req->index = cts->index;
	req->addr = (uintptr_t)data;
	req->size = size;
	req->mr = mr;
	req->tag = tag;
	req->seq = seq;
	req->remote_addr = cts->addr;
	req->remote_rkey = cts->rkey;
	group->reqs[cts->index] = req;
	ha_comm_count(comm, 1);
	comm->count.requests++;
	*out = req;
	if (++group->matched == group->n) {
		group->state = HA_GROUP_MATCHED;
		s->match_seq++;
		ha_send_pump(comm);
	}
	return HA_OK;
}

ha_result_t ha_isend(struct ha_comm *comm, void *data, size_t size, int tag, struct ha_mr *mr,
		     struct ha_request **out)
{
	struct ha_send_side *s = comm->send;
	const struct ha_cts *row = comm->send_ring->cts[s->match_seq & comm->slot_mask];
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);
	uint64_t stamp = ha_stamp(s->match_seq, epoch);
	ha_result_t result = ha_comm_error(comm);

	*out = NULL;
	if (__builtin_expect(result != HA_OK, 0))
		return result;
	if (!ha_cts_arrived(&row[0], stamp)) {
		if (__builtin_expect(atomic_load_explicit(&comm->peer_bye, memory_order_relaxed),
				     0))
			return ha_comm_fail(comm, HA_ERR_REMOTE,
					    "a send on a connection that the peer has closed");
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	if (__builtin_expect(size != 0 && !mr, 0))
		return HA_ERR_ARGUMENT;
	if (!ha_token_try(comm)) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	result = start_send(comm, row, stamp, epoch, data, size, tag, mr, out);
	ha_token_release(comm);
	return result;
}
