/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The soft timeout: what was posted and does not complete for the RTO fails its path. The hardware
 * reports what it knows to be lost; this is for what it does not know, above all a queue pair that
 * accepts everything and does nothing.
 *
 * There is no clock on the data path. The progress thread looks several times in an RTO whether
 * something has moved since it looked last, and counts only the time it really spent looking: a
 * process that was stopped must not blame the network for it.
 *
 * A sender asks for a completion of every message, and of every read of the peer's count (e2e.c). A
 * receiver gets none that says its queues work, so while receives are incomplete it keeps a write
 * of nothing under way on each of them.
 */
#include "transport/timeout.h"
#include "transport/complete.h"
#include "transport/path_error.h"
#include "transport/post.h"
#include "transport/recv.h"
#include "transport/send.h"

#include "base/clock.h"
#include "event/reason.h"
#include "transport/comm.h"

#include <stdio.h>

/*
 * A message completes as a whole, so a large one may stand still for longer: it is given the time
 * it takes at 1 Gb/s, which is slower than any port this runs on.
 */
#define NS_PER_BYTE 8

/* Looks, and probes of a receiver's queue, in an RTO. */
#define LOOKS  8
#define PROBES 4

/* ---- what stands still ---------------------------------------------------------------------- */

/* Adds to how long `mark` has been the same; whether that is too long. */
static bool stands_still(struct ha_stall *stall, uint64_t mark, uint64_t step_ns, uint64_t limit_ns)
{
	if (stall->mark != mark) {
		stall->mark = mark;
		stall->still_ns = 0;
		return false;
	}
	stall->still_ns += step_ns;
	return stall->still_ns >= limit_ns;
}

static void moves(struct ha_stall *stall)
{
	*stall = (struct ha_stall){0};
}

/* The oldest group that the hardware has not completed; 0: none is posted. */
static uint64_t oldest_posted(const struct ha_comm *comm)
{
	const struct ha_send_side *s = comm->send;

	for (uint64_t seq = s->completed.base; seq != s->post_seq; seq++) {
		const struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

		if (group->state == HA_GROUP_POSTED && group->parts_left != 0)
			return seq;
	}
	return 0;
}

static uint64_t bytes_of(const struct ha_comm *comm, uint64_t seq)
{
	const struct ha_send_group *group = &comm->send->groups[seq & comm->slot_mask];
	uint64_t bytes = 0;

	for (unsigned i = 0; i < group->n; i++)
		bytes += group->reqs[i]->size;
	return bytes;
}

/* Where it is: of stripes the active path's may be there already. */
static struct ha_path *path_of(const struct ha_comm *comm, uint64_t seq)
{
	const struct ha_send_group *group = &comm->send->groups[seq & comm->slot_mask];
	const unsigned elsewhere = group->stripes & ~(group->moved | 1u << comm->active);

	if (elsewhere == 0 || elsewhere != group->stripes)
		return ha_comm_path(comm);
	return comm->paths[__builtin_ctz(elsewhere)];
}

/* Each returns what has not moved for too long, NULL when all is well. */
static const char *look_at_count(struct ha_comm *comm, const struct ha_path *path, uint64_t step_ns,
				 uint64_t limit_ns)
{
	struct ha_stall *stall = &comm->timeout.count;

	if (!path->count_busy)
		moves(stall);
	else if (stands_still(stall, (uint64_t)path->qps[0].sq_done + 1, step_ns, limit_ns))
		return "a read of the peer's count";
	return NULL;
}

static const char *look_at_sends(struct ha_comm *comm, struct ha_path **path, uint64_t step_ns,
				 uint64_t limit_ns)
{
	struct ha_stall *stall = &comm->timeout.queue[0];
	uint64_t seq = oldest_posted(comm);

	if (seq == 0) {
		moves(stall);
	} else if (stands_still(stall, seq, step_ns,
				limit_ns + bytes_of(comm, seq) * NS_PER_BYTE)) {
		*path = path_of(comm, seq);
		return "a message";
	}
	return NULL;
}

static const char *look_at_queues(struct ha_comm *comm, const struct ha_path *path,
				  uint64_t step_ns, uint64_t limit_ns)
{
	for (unsigned i = 0; i < path->nqps; i++) {
		const struct ha_qp *qp = &path->qps[i];
		struct ha_stall *stall = &comm->timeout.queue[i];

		if (!qp->watched && ha_qp_room(qp) != 0)
			moves(stall);
		else if (stands_still(stall, (uint64_t)qp->sq_done + 1, step_ns, limit_ns))
			return "a write to the sender's ring";
	}
	return NULL;
}

