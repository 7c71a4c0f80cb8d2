/* SPDX-License-Identifier: Apache-2.0 */
/* regMr and deregMr: may run while another thread drives the same connection. */
#include "transport/comm.h"
#include "transport/failover_ops.h"
#include "transport/fence.h"
#include "transport/flush_old.h"
#include "transport/recv.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/mr.h"
#include "transport/gpu_proof.h"
#include "transport/shared.h"
#include "transport/user_mr.h"

#include <unistd.h>

/* False as well of one that died a moment ago, and showed it when it refused memory: its event was
 * not read yet. */
static bool lives(struct ha_nic *nic)
{
	struct ha_incarnation *on = ha_nic_hold(nic);
	const bool answers = !ha_incarnation_is_dead(on) && !atomic_load(&on->mute);

	ha_incarnation_let_go(on);
	return answers && !atomic_load(&nic->fatal);
}

/*
 * The primary's device as long as it lives: that is where most traffic goes. After its death any
 * other one will do, since the rest follows when a path needs it. NULL: none lives.
 */
static struct ha_nic *nic_for(const struct ha_comm *comm)
{
	struct ha_device_set *set = comm->inst->devices;

	if (lives(comm->primary))
		return comm->primary;
	for (int i = 0; i < set->nnics; i++)
		if (lives(&set->nics[i]))
			return &set->nics[i];
	return NULL;
}

/* The connection waits for a device to come back, and can wait for this memory with it. */
static bool outlives_its_nics(const struct ha_comm *comm)
{
	return ha_comm_has_failover(comm) && ha_comm_error(comm) == HA_OK;
}

/* What the connection's paths in reserve will need as well. */
static void own(struct ha_comm *comm, struct ha_mr *mr)
{
	ha_token_acquire(comm);
	mr->owner = comm;
	ha_list_push_back(&comm->memory.handles, &mr->in_owner);
	comm->memory.has_dmabufs |= mr->dmabuf;
	comm->polled.flushes |= !comm->is_send && !ha_mr_is_host(mr);
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
	ha_gpu_proof_forget(comm, mr);
	ha_list_remove(&mr->in_owner);
	mr->owner = NULL;
	ha_token_release(comm);
}

/* On a bundle: on the NICs of the other rails as well, at once, by the threads of their commands.
 */
static void register_on_rails(const struct ha_comm *comm, struct ha_mr *mr)
{
	const struct ha_bundle *bundle = comm->port->bundle;

	for (unsigned i = 1; i < ha_comm_rails(comm); i++)
		if (!atomic_load(&bundle->rails[i]->nic->fatal))
			ha_user_mr_ahead(mr, bundle->rails[i]->nic);
}

static ha_result_t register_later(const struct ha_comm *comm, void *data, size_t size, int type,
				  uint64_t offset, int fd, struct ha_mr **out)
{
	HA_TRY(ha_mr_register_later(comm->inst->devices, comm->primary, data, size, type, offset,
				    fd, out));
	HA_INFO(HA_SUBSYS_NET,
		"connection %s: no NIC works, %s included: %zu bytes at %p are registered "
		"when one is back",
		comm->name, comm->primary->name, size, data);
	return HA_OK;
}

ha_result_t ha_reg_mr(struct ha_comm *comm, void *data, size_t size, int type, uint64_t offset,
		      int fd, struct ha_mr **out)
{
	const bool outlives = outlives_its_nics(comm);
	struct ha_nic *nic;
	ha_result_t result;

	*out = NULL;
	do { /* each one that dies while it is asked is asked once */
		nic = nic_for(comm);
		result = !nic && outlives
			     ? register_later(comm, data, size, type, offset, fd, out)
			     : ha_mr_register(comm->inst->devices, nic ? nic : comm->primary, data,
					      size, type, offset, fd, out);
	} while (result != HA_OK && nic && outlives && !lives(nic));
	HA_TRY(result);
	own(comm, *out);
	register_on_rails(comm, *out);
	return HA_OK;
}

