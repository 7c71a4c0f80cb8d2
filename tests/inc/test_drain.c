/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A switch that is drained under eight hosts' all-reduces, in virtual time (epochs.h, group.h): how
 * long until results come by the next one, and that nothing is computed twice for it. Frames of the
 * star take up to 2 ms each.
 */
#include "../seeded_random.h"

#include "epochs.h"

#include <string.h>

#define MS	 1000000ull
#define DRAINS	 40
#define MOST_NS	 (20 * MS)
#define OPS	 50
#define SWITCHES 2

static uint64_t due;
static unsigned int done_before;

static bool is_due(void)
{
	return sv_stepped_index() >= due;
}

static bool is_on_the_next_way(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (follower[h].plan == 0)
			return false;
	return true;
}

static unsigned int results(void)
{
	unsigned int done = 0;

	for (unsigned int h = 0; h < g.shape.hosts; h++)
		done += g.host[h].done;
	return done;
}

static bool has_all_results_of_one_more(void)
{
	return results() >= done_before + g.shape.hosts;
}

static void open_group(uint64_t seed)
{
	const struct group_shape shape = {
	    .hosts = 8,
	    .switches = SWITCHES,
	    .lanes = 1,
	    .window = 4,
	    .copies = 2,
	    .unit_bytes = 1024,
	    .fabric = {.rate_mbps = 20, .burst_bytes = 1024, .jitter_ns = 5000}};

	memset(&plan, 0, sizeof(plan));
	plan.is_quiet = true;
	open_run(&shape, seed);
	assert_int_equal(sv_stepped_fault_remove(plan.losses), 0);
	for (unsigned int op = 0; op < OPS; op++)
		group_add(&g, op % HA_REDUCE_TYPES, HA_REDUCE_SUM, 250, op % 2);
}

/* As all children of that switch hear it. */
static void drain(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		ha_follower_drain(&follower[h], sv_stepped_now());
}

/* From the word until so many results more are there as there are hosts, of which the last ones
 * came by the other switch. */
static uint64_t drain_and_time_it(uint64_t at)
{
	uint64_t from_ns;

	due = at;
	run_until(is_due);
	from_ns = sv_stepped_now();
	drain();
	run_until(is_on_the_next_way);
	assert_true(is_on_the_next_way());
	done_before = results();
	run_until(has_all_results_of_one_more);
	assert_true(has_all_results_of_one_more());
	return sv_stepped_now() - from_ns;
}

static uint64_t units_asked_for(void)
{
	uint64_t units = 0;

	for (unsigned int op = 0; op < g.ops; op++)
		units += ha_cut_units(&g.op[op].cut);
	return units;
}

static uint64_t units_computed(uint64_t by[SWITCHES])
{
	for (unsigned int i = 0; i < SWITCHES; i++)
		by[i] = g.tree[i][0] ? ha_tree_work(g.tree[i][0]).units : 0;
	return by[0] + by[1];
}

/* What some had sent and not all is contributed again, and was not computed before. */
static void drains_at_random_moments_take_milliseconds_and_compute_nothing_twice(void **s)
{
	uint64_t longest_ns = 0, by[SWITCHES], before = 0, after = 0;

	(void)s;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int n = 0; n < DRAINS; n++) {
		uint64_t ns;

		open_group(1 + n);
		ns = drain_and_time_it(1 + mix(n) % 900);
		longest_ns = ns > longest_ns ? ns : longest_ns;
		run_well();
		assert_int_equal(leader.decision.epoch, 1);
		assert_int_equal(units_computed(by), units_asked_for());
		before += by[0] > 0;
		after += by[1] > 0;
		group_close(&g);
	}
	print_message("a result at every host by the next switch %llu us after the word at most; ",
		      (unsigned long long)longest_ns / 1000);
	tell();
	assert_int_equal(seen.lacked, 0);
	assert_true(before > DRAINS / 2 && after == DRAINS && seen.again);
	assert_true(longest_ns <= MOST_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(drains_at_random_moments_take_milliseconds_and_compute_nothing_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
