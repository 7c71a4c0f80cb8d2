/* SPDX-License-Identifier: Apache-2.0 */
#include "../cmocka_all.h"

#include "base/nccl_window.h"

#include <limits.h>

static void it_is_longer_than_what_was_measured(void **state)
{
	(void)state;
	/* A ConnectX-6, with NCCL's defaults and with timeouts of 10 to 16. */
	assert_in_range(ha_nccl_window_ms(20, 7), 58800, 2 * 58800);
	for (int timeout = 10; timeout <= 16; timeout++)
		assert_in_range(ha_nccl_window_ms(timeout, 7), 3800, 2 * 3800);
}

static void it_is_never_below_the_specifications(void **state)
{
	(void)state;
	for (int timeout = 1; timeout <= 31; timeout++)
		for (int retries = 0; retries <= 7; retries++) {
			double ms = 4096e-6 * (double)(1ull << timeout) * (retries + 1);

			assert_true(ha_nccl_window_ms(timeout, retries) >= ms);
		}
}

static void it_grows_with_either_value(void **state)
{
	(void)state;
	for (int timeout = 16; timeout < 31; timeout++)
		for (int retries = 0; retries < 7; retries++) {
			assert_true(ha_nccl_window_ms(timeout + 1, retries) >
				    ha_nccl_window_ms(timeout, retries));
			assert_true(ha_nccl_window_ms(timeout, retries + 1) >
				    ha_nccl_window_ms(timeout, retries));
		}
}

static void no_timeout_is_for_ever(void **state)
{
	(void)state;
	assert_int_equal(ha_nccl_window_ms(0, 7), INT_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_is_longer_than_what_was_measured),
	    cmocka_unit_test(it_is_never_below_the_specifications),
	    cmocka_unit_test(it_grows_with_either_value),
	    cmocka_unit_test(no_timeout_is_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
