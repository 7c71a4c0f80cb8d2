/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/stripe.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "memory/mr.h"
#include "transport/clear_path.h"
#include "transport/complete.h"
#include "transport/flush_beside.h"
#include "transport/gpu_proof.h"
#include "transport/peer_end.h"
#include "transport/post.h"
#include "transport/rail_share.h"
#include "transport/recv.h"
#include "transport/replay.h"

#include <string.h>

_Static_assert(sizeof(struct ha_cut) <= HA_MAX_QPS * sizeof(uint32_t), "no larger than marks");

/* Message `seq` may come in stripes: all paths are looked at as often as the active one. */
static void look_at_all(struct ha_comm *comm, uint64_t seq)
{
	comm->striped_end = seq + 1;
	comm->standby_every = 1;
	comm->standby_in = 1;
}

/* One stripe more. */
static void count(struct ha_comm *comm, const struct ha_path *path, uint64_t bytes)
{
	const unsigned rail = ha_rail_of(comm, path);

	comm->striped.stripes[rail]++;
	comm->striped.bytes[rail] += bytes;
}

/* ---- receiver ------------------------------------------------------------------------------ */

static void name_none(struct ha_comm *comm)
{
	for (unsigned row = 0; row <= comm->slot_mask; row++)
		comm->recv_ring->cts[row][0].named = 0;
}

/* So that a row takes no longer than it has to. */
static void list_members(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;

	r->named_from = ha_stripe_from(comm->port->bundle);
	r->nbeside = 0;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (r->members >> p & 1)
			r->beside[r->nbeside++] = (struct ha_beside){
			    .slot = (uint8_t)p,
			    .key = ha_cts_key_offset(comm->active, p),
			    .name = ha_cts_name(p, comm->paths[p]->generation),
			};
}

void ha_stripe_members(struct ha_comm *comm, unsigned mask)
{
	struct ha_recv_side *r = comm->recv;
	struct ha_path *active = ha_comm_path(comm);

	HA_INVARIANT(r && !(mask >> comm->active & 1));
	if (r->members == mask)
		return;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (mask >> p & 1)
			comm->paths[p]->carried = true;
	r->members = (uint8_t)mask;
	list_members(comm);
	if (mask == 0)
		name_none(comm);
	/* Rows that name several paths are the pump's. */
	active->plain = mask == 0 && active->nqps == 1;
	ha_comm_not_clear(comm);
}

static inline bool may_come_over(struct ha_path *path, const struct ha_mr *mr)
{
	if (__builtin_expect(ha_mr_is_host(mr), 1))
		return true;
	if (!ha_gpu_proof_reaches(path, mr))
		return false;
	ha_flush_beside_named(path, mr);
	return true;
}

void ha_stripe_name(struct ha_comm *comm, const struct ha_recv_slot *slot, struct ha_cts *row)
{
	const struct ha_recv_side *r = comm->recv;
	const struct ha_mr *mr = slot->mrs[0];
	unsigned named = 0;

	if (slot->n == 1 && row->size >= r->named_from)
		for (const struct ha_beside *b = r->beside; b != r->beside + r->nbeside; b++) {
			struct ha_path *path = comm->paths[b->slot];
			const uint64_t keys = ha_mr_keys(mr, path->nic_index);

			HA_INVARIANT(b->name == ha_cts_name(b->slot, path->generation));
			if (keys == 0 || !ha_path_ready(path) || !may_come_over(path, mr))
				continue;
			*ha_cts_key_at(row, b->key) = ha_mr_rkey(keys);
			named |= b->name;
		}
	row->named = (uint16_t)named;
	if (named != 0)
		look_at_all(comm, slot->seq);
}

static void cannot_be(struct ha_comm *comm, uint32_t imm, const char *what)
{
	ha_comm_fail(comm, HA_ERR_INTERNAL, "a stripe of message %u of 4096 %s (0x%x)",
		     ha_imm_stripe_seq(imm), what, imm);
}

/* Who polls paths beside the active one need not look at what else the connection has to say. */
static void complete(struct ha_comm *comm, struct ha_recv_slot *slot, uint64_t bytes)
{
	comm->striped.complete += bytes;
	ha_recv_complete(comm, comm->recv, slot, 1, bytes);
	if (comm->silent & HA_SILENT_TELL)
		ha_e2e_note(comm);
}

