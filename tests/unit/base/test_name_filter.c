/* SPDX-License-Identifier: Apache-2.0 */
/* The filter language, each row a rule of it. */
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "base/name_filter.h"
#include "base/text.h"

static bool passes(const char *spec, const char *name, int port)
{
	struct ha_name_filter filter;

	ha_name_filter_parse(&filter, "TEST", spec);
	return ha_name_filter_passes(&filter, name, port);
}

static void rules_of_the_language_hold(void **state)
{
	static const struct {
		const char *spec, *name;
		int port;
		bool expected;
	} cases[] = {
	    {"", "a", 1, true},
	    {"mlx5", "mlx5_0", 1, true},
	    {"mlx5", "mlx", 1, false},
	    {"=mlx5", "mlx5_0", 1, false},
	    {"=mlx5_0", "mlx5_0", 1, true},
	    {"^mlx5", "mlx5_0", 1, false},
	    {"^mlx5", "bnxt", 1, true},
	    {"^=mlx5", "mlx5_0", 1, true},
	    {"a,b,c", "b1", 1, true},
	    {"a,b,c", "d", 1, false},
	    {"a:2", "a", 1, false},
	    {"a:2", "a", 2, true},
	    {"a:2", "a", HA_FILTER_ANY_PORT, true},
	    {"^a:2", "a", 1, true},
	    {"^a:2", "a", 2, false},
	    {"a:1,a:2", "a", 2, true},
	    {" a , b ", "b", 1, true},
	    {"^", "a", 1, true},
	    {"=", "a", 1, true},
	    {"a:255", "a", 255, true},
	    {"a:1:0", "a", 1, true},
	    {"a:1:0", "a", 2, false},
	    {"=a:1:3:0,b:1:4:0", "b", 1, true},
	    {"a::3", "a", 7, true},
	    {"a:", "a", 7, true},
	    {"^a:2:3:1", "a", 1, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		if (passes(cases[i].spec, cases[i].name, cases[i].port) != cases[i].expected)
			fail_msg("\"%s\" with %s:%d", cases[i].spec, cases[i].name, cases[i].port);
}

static void nonsense_is_said_once_and_matches_nothing(void **state)
{
	static const char *const specs[] = {
	    "a:0",	   "a:256", "a:-1", "a:1:x", "a:1:-1", "a:1:1:1:1",   "a:1:32768",
	    "a:1:1:32768", ":1",    ":",    "a:1x",  "a:0x1",  "a:9999999999"};

	(void)state;
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		capture_log();
		assert_false(passes(specs[i], "a", 1));
		assert_int_equal(captured_warnings, 1);
		assert_true(logged("TEST: "));
	}
	capture_log();
	assert_false(passes("a:x,b:y,c:z", "a", 1));
	assert_int_equal(captured_warnings, 1);
	assert_true(passes("^a:x", "a", 1));
}

static void the_first_item_that_matches_has_rail_and_plane(void **state)
{
	static const struct {
		const char *spec, *name;
		int port, rail, plane;
	} cases[] = {
	    {"=a:1:3:2", "a", 1, 3, 2},
	    {"=a:1:32767", "a", 1, 32767, HA_FILTER_UNSAID},
	    {"a::0:1", "a_0", 2, 0, 1},
	    {"a:1::1", "a", 1, HA_FILTER_UNSAID, 1},
	    {"a:1:4,a:2:5,a", "a", 2, 5, HA_FILTER_UNSAID},
	    {"a:1:4,a", "a", 2, HA_FILTER_UNSAID, HA_FILTER_UNSAID},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ha_name_filter filter;
		int found;

		ha_name_filter_parse(&filter, "TEST", cases[i].spec);
		found = ha_name_filter_find(&filter, cases[i].name, cases[i].port);
		assert_true(found >= 0);
		assert_int_equal(filter.items[found].rail, cases[i].rail);
		assert_int_equal(filter.items[found].plane, cases[i].plane);
		assert_int_equal(ha_name_filter_find(&filter, "other", 1), -1);
	}
}

static void long_names_and_long_lists_are_bounded(void **state)
{
	char spec[4096], name[200];
	size_t used = 0;

	(void)state;
	capture_log();
	memset(name, 'n', sizeof name);
	name[sizeof name - 1] = '\0';
	assert_false(passes(name, name, 1));
	assert_true(captured_length < 400);
	for (int i = 0; i < HA_FILTER_MAX_ITEMS + 10; i++)
		used += (size_t)snprintf(spec + used, sizeof spec - used, "d%03d,", i);
	capture_log();
	assert_true(passes(spec, "d000", 1));
	assert_true(passes(spec, "d063", 1));
	assert_false(passes(spec, "d064", 1));
	assert_true(captured_warnings > 0);
}

static void control_characters_do_not_reach_the_log(void **state)
{
	(void)state;
	capture_log();
	assert_false(passes("a:\nNET/HA : fine\x1b[0m", "a", 1));
	assert_null(strstr(captured_log, "\nNET/HA : fine"));
	assert_null(strchr(captured_log, '\x1b'));
}

static void printable_text_is_cut_only_where_it_does_not_fit(void **state)
{
	char buf[8];

	(void)state;
	assert_string_equal(ha_printable("", 9, buf, sizeof buf), "");
	assert_string_equal(ha_printable("1234567", 99, buf, sizeof buf), "1234567");
	assert_string_equal(ha_printable("12345678", 99, buf, sizeof buf), "1234...");
	assert_string_equal(ha_printable("12345678", 7, buf, sizeof buf), "1234567");
	assert_string_equal(ha_printable("12345678", 8, buf, sizeof buf), "1234...");
	assert_string_equal(ha_printable("a\nb\x7f", SIZE_MAX, buf, sizeof buf), "a?b?");
	assert_string_equal(ha_printable("\xc3\xa9", 2, buf, sizeof buf), "\xc3\xa9");
	/* Controls beyond ASCII, in UTF-8 and without; what is no UTF-8; and what is. */
	assert_string_equal(ha_printable("\xc2\x9b"
					 "2J",
					 9, buf, sizeof buf),
			    "??2J");
	assert_string_equal(ha_printable("\x9b"
					 "2J",
					 9, buf, sizeof buf),
			    "?2J");
	assert_string_equal(ha_printable("\xc2\xa0\xc4\x84", 9, buf, sizeof buf),
			    "\xc2\xa0\xc4\x84");
	assert_string_equal(ha_printable("\xc3\xa9", 1, buf, sizeof buf), "?");
	assert_string_equal(ha_printable("\xe2\x82\xac", 9, buf, sizeof buf), "\xe2\x82\xac");
	assert_string_equal(ha_printable("\xf0\x9f\x98\x80", 9, buf, sizeof buf),
			    "\xf0\x9f\x98\x80");
	assert_string_equal(ha_printable("\xc0\x80\xed\xa0\x80", 9, buf, sizeof buf), "?????");
	assert_string_equal(ha_printable("\xf4\x90\x80\x80\xff", 9, buf, sizeof buf), "?????");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rules_of_the_language_hold),
	    cmocka_unit_test(nonsense_is_said_once_and_matches_nothing),
	    cmocka_unit_test(the_first_item_that_matches_has_rail_and_plane),
	    cmocka_unit_test(long_names_and_long_lists_are_bounded),
	    cmocka_unit_test(printable_text_is_cut_only_where_it_does_not_fit),
	    cmocka_unit_test(control_characters_do_not_reach_the_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
