/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fencing a path: after it, and only after it, is it known that no packet of the path touches
 * memory any more, neither the application's nor our rings, and that no completion is still to
 * come.
 *
 * A queue pair in ERR takes no packets and sends none, but what it was doing may not have ended
 * when ibv_modify_qp returns, and completions of what did happen may still be on their way. As
 * queues flush in order, one more work request on each of them (the kernel's ib_drain_qp does the
 * same) comes back last. A device that is dead or stuck flushes nothing: then the queue pairs are
 * destroyed, after which the device has no memory to write to on their behalf.
 *
 * That holds as far as the driver's word does. A driver whose firmware has failed says of ERR and
 * of destroying that it is done; its queue pairs never drain, so such a fence takes HA_FENCE_NS at
 * least, in which the peer's real one stops what could still come. And a device that the kernel
 * takes away answers EIO to all commands while its queue pairs go on for a moment: that is no fence
 * before it is known that they have ended.
 *
 * The receive queue gets its last one before the change to ERR: the kernel's soft RoCE flushes
 * receives when the state is set, and does not look at what is posted afterwards. It stays the
 * last: no message takes it, as there are more receives before it than notices under way.
 */
#include "transport/fence.h"
#include "base/invariant.h"
#include "transport/async_event.h"
#include "transport/clear_path.h"
#include "transport/comm.h"
#include "transport/complete.h"

#include "base/log.h"
#include "device/give_back.h"

#include <errno.h>
#include <string.h>

/* ---- the command ---------------------------------------------------------------------------- */

/* A verb of the fence answered `rc`; which is what its sentinels won't tell. */
static void cannot_drain(struct ha_path *path, const char *verb, int rc)
{
	atomic_store(&path->undrainable, true);
	path->unreachable |= rc == EIO || rc == ENODEV;
	HA_TRACE(1, "%s failed on %s:%d while a path was fenced: %s", verb, path->nic->name,
		 path->port->port_num, strerror(rc));
}

static bool is_done(struct ha_path *path, enum ha_stop_step step, uint8_t *stopped,
		    const char *verb, int rc)
{
	if (rc != 0) {
		cannot_drain(path, verb, rc);
		return false;
	}
	*stopped |= (uint8_t)step;
	return true;
}

