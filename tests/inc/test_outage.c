/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "inc/outage.h"

#define LIMIT_NS 1000u

static struct ha_ledger ledger;
static struct ha_outage outage;

/* A member that has asked for ten units, of which four are retired, in epoch 3. */
static void begin(void)
{
	outage = (struct ha_outage){0};
	ha_ledger_init(&ledger, &(struct ha_ledger_shape){0, 4, 0});
	ha_ledger_issue(&ledger, 10);
	ledger.retired = 4;
	ledger.epoch = 3;
	assert_false(ha_outage_is(&outage, &ledger, LIMIT_NS, 5));
}

static bool is_one(uint64_t now_ns)
{
	return ha_outage_is(&outage, &ledger, LIMIT_NS, now_ns);
}

static void it_takes_the_limit_and_two_ways_that_failed(void **state)
{
	(void)state;
	begin();
	ledger.epoch += 2;
	assert_false(is_one(LIMIT_NS + 4));
	assert_true(is_one(LIMIT_NS + 5));
	begin();
	ledger.epoch += 1; /* the other way may well be carrying what a late member waits for */
	assert_false(is_one(100 * LIMIT_NS));
	ledger.epoch += 1;
	assert_true(is_one(100 * LIMIT_NS));
}

static void whoever_gets_on_or_waits_for_nothing_has_none(void **state)
{
	(void)state;
	begin();
	ledger.epoch += 2;
	ledger.retired++;
	assert_false(is_one(100 * LIMIT_NS));
	assert_false(is_one(101 * LIMIT_NS)); /* it counts from there, also the ways */
	ledger.epoch += 2;
	assert_true(is_one(101 * LIMIT_NS));
	begin();
	ledger.epoch += 2;
	ledger.retired = 10;
	assert_false(is_one(100 * LIMIT_NS));
	ledger.epoch += 2;
	assert_false(is_one(200 * LIMIT_NS));
	ha_ledger_issue(&ledger, 1); /* after an idle time */
	assert_false(is_one(200 * LIMIT_NS + 1));
}

static void without_a_limit_there_is_none(void **state)
{
	(void)state;
	begin();
	ledger.epoch += 20;
	assert_false(ha_outage_is(&outage, &ledger, 0, 100 * LIMIT_NS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_takes_the_limit_and_two_ways_that_failed),
	    cmocka_unit_test(whoever_gets_on_or_waits_for_nothing_has_none),
	    cmocka_unit_test(without_a_limit_there_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
