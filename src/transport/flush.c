/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iflush: make what arrived in GPU memory visible to the GPU.
 *
 * The NIC writes to GPU memory with posted PCIe writes and reports completion to host memory; the
 * report can overtake the data. A read by the same NIC of the same memory pushes the writes ahead
 * of it, so a completed loopback RDMA READ is the proof. It has to be the NIC the data came
 * through: another one orders nothing, so one whose path was left is read through for a while yet
 * (flush_old.c). Host memory needs none of this.
 *
 * The queue pair is made when GPU memory first needs it: most connections never do. That is four
 * commands, which a sick device may keep for a minute, so a command thread makes it, and flushes
 * wait. Nothing was ever posted on it before the path took it over, so until then no fence has to
 * care.
 */
#include "transport/flush.h"
#include "transport/comm.h"
#include "transport/flush_beside.h"
#include "transport/flush_old.h"
#include "transport/gpu_proof.h"
#include "transport/path_connect.h"
#include "transport/path_error.h"
#include "transport/recv.h"
#include "transport/user_mr.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "base/log.h"
#include "memory/mr.h"
#include "progress/command.h"
#include "transport/shared.h"

#include <errno.h>
#include <string.h>

#define FLUSH_TIMEOUT 14 /* the queue pair talks to itself */
#define FLUSH_BYTES   1

/* ---- the queue pair ------------------------------------------------------------------------- */

static int connect_to_itself(const struct ha_path *path, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT,
	    .pkey_index = atomic_load(&path->port->pkey_index),
	    .port_num = path->port->port_num,
	    .qp_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	struct ha_wire_endpoint self = {.lid = path->addr.lid};
	int rc = ibv_modify_qp(
	    qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (rc != 0)
		return rc;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = path->addr.mtu;
	attr.dest_qp_num = qp->qp_num;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	memcpy(self.gid, path->addr.gid.raw, sizeof(self.gid));
	ha_path_address(path, &self, &attr.ah_attr);
	rc = ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (rc != 0)
		return rc;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = FLUSH_TIMEOUT;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void not_made(struct ha_path *path, const char *verb, int error)
{
	path->flush.verb = verb;
	path->flush.error = error;
}

/* A thread of the commands. */
static void make_qp(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, flush.command);
	struct ibv_qp_init_attr init = {
	    .qp_context = path,
	    .send_cq = path->cq,
	    .recv_cq = path->cq,
	    .qp_type = IBV_QPT_RC,
	    .cap = {.max_send_wr = HA_FLUSH_DEPTH + 1, /* and the sentinel */
		    .max_recv_wr = 1,
		    .max_send_sge = 1,
		    .max_recv_sge = 1},
	};
	int rc;

	path->flush.made = ibv_create_qp(path->on->pd, &init);
	if (!path->flush.made) {
		not_made(path, "ibv_create_qp (flush)", errno);
		return;
	}
	rc = connect_to_itself(path, path->flush.made);
	if (rc != 0)
		not_made(path, "ibv_modify_qp (flush)", rc);
}

static void start_making(struct ha_path *path)
{
	struct ha_command *command = &path->flush.command;

	path->flush.since_ns = ha_now_ns();
	ha_list_init(&command->link);
	command->run = make_qp;
	command->kind = HA_COMMAND_DEVICE;
	command->owner = &path->comm->poller;
	command->key = (uintptr_t)path; /* before its fence, and before its objects are destroyed */
	ha_command_send(
	    ha_progress_commands(path->comm->inst->progress, (unsigned)path->nic->index), command);
}

static void take_made(struct ha_flush_qp *flush)
{
	flush->qp = flush->made;
	flush->made = NULL;
}

bool ha_flush_has_qp(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_flush_qp *flush = &path->flush;

	if (flush->qp)
		return true;
	if (ha_command_busy(&flush->command)) {
		if (ha_now_ns() - flush->since_ns > ha_command_sick_ns)
			ha_comm_path_failed(comm, path, HA_REASON_SOFT_TIMEOUT, HA_ERR_SYSTEM,
					    "making a queue pair for flushes on %s takes longer "
					    "than on a device that is well",
					    path->nic->name);
		return false;
	}
	if (!ha_command_done(&flush->command)) {
		start_making(path);
		return false;
	}
	if (flush->verb) { /* what was made is destroyed with the path */
		ha_comm_verb_failed(comm, path, HA_REASON_POST, flush->verb, flush->error);
		return false;
	}
	take_made(flush);
	return true;
}

/* A failure is for the flush that meets it: perhaps none ever does. */
void ha_flush_prepare(struct ha_comm *comm)
{
	struct ha_path *path = ha_comm_path(comm);
	struct ha_flush_qp *flush;

	if (!ha_comm_may_post(comm) || ha_comm_error(comm) != HA_OK)
		return;
	flush = &path->flush;
	if (flush->qp || flush->serial == comm->memory.serial)
		return;
	if (!ha_gpu_memory(comm))
		flush->serial = comm->memory.serial;
	else if (ha_command_done(&flush->command) && !flush->verb)
		take_made(flush);
	else if (!ha_command_busy(&flush->command) && !ha_command_done(&flush->command))
		start_making(path);
}

/* ---- flushing ------------------------------------------------------------------------------ */

int ha_flush_read(struct ha_comm *comm, struct ha_path *path, uint32_t request_id, uint64_t addr,
		  uint64_t keys)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&comm->recv_ring->read_landing,
			      .length = FLUSH_BYTES,
			      .lkey = path->ring_lkey};
	struct ibv_send_wr wr = {
	    .wr_id = ha_wr_id(HA_WR_FLUSH, path->index, path->generation, 0, request_id),
	    .sg_list = &sge,
	    .num_sge = 1,
	    .opcode = IBV_WR_RDMA_READ,
	    .send_flags = IBV_SEND_SIGNALED,
	    .wr.rdma = {.remote_addr = addr, .rkey = ha_mr_rkey(keys)},
	};
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(path->flush.qp, &wr, &bad);

	if (rc != 0)
		return rc;
	HA_INVARIANT(path->flush.posted - path->flush.done <= HA_FLUSH_DEPTH);
	path->flush.posted++;
	comm->count.work_requests++;
	return 0;
}

