/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message over rails: where it is cut, what each rail gets, which queue pair and whose turn.
 */
#include "../cmocka_all.h"

#include "transport/split.h"

#include <stdio.h>
#include <string.h>

#define MIB (1u << 20)

static const uint8_t in_order[] = {0, 1, 2, 3};

static uint64_t next_random(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* Two rails, of which the second one's share is given. */
static struct ha_shares two_rails(unsigned hint)
{
	static const uint16_t alike[] = {1, 1};
	struct ha_shares shares;

	ha_shares_make(&shares, 2, in_order, alike);
	ha_shares_hint(&shares, hint);
	return shares;
}

static uint64_t bytes_on(const struct ha_piece *pieces, unsigned n, unsigned slot)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		if (pieces[i].slot == slot)
			bytes += pieces[i].length;
	return bytes;
}

static unsigned mask_of(const struct ha_piece *pieces, unsigned n)
{
	unsigned mask = 0;

	for (unsigned i = 0; i < n; i++)
		mask |= 1u << pieces[i].slot;
	return mask;
}

/* Without gaps, each slot once and none without bytes, cut where it may be. */
static void check_pieces(const struct ha_piece *pieces, unsigned n, uint64_t bytes)
{
	uint64_t at = 0;
	unsigned seen = 0;

	for (unsigned i = 0; i < n; i++) {
		if (pieces[i].offset != at || pieces[i].offset % HA_SPLIT_ALIGN != 0 ||
		    pieces[i].length == 0 || seen >> pieces[i].slot & 1)
			fail_msg("piece %u of %u of %llu bytes: slot %u, %llu bytes at %llu", i, n,
				 (unsigned long long)bytes, pieces[i].slot,
				 (unsigned long long)pieces[i].length,
				 (unsigned long long)pieces[i].offset);
		seen |= 1u << pieces[i].slot;
		at += pieces[i].length;
	}
	assert_true(at == bytes);
}

static void a_mebibyte_goes_as_the_hint_says(void **state)
{
	static const struct {
		unsigned hint, mask;
		uint64_t second, first;
	} rows[] = {
	    {0, 0x1, 0, 1048576},	   {256, 0x3, 262144, 786432}, {512, 0x3, 524288, 524288},
	    {768, 0x3, 786432, 262144},	   {1024, 0x2, 1048576, 0},    {1025, 0x2, 1048576, 0},
	    {UINT32_MAX, 0x2, 1048576, 0},
	};
	struct ha_piece pieces[HA_MAX_PATHS];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ha_shares shares = two_rails(rows[i].hint);
		unsigned n = ha_split(MIB, &shares, 3, 0, 0, pieces);

		check_pieces(pieces, n, MIB);
		assert_true(bytes_on(pieces, n, 1) == rows[i].second);
		assert_true(bytes_on(pieces, n, 0) == rows[i].first);
		assert_int_equal(mask_of(pieces, n), rows[i].mask);
	}
}

static void any_size_and_hint_add_up_and_are_cut_at_lines(void **state)
{
	uint64_t random = 0x9e3779b97f4a7c15ull;
	struct ha_piece pieces[HA_MAX_PATHS];
	unsigned both = 0;

	(void)state;
	for (int i = 0; i < 1000000; i++) {
		const uint64_t size = next_random(&random) >> (next_random(&random) % 50 + 14);
		const unsigned hint = (unsigned)(next_random(&random) % 1025);
		struct ha_shares shares = two_rails(hint);
		unsigned n = ha_split(size, &shares, 3, 0, 0, pieces);
		uint64_t second = (uint64_t)((unsigned __int128)size * hint >> 10);

		second = hint == 1024 ? size : second & ~127ull;
		if (size == 0) {
			assert_int_equal(n, 1);
			assert_int_equal(pieces[0].slot, 0);
			assert_true(pieces[0].length == 0);
			continue;
		}
		check_pieces(pieces, n, size);
		assert_true(bytes_on(pieces, n, 1) == second);
		assert_true(bytes_on(pieces, n, 0) == size - second);
		both += n == 2;
	}
	assert_true(both > 500000);
}

