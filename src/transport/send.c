/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isend: match a send with what the receiver asked for. What becomes of it when the hardware is
 * through with its group is in complete.h.
 *
 * The receiver's row says where each message of a group may be put. A group is posted (post.c) when
 * all its sends are in.
 */
#include "base/log.h"
#include "transport/complete.h"
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

static ha_result_t too_large(struct ha_comm *comm, const struct ha_cts *cts, uint64_t seq,
			     size_t size)
{
	return ha_comm_fail(comm, HA_ERR_USAGE,
			    "a send of %zu bytes with tag 0x%x meets a receive of %llu bytes "
			    "(message %llu): the receive must be at least as large",
			    size, (unsigned)cts->tag, (unsigned long long)cts->size,
			    (unsigned long long)seq);
}

/* The element of the oldest group that this tag belongs to; its number, or n: none, or not there.
 */
static __attribute__((noinline)) unsigned
search(const struct ha_send_side *s, const struct ha_cts *row, uint64_t stamp, unsigned n, int tag)
{
	for (unsigned i = s->first; i < n; i++)
		if (!(s->taken >> i & 1) && ha_cts_arrived(&row[i], stamp) && row[i].tag == tag)
			return i;
	return n;
}

/* The group at match_seq begins with this row. */
static inline void begin_group(struct ha_send_group *group, uint64_t seq, uint32_t epoch,
			       unsigned n)
{
	group->seq = seq;
	group->n = (uint8_t)n;
	group->epoch = epoch;
	group->state = HA_GROUP_MATCHING;
}

/* Element `index` of the group is taken. Whether it was the last. */
static inline bool take(struct ha_send_side *s, struct ha_send_group *group, unsigned index)
{
	const unsigned taken = s->taken | 1u << index;

	if (taken + 1 == 1u << group->n) {
		s->taken = 0;
		s->first = 0;
		s->match_seq++;
		group->state = HA_GROUP_MATCHED;
		return true;
	}
	s->taken = (uint8_t)taken;
	s->first = (uint8_t)__builtin_ctz(~taken);
	return false;
}

/* Under the token. NULL: not now, or *result says why. */
static inline struct ha_request *start_send(struct ha_comm *comm, const struct ha_cts *row,
					    uint64_t stamp, uint32_t epoch, void *data, size_t size,
					    int tag, struct ha_mr *mr, ha_result_t *result)
{
	struct ha_send_side *s = comm->send;
	const uint64_t seq = s->match_seq;
	struct ha_send_group *group = &s->groups[seq & comm->slot_mask];
	const unsigned n = s->taken ? group->n : row[0].n;
	unsigned index = s->first;
	const struct ha_cts *cts = &row[index];
	struct ha_request *req;

	if (__builtin_expect(n - 1 >= HA_GROUP_MAX, 0)) {
		*result = bad_row(comm, &row[0], seq);
		return NULL;
	}
	if (__builtin_expect(!s->taken && group->state != HA_GROUP_FREE, 0))
		return NULL; /* a whole window back, still on the wire */
	if (__builtin_expect(cts->tag != tag, 0)) {
		index = search(s, row, stamp, n, tag);
		if (index >= n)
			return NULL;
		cts = &row[index];
	}
	if (__builtin_expect(cts->index != index, 0)) {
		*result = bad_row(comm, cts, seq);
		return NULL;
	}
	if (__builtin_expect(size > cts->size, 0)) {
		*result = too_large(comm, cts, seq, size);
		return NULL;
	}
	req = ha_request_get(&comm->pool, HA_REQ_SEND);
	if (__builtin_expect(!req, 0))
		return NULL;
	req->index = (uint8_t)index;
	req->addr = (uintptr_t)data;
	req->size = size;
	req->mr = mr;
	req->tag = tag;
	req->remote_addr = cts->addr;
	req->remote_rkey = cts->rkey;
	ha_comm_count(comm, 1);
	comm->count.requests++;
	if (!s->taken)
		begin_group(group, seq, epoch, n);
	group->reqs[index] = req;
	if (take(s, group, index))
		ha_send_post(comm, group);
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

ha_result_t ha_isend(struct ha_comm *comm, void *data, size_t size, int tag, struct ha_mr *mr,
		     struct ha_request **out)
{
	const struct ha_send_side *s = comm->send;
	const struct ha_cts *row = comm->send_ring->cts[s->match_seq & comm->slot_mask];
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);
	uint64_t stamp = ha_stamp(s->match_seq, epoch);
	ha_result_t result = HA_OK;

	*out = NULL;
	if (!ha_cts_arrived(&row[s->first], stamp) || ha_comm_error(comm) != HA_OK)
		return not_started(comm);
	if (__builtin_expect(!mr && size != 0, 0))
		return HA_ERR_ARGUMENT;
	if (!ha_token_try(comm)) {
		ha_comm_not_ready(comm);
		return HA_OK;
	}
	*out = start_send(comm, row, stamp, epoch, data, size, tag, mr, &result);
	ha_token_release(comm);
	return result;
}
