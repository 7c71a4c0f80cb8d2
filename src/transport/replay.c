/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of requests when a connection goes on in another epoch, on another path. The old
 * path is fenced, so nothing of it happens any more; what was under way is posted once more.
 *
 * Sender: what the receiver has is complete without being sent again, since its buffer belongs to
 * the receiver's application by now. Everything else waits until the receiver has asked for it in
 * the new epoch: the keys it matched with are those of the old path.
 *
 * Receiver: everything it does not have is asked for again. An immediate of the old epoch is none
 * of the new identity, however late it is found.
 */
#include "transport/complete.h"

/* ---- sender -------------------------------------------------------------------------------- */

static void count_again(struct ha_replay *replay, const struct ha_send_group *group)
{
	replay->messages += group->n;
	for (unsigned i = 0; i < group->n; i++)
		replay->bytes += group->reqs[i]->size;
}

void ha_send_resume(struct ha_comm *comm, const struct ha_window *done, struct ha_replay *replay)
{
	struct ha_send_side *s = comm->send;
	uint64_t first = s->completed.base;

	*replay = (struct ha_replay){0};
	/* Not post_seq: the first parts of the group it names may be on the wire. */
	for (uint64_t seq = first; seq != s->match_seq; seq++) {
		struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

		if (group->state != HA_GROUP_POSTED && group->state != HA_GROUP_MATCHED)
			continue; /* complete */
		if (ha_window_has(done, seq)) {
			replay->known += group->n;
			ha_send_group_complete(comm, group);
			continue;
		}
		if (group->state == HA_GROUP_POSTED)
			count_again(replay, group);
		group->state = HA_GROUP_MATCHED;
	}
	s->post_seq = first;
	ha_send_pump(comm);
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

enum ha_renewal ha_send_renew(struct ha_comm *comm, struct ha_send_group *group)
{
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);
	const struct ha_cts *row = comm->send_ring->cts[group->seq & comm->slot_mask];
	uint64_t stamp = ha_stamp(group->seq, epoch);

	if (group->state != HA_GROUP_MATCHED)
		return HA_RENEWAL_SKIP; /* complete: it lies between others that are not */
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

/* ---- receiver ------------------------------------------------------------------------------ */

void ha_recv_resume(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;
	uint32_t epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);

	for (uint64_t seq = r->done.base; seq != r->next_seq; seq++) {
		struct ha_recv_slot *slot = &r->slots[seq & comm->slot_mask];

		if (ha_window_has(&r->done, seq))
			continue;
		slot->expect = ha_imm_expected(seq, epoch, slot->n);
		slot->parts_seen = 0;
		slot->record = false;
		slot->bytes = 0;
	}
	r->cts_seq = r->done.base;
	ha_e2e_resume(comm);
	ha_recv_pump(comm);
}

void ha_flush_resume(struct ha_comm *comm)
{
	struct ha_request_pool *pool = &comm->recv->flush_pool;

	for (unsigned i = 0; i < pool->count; i++) {
		struct ha_request *req = &pool->all[i];

		/* The application may be filling in any other one at this moment. */
		if (req->posted != HA_FLUSH_POSTED)
			continue;
		req->posted = HA_FLUSH_AGAIN;
		ha_flush_post(comm, req);
	}
}
