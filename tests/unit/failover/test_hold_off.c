/* SPDX-License-Identifier: Apache-2.0 */
/* For how long what can wait does so while connections move. */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "failover/hold_off.h"

#include <string.h>

#define MS HA_NS_PER_MS

/* What hold_off.h promises: 50 ms, and 500 at most. */
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
	static struct ha_hold_off hold_off;

	memset(&hold_off, 0, sizeof(hold_off));
	*state = &hold_off;
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

/* ---- waiting --------------------------------------------------------------------------------- */

static bool waits(const struct ha_hold_off *hold_off, uint64_t now_ns)
{
	return now_ns < ha_hold_off_until_ns(hold_off, now_ns);
}

static void nothing_waits_before_anything_has_moved(void **state)
{
	const struct ha_hold_off *hold_off = *state;

	assert_int_equal(ha_hold_off_until_ns(hold_off, 1), 0);
	assert_int_equal(ha_hold_off_until_ns(hold_off, START_NS), 0);
}

static void what_can_wait_waits_until_it_was_quiet(void **state)
{
	struct ha_hold_off *hold_off = *state;

	ha_hold_off_moving(hold_off, START_NS);
	assert_int_equal(ha_hold_off_until_ns(hold_off, START_NS), START_NS + QUIET_NS);
	assert_true(waits(hold_off, START_NS + QUIET_NS - 1));
	assert_int_equal(ha_hold_off_until_ns(hold_off, START_NS + QUIET_NS), 0);
	/* Another one moves: from then on again. */
	ha_hold_off_moving(hold_off, START_NS + 20 * MS);
	assert_int_equal(ha_hold_off_until_ns(hold_off, START_NS + QUIET_NS),
			 START_NS + 20 * MS + QUIET_NS);
}

static void nothing_waits_for_ever(void **state)
{
	struct ha_hold_off *hold_off = *state;
	uint64_t now_ns;

	for (now_ns = START_NS; now_ns < START_NS + AT_MOST_NS; now_ns += QUIET_NS - 1) {
		ha_hold_off_moving(hold_off, now_ns);
		assert_true(waits(hold_off, now_ns));
		assert_true(ha_hold_off_until_ns(hold_off, now_ns) <= START_NS + AT_MOST_NS);
	}
	/* Connections go on moving, and it does not wait for them any longer. */
	for (; now_ns < START_NS + 10 * AT_MOST_NS; now_ns += QUIET_NS - 1) {
		ha_hold_off_moving(hold_off, now_ns);
		assert_false(waits(hold_off, now_ns));
	}
}

static void the_first_move_begins_the_wait_however_young_the_clock_is(void **state)
{
	struct ha_hold_off *hold_off = *state;

	for (uint64_t now_ns = 10 * MS; now_ns <= AT_MOST_NS; now_ns += 10 * MS)
		ha_hold_off_moving(hold_off, now_ns);
	assert_true(waits(hold_off, 10 * MS + AT_MOST_NS - 1));
	assert_false(waits(hold_off, 10 * MS + AT_MOST_NS));
}

static void after_a_quiet_time_it_waits_anew(void **state)
{
	struct ha_hold_off *hold_off = *state;
	uint64_t now_ns = START_NS;

	for (; now_ns < START_NS + 2 * AT_MOST_NS; now_ns += 10 * MS)
		ha_hold_off_moving(hold_off, now_ns);
	assert_false(waits(hold_off, now_ns));
	/* A nanosecond less than quiet is the same commotion still. */
	now_ns += QUIET_NS - 10 * MS - 1;
	ha_hold_off_moving(hold_off, now_ns);
	assert_false(waits(hold_off, now_ns));
	now_ns += QUIET_NS;
	ha_hold_off_moving(hold_off, now_ns);
	assert_int_equal(ha_hold_off_until_ns(hold_off, now_ns), now_ns + QUIET_NS);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin_at_start, restore_clock)
	const struct CMUnitTest tests[] = {
	    TEST(nothing_waits_before_anything_has_moved),
	    TEST(what_can_wait_waits_until_it_was_quiet),
	    TEST(nothing_waits_for_ever),
	    TEST(the_first_move_begins_the_wait_however_young_the_clock_is),
	    TEST(after_a_quiet_time_it_waits_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
