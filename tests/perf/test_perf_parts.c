/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nccl-net-perf judges with: data patterns, sums, histogram, stalls, sizes. A
 * checker that cannot see a wrong byte would call any plugin right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/common/clock.h"
#include "tools/nccl-net-perf/launch.h"
#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/pattern.h"
#include "tools/nccl-net-perf/rank.h"
#include "tools/nccl-net-perf/recorder.h"

/* ---- patterns ------------------------------------------------------------------------------ */

static void a_pattern_is_right_in_any_cut(void **state)
{
	static const size_t cuts[] = {0, 1, 3, 7, 8, 4095, 4096, 4097, 9001, 20011};
	static uint8_t whole[20011], piece[20011];

	(void)state;
	np_pattern_fill(whole, sizeof(whole), 3, 17, 1000003);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		for (size_t from = 0; from < 20; from++) {
			size_t len = cuts[i] < from ? 0 : cuts[i] - from;

			np_pattern_fill(piece, len, 3, 17, 1000003 + from);
			assert_memory_equal(piece, whole + from, len);
			assert_int_equal(np_pattern_check(whole + from, len, 3, 17, 1000003 + from),
					 0);
		}
	}
}

static void each_wrong_byte_is_counted(void **state)
{
	static uint8_t data[10000];

	(void)state;
	np_pattern_fill(data, sizeof(data), 0, 1, 5);
	for (size_t i = 0; i < sizeof(data); i += 777) {
		data[i] ^= 1;
		assert_int_equal(np_pattern_check(data, sizeof(data), 0, 1, 5), i / 777 + 1);
	}
}

/* Data of another rank, iteration or place agrees with the right one in 1 byte of 256 by chance. */
static void other_data_is_almost_all_wrong(void **state)
{
	static uint8_t data[100000];
	const uint64_t most = sizeof(data) * 98 / 100;

	(void)state;
	np_pattern_fill(data, sizeof(data), 2, 7, 64);
	assert_true(np_pattern_check(data, sizeof(data), 1, 7, 64) > most);
	assert_true(np_pattern_check(data, sizeof(data), 2, 6, 64) > most);
	assert_true(np_pattern_check(data, sizeof(data), 2, 8, 64) > most);
	assert_true(np_pattern_check(data, sizeof(data), 2, 7, 63) > most);
	assert_true(np_pattern_check(data, sizeof(data), 2, 7, 72) > most);
	memset(data, 0, sizeof(data));
	assert_true(np_pattern_check(data, sizeof(data), 2, 7, 64) > most);
}

/* ---- sums ---------------------------------------------------------------------------------- */

#define ELEMENTS 5003

static void sum_of_ranks(uint32_t *sum, enum np_type type, int first, int nranks, uint32_t it)
{
	static uint32_t term[ELEMENTS];

	np_summand_fill(sum, ELEMENTS, type, first, it);
	for (int i = 1; i < nranks; i++) {
		np_summand_fill(term, ELEMENTS, type, (first + i) % nranks, it);
		np_sum(sum, term, sum, ELEMENTS, type);
	}
}

static void sums_equal_their_closed_form_in_any_order(void **state)
{
	static uint32_t sum[ELEMENTS];
	static const int ranks[] = {2, 3, 4, 7, 64, 1024};

	(void)state;
	for (int type = 0; type < NP_TYPE_COUNT; type++)
		for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
			for (int first = 0; first < 2; first++) {
				sum_of_ranks(sum, (enum np_type)type, first, ranks[i], 5);
				assert_int_equal(
				    np_sum_check(sum, ELEMENTS, (enum np_type)type, ranks[i], 5),
				    0);
			}
}

static void wrong_sums_are_counted(void **state)
{
	static uint32_t sum[ELEMENTS];

	(void)state;
	for (int t = 0; t < NP_TYPE_COUNT; t++) {
		enum np_type type = (enum np_type)t;

		sum_of_ranks(sum, type, 0, 4, 9);
		((uint8_t *)sum)[100 * np_type_sizes[type]] ^= 1;
		((uint8_t *)sum)[ELEMENTS * np_type_sizes[type] - 1] ^= 1;
		assert_int_equal(np_sum_check(sum, ELEMENTS, type, 4, 9), 2);
		/* One summand missing, one twice, another iteration's: hardly an element fits. */
		sum_of_ranks(sum, type, 0, 3, 9);
		assert_true(np_sum_check(sum, ELEMENTS, type, 4, 9) > ELEMENTS * 9 / 10);
		sum_of_ranks(sum, type, 0, 4, 8);
		assert_true(np_sum_check(sum, ELEMENTS, type, 4, 9) > ELEMENTS * 9 / 10);
	}
}