static void any_weights_of_up_to_four_rails_in_any_slots_add_up(void **state)
{
	uint64_t random = 0x2545f4914f6cdd1dull;
	struct ha_piece pieces[HA_MAX_PATHS];

	(void)state;
	for (int i = 0; i < 100000; i++) {
		const unsigned rails = 1 + (unsigned)(next_random(&random) % HA_MAX_PATHS);
		const unsigned turn = (unsigned)(next_random(&random) % HA_MAX_PATHS);
		const uint64_t size =
		    1 + (next_random(&random) >> (next_random(&random) % 50 + 14));
		uint16_t weight[HA_MAX_PATHS];
		uint8_t slot[HA_MAX_PATHS];
		struct ha_shares shares;

		for (unsigned rail = 0; rail < HA_MAX_PATHS; rail++) {
			weight[rail] = (uint16_t)(next_random(&random) >> (48 + random % 17 % 16));
			slot[rail] = (uint8_t)((rail + turn) % HA_MAX_PATHS);
		}
		ha_shares_make(&shares, rails, slot, weight);
		for (unsigned mask = 1; mask < 16; mask++) {
			unsigned n = ha_split(size, &shares, mask, turn, 0, pieces), sum = 0;

			if (!(mask & shares.slots)) {
				assert_int_equal(n, 0);
				continue;
			}
			check_pieces(pieces, n, size);
			assert_int_equal(mask_of(pieces, n) & ~(mask & shares.slots), 0);
			for (unsigned s = 0; s < HA_MAX_PATHS; s++)
				sum += ha_share_of(shares.of_mask[(mask & shares.slots) - 1], s);
			assert_int_equal(sum, HA_SHARE_ALL);
		}
	}
}

static void rails_lie_in_their_order_whatever_their_slots(void **state)
{
	static const uint8_t slot[] = {2, 3, 0, 1};
	static const uint16_t weight[] = {1, 1, 1, 1};
	struct ha_piece pieces[HA_MAX_PATHS];
	struct ha_shares shares;

	(void)state;
	ha_shares_make(&shares, 4, slot, weight);
	assert_int_equal(ha_split(4096 + 5, &shares, 0xf, 2, 0, pieces), 4);
	check_pieces(pieces, 4, 4096 + 5);
	assert_int_equal(pieces[0].slot, 3);
	assert_int_equal(pieces[1].slot, 0);
	assert_int_equal(pieces[2].slot, 1);
	assert_int_equal(pieces[3].slot, 2); /* the first rail takes the odd end */
	assert_true(pieces[3].length == 1024 + 5);
}

static void what_a_lost_rail_would_carry_goes_to_the_others_in_their_ratio(void **state)
{
	static const uint16_t weight[] = {2, 1, 1};
	struct ha_piece pieces[HA_MAX_PATHS];
	struct ha_shares shares;
	unsigned n;

	(void)state;
	ha_shares_make(&shares, 3, in_order, weight);
	assert_int_equal(ha_share_of(shares.of_mask[7 - 1], 0), 512);
	assert_int_equal(ha_share_of(shares.of_mask[6 - 1], 1), 512);
	assert_int_equal(ha_share_of(shares.of_mask[6 - 1], 2), 512);
	assert_int_equal(ha_share_of(shares.of_mask[3 - 1], 1), 341);
	n = ha_split(MIB, &shares, 6, 0, 0, pieces);
	assert_true(bytes_on(pieces, n, 1) == MIB / 2);
	assert_true(bytes_on(pieces, n, 2) == MIB / 2);
}

static void health_beats_every_hint(void **state)
{
	static const uint16_t all_on_first[] = {1, 0};
	struct ha_shares all_on_second = two_rails(1024), none = two_rails(0);
	struct ha_piece pieces[HA_MAX_PATHS];

	(void)state;
	assert_int_equal(ha_split(MIB, &all_on_second, 1, 0, 0, pieces), 1);
	assert_int_equal(pieces[0].slot, 0);
	assert_int_equal(ha_split(MIB, &none, 2, 0, 0, pieces), 1);
	assert_int_equal(pieces[0].slot, 1);
	assert_true(pieces[0].length == MIB);
	/* The same of weights. */
	ha_shares_make(&none, 2, in_order, all_on_first);
	assert_int_equal(ha_split(MIB, &none, 2, 0, 0, pieces), 1);
	assert_int_equal(pieces[0].slot, 1);
	assert_true(pieces[0].length == MIB);
}

/* Not "the lead anyway": its key may be of another generation, or the fence of it complete. */
static void without_a_usable_slot_nothing_can_be_posted_now(void **state)
{
	struct ha_shares shares = two_rails(512);
	struct ha_piece pieces[HA_MAX_PATHS];

	(void)state;
	assert_int_equal(ha_split(MIB, &shares, 0, 0, 0, pieces), 0);
	assert_int_equal(ha_split(0, &shares, 0, 0, 0, pieces), 0);
	assert_int_equal(ha_split(100, &shares, 0, 0, 4096, pieces), 0);
	assert_int_equal(ha_split(MIB, &shares, 0xc, 2, 0, pieces), 0); /* slots of no rail */
}