ha_result_t ha_reg_later(struct ha_comm *comm, void *data, size_t size, struct ha_mr **out)
{
	HA_TRY(ha_mr_register_later(comm->inst->devices, comm->primary, data, size, HA_MEM_HOST, 0,
				    -1, out));
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

/* ---- memory that is in use ------------------------------------------------------------------- */

/* A device takes milliseconds. Where a fence takes longer it is said, and in the end it is the
 * smaller evil to return. */
#define FENCE_TOLD_NS (200 * HA_NS_PER_MS)
#define FENCE_MOST_NS (60 * HA_NS_PER_S)
#define FENCE_NAP_US  100

/* One look at the reads through NICs that were left, of memory that may be this. */
static bool all_read(struct ha_comm *comm, const char **nic)
{
	bool over;

	ha_token_acquire(comm);
	ha_flush_old_go_on(comm);
	if (!comm->inst->threads)
		ha_flush_old_wait(comm);
	over = !ha_flush_old_reads(comm, nic);
	ha_token_release(comm);
	return over;
}

/* One look at a fence; NULL is fine. */
static bool is_fenced(struct ha_comm *comm, struct ha_path *path, const char **nic)
{
	if (!path || ha_path_harmless(path))
		return true;
	if (!comm->inst->threads) { /* no time passes here: nothing drains */
		(void)ha_path_wait(path, UINT64_MAX);
		ha_path_unheard(path);
	}
	if (ha_path_fenced(comm, path, ha_now_ns()) == HA_FENCE_DONE)
		return true;
	*nic = path->nic->name;
	return false;
}

/* One look at the fences of all paths; of one that is not confirmed, if any. */
static bool all_fenced(struct ha_comm *comm, const char **nic)
{
	bool fenced = all_read(comm, nic);

	ha_token_acquire(comm);
	for (unsigned p = 0; p < comm->npaths; p++) {
		fenced &= is_fenced(comm, comm->paths[p], nic);
		fenced &= is_fenced(comm, comm->ops->left(comm, p), nic);
	}
	ha_token_release(comm);
	return fenced;
}

/*
 * Whoever deregisters may use the memory again at once, or unmap it; and ending the registration
 * keeps nobody off pages that another handle has registered as well.
 */
static void await_end(struct ha_comm *comm, bool (*is_over)(struct ha_comm *comm, const char **nic))
{
	const uint64_t began_ns = ha_real_ns();
	const char *nic = NULL;
	bool told = false;
	uint64_t took_ns;

	/* Where there are no threads a second look has seen everything. */
	for (int look = 0; !is_over(comm, &nic) && (look < 2 || comm->inst->threads); look++) {
		took_ns = ha_real_ns() - began_ns;
		if (took_ns > FENCE_MOST_NS) {
			HA_WARN("connection %s: the queue pairs on %s do not stop: the device may "
				"still write to memory that is deregistered; reset it",
				comm->name, nic);
			return;
		}
		if (took_ns > FENCE_TOLD_NS && !told)
			HA_WARN("connection %s: the queue pairs on %s do not stop soon; "
				"deregistering waits, since the device may still use the memory of "
				"requests in flight",
				comm->name, nic);
		told |= took_ns > FENCE_TOLD_NS;
		usleep(FENCE_NAP_US);
	}
}

/*
 * What is in flight may be posted again on another path, with memory that is gone by then. NCCL
 * does this when it gives up: it deregisters, then closes. So nothing is posted any more, and the
 * memory is given back when nothing that was posted moves any more.
 */
static void forget(struct ha_comm *comm, const struct ha_mr *mr)
{
	unsigned used;
	bool reads;

	ha_token_acquire(comm);
	reads = ha_flush_old_reads(comm, NULL);
	used = forget_requests(&comm->pool, mr);
	if (comm->recv)
		used += forget_requests(&comm->recv->flush_pool, mr) + forget_receives(comm, mr);
	if (used != 0) {
		ha_flush_old_end(comm);
		for (unsigned p = 0; p < comm->npaths; p++)
			ha_path_fence(comm->paths[p]);
		ha_comm_fail(comm, HA_ERR_USAGE,
			     "memory of %u requests in flight was deregistered: is the job being "
			     "aborted?",
			     used);
	}
	ha_token_release(comm);
	if (used != 0)
		await_end(comm, all_fenced);
	else if (reads)
		await_end(comm, all_read);
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
