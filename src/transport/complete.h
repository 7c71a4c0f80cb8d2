/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a completion does to the message it belongs to. Inline, since it is on the way of every
 * message and complete.c, which polls, is the one place that needs all of it. What few messages
 * need is in send.c and recv.c. Under the token.
 */
#ifndef HA_TRANSPORT_COMPLETE_H
#define HA_TRANSPORT_COMPLETE_H

#include "base/invariant.h"
#include "transport/comm.h"
#include "transport/e2e.h"
#include "transport/recv.h"
#include "transport/send.h"

/* ---- polling ------------------------------------------------------------------------------- */

/* Completions taken off a queue at a time. */
#define HA_POLL_BATCH_MAX 32

/*
 * Takes at most `budget` completions off the active path's queue and applies them; each
 * HA_NCCL_POLL_STANDBY_INTERVAL times also off the others'.
 */
int ha_comm_poll(struct ha_comm *comm, int budget);
/* Polls all paths but the active one: what comes there is rare, and not urgent. */
int ha_comm_poll_standby(struct ha_comm *comm);
/* Polls one path, whatever its state. Posts nothing. */
int ha_comm_poll_path(struct ha_comm *comm, struct ha_path *path, int budget);

/* Posts what was held back, as far as there is room and a path. */
void ha_comm_pump(struct ha_comm *comm);

/* ---- sender -------------------------------------------------------------------------------- */

static inline void ha_send_done(struct ha_comm *comm, struct ha_request *req)
{
	comm->count.bytes += req->size;
	ha_request_done(req);
}

/* All requests of a group are through. */
static inline void ha_send_group_complete(struct ha_comm *comm, struct ha_send_group *group)
{
	const unsigned n = group->n;

	HA_INVARIANT(group->state == HA_GROUP_POSTED || group->state == HA_GROUP_MATCHED);
	HA_INVARIANT(n >= 1 && n <= HA_GROUP_MAX);
	HA_INVARIANT(comm->outstanding >= n);
	HA_INVARIANT(group->seq < comm->send->match_seq);
	HA_INVARIANT(!ha_window_has(&comm->send->completed, group->seq));
	ha_window_mark(&comm->send->completed, group->seq);
	group->state = HA_GROUP_FREE;
	comm->count.messages += n;
	comm->outstanding -= n;
	ha_send_done(comm, group->reqs[0]);
	for (unsigned i = 1; i < n; i++)
		ha_send_done(comm, group->reqs[i]);
}

/* A group that is spread: this is one part of it. Whether it was the last. */
static inline bool ha_send_part(struct ha_path *path, struct ha_send_group *group, unsigned qp)
{
	HA_INVARIANT(qp < path->nqps);
	HA_INVARIANT(group->parts_left > 0);
	path->qps[qp].sq_done = group->sq_marks[qp];
	HA_INVARIANT(path->qps[qp].sq_posted - path->qps[qp].sq_done <= path->qps[qp].sq_depth);
	return --group->parts_left == 0;
}

/* The hardware is through with all of a group: it is complete, unless the peer has to count it. */
static inline void ha_send_acknowledged(struct ha_comm *comm, struct ha_send_group *group)
{
	if (__builtin_expect(comm->silent & HA_SILENT_COUNT, 0) &&
	    __builtin_expect(!ha_e2e_is_counted(comm, group->seq), 0))
		ha_e2e_acknowledged(comm, group);
	else
		ha_send_group_complete(comm, group);
}

/* Its last write on that queue pair is acknowledged. */
static inline void ha_send_complete(struct ha_comm *comm, struct ha_path *path, unsigned qp,
				    uint32_t slot)
{
	struct ha_send_side *s = comm->send;
	struct ha_send_group *group = &s->groups[slot & comm->slot_mask];

	/* Where it lies is worked out once. */
	__asm__("" : "+r"(group));
	if (__builtin_expect(group->state != HA_GROUP_POSTED, 0)) {
		comm->count.stale_completions++;
		return;
	}
	if (__builtin_expect(group->parts == 1, 1)) {
		HA_INVARIANT(group->parts_left == 1);
		path->qps[qp].sq_done = group->sq_mark;
		HA_INVARIANT(ha_qp_room(&path->qps[qp]) <= path->qps[qp].sq_depth);
		group->parts_left = 0;
	} else if (!ha_send_part(path, group, qp)) {
		return;
	}
	ha_send_acknowledged(comm, group);
}

/* ---- receiver ------------------------------------------------------------------------------ */

/* All n messages of a receive are there, `bytes` together. */
static inline void ha_recv_complete(struct ha_comm *comm, struct ha_recv_side *r,
				    struct ha_recv_slot *slot, unsigned n, uint64_t bytes)
{
	HA_INVARIANT(slot->expect != HA_IMM_NEVER);
	HA_INVARIANT(n == slot->n);
	HA_INVARIANT(comm->outstanding > r->flushes);
	HA_INVARIANT(slot->seq >= r->done.base && slot->seq < r->next_seq);
	HA_INVARIANT(!ha_window_has(&r->done, slot->seq));
	slot->bytes = (int64_t)bytes;
	slot->expect = HA_IMM_NEVER;
	ha_window_mark(&r->done, slot->seq);
	comm->count.messages += n;
	comm->count.bytes += bytes;
	comm->outstanding--;
	ha_request_done(slot->req);
}

static inline void ha_recv_immediate(struct ha_comm *comm, struct ha_path *path, unsigned index,
				     uint32_t imm, uint32_t bytes)
{
	struct ha_recv_side *r = comm->recv;
	struct ha_qp *qp = &path->qps[index];
	struct ha_recv_slot *slot;

	/* What took this receive counts, whether or not another can be put in its place. */
	if (__builtin_expect(++qp->rq_used >= HA_RQ_BATCH, 0))
		ha_recv_refill(comm, path, qp);
	if (__builtin_expect(!r, 0)) { /* a sender gets no messages */
		ha_recv_unexpected(comm, path, imm, bytes);
		return;
	}
	slot = &r->slots[imm & comm->slot_mask]; /* its low bits are those of the number */
	/* Of a message of n = 1, in one part, all that is to be known is in its completion. */
	if (imm == slot->expect && bytes <= slot->bytes)
		ha_recv_complete(comm, r, slot, 1, bytes);
	else if (__builtin_expect(ha_imm_is(imm, slot->expect), 1))
		ha_recv_part(comm, slot, imm, bytes);
	else
		ha_recv_unexpected(comm, path, imm, bytes);
}

#endif
