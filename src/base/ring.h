/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock-free ring between one producer and one consumer: how completions travel from whoever
 * polls a connection's CQs to the thread that calls test.
 *
 * One producer at a time, not one thread for ever: the producer is the holder of the connection's
 * CQ token. Handing the token over by a release store and an acquire load (or a compare-and-swap
 * of that strength) also hands over the producer's fields here, which are plain variables. The
 * same holds for the consumer.
 *
 * The ring knows positions only; the slots are an array of the caller's own type with `capacity`
 * elements. Producer:
 *
 *	if (ha_ring_space(&ring)) {
 *		slots[ha_ring_tail(&ring)] = completion;
 *		ha_ring_push(&ring);
 *	}
 *
 * and consumer:
 *
 *	while (ha_ring_count(&ring)) {
 *		use(slots[ha_ring_head(&ring)]);
 *		ha_ring_pop(&ring);
 *	}
 */
#ifndef HA_BASE_RING_H
#define HA_BASE_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HA_CACHE_LINE 64

/*
 * Positions count up for ever and wrap at 2^32; a slot is position modulo capacity. Each side
 * keeps a copy of the other's position next to its own, so that in steady state a push or a pop
 * touches one line of the ring, and the other side's line only when the copy says full or empty.
 */
struct ha_ring {
	/* Written by the producer; tail is read by the consumer. */
	alignas(HA_CACHE_LINE) atomic_uint tail;
	uint32_t producer_head; /* the consumer's position as last seen */
	uint32_t producer_mask;

	/* Written by the consumer; head is read by the producer. */
	alignas(HA_CACHE_LINE) atomic_uint head;
	uint32_t consumer_tail; /* the producer's position as last seen */
	uint32_t consumer_mask;
};

/* capacity: a power of two, at most 2^31. Before either side uses the ring. */
static inline void ha_ring_init(struct ha_ring *ring, uint32_t capacity)
{
	atomic_init(&ring->tail, 0);
	atomic_init(&ring->head, 0);
	ring->producer_head = ring->consumer_tail = 0;
	ring->producer_mask = ring->consumer_mask = capacity - 1;
}

/* ---- producer ------------------------------------------------------------------------------- */

/* Free slots, at least; 0 only when the ring is full. */
static inline uint32_t ha_ring_space(struct ha_ring *ring)
{
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	uint32_t used = tail - ring->producer_head;

	if (__builtin_expect(used <= ring->producer_mask, 1))
		return ring->producer_mask + 1 - used;
	/* Acquire: the consumer's loads from a slot come before our stores into it. Pairs with
	 * the release in ha_ring_pop. */
	ring->producer_head = atomic_load_explicit(&ring->head, memory_order_acquire);
	return ring->producer_mask + 1 - (tail - ring->producer_head);
}

/* Index of the slot to fill next; only when there is space. */
static inline uint32_t ha_ring_tail(const struct ha_ring *ring)
{
	return atomic_load_explicit(&ring->tail, memory_order_relaxed) & ring->producer_mask;
}

/* Hands the slot at ha_ring_tail to the consumer. */
static inline void ha_ring_push(struct ha_ring *ring)
{
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	/* Release: our stores into the slot are seen before the new position is. Pairs with the
	 * acquire in ha_ring_count. */
	atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
}

/* ---- consumer ------------------------------------------------------------------------------- */

/* Filled slots, at least; 0 only when the ring is empty. */
static inline uint32_t ha_ring_count(struct ha_ring *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	if (ring->consumer_tail != head)
		return ring->consumer_tail - head;
	/* Acquire: the slots up to this position are seen filled. Pairs with ha_ring_push. */
	ring->consumer_tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
	return ring->consumer_tail - head;
}

/* Index of the oldest filled slot; only when there is one. */
static inline uint32_t ha_ring_head(const struct ha_ring *ring)
{
	return atomic_load_explicit(&ring->head, memory_order_relaxed) & ring->consumer_mask;
}

/* Gives the slot at ha_ring_head back to the producer. */
static inline void ha_ring_pop(struct ha_ring *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	/* Release: our loads from the slot are done before it may be filled again. Pairs with the
	 * acquire in ha_ring_space. */
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* True when nothing is in the ring. Any thread; a hint for all but the consumer. */
static inline bool ha_ring_looks_empty(const struct ha_ring *ring)
{
	return atomic_load_explicit(&ring->tail, memory_order_relaxed) ==
	       atomic_load_explicit(&ring->head, memory_order_relaxed);
}

#endif