/* Its own; and the active path one that was lost with another. */
static bool may_bring(const struct ha_comm *comm, const struct ha_path *path, unsigned stripe)
{
	if (stripe == 1u << path->index)
		return true;
	return comm->features & HA_FEATURE_SHED && path->index == comm->active && stripe != 0 &&
	       (stripe & (stripe - 1)) == 0;
}

void ha_stripe_came(struct ha_comm *comm, struct ha_path *path, uint32_t imm, uint32_t bytes)
{
	struct ha_recv_slot *slot = &comm->recv->slots[imm & comm->slot_mask];
	const unsigned mask = ha_imm_stripe_mask(imm), stripe = ha_imm_stripe(imm);
	int64_t room;

	/* What comes of a path that was settled was counted out before the peer was told (rails.h).
	 */
	if (!ha_imm_is_stripe_of(imm, slot->expect) || slot->parts_seen & stripe || path->settled) {
		comm->count.stale_completions++;
		return;
	}
	if (slot->n != 1 || !may_bring(comm, path, stripe) || !(mask & stripe)) {
		cannot_be(comm, imm, "came that it does not have");
		return;
	}
	if (slot->parts_seen != 0 && ha_imm_stripe_mask(slot->expect) != mask) {
		cannot_be(comm, imm, "has other stripes beside it than one before");
		return;
	}
	slot->expect = ha_imm_expect_stripes(slot->expect, mask);
	slot->parts_seen |= (uint8_t)stripe;
	slot->bytes -= bytes;
	count(comm, path, bytes);
	if (path->index != comm->active && !ha_mr_is_host(slot->mrs[0]))
		ha_flush_beside_came(comm, path);
	room = ha_recv_room(comm, slot);
	if (slot->bytes < 0)
		cannot_be(comm, imm, "is longer than the buffer");
	else if (slot->parts_seen == mask)
		complete(comm, slot, (uint64_t)(room - slot->bytes));
}

uint64_t ha_stripe_seen(const struct ha_comm *comm, unsigned p)
{
	const struct ha_recv_side *r = comm->recv;
	uint64_t seen = 0;

	for (uint64_t seq = r->done.base; seq != r->next_seq; seq++) {
		const struct ha_recv_slot *slot = &r->slots[seq & comm->slot_mask];

		if (slot->expect != HA_IMM_NEVER && ha_imm_stripe_mask(slot->expect) >> p & 1 &&
		    slot->parts_seen >> p & 1)
			seen |= 1ull << (seq - r->done.base);
	}
	return seen;
}

/* ---- sender -------------------------------------------------------------------------------- */

/* The paths that its row names and that are ready here: a mask, without the active one. */
static unsigned usable(const struct ha_comm *comm, const struct ha_send_group *group)
{
	const struct ha_cts *row = comm->send_ring->cts[group->seq & comm->slot_mask];
	unsigned mask = 0;

	/* It stays there until the message is done. */
	if (!ha_cts_arrived(row, ha_stamp(group->seq, group->epoch)))
		return 0;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_path *path = comm->paths[p];

		if (p != comm->active && ha_path_ready(path) &&
		    ha_cts_names(row, p, path->generation) &&
		    ha_gpu_proof_reaches(path, group->reqs[0]->mr) &&
		    ha_mr_keys(group->reqs[0]->mr, path->nic_index) != 0)
			mask |= 1u << p;
	}
	return mask;
}

/* Smaller messages than that go over the active path, and nobody looks what their rows name. */
static void look_from(struct ha_comm *comm, uint64_t bytes)
{
	struct ha_path *path = ha_comm_path(comm);

	if (path->stripe_from == bytes)
		return;
	path->stripe_from = bytes;
	ha_path_set_limits(path);
}

/* While rows name no path; those that do are found by messages that are cut, and by visits. */
static uint64_t while_none_is_named(const struct ha_comm *comm)
{
	return 2 * (uint64_t)comm->port->bundle->stripe_min;
}

void ha_stripe_visit(struct ha_comm *comm)
{
	const struct ha_cts *row;

	if (!comm->is_send || !(comm->features & HA_FEATURE_RAILS) || !ha_comm_may_post(comm))
		return;
	/* Of whatever message it is now: the next one looks at its own. */
	row = comm->send_ring->cts[(comm->send->post_seq - 1) & comm->slot_mask];
	if (row->named != 0)
		look_from(comm, ha_stripe_from(comm->port->bundle));
}

