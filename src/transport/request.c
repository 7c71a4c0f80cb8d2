/* SPDX-License-Identifier: Apache-2.0 */
/* The request pool, and test. */
#include "transport/request.h"

#include "transport/comm.h"

#include <limits.h>
#include <stdlib.h>

int ha_request_pool_init(struct ha_request_pool *pool, struct ha_comm *comm, uint16_t count)
{
	pool->all = aligned_alloc(alignof(struct ha_request), count * sizeof(*pool->all));
	pool->free = calloc(count, sizeof(*pool->free));
	if (!pool->all || !pool->free)
		return -1;
	pool->count = count;
	for (uint16_t i = 0; i < count; i++) {
		pool->all[i] = (struct ha_request){.comm = comm, .id = i};
		pool->free[pool->nfree++] = (uint16_t)(count - 1 - i);
	}
	return 0;
}

void ha_request_pool_free(struct ha_request_pool *pool)
{
	free(pool->all);
	free(pool->free);
	*pool = (struct ha_request_pool){0};
}

static inline unsigned state_of(const struct ha_request *req)
{
	return atomic_load_explicit(&req->state, memory_order_acquire);
}

/* NCCL counts in int. Receives beyond that are rare, and only whether they are 0 matters then. */
static int as_int(uint64_t size)
{
	return size > INT_MAX ? INT_MAX : (int)size;
}

static void report(struct ha_comm *comm, struct ha_request *req, int *sizes)
{
	if (req->kind == HA_REQ_RECV) {
		struct ha_recv_slot *slot = &comm->recv->slots[req->slot];

		if (sizes)
			for (unsigned i = 0; i < slot->n; i++)
				sizes[i] = as_int(slot->sizes[i]);
		ha_recv_release(comm, slot);
	} else if (sizes && req->kind == HA_REQ_SEND) {
		sizes[0] = as_int(req->size);
	}
	ha_request_put(&comm->pool, req);
}

ha_result_t ha_test(struct ha_request *req, bool *done, int *sizes)
{
	struct ha_comm *comm = req->comm;

	*done = false;
	if (state_of(req) == HA_REQ_ACTIVE && ha_comm_error(comm) == HA_OK && ha_token_try(comm)) {
		if (req->kind == HA_REQ_FLUSH && req->posted != HA_FLUSH_POSTED)
			ha_flush_post(comm, req);
		ha_comm_poll(comm, comm->test_max_poll);
		atomic_store_explicit(&comm->polls,
				      atomic_load_explicit(&comm->polls, memory_order_relaxed) + 1,
				      memory_order_relaxed);
		ha_token_release(comm);
	}
	switch (state_of(req)) {
	case HA_REQ_DONE: /* its data is good, whatever became of the connection since */
		report(comm, req, sizes);
		*done = true;
		return HA_OK;
	case HA_REQ_ACTIVE:
		return ha_comm_error(comm);
	default:
		return HA_ERR_ARGUMENT; /* tested again after it was done */
	}
}
