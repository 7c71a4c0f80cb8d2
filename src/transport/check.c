/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/check.h"

#include "base/invariant.h"
#include "transport/comm.h"
#include "transport/ctrl_sock.h"
#include "transport/flush.h"
#include "transport/recv.h"
#include "transport/send.h"

/* ---- paths ---------------------------------------------------------------------------------- */

static void check_queue(const struct ha_path *path, const struct ha_qp *qp, int state)
{
	HA_INVARIANT(qp->sq_depth > 0);
	HA_INVARIANT(qp->sq_posted - qp->sq_done <= qp->sq_depth);
	HA_INVARIANT(ha_qp_room(qp) <= qp->sq_depth);
	HA_INVARIANT(ha_wr_label(qp->wr_base) == path->label);
	HA_INVARIANT(ha_wr_label(qp->data_base) == path->label);
	HA_INVARIANT(ha_wr_kind(qp->data_base) == HA_WR_DATA);
	HA_INVARIANT(!(qp->stopped & HA_STOP_SEND_SENTINEL) || qp->stopped & HA_STOP_ERROR);
	HA_INVARIANT(state >= HA_PATH_FENCING || qp->stopped == 0);
	HA_INVARIANT(state != HA_PATH_READY || qp->qp);
	HA_INVARIANT(state != HA_PATH_READY || qp->rq_used < HA_RQ_BATCH);
}

static void check_fence(const struct ha_path *path, int state)
{
	HA_INVARIANT(path->sentinels_back <= path->sentinels_out);
	HA_INVARIANT(path->sentinels_out <= 2 * path->nqps + 1);
	HA_INVARIANT(state >= HA_PATH_FENCING || path->sentinels_out == 0);
	HA_INVARIANT(state >= HA_PATH_FENCING || !path->unheard);
	HA_INVARIANT(state >= HA_PATH_FENCING || path->draining_since_ns == 0);
	HA_INVARIANT(state >= HA_PATH_STOPPED || !path->indestructible);
	HA_INVARIANT(state >= HA_PATH_STOPPED || !path->settled);
	HA_INVARIANT(state >= HA_PATH_STOPPED || !path->exposed);
}

static void check_flush_queue(const struct ha_path *path)
{
	const struct ha_flush_qp *flush = &path->flush;

	if (ha_command_busy(&flush->command))
		return;
	HA_INVARIANT(flush->posted - flush->done <= HA_FLUSH_DEPTH + 1);
	HA_INVARIANT(flush->qp || flush->posted == flush->done || ha_path_stopped(path));
	HA_INVARIANT(!(flush->stopped & HA_STOP_RECV_SENTINEL));
	HA_INVARIANT(!flush->kept || path->comm->recv);
}

void ha_path_check(const struct ha_comm *comm, const struct ha_path *path, unsigned p)
{
	int state = atomic_load_explicit(&path->state, memory_order_relaxed);

	HA_INVARIANT(path->comm == comm);
	HA_INVARIANT(path->index == p);
	HA_INVARIANT(path->generation != 0);
	HA_INVARIANT(state >= HA_PATH_INIT && state <= HA_PATH_FENCED);
	HA_INVARIANT(path->nqps >= 1 && path->nqps <= HA_MAX_QPS);
	HA_INVARIANT(path->nic == path->port->nic);
	HA_INVARIANT(path->nic_index == path->nic->index);
	HA_INVARIANT(path->nic_index < HA_MAX_NICS);
	HA_INVARIANT(path->label == (uint32_t)(ha_wr_id(0, p, path->generation, 0, 0) >> 32));
	HA_INVARIANT(!path->destroyed || state == HA_PATH_FENCED || state == HA_PATH_FENCING);
	HA_INVARIANT(path->event_qpn == 0 || path->event_qpn <= 0xffffff);
	if (ha_path_away(path) || path->outcome != HA_OK)
		return; /* its command writes the rest, or it was never made whole */
	HA_INVARIANT(path->destroyed || path->cq || state >= HA_PATH_FENCING);
	HA_INVARIANT(state != HA_PATH_READY || path->ring_mr);
	HA_INVARIANT(state != HA_PATH_READY || path->on);
	HA_INVARIANT(state != HA_PATH_READY || path->remote_ring != 0);
	HA_INVARIANT(state != HA_PATH_READY || path->max_message > 0);
	HA_INVARIANT(state != HA_PATH_READY || path->single_limit <= path->max_message);
	HA_INVARIANT(state != HA_PATH_READY || path->remote.nqps == path->nqps);
	/* The first visit leaves a first one that could not be connected, but not for a peer that
	 * has closed before. */
	HA_INVARIANT(state == HA_PATH_READY || state >= HA_PATH_STOPPED || !path->carried ||
		     atomic_load(&comm->peer_bye));
	HA_INVARIANT(state != HA_PATH_INIT || path->msgs_out == 0);
	HA_INVARIANT(state != HA_PATH_INIT || !path->probe_busy);
	HA_INVARIANT(state != HA_PATH_INIT || !path->count_busy);
	HA_INVARIANT(!path->count_busy || comm->is_send);
	HA_INVARIANT(path->split != HA_SPLIT_QPS || path->nqps > 1);
	check_fence(path, state);
	check_flush_queue(path);
	for (unsigned i = 0; i < path->nqps; i++)
		check_queue(path, &path->qps[i], state);
}