/* Of a request that was never posted. */
static void begin(struct ha_comm *comm)
{
	comm->recv->flushes++;
	comm->count.requests++;
	comm->outstanding++;
}

static __attribute__((cold, noinline)) void cannot_post(struct ha_comm *comm)
{
	if (atomic_load_explicit(&comm->peer_bye, memory_order_acquire))
		ha_comm_fail(comm, HA_ERR_REMOTE,
			     "the peer has closed and the path its data came on is gone: what "
			     "arrived cannot be flushed");
}

/* Through all NICs but the active path's. False: a queue has no room. */
static bool begin_to_spread(struct ha_comm *comm, struct ha_request *req)
{
	const bool fresh = req->posted == HA_FLUSH_NEW;

	req->waits = HA_FLUSH_WANT_ACTIVE;
	if (!ha_flush_beside_post(comm, req))
		return false;
	req->posted = HA_FLUSH_SPREAD;
	ha_flush_old_post(comm, req);
	if (fresh)
		begin(comm);
	return true;
}

/* While the active path's NIC is not the only one. False: nothing is to be posted on that path now.
 */
static __attribute__((cold, noinline)) bool spread(struct ha_comm *comm, struct ha_request *req)
{
	if (req->posted != HA_FLUSH_SPREAD && !begin_to_spread(comm, req))
		return false;
	ha_flush_old_go_on(comm);
	if (req->waits & HA_FLUSH_WANT_OLD && !ha_flush_beside_unsettled(comm))
		ha_flush_old_post_rest(comm, req);
	return req->posted == HA_FLUSH_SPREAD && req->waits & HA_FLUSH_WANT_ACTIVE;
}

