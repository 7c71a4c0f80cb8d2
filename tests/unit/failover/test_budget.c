/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the thread's time chores get, and for how long they wait for connections that move.
 */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "failover/budget.h"

#include <string.h>

#define MS HA_NS_PER_MS

/* What docs/architecture.md and budget.h promise: half of the time; 50 ms, and 500 at most. */
#define WINDOW_NS  (4 * MS)
#define SLICE_NS   (2 * MS)
#define QUIET_NS   (50 * MS)
#define AT_MOST_NS (500 * MS)

/* Any time but 0, which some state words take for "never". */
#define START_NS (1000 * HA_NS_PER_S)

static uint64_t clock_ns;

static uint64_t read_clock(void)
{
	return clock_ns;
}

static int begin_at_start(void **state)
{
	static struct ha_chores chores;

	memset(&chores, 0, sizeof(chores));
	*state = &chores;
	clock_ns = START_NS;
	ha_clock_set_source(read_clock);
	return 0;
}

static int restore_clock(void **state)
{
	(void)state;
	ha_clock_set_source(NULL);
	return 0;
}

/* False: there is no time for a chore now. */
static bool chore(struct ha_chores *chores, uint64_t takes_ns)
{
	uint64_t begun_ns = clock_ns;

	if (!ha_chore_begin(chores, begun_ns))
		return false;
	clock_ns += takes_ns;
	ha_chore_done(chores, begun_ns);
	return true;
}

/* ---- the slice ------------------------------------------------------------------------------- */

static void chores_stop_when_their_slice_is_spent(void **state)
{
	struct ha_chores *chores = *state;

	assert_true(chore(chores, SLICE_NS - 1));
	assert_true(chore(chores, 1)); /* a nanosecond was left: begun is begun */
	assert_false(chore(chores, 1));
	clock_ns = START_NS + WINDOW_NS - 1;
	assert_false(chore(chores, 1));
	clock_ns = START_NS + WINDOW_NS;
	assert_true(chore(chores, 1));
}

static void chores_that_take_no_time_are_not_limited(void **state)
{
	struct ha_chores *chores = *state;

	for (unsigned i = 0; i < 10000; i++)
		assert_true(chore(chores, 0));
}

static void what_a_chore_took_too_much_is_made_up_for(void **state)
{
	struct ha_chores *chores = *state;

	assert_true(chore(chores, 5 * MS)); /* three more than its slice */
	assert_false(chore(chores, 1));	    /* the second window: three spent, one to go */
	clock_ns += WINDOW_NS - 1;
	assert_false(chore(chores, 1));
	clock_ns += 1;
	assert_true(chore(chores, MS - 1)); /* the third: one is spent, one is left */
	assert_true(chore(chores, 1));
	assert_false(chore(chores, 1));
}

static void a_debt_is_forgiven_after_a_pause(void **state)
{
	struct ha_chores *chores = *state;

	assert_true(chore(chores, 100 * MS));
	assert_true(chore(chores, 15 * MS)); /* four windows have passed in that chore itself */
	assert_false(chore(chores, 1));	     /* and not in this one */
	clock_ns += WINDOW_NS;
	assert_false(chore(chores, 1));
	clock_ns += 4 * WINDOW_NS;
	assert_true(chore(chores, 1));
}

/* A thread that always has chores, beside visits of `between_ns`: their share in a second. */
static double share(struct ha_chores *chores, uint64_t takes_ns, uint64_t between_ns)
{
	uint64_t end_ns = clock_ns + HA_NS_PER_S, spent_ns = 0, begun_ns = clock_ns;

	while (clock_ns < end_ns) {
		while (clock_ns < end_ns && chore(chores, takes_ns))
			spent_ns += takes_ns;
		clock_ns += between_ns;
	}
	return (double)spent_ns / (double)(clock_ns - begun_ns);
}

