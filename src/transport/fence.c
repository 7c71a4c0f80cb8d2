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
 * The receive queue gets its last one before the change to ERR: the kernel's soft RoCE flushes
 * receives when the state is set, and does not look at what is posted afterwards. It stays the
 * last: no message takes it, as there are more receives before it than notices under way.
 */
#include "transport/comm.h"
#include "transport/complete.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

/* ---- the command ---------------------------------------------------------------------------- */

/* Remembers that the sentinels won't tell, and says why. */
static void cannot_drain(struct ha_path *path, const char *verb, int rc)
{
	atomic_store(&path->undrainable, true);
	HA_TRACE(1, "%s failed on %s:%d while a path was fenced: %s", verb, path->nic->name,
		 path->port->port_num, strerror(rc));
}

static void post_send_sentinel(struct ha_path *path, struct ibv_qp *qp, uint64_t wr_id)
{
	/* Never sent: it needs no memory, only to be in the queue. */
	struct ibv_send_wr wr = {
	    .wr_id = wr_id, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(qp, &wr, &bad);

	if (rc != 0)
		cannot_drain(path, "ibv_post_send", rc);
	else
		path->sentinels_out++;
}

static void post_recv_sentinel(struct ha_path *path, struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_recv_wr wr = {.wr_id = wr_id};
	struct ibv_recv_wr *bad;
	int rc = ibv_post_recv(qp, &wr, &bad);

	if (rc != 0)
		cannot_drain(path, "ibv_post_recv", rc);
	else
		path->sentinels_out++;
}

static bool to_error(struct ha_path *path, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int rc = ibv_modify_qp(qp, &attr, IBV_QP_STATE);

	if (rc != 0)
		cannot_drain(path, "ibv_modify_qp to ERR", rc);
	return rc == 0;
}

/* A command thread: nobody posts on the path any more. */
static void stop_queues(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, command);
	uint64_t wr_id = ha_wr_id(HA_WR_SENTINEL, path->index, path->generation, 0, 0);

	/* All of them stop before the first is waited for. */
	for (unsigned i = 0; i < path->nqps; i++) {
		if (!path->qps[i].qp)
			continue;
		post_recv_sentinel(path, path->qps[i].qp, wr_id);
		if (to_error(path, path->qps[i].qp))
			post_send_sentinel(path, path->qps[i].qp, wr_id);
	}
	/* A flush has the device read the application's memory; its receive queue is never used. */
	if (path->flush.qp && to_error(path, path->flush.qp))
		post_send_sentinel(path, path->flush.qp, wr_id);
}

static bool destroy(struct ha_path *path, struct ibv_qp **qp)
{
	int rc = *qp ? ibv_destroy_qp(*qp) : 0;

	if (rc != 0) {
		if (path->indestructible)
			return false; /* it is tried again and again; once is enough to say so */
		path->indestructible = true;
		HA_WARN("ibv_destroy_qp failed on %s:%d while a path was fenced: %s",
			path->nic->name, path->port->port_num, strerror(rc));
		return false;
	}
	*qp = NULL;
	return true;
}

/* A command thread: of queues that do not drain. */
static void destroy_queues(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, command);
	bool gone = destroy(path, &path->flush.qp);

	for (unsigned i = 0; i < path->nqps; i++)
		gone &= destroy(path, &path->qps[i].qp);
	path->destruction = gone ? HA_DESTRUCTION_DONE : HA_DESTRUCTION_FAILED;
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
	ha_path_command(path, stop_queues, HA_COMMAND_DEVICE);
}

/* ---- confirmation -------------------------------------------------------------------------- */

/* For as long as it drains; then, and where it cannot, its queue pairs are destroyed. */
static bool may_drain(struct ha_path *path, uint64_t now_ns)
{
	if (path->draining_since_ns == 0)
		path->draining_since_ns = now_ns;
	return !atomic_load(&path->undrainable) && now_ns < path->draining_since_ns + HA_FENCE_NS;
}

static enum ha_fence destroy_instead(struct ha_comm *comm, struct ha_path *path)
{
	switch (path->destruction) {
	case HA_DESTRUCTION_NONE:
		ha_path_command(path, destroy_queues, HA_COMMAND_DEVICE);
		return HA_FENCE_PENDING;
	case HA_DESTRUCTION_FAILED:
		path->destruction = HA_DESTRUCTION_NONE; /* it may be asked again */
		return HA_FENCE_FAILED;
	case HA_DESTRUCTION_DONE:
		break;
	}
	comm->count.fences_destroyed++;
	HA_INFO(HA_SUBSYS_NET,
		"connection %s: %s:%d did not drain its queue pairs: they are destroyed",
		comm->name, path->nic->name, path->port->port_num);
	return HA_FENCE_DONE;
}

enum ha_fence ha_path_fenced(struct ha_comm *comm, struct ha_path *path, uint64_t now_ns)
{
	if (atomic_load(&path->state) == HA_PATH_FENCED)
		return HA_FENCE_DONE;
	ha_path_fence(path);
	/* The whole queue: what destroying would throw away is real, too. */
	if (path->destruction == HA_DESTRUCTION_NONE && !path->unheard && path->cq)
		ha_comm_poll_path(comm, path, path->cq->cqe);
	if (ha_path_away(path))
		return HA_FENCE_PENDING;
	if (!ha_path_drained(path)) {
		enum ha_fence fence;

		if (may_drain(path, now_ns))
			return HA_FENCE_PENDING;
		fence = destroy_instead(comm, path);
		if (fence != HA_FENCE_DONE)
			return fence;
	}
	atomic_store(&path->state, HA_PATH_FENCED);
	return HA_FENCE_DONE;
}
