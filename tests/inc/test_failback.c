/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "inc/failback.h"

#define FIRST_NS 1000u

static struct ha_failback failback;

static int begin(void **state)
{
	(void)state;
	failback = ha_failback_after(FIRST_NS);
	return 0;
}

static enum ha_failback_now away(uint64_t now_ns)
{
	return ha_failback_look(&failback, true, now_ns);
}

static enum ha_failback_now back(uint64_t now_ns)
{
	return ha_failback_look(&failback, false, now_ns);
}

static void who_never_left_asks_for_nothing(void **state)
{
	(void)state;
	assert_int_equal(back(1), HA_FAILBACK_WAITS);
	assert_int_equal(back(1000 * FIRST_NS), HA_FAILBACK_WAITS);
}

static void it_asks_after_a_pause_and_then_after_twice_as_long(void **state)
{
	uint64_t now_ns = 5;

	(void)state;
	assert_int_equal(away(now_ns), HA_FAILBACK_WAITS);
	for (uint64_t pause_ns = FIRST_NS; pause_ns <= 8 * FIRST_NS; pause_ns *= 2) {
		assert_int_equal(away(now_ns + pause_ns - 1), HA_FAILBACK_WAITS);
		assert_int_equal(away(now_ns + pause_ns), HA_FAILBACK_ASKS);
		now_ns += pause_ns;
		assert_int_equal(away(now_ns), HA_FAILBACK_WAITS);
	}
}

static void pauses_have_an_end(void **state)
{
	uint64_t now_ns = 5;

	(void)state;
	away(now_ns);
	for (unsigned int i = 0; i < 64; i++) {
		now_ns += HA_FAILBACK_MAX_NS;
		assert_int_equal(away(now_ns), HA_FAILBACK_ASKS);
	}
	assert_int_equal(away(now_ns + HA_FAILBACK_MAX_NS - 1), HA_FAILBACK_WAITS);
}

static void who_is_back_for_long_begins_again(void **state)
{
	(void)state;
	away(5);
	assert_int_equal(away(5 + FIRST_NS), HA_FAILBACK_ASKS);
	assert_int_equal(back(2000), HA_FAILBACK_WAITS);
	assert_int_equal(away(2100), HA_FAILBACK_WAITS); /* it failed at once */
	assert_int_equal(away(2100 + 2 * FIRST_NS - 1), HA_FAILBACK_WAITS);
	assert_int_equal(away(2100 + 2 * FIRST_NS), HA_FAILBACK_ASKS);
	assert_int_equal(back(5000), HA_FAILBACK_WAITS);
	assert_int_equal(back(5000 + FIRST_NS - 1), HA_FAILBACK_WAITS);
	assert_int_equal(back(5000 + FIRST_NS), HA_FAILBACK_SETTLES);
	assert_int_equal(back(50000), HA_FAILBACK_WAITS);
	assert_int_equal(away(60000), HA_FAILBACK_WAITS);
	assert_int_equal(away(60000 + FIRST_NS), HA_FAILBACK_ASKS);
}

static void without_a_pause_it_never_asks(void **state)
{
	(void)state;
	failback = ha_failback_after(0);
	away(1);
	assert_int_equal(away(UINT64_MAX), HA_FAILBACK_WAITS);
}

#define FAILBACK_TEST(test) cmocka_unit_test_setup(test, begin)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    FAILBACK_TEST(who_never_left_asks_for_nothing),
	    FAILBACK_TEST(it_asks_after_a_pause_and_then_after_twice_as_long),
	    FAILBACK_TEST(pauses_have_an_end),
	    FAILBACK_TEST(who_is_back_for_long_begins_again),
	    FAILBACK_TEST(without_a_pause_it_never_asks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