static struct ha_qp *qp_of(struct ha_path *path, const struct ha_send_group *group)
{
	return &path->qps[ha_qp_of(path, group->seq)];
}

/* Whether so much is one write there. */
static bool fits(const struct ha_path *path, uint64_t length)
{
	return length <= path->max_message && length <= path->ar_threshold;
}

/* Whether each stripe is one write, now. */
static enum ha_striping can_post(const struct ha_comm *comm, const struct ha_send_group *group,
				 const struct ha_piece *pieces, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!fits(comm->paths[pieces[i].slot], pieces[i].length))
			return HA_STRIPING_NONE;
	for (unsigned i = 0; i < n; i++)
		if (ha_qp_room(qp_of(comm->paths[pieces[i].slot], group)) == 0)
			return HA_STRIPING_LATER;
	return HA_STRIPING_POSTED;
}

/* `key`: of the buffer, on this path. False: the path failed. */
static bool post_stripe(struct ha_comm *comm, struct ha_send_group *group, unsigned stripe,
			struct ha_path *path, uint32_t key, uint64_t now_ns)
{
	struct ha_cut *cut = &group->cut;
	struct ha_qp *qp = qp_of(path, group);
	struct ibv_send_wr *wr = &comm->send->single;
	const uint32_t slot = (uint32_t)(group->seq & comm->slot_mask);

	if (!ha_fill_data(comm, path, group->reqs[0], cut->offset[stripe], cut->length[stripe], wr))
		return false;
	wr->wr.rdma.rkey = key;
	wr->imm_data =
	    htonl(ha_imm_stripe_pack(group->seq, group->epoch, group->cut_into, 1u << stripe));
	wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr_id = ha_wr_make(qp->wr_base, HA_WR_STRIPE, ha_wr_stripe_slot(slot, stripe));
	path->carried = true;
	if (!ha_post(comm, path, qp, wr, 1))
		return false;
	cut->sq_mark[stripe] = qp->sq_posted;
	ha_rail_posted(comm, path->index, cut->length[stripe], now_ns);
	return true;
}

static uint32_t key_on(const struct ha_comm *comm, const struct ha_send_group *group, unsigned p)
{
	struct ha_cts *row = comm->send_ring->cts[group->seq & comm->slot_mask];

	return p == comm->active ? group->reqs[0]->remote_rkey
				 : *ha_cts_key_beside(row, comm->active, p);
}

/* It is cut like this, and nothing of it is posted yet. */
static void cut(struct ha_send_group *group, const struct ha_piece *pieces, unsigned n)
{
	group->cut_seq = group->seq;
	group->stripes = group->moved = group->waiting = 0;
	for (unsigned i = 0; i < n; i++) {
		group->stripes |= (uint8_t)(1u << pieces[i].slot);
		group->cut.offset[pieces[i].slot] = pieces[i].offset;
		group->cut.length[pieces[i].slot] = (uint32_t)pieces[i].length;
	}
	group->cut_into = group->stripes;
	group->parts = group->parts_left = (uint8_t)n;
}

enum ha_striping ha_stripe_post(struct ha_comm *comm, struct ha_send_group *group)
{
	const struct ha_request *req = group->reqs[0];
	unsigned mask = usable(comm, group), n;
	const struct ha_turns turns = comm->send->turns;
	struct ha_piece pieces[HA_MAX_PATHS];
	enum ha_striping striping;
	uint64_t now_ns;

	if (mask == 0)
		look_from(comm, while_none_is_named(comm));
	if (mask == 0 || ha_mr_keys(req->mr, ha_comm_path(comm)->nic_index) == 0)
		return HA_STRIPING_NONE;
	look_from(comm, ha_stripe_from(comm->port->bundle));
	mask |= 1u << comm->active;
	now_ns = ha_now_ns();
	n = ha_rail_pieces(comm, mask, req->size, now_ns, pieces);
	striping = can_post(comm, group, pieces, n);
	if (striping != HA_STRIPING_POSTED) {
		comm->send->turns = turns; /* it will be asked again whose turn it is */
		return striping;
	}
	cut(group, pieces, n);
	look_at_all(comm, group->seq);
	/* Also when a path fails now: what was posted of it must not be posted twice. What was not
	 * is mended with the path, or sent again in the next epoch. */
	group->state = HA_GROUP_POSTED;
	for (unsigned i = 0; i < n; i++) {
		const unsigned p = pieces[i].slot;

		(void)post_stripe(comm, group, p, comm->paths[p], key_on(comm, group, p), now_ns);
	}
	return HA_STRIPING_POSTED;
}