void ha_flush_post(struct ha_comm *comm, struct ha_request *req)
{
	struct ha_path *path = ha_comm_path(comm);
	uint64_t keys;
	int rc;

	if (__builtin_expect(!ha_comm_may_post(comm), 0)) {
		cannot_post(comm);
		return;
	}
	if (__builtin_expect(comm->recv->flush_through != 0 || req->posted == HA_FLUSH_SPREAD, 0) &&
	    !spread(comm, req))
		return;
	if (!ha_flush_has_qp(comm, path) || path->flush.posted - path->flush.done == HA_FLUSH_DEPTH)
		return;
	keys = ha_comm_keys(comm, path, path->nic_index, req->mr, "a buffer to flush");
	if (keys == 0)
		return;
	rc = ha_flush_read(comm, path, req->id, req->addr, keys);
	if (rc != 0) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send (flush)", rc);
		return;
	}
	if (__builtin_expect(req->posted == HA_FLUSH_SPREAD, 0)) {
		req->waits ^= HA_FLUSH_WANT_ACTIVE | HA_FLUSH_WAIT_ACTIVE;
		return;
	}
	if (req->posted == HA_FLUSH_NEW)
		begin(comm);
	req->posted = HA_FLUSH_POSTED;
}

/* Of a request that does not wait for one read alone. */
static __attribute__((cold, noinline)) bool is_last_read(struct ha_comm *comm, struct ha_path *path,
							 struct ha_request *req)
{
	if (req->posted == HA_FLUSH_SPREAD)
		return ha_flush_old_read(comm, path, req) == 0;
	comm->count.stale_completions++;
	return false;
}

void ha_flush_complete(struct ha_comm *comm, struct ha_path *path, uint32_t request_id)
{
	struct ha_request *req;

	if (!comm->recv || request_id > comm->recv->flush_pool.count)
		return;
	path->flush.done++;
	if (__builtin_expect(request_id == comm->recv->flush_pool.count, 0))
		return;
	req = &comm->recv->flush_pool.all[request_id];
	if (__builtin_expect(req->posted != HA_FLUSH_POSTED, 0) && !is_last_read(comm, path, req))
		return;
	HA_INVARIANT(comm->recv->flushes > 0);
	HA_INVARIANT(comm->outstanding >= comm->recv->flushes);
	comm->outstanding--;
	comm->recv->flushes--;
	comm->count.flushes++;
	req->posted = HA_FLUSH_NEW; /* whoever uses it next, see ha_flush_resume */
	ha_request_done(req);
}

/* The last buffer with data in GPU memory: a read of one orders the writes to all. */
static int buffer_to_flush(int n, const int *sizes, struct ha_mr *const *mrs)
{
	for (int i = n - 1; i >= 0; i--)
		if (sizes[i] > 0 && mrs[i] && !ha_mr_is_host(mrs[i]))
			return i;
	return -1;
}

static void post_lost(struct ha_comm *comm)
{
	struct ha_request_pool *pool = &comm->recv->flush_pool;

	for (unsigned i = 0; i < pool->count; i++) {
		struct ha_request *req = &pool->all[i];

		/* The application may be filling in any other one at this moment. */
		if (req->posted == HA_FLUSH_POSTED)
			req->posted = HA_FLUSH_AGAIN;
		else if (req->posted != HA_FLUSH_SPREAD)
			continue;
		ha_flush_post(comm, req);
	}
}

void ha_flush_resume(struct ha_comm *comm)
{
	ha_flush_old_resume(comm);
	post_lost(comm);
}

void ha_flush_turn(struct ha_comm *comm)
{
	ha_flush_old_resume(comm);
	ha_flush_beside_is_active(comm);
	post_lost(comm);
}

ha_result_t ha_iflush(struct ha_comm *comm, int n, void *const *data, const int *sizes,
		      struct ha_mr *const *mrs, struct ha_request **out)
{
	ha_result_t result = ha_comm_error(comm);
	struct ha_request *req;
	int which;

	*out = NULL;
	if (__builtin_expect(result != HA_OK, 0))
		return result;
	which = buffer_to_flush(n, sizes, mrs);
	if (which < 0)
		return HA_OK; /* no request: NCCL takes it for done at once */
	req = ha_request_get(&comm->recv->flush_pool, HA_REQ_FLUSH);
	if (!req)
		return ha_comm_fail(comm, HA_ERR_INTERNAL, "more than %d flushes outstanding",
				    comm->recv->flush_pool.count);
	req->addr = (uintptr_t)data[which];
	req->mr = mrs[which];
	/* A NULL request would mean "flushed". When the token is taken, test posts it. */
	if (ha_token_try(comm)) {
		ha_flush_post(comm, req);
		ha_token_release(comm);
	}
	*out = req;
	return ha_comm_error(comm);
}
