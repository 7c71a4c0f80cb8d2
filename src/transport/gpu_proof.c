/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gpu_proof.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/mr.h"
#include "transport/comm.h"
#include "transport/failover_ops.h"
#include "transport/flush.h"
#include "transport/path_error.h"
#include "transport/shared.h"

/* That a NIC does not reach a GPU is a warning at most so often. */
#define TOLD_AGAIN_NS (60 * HA_NS_PER_S)

struct ha_mr *ha_gpu_memory(const struct ha_comm *comm)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &comm->memory.handles) {
		struct ha_mr *mr = ha_container_of(pos, struct ha_mr, in_owner);

		if (!ha_mr_is_host(mr))
			return mr;
	}
	return NULL;
}

bool ha_gpu_proof_reaches(const struct ha_path *path, const struct ha_mr *mr)
{
	return ha_mr_is_host(mr) || path->gpu_proof.state == HA_GPU_PROOF_GOOD;
}

static uintptr_t landing(const struct ha_comm *comm)
{
	return comm->is_send ? (uintptr_t)&comm->send_ring->read_landing
			     : (uintptr_t)&comm->recv_ring->read_landing;
}

static void post(struct ha_comm *comm, struct ha_path *path, const struct ha_mr *mr, uint64_t keys)
{
	struct ibv_sge sge = {.addr = landing(comm), .length = 1, .lkey = path->ring_lkey};
	struct ibv_send_wr wr = {
	    .wr_id = ha_wr_id(HA_WR_GPU_PROOF, path->index, path->generation, 0, 0),
	    .sg_list = &sge,
	    .num_sge = 1,
	    .opcode = IBV_WR_RDMA_READ,
	    .send_flags = IBV_SEND_SIGNALED,
	    .wr.rdma = {.remote_addr = mr->addr, .rkey = ha_mr_rkey(keys)},
	};
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(path->flush.qp, &wr, &bad);

	if (rc != 0) {
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send (GPU memory)", rc);
		return;
	}
	path->flush.posted++;
	comm->count.work_requests++;
	path->gpu_proof.state = HA_GPU_PROOF_POSTED;
	path->gpu_proof.mr = mr;
	path->gpu_proof.since_ns = ha_now_ns();
}

/* ---- what came of it ------------------------------------------------------------------------ */

static void unreached(struct ha_comm *comm, const struct ha_path *path, enum ibv_wc_status status)
{
	const uint64_t now_ns = ha_now_ns();
	struct ha_nic *nic = path->nic;
	uint64_t before_ns = atomic_exchange(&nic->gpu_unreached_ns, now_ns);

	if (before_ns == 0 || now_ns - before_ns >= TOLD_AGAIN_NS)
		HA_WARN("%s has registered GPU memory and cannot read it (%s), so it cannot take "
			"over for another NIC; look at the PCIe tree between them: ACS, the IOMMU, "
			"nvidia-smi topo -m",
			nic->name, ibv_wc_status_str(status));
	(void)comm->ops->memory_refused(comm, nic);
}

static bool is_fenced(const struct ha_path *path)
{
	return atomic_load_explicit(&path->state, memory_order_relaxed) >= HA_PATH_FENCING;
}

/* A refusal may be known by the queue pair's event first: then the path is stopped already. */
void ha_gpu_proof_done(struct ha_comm *comm, struct ha_path *path, enum ibv_wc_status status)
{
	path->flush.done++;
	if (is_fenced(path))
		return;
	if (path->gpu_proof.state != HA_GPU_PROOF_POSTED) { /* of memory that is gone */
		if (status != IBV_WC_SUCCESS)
			ha_comm_path_failed(comm, path, HA_REASON_PROBE, HA_ERR_SYSTEM,
					    "a read of memory that was deregistered meanwhile (%s)",
					    ibv_wc_status_str(status));
		return;
	}
	path->gpu_proof.state = status == IBV_WC_SUCCESS ? HA_GPU_PROOF_GOOD : HA_GPU_PROOF_FAILED;
	if (status != IBV_WC_SUCCESS)
		unreached(comm, path, status);
	ha_progress_call(comm->inst->progress, &comm->poller);
}

/* A device that the PCIe tree keeps waiting says nothing at all. */
static void look_for_silence(struct ha_comm *comm, struct ha_path *path)
{
	if (ha_now_ns() - path->gpu_proof.since_ns <= (uint64_t)comm->rto_ms * HA_NS_PER_MS)
		return;
	path->gpu_proof.state = HA_GPU_PROOF_FAILED;
	unreached(comm, path, IBV_WC_RESP_TIMEOUT_ERR);
}

/* ---- steps ---------------------------------------------------------------------------------- */

void ha_gpu_proof_go_on(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_mr *mr = ha_gpu_memory(comm);
	uint64_t keys = mr ? ha_mr_keys(mr, path->nic_index) : 0;

	if (path->gpu_proof.state == HA_GPU_PROOF_NONE && keys != 0 && ha_flush_has_qp(comm, path))
		post(comm, path, mr, keys);
	else if (path->gpu_proof.state == HA_GPU_PROOF_POSTED)
		look_for_silence(comm, path);
}

void ha_gpu_proof_forget(struct ha_comm *comm, const struct ha_mr *mr)
{
	for (unsigned p = 0; p < comm->npaths; p++)
		if (comm->paths[p] && comm->paths[p]->gpu_proof.mr == mr &&
		    comm->paths[p]->gpu_proof.state == HA_GPU_PROOF_POSTED)
			comm->paths[p]->gpu_proof.state = HA_GPU_PROOF_NONE;
}