static void what_is_small_goes_whole_on_the_lead(void **state)
{
	struct ha_shares shares = two_rails(768);
	struct ha_piece pieces[HA_MAX_PATHS];

	(void)state;
	assert_int_equal(ha_split(65535, &shares, 3, 0, 65536, pieces), 1);
	assert_int_equal(pieces[0].slot, 0);
	assert_true(pieces[0].length == 65535);
	assert_int_equal(ha_split(65536, &shares, 3, 0, 65536, pieces), 2);
	/* The lead cannot: the rail that carries most. */
	assert_int_equal(ha_split(65535, &shares, 2, 0, 65536, pieces), 1);
	assert_int_equal(pieces[0].slot, 1);
}

static void how_a_message_goes_follows_from_its_size(void **state)
{
	(void)state;
	assert_int_equal(ha_way_of(16383, 65536), HA_WAY_LEAD);
	assert_int_equal(ha_way_of(16384, 65536), HA_WAY_WHOLE);
	assert_int_equal(ha_way_of(131071, 65536), HA_WAY_WHOLE);
	assert_int_equal(ha_way_of(131072, 65536), HA_WAY_SPLIT);
	assert_int_equal(ha_way_of(0, 65536), HA_WAY_LEAD);
}

static void turns_follow_the_shares_and_come_in_no_bursts(void **state)
{
	static const uint16_t three_to_one[] = {3, 1};
	unsigned turns_of[HA_MAX_PATHS] = {0}, in_a_row = 0, longest = 0, last = HA_MAX_PATHS;
	struct ha_turns turns = {{0}};
	struct ha_shares shares;

	(void)state;
	ha_shares_make(&shares, 2, in_order, three_to_one);
	for (int i = 0; i < 4000; i++) {
		unsigned slot = ha_turns_next(&turns, shares.of_mask[3 - 1], 65536);

		turns_of[slot]++;
		in_a_row = slot == last ? in_a_row + 1 : 1;
		last = slot;
		if (in_a_row > longest)
			longest = in_a_row;
	}
	assert_int_equal(turns_of[0], 3000);
	assert_int_equal(turns_of[1], 1000);
	assert_int_equal(longest, 3);
}

static void turns_count_bytes_not_messages(void **state)
{
	static const uint16_t alike[] = {1, 1};
	uint64_t random = 4101842887655102017ull, carried[2] = {0};
	struct ha_turns turns = {{0}};
	struct ha_shares shares;

	(void)state;
	ha_shares_make(&shares, 2, in_order, alike);
	for (int i = 0; i < 10000; i++) {
		uint64_t bytes = next_random(&random) % 2 ? 4096 : 131072;

		carried[ha_turns_next(&turns, shares.of_mask[3 - 1], bytes)] += bytes;
	}
	assert_true(carried[0] + 131072 >= carried[1] && carried[1] + 131072 >= carried[0]);
}

/* Two queue pairs here and three there, and six messages. */
static void queue_pairs_take_turns_on_each_rail(void **state)
{
	static const unsigned expected[6][2] = {{0, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {1, 2}};

	(void)state;
	for (unsigned turn = 0; turn < 6; turn++) {
		assert_int_equal(ha_qp_in_turn(turn, 2), expected[turn][0]);
		assert_int_equal(ha_qp_in_turn(turn, 3), expected[turn][1]);
		assert_int_equal(ha_qp_in_turn(turn, 1), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_mebibyte_goes_as_the_hint_says),
	    cmocka_unit_test(any_size_and_hint_add_up_and_are_cut_at_lines),
	    cmocka_unit_test(any_weights_of_up_to_four_rails_in_any_slots_add_up),
	    cmocka_unit_test(rails_lie_in_their_order_whatever_their_slots),
	    cmocka_unit_test(what_a_lost_rail_would_carry_goes_to_the_others_in_their_ratio),
	    cmocka_unit_test(health_beats_every_hint),
	    cmocka_unit_test(without_a_usable_slot_nothing_can_be_posted_now),
	    cmocka_unit_test(what_is_small_goes_whole_on_the_lead),
	    cmocka_unit_test(how_a_message_goes_follows_from_its_size),
	    cmocka_unit_test(turns_follow_the_shares_and_come_in_no_bursts),
	    cmocka_unit_test(turns_count_bytes_not_messages),
	    cmocka_unit_test(queue_pairs_take_turns_on_each_rail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
