/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "base/bytes.h"
#include "inc/cut.h"
#include "inc/header.h"
#include "reduce/reduce.h"

#include <stdbool.h>
#include <string.h>

static const struct ha_inc_header sample = {
    .kind = HA_INC_ALL_REDUCE,
    .type = HA_REDUCE_FP32,
    .op = HA_REDUCE_MAX,
    .is_wide = true,
    .number = 0x0102030405060708,
    .unit = 0x1112131415161718,
    .bytes = 0x2728,
    .unit_bytes = 0x10000,
    .epoch = 0x31323334,
    .group = 0x4142434445464748,
    .op_bytes = 0x6162636465666768,
    .member = 0x5152,
};

/* A member that has nothing to say, of bytes that another one has. */
static const struct ha_inc_header nothing = {
    .kind = HA_INC_ALL_REDUCE,
    .type = HA_REDUCE_UINT8,
    .op = HA_REDUCE_MAX,
    .is_empty = true,
    .number = 1,
    .bytes = 77,
    .unit_bytes = 128,
    .op_bytes = 77,
};

static void a_header_is_these_bytes(void **state)
{
	static const uint8_t wanted[] = {
	    'N',  'H',	'A',  'O',  1,	  7,	2,    2,    8,	  7,	6,    5,    4,
	    3,	  2,	1,    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27,
	    0,	  0,	0,    0,    0,	  0,	0,    0,    1,	  0,	0x34, 0x33, 0x32,
	    0x31, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, 0x52, 0x51, 0,    0,
	};
	static const uint8_t of_the_whole[8] = {0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61};
	uint8_t bytes[HA_INC_HEADER_BYTES];
	struct ha_inc_header again;

	(void)state;
	ha_inc_header_encode(&sample, bytes);
	assert_memory_equal(bytes, wanted, sizeof(wanted));
	assert_memory_equal(bytes + 56, of_the_whole, 8);
	assert_true(ha_inc_header_decode(bytes, sizeof(bytes), &again));
	assert_int_equal(ha_inc_header_dispute(&again, &sample), HA_DISPUTE_NONE);
	assert_int_equal(again.member, sample.member);
	assert_true(again.is_wide && !again.is_empty);
}

static void a_bit_that_is_wrong_is_noticed(void **state)
{
	uint8_t bytes[HA_INC_HEADER_BYTES];
	struct ha_inc_header out;

	(void)state;
	ha_inc_header_encode(&sample, bytes);
	for (unsigned int bit = 0; bit < 8 * HA_INC_HEADER_BYTES; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(ha_inc_header_decode(bytes, sizeof(bytes), &out));
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t size = 0; size < sizeof(bytes); size++)
		assert_false(ha_inc_header_decode(bytes, size, &out));
	assert_true(ha_inc_header_decode(bytes, sizeof(bytes) + 1, &out)); /* the unit */
}

/* Well made, and of something that no switch can do. */
static void what_cannot_be_acted_on_is_refused(void **state)
{
	struct ha_inc_header cases[13], out;
	uint8_t bytes[HA_INC_HEADER_BYTES];

	(void)state;
	for (size_t i = 0; i < 13; i++)
		cases[i] = sample;
	cases[0].kind = (enum ha_inc_kind)2;
	cases[1].type = HA_REDUCE_TYPES;
	cases[2].op = HA_REDUCE_OPS;
	cases[3].number = 0;
	cases[4].bytes++; /* half an element */
	cases[5].unit_bytes = 0;
	cases[6].unit_bytes = 65536 + 4;
	cases[7].unit_bytes = HA_INC_MAX_UNIT_BYTES + HA_CUT_ALIGN;
	cases[8].bytes = cases[8].unit_bytes + 4;
	cases[9].is_empty = true; /* of what zeros are not neutral for */
	cases[10] = nothing;
	cases[10].is_wide = true;
	cases[11].kind = (enum ha_inc_kind)0;
	cases[12].op_bytes = cases[12].bytes - 4;
	for (size_t i = 0; i < 13; i++) {
		ha_inc_header_encode(&cases[i], bytes);
		assert_false(ha_inc_header_decode(bytes, sizeof(bytes), &out));
	}
}