static void post_send_sentinel(struct ha_path *path, struct ibv_qp *qp, uint8_t *stopped,
			       uint64_t wr_id)
{
	/* Never sent: it needs no memory, only to be in the queue. */
	struct ibv_send_wr wr = {
	    .wr_id = wr_id, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (!(*stopped & HA_STOP_SEND_SENTINEL) &&
	    is_done(path, HA_STOP_SEND_SENTINEL, stopped, "ibv_post_send",
		    ibv_post_send(qp, &wr, &bad)))
		path->sentinels_out++;
}

static void post_recv_sentinel(struct ha_path *path, struct ibv_qp *qp, uint8_t *stopped,
			       uint64_t wr_id)
{
	struct ibv_recv_wr wr = {.wr_id = wr_id};
	struct ibv_recv_wr *bad;

	if (!(*stopped & HA_STOP_RECV_SENTINEL) &&
	    is_done(path, HA_STOP_RECV_SENTINEL, stopped, "ibv_post_recv",
		    ibv_post_recv(qp, &wr, &bad)))
		path->sentinels_out++;
}

static bool to_error(struct ha_path *path, struct ibv_qp *qp, uint8_t *stopped)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return *stopped & HA_STOP_ERROR ||
	       is_done(path, HA_STOP_ERROR, stopped, "ibv_modify_qp to ERR",
		       ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* A command thread: nobody posts on the path any more. Sent again, it does what failed before. */
static void stop_queues(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, command);
	uint64_t wr_id = ha_wr_id(HA_WR_SENTINEL, path->index, path->generation, 0, 0);
	struct ha_flush_qp *flush = &path->flush;

	atomic_store(&path->undrainable, false);
	/* All of them stop before the first is waited for. */
	for (unsigned i = 0; i < path->nqps; i++) {
		struct ha_qp *qp = &path->qps[i];

		if (!qp->qp)
			continue;
		post_recv_sentinel(path, qp->qp, &qp->stopped, wr_id);
		if (to_error(path, qp->qp, &qp->stopped))
			post_send_sentinel(path, qp->qp, &qp->stopped, wr_id);
	}
	/*
	 * A flush has the device read the application's memory; its receive queue is never used. A
	 * queue pair that is kept writes to nothing but our own ring, and has its own end.
	 */
	if (flush->qp && !flush->kept && to_error(path, flush->qp, &flush->stopped))
		post_send_sentinel(path, flush->qp, &flush->stopped, wr_id);
}

/*
 * What a device that is well refuses is asked for again at once, as traffic may wait for it: so
 * often, with pauses from 1 ms on that double, 31 ms together.
 */
#define REFUSALS_MAX 6

static void say_once(struct ha_path *path, int rc)
{
	bool taken_away = rc == EIO || rc == ENODEV;

	if (path->indestructible)
		return; /* it is tried again and again; once is enough to say so */
	path->indestructible = true;
	if (taken_away)
		HA_INFO_LIMITED(
		    HA_SUBSYS_NET,
		    "%s:%d: a queue pair cannot be destroyed (%s): the device is being taken "
		    "away, and is waited for",
		    path->nic->name, path->port->port_num, strerror(rc));
	else
		HA_WARN("ibv_destroy_qp failed on %s:%d: %s", path->nic->name, path->port->port_num,
			strerror(rc));
}

static enum ha_destruction destroy(struct ha_path *path, struct ibv_qp **qp)
{
	int rc = *qp ? ibv_destroy_qp(*qp) : 0;

	if (rc != 0 && !ha_incarnation_took_along(path->on, rc, ha_now_ns())) {
		bool taken_away = rc == EIO || rc == ENODEV;

		if (taken_away || path->refusals + 1 >= REFUSALS_MAX)
			say_once(path, rc);
		else
			HA_INFO_LIMITED(HA_SUBSYS_NET,
					"%s:%d: ibv_destroy_qp is refused: %s; the device is asked "
					"again",
					path->nic->name, path->port->port_num, strerror(rc));
		return taken_away ? HA_DESTRUCTION_UNREACHABLE : HA_DESTRUCTION_FAILED;
	}
	if (rc != 0) /* the kernel's is gone, and the library's stays */
		ha_events_forget_qp(*qp);
	*qp = NULL;
	return HA_DESTRUCTION_DONE;
}

/* The worse of two. */
static enum ha_destruction both(enum ha_destruction a, enum ha_destruction b)
{
	return a < b ? a : b;
}

static unsigned live_queues(const struct ha_path *path)
{
	unsigned live = path->flush.qp != NULL;

	for (unsigned i = 0; i < path->nqps; i++)
		live += path->qps[i].qp != NULL;
	return live;
}

void ha_path_count_leaks(struct ha_path *path, enum ha_destruction destruction)
{
	ha_leaks_of_asked(path->on, &path->asked, HA_OBJECT_QP,
			  destruction == HA_DESTRUCTION_FAILED ? live_queues(path) : 0);
}

enum ha_destruction ha_path_destroy_queues(struct ha_path *path)
{
	enum ha_destruction destruction = destroy(path, &path->flush.qp);

	for (unsigned i = 0; i < path->nqps; i++)
		destruction = both(destruction, destroy(path, &path->qps[i].qp));
	if (destruction == HA_DESTRUCTION_FAILED && path->refusals < REFUSALS_MAX)
		path->refusals++;
	ha_path_count_leaks(path, destruction);
	return destruction;
}

void ha_path_destroy_flush(struct ha_path *path)
{
	(void)destroy(path, &path->flush.qp);
}

/* A command thread: of queues that do not drain. */
static void destroy_queues(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, command);

	path->destruction = (uint8_t)ha_path_destroy_queues(path);
}

/* Whether somebody waits for it, as far as it is known. */
static enum ha_command_kind fence_kind(const struct ha_path *path)
{
	return path->carried && path->comm->outstanding != 0 ? HA_COMMAND_FENCE
							     : HA_COMMAND_QUIET_FENCE;
}

/* ---- beginning ----------------------------------------------------------------------------- */

void ha_path_stop(struct ha_path *path)
{
	if (!path || ha_path_stopped(path))
		return;
	atomic_store(&path->state, HA_PATH_STOPPED);
	ha_comm_not_clear(path->comm);
}

static bool has_begun(const struct ha_path *path)
{
	return atomic_load_explicit(&path->state, memory_order_relaxed) >= HA_PATH_FENCING;
}

