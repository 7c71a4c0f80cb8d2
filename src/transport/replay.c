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
#include "transport/replay.h"
#include "base/invariant.h"
#include "transport/complete.h"
#include "transport/post.h"
#include "transport/recv.h"
#include "transport/send.h"
#include "transport/stripe.h"

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
		ha_stripe_forget(group);
		if (ha_window_has(done, seq)) {
			replay->known += group->n;
			ha_send_group_complete(comm, group);
			continue;
		}
		if (group->state == HA_GROUP_POSTED)
			count_again(replay, group);
		group->state = HA_GROUP_MATCHED;
	}
	HA_INVARIANT(first <= s->match_seq);
	s->posted_once = ha_send_posted_end(s);
	s->post_seq = first;
	ha_send_pump(comm);
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
		slot->bytes = ha_recv_room(comm, slot);
	}
	HA_INVARIANT(r->done.base <= r->next_seq);
	r->cts_seq = r->done.base;
	ha_recv_pump(comm);
}
