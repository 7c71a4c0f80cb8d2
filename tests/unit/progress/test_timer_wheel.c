/* SPDX-License-Identifier: Apache-2.0 */
/* The wheel of pollers: everybody's turn comes, in time, once, and however far away it is. */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "progress/timer_wheel.h"

#include <stdlib.h>

#define MS HA_NS_PER_MS
#define T0 (12345 * HA_NS_PER_S + 678)

static struct ha_timer *timer_of(struct ha_list *node)
{
	return ha_container_of(node, struct ha_timer, link);
}

static int taken(struct ha_timer_wheel *wheel, uint64_t now_ns)
{
	struct ha_list due, *node;
	int n = 0;

	ha_list_init(&due);
	ha_timer_wheel_take(wheel, now_ns, &due);
	while ((node = ha_list_pop_front(&due)))
		n += !ha_timer_wheel_defer(wheel, timer_of(node));
	return n;
}

static void one_comes_when_its_time_has_come(void **state)
{
	struct ha_timer timer = {0};
	struct ha_timer_wheel wheel;

	(void)state;
	ha_timer_wheel_init(&wheel, T0);
	ha_list_init(&timer.link);
	assert_true(ha_timer_wheel_next_ns(&wheel) == UINT64_MAX);
	ha_timer_wheel_put(&wheel, &timer, T0 + 5 * MS);
	assert_in_range(ha_timer_wheel_next_ns(&wheel), T0 + 5 * MS, T0 + 6 * MS);
	assert_int_equal(taken(&wheel, T0 + 4 * MS), 0);
	assert_int_equal(taken(&wheel, ha_timer_wheel_next_ns(&wheel)), 1);
	assert_int_equal(taken(&wheel, T0 + 1000 * MS), 0);
}

static void what_is_over_comes_next(void **state)
{
	struct ha_timer timer = {0};
	struct ha_timer_wheel wheel;

	(void)state;
	ha_timer_wheel_init(&wheel, T0);
	ha_list_init(&timer.link);
	ha_timer_wheel_put(&wheel, &timer, 1);
	assert_true(ha_timer_wheel_next_ns(&wheel) <= T0 + MS);
	assert_int_equal(taken(&wheel, T0 + MS), 1);
}

static void one_that_is_put_in_again_or_taken_out_comes_once_or_never(void **state)
{
	struct ha_timer timer = {0}, other = {0};
	struct ha_timer_wheel wheel;

	(void)state;
	ha_timer_wheel_init(&wheel, T0);
	ha_list_init(&timer.link);
	ha_list_init(&other.link);
	ha_timer_wheel_put(&wheel, &timer, T0 + 5 * MS);
	ha_timer_wheel_put(&wheel, &timer, T0 + 50 * MS);
	ha_timer_wheel_put(&wheel, &other, T0 + 5 * MS);
	ha_list_remove(&other.link);
	assert_int_equal(taken(&wheel, T0 + 10 * MS), 0);
	assert_int_equal(taken(&wheel, T0 + 51 * MS), 1);
	assert_true(ha_timer_wheel_next_ns(&wheel) == UINT64_MAX);
}

/* Against a plain list of times: random puts, and rounds after short and very long sleeps. */
static void many_come_in_time_and_once(void **state)
{
	enum { MANY = 200, ROUNDS = 20000 };
	struct ha_timer entries[MANY];
	uint64_t at[MANY], now = T0;
	struct ha_timer_wheel wheel;

	(void)state;
	srand(7);
	ha_timer_wheel_init(&wheel, now);
	for (int i = 0; i < MANY; i++) {
		entries[i] = (struct ha_timer){0};
		ha_list_init(&entries[i].link);
		at[i] = UINT64_MAX;
	}
	for (int round = 0; round < ROUNDS; round++) {
		unsigned step = (unsigned)(rand() % 100 == 0 ? rand() % 3000 : rand() % 4);
		uint64_t next;
		struct ha_list due, *node;
		int i = rand() % MANY;

		at[i] = now + MS * (unsigned)(rand() % (rand() % 20 == 0 ? 5000 : 30));
		ha_timer_wheel_put(&wheel, &entries[i], at[i]);
		next = ha_timer_wheel_next_ns(&wheel);
		for (int k = 0; k < MANY; k++) /* nobody oversleeps by more than the grain */
			assert_true(at[k] == UINT64_MAX ||
				    next <= (at[k] > now ? at[k] : now) + MS);
		now += MS * step;
		ha_list_init(&due);
		ha_timer_wheel_take(&wheel, now, &due);
		while ((node = ha_list_pop_front(&due))) {
			long k = timer_of(node) - entries;

			if (ha_timer_wheel_defer(&wheel, timer_of(node)))
				continue;
			assert_true(at[k] <= now); /* once: then it is UINT64_MAX */
			at[k] = UINT64_MAX;
		}
		for (int k = 0; k < MANY; k++)
			assert_true(at[k] == UINT64_MAX || at[k] + MS > now || step == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_comes_when_its_time_has_come),
	    cmocka_unit_test(what_is_over_comes_next),
	    cmocka_unit_test(one_that_is_put_in_again_or_taken_out_comes_once_or_never),
	    cmocka_unit_test(many_come_in_time_and_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
