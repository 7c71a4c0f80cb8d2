/* SPDX-License-Identifier: Apache-2.0 */
/* regMr and deregMr: may run while another thread drives the same connection. */
#include "transport/comm.h"
#include "transport/recv.h"

#include "base/log.h"
#include "memory/mr.h"
#include "transport/shared.h"

/*
 * The primary's device as long as it lives: that is where most traffic goes. After its death any
 * other one will do, since the rest follows when a path needs it.
 */
static struct ha_nic *nic_for(const struct ha_comm *comm)
{
	struct ha_device_set *set = comm->inst->devices;

	for (int i = 0; atomic_load(&comm->primary->fatal) && i < set->nnics; i++)
		if (!atomic_load(&set->nics[i].fatal))
			return &set->nics[i];
	return comm->primary;
}

/* What the connection's paths in reserve will need as well. */
static void own(struct ha_comm *comm, struct ha_mr *mr)
{
	ha_token_acquire(comm);
	mr->owner = comm;
	ha_list_push_back(&comm->memory.handles, &mr->in_owner);
	comm->memory.has_dmabufs |= mr->dmabuf_fd >= 0;
	comm->memory.serial++;
	ha_token_release(comm);
	if (ha_comm_has_failover(comm))
		ha_progress_call(comm->inst->progress, &comm->poller);
}

static void disown(struct ha_mr *mr)
{
	struct ha_comm *comm = mr->owner;

	if (!comm)
		return;
	ha_token_acquire(comm);
	ha_list_remove(&mr->in_owner);
	mr->owner = NULL;
	ha_token_release(comm);
}

ha_result_t ha_reg_mr(struct ha_comm *comm, void *data, size_t size, int type, uint64_t offset,
		      int fd, struct ha_mr **out)
{
	*out = NULL;
	HA_TRY(
	    ha_mr_register(comm->inst->devices, nic_for(comm), data, size, type, offset, fd, out));
	own(comm, *out);
	return HA_OK;
}

/* A registration outlives the connection it was made through, so this may be one that is closed. */
static bool is_open(struct ha_instance *inst, const struct ha_comm *comm)
{
	bool found = false;
	struct ha_list *pos;

	pthread_mutex_lock(&inst->lock);
	ha_list_for_each (pos, &inst->comms)
		found |= ha_container_of(pos, struct ha_comm, in_instance) == comm;
	pthread_mutex_unlock(&inst->lock);
	return found;
}

static unsigned forget_receives(struct ha_comm *comm, const struct ha_mr *mr)
{
	struct ha_recv_side *r = comm->recv;
	unsigned used = 0;

	for (uint64_t seq = r->done.base; seq != r->next_seq; seq++) {
		struct ha_recv_slot *slot = &r->slots[seq & comm->slot_mask];

		for (unsigned i = 0; i < slot->n && !ha_window_has(&r->done, seq); i++)
			if (slot->mrs[i] == mr) {
				slot->mrs[i] = NULL;
				used++;
			}
	}
	return used;
}

static unsigned forget_requests(struct ha_request_pool *pool, const struct ha_mr *mr)
{
	unsigned used = 0;

	for (unsigned i = 0; i < pool->count; i++) {
		struct ha_request *req = &pool->all[i];

		if (req->kind != HA_REQ_RECV && req->mr == mr &&
		    atomic_load_explicit(&req->state, memory_order_acquire) == HA_REQ_ACTIVE) {
			req->mr = NULL;
			used++;
		}
	}
	return used;
}

/*
 * What is in flight may be posted again on another path, with memory that is gone by then. NCCL
 * does this when it gives up: it deregisters, then closes. So nothing is posted any more.
 */
static void forget(struct ha_comm *comm, const struct ha_mr *mr)
{
	unsigned used;

	ha_token_acquire(comm);
	used = forget_requests(&comm->pool, mr);
	if (comm->recv)
		used += forget_requests(&comm->recv->flush_pool, mr) + forget_receives(comm, mr);
	if (used != 0) {
		for (unsigned p = 0; p < comm->npaths; p++)
			ha_path_fence(comm->paths[p]);
		ha_comm_fail(comm, HA_ERR_USAGE,
			     "memory of %u requests in flight was deregistered: is the job being "
			     "aborted?",
			     used);
	}
	ha_token_release(comm);
}

void ha_dereg_mr(struct ha_comm *comm, struct ha_mr *mr)
{
	if (!mr)
		return;
	if (comm && is_open(mr->set->on_event_arg, comm))
		forget(comm, mr);
	disown(mr);
	ha_mr_deregister(mr);
}