/* A stripe is with the receiver. */
static void settle(struct ha_comm *comm, struct ha_send_group *group, unsigned stripe)
{
	HA_INVARIANT(group->parts_left > 0);
	group->stripes &= (uint8_t) ~(1u << stripe);
	if (--group->parts_left != 0)
		return;
	comm->striped.complete += group->reqs[0]->size;
	ha_send_acknowledged(comm, group);
}

void ha_stripe_sent(struct ha_comm *comm, struct ha_path *path, unsigned qp, uint32_t slot)
{
	struct ha_send_group *group = &comm->send->groups[slot & comm->slot_mask];
	const unsigned stripe = ha_wr_stripe(slot);

	if (group->state != HA_GROUP_POSTED || !(group->stripes >> stripe & 1)) {
		comm->count.stale_completions++;
		return;
	}
	path->qps[qp].sq_done = group->cut.sq_mark[stripe];
	ha_rail_carried(comm, path->index, group->cut.length[stripe]);
	count(comm, path, group->cut.length[stripe]);
	settle(comm, group, stripe);
}

void ha_stripe_forget(struct ha_send_group *group)
{
	group->cut_seq = 0;
	group->stripes = group->moved = group->waiting = 0;
}

/* ---- sender: what a path had carried that is lost ------------------------------------------- */

uint64_t ha_stripe_oldest_open(const struct ha_comm *comm, const struct ha_window *done)
{
	const struct ha_send_side *s = comm->send;
	const uint64_t window = comm->slot_mask + 1u;
	uint64_t oldest = s->post_seq > window ? s->post_seq - window : 1;

	if (oldest < s->completed.base && oldest < done->base)
		oldest = s->completed.base < done->base ? s->completed.base : done->base;
	return oldest;
}

bool ha_stripe_is_cut(const struct ha_send_group *group, uint64_t seq)
{
	return group->cut_seq == seq;
}

/* Whether path p carried a stripe of message `seq`. NULL: it did not. */
static struct ha_send_group *carried_by(const struct ha_comm *comm, uint64_t seq, unsigned p)
{
	struct ha_send_group *group = &comm->send->groups[seq & comm->slot_mask];

	return ha_stripe_is_cut(group, seq) && (group->cut_into & ~group->moved) >> p & 1 ? group
											  : NULL;
}

static void move(struct ha_send_group *group, unsigned stripe)
{
	const uint8_t bit = (uint8_t)(1u << stripe);

	if (!(group->stripes & bit)) { /* acknowledged, and not placed */
		group->stripes |= bit;
		group->parts_left++;
	}
	group->moved |= bit;
	group->waiting |= bit;
}

/* Its keys are those of the active path; else it waits for a row that names them. */
static bool has_row(struct ha_comm *comm, struct ha_send_group *group)
{
	return group->epoch == ha_comm_epoch(comm) ||
	       ha_send_take_row(comm, group) == HA_RENEWAL_DONE;
}

/* False: there is no room or no row now, or the path failed. */
static bool post_moved(struct ha_comm *comm, struct ha_send_group *group)
{
	struct ha_path *path = ha_comm_path(comm);

	while (group->waiting != 0) {
		const unsigned stripe = (unsigned)__builtin_ctz(group->waiting);

		if (!ha_comm_may_post(comm) || ha_qp_room(qp_of(path, group)) == 0 ||
		    !has_row(comm, group) ||
		    !post_stripe(comm, group, stripe, path, group->reqs[0]->remote_rkey,
				 ha_now_ns()))
			return false;
		group->waiting &= (uint8_t) ~(1u << stripe);
	}
	return true;
}

/* What of message `seq` is to be posted again. False: not now. */
static bool post_rest(struct ha_comm *comm, struct ha_send_group *group, uint64_t seq)
{
	switch (group->state) {
	case HA_GROUP_MATCHED: /* all of it: see turn.h */
		return ha_send_post_again(comm, group);
	case HA_GROUP_POSTED:
		return !ha_stripe_is_cut(group, seq) || post_moved(comm, group);
	default:
		return true;
	}
}

