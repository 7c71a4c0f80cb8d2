/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets, quantiles and merging of the histogram. */
#include "../cmocka_all.h"

#include "base/hist.h"

static void each_power_of_two_has_its_bucket(void **state)
{
	(void)state;
	assert_int_equal(ha_hist_bucket(0), 0);
	assert_int_equal(ha_hist_bucket(1), 1);
	assert_int_equal(ha_hist_bucket(2), 2);
	assert_int_equal(ha_hist_bucket(3), 2);
	assert_int_equal(ha_hist_bucket(4), 3);
	assert_int_equal(ha_hist_bucket(1ull << 62), 63);
	assert_int_equal(ha_hist_bucket(UINT64_MAX), 63);
}

static void empty_histogram_says_zero(void **state)
{
	struct ha_hist h = {0};

	(void)state;
	assert_int_equal(ha_hist_samples(&h), 0);
	assert_int_equal(ha_hist_mean(&h), 0);
	assert_int_equal(ha_hist_quantile(&h, 500), 0);
}

static void quantiles_are_right_within_their_bucket(void **state)
{
	struct ha_hist h = {0};

	(void)state;
	for (uint64_t v = 1; v <= 1000; v++)
		ha_hist_add(&h, v);
	assert_int_equal(ha_hist_samples(&h), 1000);
	assert_int_equal(ha_hist_mean(&h), 500);
	/* The samples are spread evenly, as the interpolation assumes. */
	assert_in_range(ha_hist_quantile(&h, 500), 490, 510);
	assert_in_range(ha_hist_quantile(&h, 250), 240, 260);
	assert_in_range(ha_hist_quantile(&h, 990), 980, 1000);
	assert_int_equal(ha_hist_quantile(&h, 1000), 1000);
	assert_int_equal(ha_hist_quantile(&h, 0), 1);
}

static void one_outlier_shows_at_the_top_only(void **state)
{
	struct ha_hist h = {0};

	(void)state;
	for (int i = 0; i < 999; i++)
		ha_hist_add(&h, 5);
	ha_hist_add(&h, 3000000);
	assert_in_range(ha_hist_quantile(&h, 999), 4, 7);
	assert_int_equal(ha_hist_quantile(&h, 1000), 3000000);
	assert_int_equal(h.max, 3000000);
}

static void extreme_values_neither_overflow_nor_exceed_the_maximum(void **state)
{
	struct ha_hist h = {0};

	(void)state;
	ha_hist_add(&h, UINT64_MAX);
	assert_true(ha_hist_quantile(&h, 500) <= UINT64_MAX);
	assert_true(ha_hist_quantile(&h, 500) >= 1ull << 62);
	ha_hist_add(&h, 0);
	assert_int_equal(ha_hist_quantile(&h, 500), 0);
	assert_int_equal(ha_hist_samples(&h), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_power_of_two_has_its_bucket),
	    cmocka_unit_test(empty_histogram_says_zero),
	    cmocka_unit_test(quantiles_are_right_within_their_bucket),
	    cmocka_unit_test(one_outlier_shows_at_the_top_only),
	    cmocka_unit_test(extreme_values_neither_overflow_nor_exceed_the_maximum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
