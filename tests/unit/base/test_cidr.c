/* SPDX-License-Identifier: Apache-2.0 */
/* What is a range of addresses, and what is none. */
#include "../cmocka_all.h"

#include "base/cidr.h"

#include <string.h>
#include <sys/socket.h>

static void a_range_has_its_family_its_address_and_its_length(void **state)
{
	struct ha_cidr range;

	(void)state;
	assert_true(ha_cidr_parse("10.1.2.3/20", &range));
	assert_int_equal(range.family, AF_INET);
	assert_memory_equal(range.addr, ((uint8_t[]){10, 1, 2, 3}), 4);
	assert_int_equal(range.prefix_len, 20);
	assert_true(ha_cidr_parse("fd00:1::/32 ", &range));
	assert_int_equal(range.family, AF_INET6);
	assert_memory_equal(range.addr, ((uint8_t[]){0xfd, 0, 0, 1}), 4);
	assert_int_equal(range.prefix_len, 32);
}

static void an_address_by_itself_is_all_of_its_bits(void **state)
{
	struct ha_cidr range;

	(void)state;
	assert_true(ha_cidr_parse("10.1.2.3", &range));
	assert_int_equal(range.prefix_len, 32);
	assert_true(ha_cidr_parse("::1", &range));
	assert_int_equal(range.prefix_len, 128);
	assert_true(ha_cidr_parse("0.0.0.0/0", &range));
	assert_int_equal(range.prefix_len, 0);
}

static void what_is_none_changes_nothing(void **state)
{
	static const char *const none[] = {
	    "",
	    "/",
	    "/8",
	    "10.0.0.0/",
	    "10.0.0.0/33",
	    "10.0.0.0/-1",
	    "10.0.0.0/+8",
	    "10.0.0.0/ 8",
	    "10.0.0.0/8x",
	    "10.0.0.0/8/8",
	    "10.0.0",
	    "10.0.0.256",
	    "::1/129",
	    "::g",
	    "10.0.0.0/00000000008",
	    "fd00:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000/8"};
	const struct ha_cidr before = {.family = 77, .prefix_len = 7};

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
		struct ha_cidr range = before;

		if (ha_cidr_parse(none[i], &range))
			fail_msg("\"%s\" is taken for a range", none[i]);
		assert_memory_equal(&range, &before, sizeof(range));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_range_has_its_family_its_address_and_its_length),
	    cmocka_unit_test(an_address_by_itself_is_all_of_its_bits),
	    cmocka_unit_test(what_is_none_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
