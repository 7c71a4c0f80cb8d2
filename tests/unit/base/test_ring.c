/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring: order, full and empty, wrap-around of the positions, and two threads with a producer
 * role that is handed over by a token, as the transport does it.
 */
#include "../cmocka_all.h"

#include "base/ring.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

static void empty_full_and_order(void **state)
{
	struct ha_ring ring;
	uint32_t slots[8];

	(void)state;
	ha_ring_init(&ring, 8);
	assert_int_equal(ha_ring_count(&ring), 0);
	assert_true(ha_ring_looks_empty(&ring));
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(ha_ring_space(&ring), 8 - i);
		slots[ha_ring_tail(&ring)] = i;
		ha_ring_push(&ring);
	}
	assert_int_equal(ha_ring_space(&ring), 0);
	assert_int_equal(ha_ring_count(&ring), 8);
	assert_false(ha_ring_looks_empty(&ring));
	for (uint32_t i = 0; i < 8; i++) {
		assert_true(ha_ring_count(&ring) > 0);
		assert_int_equal(slots[ha_ring_head(&ring)], i);
		ha_ring_pop(&ring);
	}
	assert_int_equal(ha_ring_count(&ring), 0);
	assert_int_equal(ha_ring_space(&ring), 8);
}

static void positions_may_wrap_around(void **state)
{
	struct ha_ring ring;
	uint32_t slots[4] = {0}, next = 0, expected = 0;

	(void)state;
	ha_ring_init(&ring, 4);
	atomic_store(&ring.tail, UINT32_MAX - 5);
	atomic_store(&ring.head, UINT32_MAX - 5);
	ring.producer_head = ring.consumer_tail = UINT32_MAX - 5;
	for (int round = 0; round < 20; round++) {
		while (ha_ring_space(&ring)) {
			slots[ha_ring_tail(&ring)] = next++;
			ha_ring_push(&ring);
		}
		assert_int_equal(next - expected, 4);
		for (int i = 0; i < 3; i++) {
			assert_true(ha_ring_count(&ring) > 0);
			assert_int_equal(slots[ha_ring_head(&ring)], expected++);
			ha_ring_pop(&ring);
		}
	}
}

/* ---- threads -------------------------------------------------------------------------------- */

#define MESSAGES 200000u

/* Four words that belong together, so that a slot seen half filled is noticed. */
struct slot {
	uint64_t words[4];
};

static struct {
	struct ha_ring ring;
	struct slot slots[16];
	atomic_flag token;
	uint64_t next; /* what the holder of the token produces next */
} shared;

static void *produce(void *arg)
{
	bool done = false;

	(void)arg;
	while (!done) {
		/* Acquire: the ring's producer fields as the last holder left them. */
		if (atomic_flag_test_and_set_explicit(&shared.token, memory_order_acquire)) {
			sched_yield();
			continue;
		}
		for (int i = 0; i < 20 && shared.next < MESSAGES && ha_ring_space(&shared.ring);
		     i++) {
			struct slot *slot = &shared.slots[ha_ring_tail(&shared.ring)];

			for (int w = 0; w < 4; w++)
				slot->words[w] = shared.next * 7 + (uint64_t)w;
			shared.next++;
			ha_ring_push(&shared.ring);
		}
		done = shared.next == MESSAGES;
		atomic_flag_clear_explicit(&shared.token, memory_order_release);
		sched_yield();
	}
	return NULL;
}

static void producers_that_take_turns_lose_and_repeat_nothing(void **state)
{
	pthread_t producers[2];
	uint64_t expected = 0;

	(void)state;
	memset(&shared, 0, sizeof shared);
	ha_ring_init(&shared.ring, 16);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&producers[i], NULL, produce, NULL), 0);
	while (expected < MESSAGES) {
		if (!ha_ring_count(&shared.ring)) {
			sched_yield();
			continue;
		}
		const struct slot *slot = &shared.slots[ha_ring_head(&shared.ring)];

		for (uint64_t w = 0; w < 4; w++)
			if (slot->words[w] != expected * 7 + w)
				fail_msg("message %lu is wrong", (unsigned long)expected);
		expected++;
		ha_ring_pop(&shared.ring);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(producers[i], NULL);
	assert_int_equal(ha_ring_count(&shared.ring), 0);
}

static void the_two_sides_are_on_different_cache_lines(void **state)
{
	(void)state;
	assert_true(offsetof(struct ha_ring, head) - offsetof(struct ha_ring, tail) >=
		    HA_CACHE_LINE);
	assert_int_equal(offsetof(struct ha_ring, tail) / HA_CACHE_LINE,
			 (offsetof(struct ha_ring, producer_mask) + 3) / HA_CACHE_LINE);
	assert_int_equal(offsetof(struct ha_ring, head) / HA_CACHE_LINE,
			 (offsetof(struct ha_ring, consumer_mask) + 3) / HA_CACHE_LINE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(empty_full_and_order),
	    cmocka_unit_test(positions_may_wrap_around),
	    cmocka_unit_test(producers_that_take_turns_lose_and_repeat_nothing),
	    cmocka_unit_test(the_two_sides_are_on_different_cache_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
