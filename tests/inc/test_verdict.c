/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "inc/verdict.h"

#include <string.h>

static char text[512];

static const char *text_of(enum ha_inc_abort why, unsigned int members)
{
	ha_verdict_text(why, members, text, sizeof(text));
	return text;
}

static void each_reason_has_a_text_of_its_own(void **state)
{
	char before[HA_INC_ABORT_REASONS + 1][512] = {{0}};

	(void)state;
	for (unsigned int why = 1; why <= HA_INC_ABORT_REASONS; why++) {
		memcpy(before[why], text_of((enum ha_inc_abort)why, 3), sizeof(text));
		for (unsigned int other = 0; other < why; other++)
			assert_string_not_equal(before[why], before[other]);
	}
}

static void who_needs_switches_is_told_by_which_setting(void **state)
{
	(void)state;
	assert_string_equal(text_of(HA_INC_ABORT_NO_TREE, 32),
			    "no tree is left, and members do not add for each other, as member 0 "
			    "has HA_NCCL_INC_FALLBACK=none");
}

/* That setting has nothing to do with it. */
static void a_group_that_is_too_large_is_told_the_limit_and_what_to_do(void **state)
{
	(void)state;
	assert_string_equal(text_of(HA_INC_ABORT_NO_TREE, 33),
			    "no tree is left, and 33 members are too many to add for each other, "
			    "which 32 can: give the topology more switches, and spare_trees in its "
			    "defaults");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_reason_has_a_text_of_its_own),
	    cmocka_unit_test(who_needs_switches_is_told_by_which_setting),
	    cmocka_unit_test(a_group_that_is_too_large_is_told_the_limit_and_what_to_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