/* ---- canaries ------------------------------------------------------------------------------- */

static void a_byte_written_beside_a_buffer_is_seen(void **state)
{
	static const size_t lens[] = {0, 1, 4095, 4096, 10001};

	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct np_buffer b;

		assert_true(np_buffer_alloc(&b, lens[i]));
		memset(b.data, 0xff, b.len);
		assert_int_equal(np_buffer_overrun(&b), 0);
		b.data[b.len] ^= 1;
		assert_int_equal(np_buffer_overrun(&b), 1);
		b.data[-1] ^= 1;
		assert_int_equal(np_buffer_overrun(&b), 2);
		np_buffer_free(&b);
	}
}

/* ---- histogram and stalls ------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void quantiles_are_within_one_bucket_of_the_exact_ones(void **state)
{
	static const double points[] = {0.01, 0.5, 0.9, 0.99, 0.999};
	static struct np_histogram h;
	static uint64_t values[20000];
	uint64_t x = 88172645463325252ull;
	const size_t n = sizeof(values) / sizeof(values[0]);

	(void)state;
	np_histogram_reset(&h);
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		values[i] = (x >> 20) % (1ull << (5 + i % 30)); /* over all magnitudes */
		np_histogram_add(&h, values[i]);
	}
	qsort(values, n, sizeof(values[0]), compare);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		uint64_t exact = values[(size_t)(points[i] * (double)n)];
		uint64_t got = np_histogram_quantile(&h, points[i]);

		assert_true(got <= exact && exact - got <= exact / 32 + 1);
	}
	assert_int_equal(h.count, n);
	assert_int_equal(np_histogram_quantile(&h, 1.0), values[n - 1]);
	assert_int_equal(np_histogram_quantile(&h, 0.0), values[0]);
}

static void every_bucket_holds_its_own_lower_bound(void **state)
{
	static struct np_histogram h;

	(void)state;
	for (size_t i = 0; i < NP_HIST_BUCKETS; i++) {
		np_histogram_reset(&h);
		np_histogram_add(&h, np_histogram_bucket_ns(i));
		assert_int_equal(h.buckets[i], 1);
		if (i)
			assert_true(np_histogram_bucket_ns(i) > np_histogram_bucket_ns(i - 1));
	}
	np_histogram_add(&h, UINT64_MAX); /* above the top: counted there */
	assert_int_equal(h.buckets[NP_HIST_BUCKETS - 1], 2);
	assert_int_equal(h.max_ns, UINT64_MAX);
}