void ha_path_fence(struct ha_path *path)
{
	if (!path || has_begun(path))
		return;
	ha_comm_not_clear(path->comm);
	/*
	 * On a path that is still being made or connected nothing was ever posted, by us or by the
	 * peer, which waits to hear from us over it: there is nothing to wait for. It is closed
	 * when its command is back.
	 */
	if (ha_path_away(path)) {
		atomic_store(&path->state, HA_PATH_FENCED);
		return;
	}
	atomic_store(&path->state, HA_PATH_FENCING);
	path->fencing_since_ns = ha_now_ns();
	ha_path_command(path, stop_queues, fence_kind(path));
}

/* ---- confirmation -------------------------------------------------------------------------- */

/* For as long as it drains. Where it cannot, its queue pairs are destroyed. */
static bool may_drain(struct ha_path *path, uint64_t now_ns)
{
	if (path->draining_since_ns == 0)
		path->draining_since_ns = now_ns;
	return !path->unheard && !path->unreachable &&
	       now_ns < path->draining_since_ns + HA_FENCE_NS;
}

/*
 * What failed is tried again. Whoever asks is called when a command is back, so without a pause
 * there would be no end to it, here and below.
 */
static void stop_again(struct ha_path *path, uint64_t now_ns)
{
	if (!atomic_load(&path->undrainable) || now_ns < path->stop_ns)
		return;
	path->stop_ns = now_ns + HA_NS_PER_MS;
	ha_path_command(path, stop_queues, fence_kind(path));
}

/* What is refused for a moment. */
static bool may_be_granted(const struct ha_path *path)
{
	return path->destruction == HA_DESTRUCTION_FAILED && path->refusals < REFUSALS_MAX;
}

static bool is_too_soon(struct ha_path *path, uint64_t now_ns)
{
	uint64_t pause_ns =
	    may_be_granted(path) ? HA_NS_PER_MS << (path->refusals - 1) : HA_FENCE_NS;

	if (path->destroy_ns == 0)
		path->destroy_ns = now_ns + pause_ns;
	if (now_ns < path->destroy_ns && !ha_incarnation_took_along(path->on, EIO, now_ns))
		return true;
	path->destroy_ns = 0;
	return false;
}

static enum ha_fence destroy_instead(struct ha_comm *comm, struct ha_path *path, uint64_t now_ns)
{
	enum ha_destruction destruction = (enum ha_destruction)path->destruction;

	switch (destruction) {
	case HA_DESTRUCTION_FAILED:
		if (path->carried && !path->unheard && !may_be_granted(path)) {
			path->destruction = HA_DESTRUCTION_NONE; /* it may be asked again */
			return HA_FENCE_FAILED;			 /* an error, for who decides */
		}
		/* fall through */
	case HA_DESTRUCTION_UNREACHABLE:
		if (is_too_soon(path, now_ns))
			return destruction == HA_DESTRUCTION_FAILED && !may_be_granted(path)
				   ? HA_FENCE_FAILED
				   : HA_FENCE_PENDING;
		path->destruction = HA_DESTRUCTION_NONE;
		/* fall through */
	case HA_DESTRUCTION_NONE:
		ha_path_command(path, destroy_queues, fence_kind(path));
		return HA_FENCE_PENDING;
	case HA_DESTRUCTION_DONE:
		break;
	}
	comm->count.fences_destroyed++;
	HA_INFO_LIMITED(HA_SUBSYS_NET,
			"connection %s: %s:%d did not drain its queue pairs: they are destroyed",
			comm->name, path->nic->name, path->port->port_num);
	return HA_FENCE_DONE;
}

/* What completes on the way is real, and goes with its queue pair when that is destroyed. */
static bool is_heard(const struct ha_path *path)
{
	return path->destruction != HA_DESTRUCTION_DONE && !path->unheard && path->cq;
}

enum ha_fence ha_path_fenced(struct ha_comm *comm, struct ha_path *path, uint64_t now_ns)
{
	if (atomic_load(&path->state) == HA_PATH_FENCED)
		return HA_FENCE_DONE;
	ha_path_fence(path);
	if (is_heard(path)) /* the whole queue */
		ha_comm_poll_path(comm, path, path->cq->cqe);
	if (ha_path_away(path))
		return HA_FENCE_PENDING;
	if (!ha_path_drained(path)) {
		enum ha_fence fence;

		if (may_drain(path, now_ns)) {
			stop_again(path, now_ns);
			return HA_FENCE_PENDING;
		}
		fence = destroy_instead(comm, path, now_ns);
		if (fence != HA_FENCE_DONE)
			return fence;
	}
	atomic_store(&path->state, HA_PATH_FENCED);
	return HA_FENCE_DONE;
}
