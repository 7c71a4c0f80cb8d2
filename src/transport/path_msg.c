/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/path_msg.h"
#include "base/invariant.h"

#include "transport/comm.h"
#include "transport/failover_ops.h"
#include "transport/path_error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

_Static_assert(HA_MAILBOX_EXPECTED <= HA_MAILBOX_BYTES, "a message fits");
_Static_assert(HA_MAILBOXES == HA_MAX_PATHS, "a box for each path");

void ha_path_mailbox_read(const struct ha_comm *comm, unsigned path, uint8_t *out)
{
	const struct ha_mailbox *box =
	    comm->is_send ? &comm->send_ring->msg_in[path] : &comm->recv_ring->msg_in[path];

	memcpy(out, box->bytes, HA_MAILBOX_BYTES);
}

/* The peer is the other kind of end, so its ring is the other kind of ring. */
static uint64_t peer_box(const struct ha_comm *comm, const struct ha_path *path)
{
	size_t offset = comm->is_send ? offsetof(struct ha_recv_ring, msg_in)
				      : offsetof(struct ha_send_ring, msg_in);

	return path->remote_ring + offset + path->index * sizeof(struct ha_mailbox);
}

/* Posts on the first queue pair; the completion tells the queue's position. */
static bool post(struct ha_comm *comm, struct ha_path *path, struct ibv_send_wr *wr,
		 enum ha_wr_kind kind)
{
	struct ha_qp *qp = &path->qps[0];
	struct ibv_send_wr *bad;
	int rc;

	if (atomic_load_explicit(&path->state, memory_order_relaxed) != HA_PATH_READY ||
	    ha_qp_room(qp) == 0)
		return false;
	wr->wr_id = ha_wr_make(qp->wr_base, kind, qp->sq_posted + 1);
	wr->send_flags |= IBV_SEND_SIGNALED;
	rc = ibv_post_send(qp->qp, wr, &bad);
	if (rc != 0) {
		ha_comm_path_failed(comm, path, HA_REASON_POST, HA_ERR_SYSTEM,
				    "ibv_post_send (control): %s", strerror(rc));
		return false;
	}
	qp->sq_posted++;
	comm->count.work_requests++;
	return true;
}

static bool send_from(struct ha_comm *comm, struct ha_path *path, struct ha_mailbox *box,
		      const void *message, size_t length)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)box->bytes, .length = (uint32_t)length, .lkey = path->ring_lkey};
	struct ibv_send_wr wr = {
	    .sg_list = &sge,
	    .num_sge = 1,
	    .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
	    .imm_data = htonl(HA_IMM_KIND_CONTROL << 28 | path->index),
	    .wr.rdma = {.remote_addr = peer_box(comm, path), .rkey = path->remote_rkey},
	};

	memcpy(box->bytes, message, length);
	if (!post(comm, path, &wr, HA_WR_CONTROL))
		return false;
	path->msgs_out++;
	return true;
}

bool ha_path_msg_send(struct ha_comm *comm, struct ha_path *path, const void *message,
		      size_t length)
{
	struct ha_mailbox *boxes =
	    comm->is_send ? comm->send_ring->msg_out : comm->recv_ring->msg_out;

	/* The hardware may still read what it was given before. */
	if (path->msgs_out != 0)
		return false;
	return send_from(comm, path, &boxes[path->index], message, length);
}

bool ha_path_msg_send_last(struct ha_comm *comm, struct ha_path *path, const void *message,
			   size_t length)
{
	struct ha_mailbox *boxes =
	    comm->is_send ? comm->send_ring->last_out : comm->recv_ring->last_out;

	return send_from(comm, path, &boxes[path->index], message, length);
}

bool ha_path_probe(struct ha_comm *comm, struct ha_path *path)
{
	struct ibv_send_wr wr = {
	    .opcode = IBV_WR_RDMA_WRITE,
	    .wr.rdma = {.remote_addr = path->remote_ring, .rkey = path->remote_rkey},
	};

	if (path->probe_busy)
		return false;
	path->probe_busy = post(comm, path, &wr, HA_WR_PROBE);
	return path->probe_busy;
}

void ha_path_msg_done(struct ha_path *path, uint32_t mark)
{
	HA_INVARIANT(path->msgs_out > 0);
	path->msgs_out--;
	ha_qp_left(&path->qps[0], mark);
}

void ha_path_probe_done(struct ha_path *path, uint32_t mark)
{
	HA_INVARIANT(path->probe_busy);
	path->probe_busy = false;
	ha_qp_left(&path->qps[0], mark);
	path->comm->ops->probe_done(path->comm, path);
}
