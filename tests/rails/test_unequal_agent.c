/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends of which one, or both, go by an agent: with a thread that looks for it, and so apart
 * from the other modes. There is none.
 */
#include "unequal.h"

/* Of no agent that there is, and so by islands. */
static void an_end_that_goes_by_an_agent_is_as_any_other(void **state)
{
	(void)state;
	for (unsigned other = 0; other <= AGENT; other++) {
		lose_no_byte(AGENT, other);
		if (other != AGENT)
			lose_no_byte(other, AGENT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_end_that_goes_by_an_agent_is_as_any_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
