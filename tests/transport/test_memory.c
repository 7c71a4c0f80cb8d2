/* SPDX-License-Identifier: Apache-2.0 */
/* The application's memory, as devices see it that keep pages, or that cannot take it. */
#include "harness.h"

#include "memory/mr.h"

#include <sys/mman.h>

#define PAGE  ((size_t)4096)
#define PAGES 8u

static uint8_t *map_shared(void *addr, size_t length)
{
	uint8_t *map = mmap(addr, length, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | (addr ? MAP_FIXED : 0), -1, 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	return map;
}

static struct ha_mr *registered(struct ha_comm *comm, void *data, size_t size)
{
	struct ha_mr *mr;

	assert_int_equal(ha_reg_mr(comm, data, size, HA_MEM_HOST, 0, -1, &mr), HA_OK);
	return mr;
}

/* A message into memory of the receiver's, all of it. */
static void receive_into(struct pair *pair, uint8_t *to, size_t size, struct ha_mr *mr,
			 uint32_t seed)
{
	struct ha_request *recv, *send;
	void *data = to;
	int tag = 1;

	fill(pair->from.bytes, size, seed);
	assert_int_equal(ha_irecv(pair->recv, 1, &data, &size, &tag, &mr, &recv), HA_OK);
	send = post_send(pair, 0, size, tag);
	assert_int_equal(pair_finish(pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
	assert_true(filled(to, size, seed));
}

/*
 * A large buffer is registered, a part of it as well; the large one is given back, and all but the
 * part is unmapped and mapped anew. What the device had pinned are no pages of anybody's any more.
 */
static void messages_arrive_in_memory_that_was_mapped_anew(void **state)
{
	struct ha_mr *whole, *part, *rest;
	struct pair pair;
	uint8_t *map;

	(void)state;
	pair_init(&pair);
	pair.fabric.pin = true;
	pair_up(&pair);
	map = map_shared(NULL, PAGES * PAGE);
	whole = registered(pair.recv, map, PAGES * PAGE);
	part = registered(pair.recv, map, PAGE);
	receive_into(&pair, map, PAGES * PAGE, whole, 1);
	ha_dereg_mr(pair.recv, whole);
	map_shared(map + PAGE, (PAGES - 1) * PAGE);
	rest = registered(pair.recv, map + PAGE, (PAGES - 1) * PAGE);
	receive_into(&pair, map + PAGE, (PAGES - 1) * PAGE, rest, 2);
	receive_into(&pair, map, PAGE, part, 3);
	ha_dereg_mr(pair.recv, rest);
	ha_dereg_mr(pair.recv, part);
	munmap(map, PAGES * PAGE);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_arrive_in_memory_that_was_mapped_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