/* In the order of their messages, as far as there is room. */
static void post_all_moved(struct ha_comm *comm)
{
	struct ha_send_side *s = comm->send;

	for (uint64_t seq = s->completed.base; seq < s->post_seq; seq++)
		if (!post_rest(comm, &s->groups[seq & comm->slot_mask], seq))
			return;
	s->moves = false;
}

/* A stripe of which `came` says whether the receiver has it: it is settled, or is moved to path
 * `to`. */
static bool mend_one(struct ha_comm *comm, struct ha_send_group *group, unsigned stripe, bool came,
		     const struct ha_path *to, struct ha_replay *replay)
{
	const uint64_t seq = group->cut_seq;

	if (came) {
		replay->known++;
		if (group->stripes >> stripe & 1)
			settle(comm, group, stripe);
		return true;
	}
	if (ha_window_has(&comm->send->completed, seq)) {
		ha_comm_message_lost(comm, seq);
		return false;
	}
	if (!fits(to, group->cut.length[stripe]))
		return false;
	replay->messages++;
	replay->bytes += group->cut.length[stripe];
	move(group, stripe);
	comm->send->moves = true;
	return true;
}

/* Of a stripe, by what the receiver said. */
static bool has_come(const struct ha_window *done, uint64_t seen, uint64_t seq)
{
	const uint64_t above = seq - done->base;

	return ha_window_has(done, seq) || (above < 64 && seen >> above & 1);
}

/* Nobody waits for it any more, at either end. */
static bool is_over(const struct ha_comm *comm, const struct ha_window *done, uint64_t seq)
{
	return ha_window_has(done, seq) && ha_window_has(&comm->send->completed, seq);
}

bool ha_stripe_mend(struct ha_comm *comm, unsigned p, const struct ha_window *done, uint64_t seen,
		    struct ha_replay *replay)
{
	const struct ha_send_side *s = comm->send;

	for (uint64_t seq = ha_stripe_oldest_open(comm, done); seq < s->post_seq; seq++) {
		struct ha_send_group *group = carried_by(comm, seq, p);

		if (group && !is_over(comm, done, seq) &&
		    !mend_one(comm, group, p, has_come(done, seen, seq), ha_comm_path(comm),
			      replay))
			return false;
	}
	ha_rail_shares_lost(comm, p);
	post_all_moved(comm);
	return true;
}

bool ha_stripe_mend_active(struct ha_comm *comm, struct ha_send_group *group, unsigned to,
			   const struct ha_window *done, const uint64_t seen[HA_MAX_PATHS],
			   struct ha_replay *replay)
{
	const uint64_t seq = group->cut_seq;
	const unsigned carried = group->moved | (group->cut_into & 1u << comm->active);

	if (is_over(comm, done, seq))
		return true;
	for (unsigned stripe = 0; stripe < HA_MAX_PATHS; stripe++)
		if (carried >> stripe & 1 &&
		    !mend_one(comm, group, stripe, has_come(done, seen[stripe], seq),
			      comm->paths[to], replay))
			return false;
	return true;
}

/* ---- both ---------------------------------------------------------------------------------- */

void ha_stripe_looked(struct ha_comm *comm)
{
	const uint64_t oldest = comm->is_send ? comm->send->completed.base : comm->recv->done.base;

	if (comm->is_send && comm->send->moves)
		post_all_moved(comm);
	if (oldest >= comm->striped_end && !ha_flush_beside_reads(comm))
		comm->standby_every = (uint32_t)comm->config->poll_standby_interval;
}

/* Messages on the active path may be cut; not before a row is seen to name another one. */
static void cut_on_active(struct ha_comm *comm)
{
	struct ha_path *path = ha_comm_path(comm);

	path->split = HA_SPLIT_RAILS;
	path->stripe_from = 0; /* not known */
	look_from(comm, while_none_is_named(comm));
}

void ha_stripe_turn(struct ha_comm *comm, unsigned p)
{
	ha_rail_shares_lost(comm, p);
	cut_on_active(comm);
	if (comm->send->moves)
		look_at_all(comm, comm->send->match_seq);
}

void ha_stripe_begin(struct ha_comm *comm)
{
	comm->standby_every = (uint32_t)comm->config->poll_standby_interval;
	if (!(comm->features & HA_FEATURE_RAILS))
		return;
	if (comm->recv) {
		comm->recv->members = 0;
		name_none(comm);
		return;
	}
	ha_rail_shares_begin(comm);
	comm->send->moves = false;
	cut_on_active(comm);
}