static void chores_get_about_half_of_the_time_and_no_more(void **state)
{
	static const uint64_t takes_us[] = {10, 100, 300, 1000, 1500, 2000, 2500, 3000, 5000, 7000};
	static const uint64_t between_us[] = {10, 100, 1000};

	for (unsigned i = 0; i < sizeof(takes_us) / sizeof(takes_us[0]); i++)
		for (unsigned k = 0; k < sizeof(between_us) / sizeof(between_us[0]); k++) {
			uint64_t takes_ns = takes_us[i] * HA_NS_PER_US;
			/* The last one of a window may begin just before its slice is spent. */
			uint64_t most_ns = takes_ns < SLICE_NS ? SLICE_NS + takes_ns : SLICE_NS;
			double most = (double)most_ns / (double)WINDOW_NS, got;

			begin_at_start(state);
			got = share(*state, takes_ns, between_us[k] * HA_NS_PER_US);
			if (got > most + 0.01 || got < 0.25)
				fail_msg("chores of %llu us, visits every %llu us: %.2f of the "
					 "time, not 0.25 to %.2f",
					 (unsigned long long)takes_us[i],
					 (unsigned long long)between_us[k], got, most);
		}
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool waits(const struct ha_chores *chores, uint64_t now_ns)
{
	return now_ns < ha_chores_wait_ns(chores, now_ns);
}

static void nothing_waits_before_anything_has_moved(void **state)
{
	const struct ha_chores *chores = *state;

	assert_int_equal(ha_chores_wait_ns(chores, 1), 0);
	assert_int_equal(ha_chores_wait_ns(chores, START_NS), 0);
}

static void what_can_wait_waits_until_it_was_quiet(void **state)
{
	struct ha_chores *chores = *state;

	ha_chores_moving(chores, START_NS);
	assert_int_equal(ha_chores_wait_ns(chores, START_NS), START_NS + QUIET_NS);
	assert_true(waits(chores, START_NS + QUIET_NS - 1));
	assert_int_equal(ha_chores_wait_ns(chores, START_NS + QUIET_NS), 0);
	/* Another one moves: from then on again. */
	ha_chores_moving(chores, START_NS + 20 * MS);
	assert_int_equal(ha_chores_wait_ns(chores, START_NS + QUIET_NS),
			 START_NS + 20 * MS + QUIET_NS);
}

static void nothing_waits_for_ever(void **state)
{
	struct ha_chores *chores = *state;
	uint64_t now_ns;

	for (now_ns = START_NS; now_ns < START_NS + AT_MOST_NS; now_ns += QUIET_NS - 1) {
		ha_chores_moving(chores, now_ns);
		assert_true(waits(chores, now_ns));
		assert_true(ha_chores_wait_ns(chores, now_ns) <= START_NS + AT_MOST_NS);
	}
	/* Connections go on moving, and it does not wait for them any longer. */
	for (; now_ns < START_NS + 10 * AT_MOST_NS; now_ns += QUIET_NS - 1) {
		ha_chores_moving(chores, now_ns);
		assert_false(waits(chores, now_ns));
	}
}

static void the_first_move_begins_the_wait_however_young_the_clock_is(void **state)
{
	struct ha_chores *chores = *state;

	for (uint64_t now_ns = 10 * MS; now_ns <= AT_MOST_NS; now_ns += 10 * MS)
		ha_chores_moving(chores, now_ns);
	assert_true(waits(chores, 10 * MS + AT_MOST_NS - 1));
	assert_false(waits(chores, 10 * MS + AT_MOST_NS));
}

static void after_a_quiet_time_it_waits_anew(void **state)
{
	struct ha_chores *chores = *state;
	uint64_t now_ns = START_NS;

	for (; now_ns < START_NS + 2 * AT_MOST_NS; now_ns += 10 * MS)
		ha_chores_moving(chores, now_ns);
	assert_false(waits(chores, now_ns));
	/* A nanosecond less than quiet is the same commotion still. */
	now_ns += QUIET_NS - 10 * MS - 1;
	ha_chores_moving(chores, now_ns);
	assert_false(waits(chores, now_ns));
	now_ns += QUIET_NS;
	ha_chores_moving(chores, now_ns);
	assert_int_equal(ha_chores_wait_ns(chores, now_ns), now_ns + QUIET_NS);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin_at_start, restore_clock)
	const struct CMUnitTest tests[] = {
	    TEST(chores_stop_when_their_slice_is_spent),
	    TEST(chores_that_take_no_time_are_not_limited),
	    TEST(what_a_chore_took_too_much_is_made_up_for),
	    TEST(a_debt_is_forgiven_after_a_pause),
	    TEST(chores_get_about_half_of_the_time_and_no_more),
	    TEST(nothing_waits_before_anything_has_moved),
	    TEST(what_can_wait_waits_until_it_was_quiet),
	    TEST(nothing_waits_for_ever),
	    TEST(the_first_move_begins_the_wait_however_young_the_clock_is),
	    TEST(after_a_quiet_time_it_waits_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
