/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What isend, irecv and iflush hand to NCCL: one cache line, from a pool made with the
 * connection. Slots are taken and given back by the application's thread only.
 */
#ifndef HA_TRANSPORT_REQUEST_H
#define HA_TRANSPORT_REQUEST_H

#include "base/invariant.h"

#include <limits.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct ha_comm;
struct ha_mr;
struct ha_recv_slot;

enum ha_request_kind { HA_REQ_SEND, HA_REQ_RECV, HA_REQ_FLUSH };

enum ha_request_state {
	HA_REQ_FREE,
	HA_REQ_ACTIVE,
	HA_REQ_DONE, /* stored with release after the results were written */
};

enum ha_flush_state {
	HA_FLUSH_NEW,	 /* never posted */
	HA_FLUSH_POSTED, /* with the hardware */
	HA_FLUSH_AGAIN,	 /* lost with its path, to be posted on the next */
	HA_FLUSH_SPREAD, /* through several NICs: see flush_old.h, flush_beside.h */
};

struct ha_request {
	alignas(64) struct ha_comm *comm; /* constant */
	atomic_uchar state;		  /* enum ha_request_state */
	uint8_t kind;			  /* enum ha_request_kind */
	uint8_t index;			  /* of a send in its group */
	uint8_t posted;			  /* [T] flushes: enum ha_flush_state; NEW otherwise */
	uint16_t id;			  /* constant: position in the pool */
	uint16_t waits;			  /* [T] flushes that are SPREAD: enum ha_flush_wait */
	/* Sends: everything needed to post, and to post again on another path. */
	uintptr_t addr;
	size_t size;
	struct ha_mr *mr;
	uint64_t remote_addr;
	uint32_t remote_rkey;
	int tag;
	union {
		struct ha_request *next;   /* while it is free */
		struct ha_recv_slot *recv; /* of a receive */
	};
};

_Static_assert(sizeof(struct ha_request) == 64, "a request is one cache line");

struct ha_request_pool {
	struct ha_request *all;
	struct ha_request *free; /* the one used last comes first: it is the warmest */
	uint16_t count;
};

int ha_request_pool_init(struct ha_request_pool *pool, struct ha_comm *comm, uint16_t count);
void ha_request_pool_free(struct ha_request_pool *pool);

/* Takes the first free one, which is `req`. */
static inline struct ha_request *ha_request_take(struct ha_request_pool *pool,
						 struct ha_request *req, enum ha_request_kind kind)
{
	HA_INVARIANT(pool->free == req);
	HA_INVARIANT(atomic_load_explicit(&req->state, memory_order_relaxed) == HA_REQ_FREE);
	pool->free = req->next;
	req->kind = (uint8_t)kind;
	atomic_store_explicit(&req->state, HA_REQ_ACTIVE, memory_order_relaxed);
	return req;
}

/* NULL when all are in use. */
static inline struct ha_request *ha_request_get(struct ha_request_pool *pool,
						enum ha_request_kind kind)
{
	struct ha_request *req = pool->free;

	return __builtin_expect(req != NULL, 1) ? ha_request_take(pool, req, kind) : NULL;
}

static inline void ha_request_put(struct ha_request_pool *pool, struct ha_request *req)
{
	HA_INVARIANT(req >= pool->all && req < pool->all + pool->count);
	atomic_store_explicit(&req->state, HA_REQ_FREE, memory_order_relaxed);
	req->next = pool->free;
	pool->free = req;
}

/* NCCL counts in int. Messages beyond that are rare, and only whether they are 0 matters then. */
static inline int ha_int_size(uint64_t size)
{
	return size > INT_MAX ? INT_MAX : (int)size;
}

static inline void ha_request_done(struct ha_request *req)
{
	HA_INVARIANT(atomic_load_explicit(&req->state, memory_order_relaxed) == HA_REQ_ACTIVE);
	atomic_store_explicit(&req->state, HA_REQ_DONE, memory_order_release);
}

#endif