static void check_paths(const struct ha_comm *comm)
{
	HA_INVARIANT(comm->active < HA_MAX_PATHS);
	HA_INVARIANT(comm->npaths <= HA_MAX_PATHS);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		if (!comm->paths[p])
			continue;
		HA_INVARIANT(p < comm->npaths);
		HA_INVARIANT(!comm->paths[p]->next_retired);
		ha_path_check(comm, comm->paths[p], p);
		for (unsigned q = 0; q < p; q++)
			HA_INVARIANT(comm->paths[q] != comm->paths[p]);
	}
	HA_INVARIANT(!comm->clear || comm->clear == ha_comm_path(comm));
	HA_INVARIANT(!comm->clear || ha_comm_may_post(comm));
	HA_INVARIANT(!comm->clear || comm->clear->plain);
	HA_INVARIANT(!comm->clear || comm->clear->nqps == 1);
	HA_INVARIANT(!comm->recv || !comm->recv->names_on ||
		     (comm->recv->names_on == ha_comm_path(comm) && ha_comm_may_post(comm)));
	HA_INVARIANT(!ha_path_ready(ha_comm_path(comm)) || comm->epoch_changing ||
		     ha_comm_path(comm)->carried);
}

/* ---- windows -------------------------------------------------------------------------------- */

static void check_window(const struct ha_window *w)
{
	HA_INVARIANT(w->base >= 1);
	HA_INVARIANT(!(w->bits & 1));
}

/* ---- requests ------------------------------------------------------------------------------- */

static void check_request(const struct ha_comm *comm, const struct ha_request *req,
			  enum ha_request_kind kind)
{
	HA_INVARIANT(req);
	HA_INVARIANT(req->comm == comm);
	HA_INVARIANT(req->kind == kind);
	HA_INVARIANT(req->id < comm->pool.count);
	HA_INVARIANT(atomic_load_explicit(&req->state, memory_order_relaxed) == HA_REQ_ACTIVE);
	HA_INVARIANT(req == &comm->pool.all[req->id] ||
		     (comm->send && ha_is_retained(comm->send->retained, req)));
}

/* ---- sender --------------------------------------------------------------------------------- */

/* A group whose sends are all in. Returns the requests that wait for it. */
static unsigned check_group(const struct ha_comm *comm, const struct ha_send_group *group,
			    uint64_t seq)
{
	const struct ha_send_side *s = comm->send;

	HA_INVARIANT(group->state != HA_GROUP_MATCHING);
	HA_INVARIANT((group->state == HA_GROUP_FREE) == ha_window_has(&s->completed, seq));
	if (group->state == HA_GROUP_FREE)
		return 0;
	HA_INVARIANT(group->seq == seq);
	HA_INVARIANT(group->n >= 1 && group->n <= HA_GROUP_MAX);
	HA_INVARIANT(group->n <= comm->max_recvs);
	HA_INVARIANT(group->epoch <= ha_comm_epoch(comm) || comm->features & HA_FEATURE_TURN);
	HA_INVARIANT(group->state != HA_GROUP_POSTED || seq < ha_send_posted_end(s));
	HA_INVARIANT(group->state != HA_GROUP_MATCHED || seq >= s->post_seq || s->moves);
	if (group->state == HA_GROUP_POSTED) {
		HA_INVARIANT(group->parts >= 1 && group->parts <= HA_MAX_QPS);
		HA_INVARIANT(group->parts_left <= group->parts);
		HA_INVARIANT(group->stripes == 0 ||
			     group->parts_left == __builtin_popcount(group->stripes));
		HA_INVARIANT(group->stripes == 0 || group->cut_seq == seq);
		HA_INVARIANT(group->cut_seq != seq ||
			     ((group->stripes | group->moved) & ~group->cut_into) == 0);
		HA_INVARIANT(group->cut_seq != seq ||
			     (group->waiting & ~(group->moved & group->stripes)) == 0);
		HA_INVARIANT(group->parts_left > 0 || comm->silent & HA_SILENT_COUNT);
		HA_INVARIANT(seq < s->post_seq);
	}
	for (unsigned i = 0; i < group->n; i++)
		check_request(comm, group->reqs[i], HA_REQ_SEND);
	return group->n;
}