/* Those beside the active path read, too, what came over them. */
static const char *look_at_flushes(struct ha_comm *comm, struct ha_path **where, uint64_t step_ns,
				   uint64_t limit_ns)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_stall *stall = &comm->timeout.flush[p];
		struct ha_path *path = comm->paths[p];

		if (!ha_path_ready(path) || path->flush.posted == path->flush.done ||
		    !((1u << comm->active | comm->recv->members) >> p & 1)) {
			moves(stall);
		} else if (stands_still(stall, (uint64_t)path->flush.done + 1, step_ns, limit_ns)) {
			*where = path;
			return "a flush";
		}
	}
	return NULL;
}

/* `where`, the active path, becomes the one that it is on. */
static const char *stuck(struct ha_comm *comm, struct ha_path **where, uint64_t step_ns,
			 uint64_t limit_ns)
{
	const struct ha_path *path = ha_comm_path(comm);
	const char *queue, *flush, *message, *count;

	if (comm->is_send) {
		message = look_at_sends(comm, where, step_ns, limit_ns);
		count = look_at_count(comm, path, step_ns, limit_ns);
		return message ? message : count;
	}
	queue = look_at_queues(comm, path, step_ns, limit_ns);
	flush = queue ? NULL : look_at_flushes(comm, where, step_ns, limit_ns);
	return queue ? queue : flush;
}

/* ---- a receiver's writes of nothing ---------------------------------------------------------- */

static bool watch_queue(struct ha_comm *comm, struct ha_path *path, unsigned index)
{
	struct ha_qp *qp = &path->qps[index];

	if (!ha_post_nothing(comm, path, index, HA_WR_WATCH))
		return false;
	qp->watched = true;
	comm->timeout.queue[index] = (struct ha_stall){.mark = (uint64_t)qp->sq_done + 1};
	return true;
}

static void watch_queues(struct ha_comm *comm, struct ha_path *path, uint64_t now_ns,
			 uint64_t rto_ns)
{
	if (comm->recv->done.base == comm->recv->next_seq || now_ns < comm->timeout.watch_ns)
		return;
	comm->timeout.watch_ns = now_ns + rto_ns / PROBES;
	for (unsigned i = 0; i < path->nqps; i++)
		if (!path->qps[i].watched && ha_qp_room(&path->qps[i]) != 0 &&
		    !watch_queue(comm, path, i))
			return;
}

void ha_timeout_watched(struct ha_path *path, unsigned qp, uint32_t mark)
{
	path->qps[qp].watched = false;
	ha_qp_left(&path->qps[qp], mark);
}

/* ---- what is said of it --------------------------------------------------------------------- */

/*
 * In which states the queue pairs are as far as anybody was told: one that is stuck takes itself
 * for ready. The device itself is not asked, since it may keep whoever asks.
 */
static const char *states(const struct ha_path *path, char *buf, size_t size)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	size_t used = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < path->nqps && used < size; i++) {
		const struct ibv_qp *qp = path->qps[i].qp;

		used += (size_t)snprintf(buf + used, size - used, "%sQP %u is in %s", i ? ", " : "",
					 qp->qp_num,
					 qp->state <= IBV_QPS_ERR ? names[qp->state] : "no state");
	}
	return buf;
}

/* ---- looking ------------------------------------------------------------------------------- */

/* Other queue pairs: what was seen of the old ones says nothing. */
static void start_over(struct ha_comm *comm, const struct ha_path *path)
{
	comm->timeout = (struct ha_timeout){
	    .path = path->index,
	    .generation = path->generation,
	};
}

void ha_timeout_look(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_timeout *t = &comm->timeout;
	struct ha_path *path = ha_comm_path(comm);
	uint64_t rto_ns = comm->rto_ms * HA_NS_PER_MS, step_ns = now_ns - t->looked_ns;
	const char *what;
	char text[160];

	if (now_ns < t->due_ns)
		return;
	if (ha_comm_may_post(comm) && (t->path != path->index || t->generation != path->generation))
		start_over(comm, path);
	t->looked_ns = now_ns;
	t->due_ns = now_ns + rto_ns / LOOKS;
	if (!ha_comm_may_post(comm))
		return; /* what was posted before is the failover's */
	if (step_ns > 2 * rto_ns / LOOKS)
		step_ns = 2 * rto_ns / LOOKS; /* nobody looked for longer than that */
	what = stuck(comm, &path, step_ns, rto_ns);
	if (what) { /* it may have completed without anybody noticing */
		ha_comm_poll(comm, comm->poll_batch);
		(void)ha_comm_poll_standby(comm);
		if (ha_path_ready(ha_comm_path(comm)))
			what = stuck(comm, &path, 0, rto_ns);
	}
	if (what && ha_path_ready(path))
		ha_comm_path_failed(comm, path, HA_REASON_SOFT_TIMEOUT, HA_ERR_SYSTEM,
				    "%s was posted on %s:%d and did not complete for %u ms; %s",
				    what, path->nic->name, path->port->port_num, comm->rto_ms,
				    states(path, text, sizeof(text)));
	else if (!comm->is_send && ha_path_ready(path))
		watch_queues(comm, path, now_ns, rto_ns);
}