/* Flags that this version does not know, and what has to be zero, with a right checksum. */
static void what_is_of_a_later_version_is_refused(void **state)
{
	static const unsigned int places[] = {7, 50, 51};
	struct ha_inc_header out;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		uint8_t bytes[HA_INC_HEADER_BYTES];
		struct ha_writer sum = {bytes + 52};

		ha_inc_header_encode(&sample, bytes);
		bytes[places[i]] |= 4;
		memset(sum.at, 0, 4);
		ha_put_uint(&sum, ha_checksum(bytes, sizeof(bytes)), 4);
		assert_false(ha_inc_header_decode(bytes, sizeof(bytes), &out));
	}
}

static void what_follows_a_header_is_as_long_as_its_form(void **state)
{
	struct ha_inc_header header = sample;

	(void)state;
	assert_int_equal(ha_inc_header_payload(&header), header.bytes);
	header.type = HA_REDUCE_FP16;
	header.op = HA_REDUCE_SUM;
	assert_int_equal(ha_inc_header_payload(&header), 4 * header.bytes); /* in fp64 */
	header.is_wide = false;
	assert_int_equal(ha_inc_header_payload(&header), header.bytes);
	assert_int_equal(ha_inc_header_payload(&nothing), 0);
}

static void nothing_can_be_said_of_bytes(void **state)
{
	uint8_t bytes[HA_INC_HEADER_BYTES];
	struct ha_inc_header out, owner = nothing;

	(void)state;
	ha_inc_header_encode(&nothing, bytes);
	assert_true(ha_inc_header_decode(bytes, sizeof(bytes), &out));
	assert_true(out.is_empty);
	owner.is_empty = false;
	assert_int_equal(ha_inc_header_dispute(&owner, &out), HA_DISPUTE_NONE);
	assert_int_equal(ha_inc_header_payload(&owner), 77);
}

static void whoever_differs_in_anything_but_the_form_disagrees(void **state)
{
	static const enum ha_dispute_about about[] = {
	    HA_DISPUTE_TYPE,	 HA_DISPUTE_OP,	  HA_DISPUTE_NUMBER,
	    HA_DISPUTE_BYTES_OF, HA_DISPUTE_UNIT, HA_DISPUTE_UNIT,
	    HA_DISPUTE_UNIT,	 HA_DISPUTE_UNIT, HA_DISPUTE_UNIT,
	};
	struct ha_inc_header other[9];

	(void)state;
	for (size_t i = 0; i < 9; i++)
		other[i] = sample;
	other[0].type = HA_REDUCE_INT32;
	other[1].op = HA_REDUCE_MIN;
	other[2].number++;
	other[3].op_bytes += 4;
	other[4].unit++;
	other[5].bytes -= 4;
	other[6].unit_bytes *= 2;
	other[7].epoch++;
	other[8].group++;
	for (size_t i = 0; i < 9; i++)
		assert_int_equal(ha_inc_header_dispute(&sample, &other[i]), about[i]);
	other[0] = sample;
	other[0].is_wide = false;
	other[0].member++;
	assert_int_equal(ha_inc_header_dispute(&sample, &other[0]), HA_DISPUTE_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_header_is_these_bytes),
	    cmocka_unit_test(a_bit_that_is_wrong_is_noticed),
	    cmocka_unit_test(what_cannot_be_acted_on_is_refused),
	    cmocka_unit_test(what_is_of_a_later_version_is_refused),
	    cmocka_unit_test(what_follows_a_header_is_as_long_as_its_form),
	    cmocka_unit_test(nothing_can_be_said_of_bytes),
	    cmocka_unit_test(whoever_differs_in_anything_but_the_form_disagrees),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
