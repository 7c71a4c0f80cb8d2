/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The labels traffic carries (immediates, work request numbers, stamps) and the window of what is
 * done: the arithmetic that keeps incarnations apart.
 */
#include "../cmocka_all.h"

#include "transport/labels.h"
#include "transport/rings.h"
#include "transport/window.h"

#include <string.h>

static void immediates_give_back_what_was_put_in(void **state)
{
	(void)state;
	for (uint64_t seq = 0; seq < 0x30000; seq += 257)
		for (uint32_t epoch = 0; epoch < 600; epoch += 37)
			for (unsigned parts = 1; parts <= HA_IMM_MAX_PARTS; parts++)
				for (int record = 0; record < 2; record++) {
					uint32_t imm = ha_imm_pack(seq, epoch, parts, record);

					assert_int_equal(ha_imm_seq(imm), seq & 0xffff);
					assert_int_equal(ha_imm_epoch(imm), epoch & 0xff);
					assert_int_equal(ha_imm_parts(imm), parts);
					assert_int_equal(ha_imm_record(imm), record);
					assert_int_equal(ha_imm_kind(imm), HA_IMM_KIND_DATA);
				}
}

static void immediates_of_a_window_and_its_neighbours_differ(void **state)
{
	(void)state;
	/* A slot is reused after a window: the immediate must still tell the two apart. */
	for (uint64_t seq = 1; seq < 4; seq++)
		for (uint64_t laps = 1; laps < 1000; laps++)
			assert_int_not_equal(ha_imm_pack(seq, 0, 1, false),
					     ha_imm_pack(seq + laps * HA_WINDOW, 0, 1, false));
}

static void work_request_numbers_name_path_generation_and_slot(void **state)
{
	uint64_t id = ha_wr_id(HA_WR_CTS, 3, 0xbeef, 15, 0xabcdef);

	(void)state;
	assert_int_equal(ha_wr_kind(id), HA_WR_CTS);
	assert_int_equal(id >> 48 & 0xff, 3);
	assert_int_equal(id >> 32 & 0xffff, 0xbeef);
	assert_int_equal(ha_wr_qp(id), 15);
	assert_int_equal(ha_wr_slot(id), 0xabcdef);
	/* What does not fit must not spill into a neighbour. */
	assert_true(ha_wr_id(HA_WR_DATA, 0, 0, 0, 0xff000001) == ha_wr_id(HA_WR_DATA, 0, 0, 0, 1));
}

static void fresh_memory_matches_no_stamp(void **state)
{
	struct ha_cts element;

	(void)state;
	memset(&element, 0, sizeof(element));
	assert_false(ha_cts_arrived(&element, ha_stamp(1, 0)));
	for (uint64_t seq = 1; seq < 100000; seq += 999)
		assert_true(ha_stamp(seq, 0) != 0);
}

static void half_an_element_has_not_arrived(void **state)
{
	struct ha_cts element;
	uint64_t stamp = ha_stamp(77, 3);

	(void)state;
	memset(&element, 0, sizeof(element));
	element.stamp = stamp;
	assert_false(ha_cts_arrived(&element, stamp));
	element.stamp_end = stamp;
	assert_true(ha_cts_arrived(&element, stamp));
	element.stamp = 0;
	assert_false(ha_cts_arrived(&element, stamp));
	/* Another epoch of the same receive is another element. */
	element.stamp = stamp;
	assert_false(ha_cts_arrived(&element, ha_stamp(77, 4)));
	assert_false(ha_cts_arrived(&element, ha_stamp(77 + HA_WINDOW, 3)));
}

static void the_window_counts_in_any_order(void **state)
{
	struct ha_window w = {.base = 1};

	(void)state;
	assert_true(ha_window_mark(&w, 3));
	assert_true(ha_window_mark(&w, 2));
	assert_int_equal(w.base, 1);
	assert_true(ha_window_has(&w, 2));
	assert_false(ha_window_has(&w, 1));
	assert_true(ha_window_mark(&w, 1));
	assert_int_equal(w.base, 4);
	assert_int_equal(w.bits, 0);
	assert_true(ha_window_has(&w, 1));
	assert_false(ha_window_has(&w, 4));
}

static void the_window_refuses_doubles_and_strays(void **state)
{
	struct ha_window w = {.base = 10};

	(void)state;
	assert_false(ha_window_mark(&w, 9));
	assert_true(ha_window_mark(&w, 12));
	assert_false(ha_window_mark(&w, 12));
	assert_false(ha_window_mark(&w, 10 + 64));
	assert_false(ha_window_has(&w, 1000));
	assert_true(ha_window_mark(&w, 10 + 63));
	for (uint64_t seq = 10; seq < 73; seq++)
		if (seq != 12)
			assert_true(ha_window_mark(&w, seq));
	assert_int_equal(w.base, 74);
	assert_int_equal(w.bits, 0);
}

static void a_merged_window_has_what_either_had(void **state)
{
	/* Further ahead than a window is long, too: a peer may name any number. */
	static const struct ha_window windows[] = {
	    {.base = 1},
	    {.base = 5, .bits = 2},
	    {.base = 6, .bits = 1ull << 63 | 6},
	    {.base = 7, .bits = UINT64_MAX - 1},
	    {.base = 70, .bits = 4},
	    {.base = 71, .bits = 0xaaaaaaaaaaaaaaaa},
	};
	const size_t n = sizeof(windows) / sizeof(windows[0]);

	(void)state;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++) {
			struct ha_window both = windows[i];

			ha_window_merge(&both, &windows[k]);
			assert_int_equal(both.bits & 1, 0);
			for (uint64_t seq = 1; seq < both.base + 64; seq++)
				assert_int_equal(ha_window_has(&both, seq),
						 ha_window_has(&windows[i], seq) ||
						     ha_window_has(&windows[k], seq));
		}
}

static void records_need_no_more_bytes_than_their_group(void **state)
{
	(void)state;
	assert_int_equal(ha_sizes_length(1), 16);
	assert_int_equal(ha_sizes_length(HA_GROUP_MAX), 72);
	assert_true(ha_sizes_length(HA_GROUP_MAX) <= sizeof(struct ha_sizes));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(immediates_give_back_what_was_put_in),
	    cmocka_unit_test(immediates_of_a_window_and_its_neighbours_differ),
	    cmocka_unit_test(work_request_numbers_name_path_generation_and_slot),
	    cmocka_unit_test(fresh_memory_matches_no_stamp),
	    cmocka_unit_test(half_an_element_has_not_arrived),
	    cmocka_unit_test(the_window_counts_in_any_order),
	    cmocka_unit_test(the_window_refuses_doubles_and_strays),
	    cmocka_unit_test(a_merged_window_has_what_either_had),
	    cmocka_unit_test(records_need_no_more_bytes_than_their_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