static void check_sender(const struct ha_comm *comm)
{
	const struct ha_send_side *s = comm->send;
	const struct ha_send_group *next = &s->groups[s->match_seq & comm->slot_mask];
	unsigned outstanding = (unsigned)__builtin_popcount(s->taken);

	check_window(&s->completed);
	HA_INVARIANT(s->match_seq >= 1);
	HA_INVARIANT(s->post_seq >= 1 && s->post_seq <= s->match_seq);
	HA_INVARIANT(s->completed.base <= s->match_seq);
	HA_INVARIANT(s->match_seq - s->completed.base <= comm->slot_mask + 1u);
	HA_INVARIANT(ha_window_below(&s->completed, s->match_seq));
	HA_INVARIANT(ha_window_below(&s->completed, ha_send_posted_end(s)));
	HA_INVARIANT(ha_send_posted_end(s) <= s->match_seq);
	HA_INVARIANT(s->delivered >= 1 && s->delivered <= s->match_seq);
	HA_INVARIANT((s->taken & ~s->all) == 0 || s->taken == 0);
	HA_INVARIANT(s->taken == 0 || s->taken != s->all);
	HA_INVARIANT(s->taken == 0 || next->state == HA_GROUP_MATCHING);
	HA_INVARIANT(s->taken == 0 || next->seq == s->match_seq);
	HA_INVARIANT(s->taken != 0 || next->state != HA_GROUP_MATCHING);
	HA_INVARIANT(s->first < HA_GROUP_MAX && !(s->taken >> s->first & 1));
	HA_INVARIANT(s->single.num_sge == 1);
	HA_INVARIANT(s->single.opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
	HA_INVARIANT(s->wr[HA_GROUP_MAX].opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
	HA_INVARIANT(s->wr[HA_GROUP_MAX].next == NULL);
	for (unsigned i = 0; i < HA_GROUP_MAX; i++)
		HA_INVARIANT(s->wr[i].next == &s->wr[i + 1]);
	for (uint64_t seq = s->completed.base; seq < s->match_seq; seq++)
		outstanding += check_group(comm, &s->groups[seq & comm->slot_mask], seq);
	HA_INVARIANT(comm->outstanding == outstanding);
}

/* ---- receiver ------------------------------------------------------------------------------- */

/* Our copy of the row of a receive that was asked for in this epoch. */
static void check_row(const struct ha_comm *comm, const struct ha_recv_slot *slot)
{
	const struct ha_cts *row = comm->recv_ring->cts[slot->seq & comm->slot_mask];
	uint64_t stamp = ha_stamp(slot->seq, ha_comm_epoch(comm));

	for (unsigned i = 0; i < slot->n; i++) {
		HA_INVARIANT(row[i].stamp == stamp);
		HA_INVARIANT(row[i].stamp_end == stamp);
		HA_INVARIANT(row[i].n == slot->n);
		HA_INVARIANT(row[i].index == i);
	}
	HA_INVARIANT(row[0].delivered <= comm->recv->done.base);
}

/* A receive that irecv began. Whether it waits for its messages. */
static bool check_receive(const struct ha_comm *comm, const struct ha_recv_slot *slot, uint64_t seq)
{
	const struct ha_recv_side *r = comm->recv;

	HA_INVARIANT(slot->seq == seq);
	HA_INVARIANT((slot->expect == HA_IMM_NEVER) == ha_window_has(&r->done, seq));
	if (slot->expect == HA_IMM_NEVER)
		return false;
	HA_INVARIANT(slot->n >= 1 && slot->n <= HA_GROUP_MAX);
	HA_INVARIANT(slot->n <= comm->max_recvs);
	HA_INVARIANT(slot->parts_seen < HA_IMM_MAX_PARTS || ha_comm_error(comm) != HA_OK);
	HA_INVARIANT(ha_imm_seq(slot->expect) == (uint16_t)seq);
	HA_INVARIANT(ha_imm_epoch(slot->expect) == (uint8_t)ha_comm_epoch(comm));
	HA_INVARIANT(ha_imm_kind(slot->expect) == HA_IMM_KIND_DATA);
	check_request(comm, slot->req, HA_REQ_RECV);
	HA_INVARIANT(slot->req->recv == slot);
	if (seq < r->cts_seq)
		check_row(comm, slot);
	return true;
}

static void check_receiver(const struct ha_comm *comm)
{
	const struct ha_recv_side *r = comm->recv;
	unsigned waiting = 0;

	check_window(&r->done);
	HA_INVARIANT(r->next_seq >= 1);
	HA_INVARIANT(r->cts_seq >= 1 && r->cts_seq <= r->next_seq);
	HA_INVARIANT(r->done.base <= r->next_seq);
	HA_INVARIANT(r->next_seq - r->done.base <= comm->slot_mask + 1u);
	HA_INVARIANT(ha_window_below(&r->done, r->next_seq));
	HA_INVARIANT(r->cts_wr.num_sge == 1);
	HA_INVARIANT(r->cts_wr.opcode == IBV_WR_RDMA_WRITE);
	HA_INVARIANT(r->cts_wr.next == NULL);
	HA_INVARIANT(r->flushes <= comm->outstanding);
	HA_INVARIANT(r->members == 0 || comm->features & HA_FEATURE_RAILS);
	HA_INVARIANT(r->flushes <= r->flush_pool.count);
	for (uint64_t seq = r->done.base; seq < r->next_seq; seq++)
		waiting += check_receive(comm, &r->slots[seq & comm->slot_mask], seq);
	for (uint64_t i = 0; i <= comm->slot_mask; i++) {
		const struct ha_recv_slot *slot = &r->slots[i];

		HA_INVARIANT(slot->expect == HA_IMM_NEVER || slot->seq >= r->done.base);
		HA_INVARIANT(slot->expect == HA_IMM_NEVER || slot->seq < r->next_seq);
		HA_INVARIANT(slot->expect == HA_IMM_NEVER || (slot->seq & comm->slot_mask) == i);
	}
	HA_INVARIANT(comm->outstanding == waiting + r->flushes);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void check_constants(const struct ha_comm *comm)
{
	HA_INVARIANT((comm->slot_mask & (comm->slot_mask + 1)) == 0);
	HA_INVARIANT(comm->slot_mask < HA_WINDOW);
	HA_INVARIANT(comm->max_recvs >= 1 && comm->max_recvs <= HA_GROUP_MAX);
	HA_INVARIANT(comm->ring);
	HA_INVARIANT(comm->inst && comm->port && comm->primary && comm->config && comm->ops);
	HA_INVARIANT(comm->is_send ? comm->send && !comm->recv : comm->recv && !comm->send);
	HA_INVARIANT(comm->is_send || !(comm->silent & HA_SILENT_COUNT));
	HA_INVARIANT(!comm->is_send || !(comm->silent & HA_SILENT_TELL));
	HA_INVARIANT(atomic_load(&comm->refs) >= 1);
	HA_INVARIANT(comm->pool.count >= 1);
}

void ha_comm_check(const struct ha_comm *comm)
{
	HA_INVARIANT(atomic_load(&comm->token) == 1);
	HA_INVARIANT(comm->rto_ms >= 1);
	HA_INVARIANT(comm->peer_done.base == 0 ||
		     atomic_load_explicit(&comm->peer_bye, memory_order_relaxed));
	HA_INVARIANT((comm->memory.serial == 0) <= ha_list_empty(&comm->memory.handles));
	check_constants(comm);
	check_paths(comm);
	if (comm->is_send)
		check_sender(comm);
	else
		check_receiver(comm);
}