static void only_gaps_over_the_threshold_are_stalls(void **state)
{
	static struct np_recorder r;
	uint64_t longest = 0;

	(void)state;
	r.stall_threshold_ns = 1000;
	r.origin_ns = 5000;
	r.bucket_ns = 1000;
	np_recorder_reset(&r);
	np_recorder_start(&r, 10000);
	np_recorder_complete(&r, 11000, 1, 10); /* exactly the threshold */
	np_recorder_complete(&r, 15000, 1, 20); /* a gap of 4000 from 6000 on */
	np_recorder_start(&r, 90000);		/* between iterations: no stall */
	np_recorder_complete(&r, 90500, 1, 0);
	assert_int_equal(r.stalls_seen, 1);
	assert_int_equal(r.stalls[0].start_ns, 6000);
	assert_int_equal(r.stalls[0].duration_ns, 4000);
	assert_int_equal(r.timeline[6], 10);
	assert_int_equal(r.timeline[10], 20);
	for (int i = 0; i < 2 * NP_STALLS_KEPT; i++)
		np_recorder_complete(&r, r.last_ns + 2000, 1, 0);
	assert_int_equal(r.stalls_seen, 1 + 2 * NP_STALLS_KEPT);
	assert_int_equal(r.stalls[0].duration_ns, 4000); /* not one of the short ones goes */
	np_recorder_complete(&r, r.last_ns + 9000, 1, 0);
	for (int i = 0; i < NP_STALLS_KEPT; i++)
		longest = r.stalls[i].duration_ns > longest ? r.stalls[i].duration_ns : longest;
	assert_int_equal(longest, 9000); /* which comes late, and is kept */
	assert_int_equal(r.stalls[0].duration_ns, 4000);
	np_recorder_free(&r);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

static void sizes_are_numbers_with_a_binary_suffix(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		size_t size;
	} sizes[] = {
	    {"0", true, 0},
	    {"1", true, 1},
	    {"8B", true, 8},
	    {"64K", true, 65536},
	    {"3m", true, 3145728},
	    {"2GB", true, 2147483648u},
	    {"", false, 0},
	    {"K", false, 0},
	    {"-1", false, 0},
	    {" 1", false, 0},
	    {"1.5M", false, 0},
	    {"1KK", false, 0},
	    {"1T", false, 0},
	    {"99999999999999999999", false, 0},
	    {"18446744073709551615", false, 0},
	    {"99999999999G", false, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = 0;

		if (np_parse_size(sizes[i].text, &size) != sizes[i].ok || size != sizes[i].size)
			fail_msg("'%s' gave %zu", sizes[i].text, size);
	}
}

static void a_run_ends_as_the_rank_did_that_the_others_errors_come_of(void **state)
{
	const uint64_t at_once = 0, soon = NP_NS_PER_S / 10, late = NP_NS_PER_S;

	(void)state;
	assert_int_equal(np_launch_status(NP_EXIT_OK, NP_EXIT_OK, at_once), NP_EXIT_OK);
	assert_int_equal(np_launch_status(NP_EXIT_OK, NP_EXIT_ERROR, at_once), NP_EXIT_ERROR);
	assert_int_equal(np_launch_status(NP_EXIT_ERROR, NP_EXIT_OK, soon), NP_EXIT_ERROR);
	/* Seen in whichever order. */
	assert_int_equal(np_launch_status(NP_EXIT_TIMEOUT, NP_EXIT_ERROR, soon), NP_EXIT_TIMEOUT);
	assert_int_equal(np_launch_status(NP_EXIT_ERROR, NP_EXIT_TIMEOUT, soon), NP_EXIT_TIMEOUT);
	/* It waited for the one that had failed. */
	assert_int_equal(np_launch_status(NP_EXIT_ERROR, NP_EXIT_TIMEOUT, late), NP_EXIT_ERROR);
	for (enum np_exit first = NP_EXIT_ERROR; first <= NP_EXIT_TIMEOUT; first++) {
		assert_int_equal(np_launch_status(first, NP_EXIT_LATE, late), NP_EXIT_LATE);
		assert_int_equal(np_launch_status(first, NP_EXIT_WRONG, late), NP_EXIT_WRONG);
		assert_int_equal(np_launch_status(NP_EXIT_WRONG, first, soon), NP_EXIT_WRONG);
	}
	assert_int_equal(np_launch_status(NP_EXIT_LATE, NP_EXIT_WRONG, soon), NP_EXIT_WRONG);
	assert_int_equal(np_launch_status(NP_EXIT_WRONG, NP_EXIT_LATE, soon), NP_EXIT_WRONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_pattern_is_right_in_any_cut),
	    cmocka_unit_test(each_wrong_byte_is_counted),
	    cmocka_unit_test(other_data_is_almost_all_wrong),
	    cmocka_unit_test(sums_equal_their_closed_form_in_any_order),
	    cmocka_unit_test(wrong_sums_are_counted),
	    cmocka_unit_test(a_byte_written_beside_a_buffer_is_seen),
	    cmocka_unit_test(quantiles_are_within_one_bucket_of_the_exact_ones),
	    cmocka_unit_test(every_bucket_holds_its_own_lower_bound),
	    cmocka_unit_test(only_gaps_over_the_threshold_are_stalls),
	    cmocka_unit_test(a_run_ends_as_the_rank_did_that_the_others_errors_come_of),
	    cmocka_unit_test(sizes_are_numbers_with_a_binary_suffix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
