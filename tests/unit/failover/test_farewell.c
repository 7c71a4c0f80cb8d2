/* SPDX-License-Identifier: Apache-2.0 */
/* For how long goodbyes are kept, and how many. */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "failover/farewell.h"

#define LASTS_NS (60 * HA_NS_PER_S)
/* Any time but 0. */
#define START_NS (1000 * HA_NS_PER_S)

static void add(struct ha_farewells *farewells, uint64_t peer_id, uint64_t now_ns)
{
	struct ha_farewell *farewell;

	pthread_mutex_lock(&farewells->lock);
	farewell = ha_farewells_add(farewells, now_ns);
	assert_non_null(farewell);
	*farewell = (struct ha_farewell){.peer_id = peer_id, .until_ns = now_ns + LASTS_NS};
	pthread_mutex_unlock(&farewells->lock);
}

static bool knows(struct ha_farewells *farewells, uint64_t peer_id, uint64_t now_ns)
{
	const struct ha_farewell *found;

	pthread_mutex_lock(&farewells->lock);
	found = ha_farewells_find(farewells, peer_id, now_ns);
	pthread_mutex_unlock(&farewells->lock);
	assert_true(!found || found->peer_id == peer_id);
	return found != NULL;
}

static void each_is_kept_for_its_time(void **state)
{
	struct ha_farewells farewells;

	(void)state;
	ha_farewells_init(&farewells);
	assert_false(knows(&farewells, 1, START_NS));
	add(&farewells, 1, START_NS);
	add(&farewells, 2, START_NS + 10);
	assert_true(knows(&farewells, 1, START_NS + LASTS_NS - 1));
	assert_true(knows(&farewells, 2, START_NS + LASTS_NS - 1));
	assert_false(knows(&farewells, 3, START_NS + LASTS_NS - 1));
	assert_false(knows(&farewells, 1, START_NS + LASTS_NS));
	assert_true(knows(&farewells, 2, START_NS + LASTS_NS + 9));
	assert_int_equal(farewells.n, 1);
	/* Also where nobody asks: the next one that closes sees to it. */
	add(&farewells, 4, START_NS + 3 * LASTS_NS);
	assert_int_equal(farewells.n, 1);
	ha_farewells_free(&farewells);
}

static void the_oldest_makes_room_for_one_too_many(void **state)
{
	struct ha_farewells farewells;

	const struct ha_farewell *ring;

	(void)state;
	ha_farewells_init(&farewells);
	add(&farewells, 1, START_NS);
	ring = farewells.ring;
	for (unsigned i = 2; i <= HA_FAREWELLS_MAX + 1; i++)
		add(&farewells, i, START_NS);
	assert_int_equal(farewells.n, HA_FAREWELLS_MAX);
	assert_ptr_equal(farewells.ring, ring); /* and no memory grows */
	assert_false(knows(&farewells, 1, START_NS));
	assert_true(knows(&farewells, 2, START_NS));
	assert_true(knows(&farewells, HA_FAREWELLS_MAX + 1, START_NS));
	ha_farewells_free(&farewells);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_is_kept_for_its_time),
	    cmocka_unit_test(the_oldest_makes_room_for_one_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
