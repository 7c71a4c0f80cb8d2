/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts are one island, and what of HA_NCCL_ISLAND cannot be used. */
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "device/island.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[] = "/tmp/nccl-ha-islands-XXXXXX";

static int setup(void **state)
{
	(void)state;
	capture_log();
	return 0;
}

static bool same_in(const struct ha_islands *islands, const char *a, const char *b)
{
	union ibv_gid gid_a, gid_b;

	assert_int_equal(inet_pton(AF_INET6, a, gid_a.raw), 1);
	assert_int_equal(inet_pton(AF_INET6, b, gid_b.raw), 1);
	assert_int_equal(ha_islands_same(islands, &gid_a, &gid_b),
			 ha_islands_same(islands, &gid_b, &gid_a));
	return ha_islands_same(islands, &gid_a, &gid_b);
}

static bool same(const char *text, const char *a, const char *b)
{
	struct ha_islands *islands = ha_islands_load(text);
	bool is_same;

	assert_non_null(islands);
	is_same = same_in(islands, a, b);
	ha_islands_free(islands);
	return is_same;
}

/* HA_NCCL_ISLAND for a file of this text. */
static const char *file_of(const char *text)
{
	static char value[sizeof(path) + 1];
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	snprintf(value, sizeof(value), "@%s", path);
	return value;
}

static void by_default_it_is_24_bits_of_ipv4_and_64_of_ipv6(void **state)
{
	(void)state;
	assert_true(same("", "::ffff:10.0.0.1", "::ffff:10.0.0.254"));
	assert_false(same("", "::ffff:10.0.0.1", "::ffff:10.0.1.1"));
	assert_true(same("", "fd00:0:0:1::1", "fd00:0:0:1:ffff::2"));
	assert_false(same("", "fd00:0:0:1::1", "fd00:0:0:2::1"));
	assert_false(same("", "fd00:0:0:1::1", "::ffff:10.0.0.1"));
	assert_false(logged("cannot be used"));
}

static void a_number_is_bits_of_ipv4(void **state)
{
	(void)state;
	assert_true(same("16", "::ffff:10.0.0.1", "::ffff:10.0.200.1"));
	assert_false(same("30", "::ffff:10.0.0.1", "::ffff:10.0.0.4"));
	assert_true(same("30", "fd00:0:0:1::1", "fd00:0:0:1::2"));
	assert_false(logged("cannot be used"));
}

static void ranges_of_one_name_are_one_island_and_the_longest_counts(void **state)
{
	static const char list[] =
	    "10.0.0.0/8=far, 10.1.0.0/16=a,10.2.0.0/16=a,10.3.0.0/16=b,fd00::/16=a";
	(void)state;
	assert_true(same(list, "::ffff:10.1.0.1", "::ffff:10.2.0.1"));
	assert_true(same(list, "::ffff:10.1.0.1", "fd00::1"));
	assert_false(same(list, "::ffff:10.1.0.1", "::ffff:10.3.0.1"));
	assert_false(same(list, "::ffff:10.1.0.1", "::ffff:10.9.0.1"));
	assert_true(same(list, "::ffff:10.8.0.1", "::ffff:10.9.0.1"));
	assert_false(logged("cannot be used"));
}

static void an_address_of_no_range_is_an_island_of_its_own(void **state)
{
	(void)state;
	assert_false(same("10.1.0.0/16=a", "::ffff:10.2.0.1", "::ffff:10.2.0.2"));
	assert_false(same("10.1.0.0/16=a", "::ffff:10.2.0.1", "::ffff:10.1.0.1"));
	assert_true(same("10.1.0.0/16=a", "::ffff:10.2.0.1", "::ffff:10.2.0.1"));
}

static void a_file_has_a_range_and_a_name_in_each_line(void **state)
{
	const char *value = file_of("# two halls\n10.1.0.0/16 a # this one\n\n"
				    "\t10.2.0.0/16\ta\r\n10.3.0.0/16 b");

	(void)state;
	assert_true(same(value, "::ffff:10.1.0.1", "::ffff:10.2.0.1"));
	assert_false(same(value, "::ffff:10.1.0.1", "::ffff:10.3.0.1"));
	assert_false(logged("cannot be used"));
	unlink(path);
}

/* One WARN with the reason, and islands as by default. */
static void expect_refused(const char *value, const char *why)
{
	capture_log();
	if (!same(value, "::ffff:10.0.0.1", "::ffff:10.0.0.254") ||
	    same(value, "::ffff:10.0.0.1", "::ffff:10.0.1.1"))
		fail_msg("HA_NCCL_ISLAND=%s: not as by default", value);
	if (!logged("cannot be used") || !logged(why))
		fail_msg("HA_NCCL_ISLAND=%s: no word of \"%s\"", value, why);
}

static void what_cannot_be_used_is_a_warning_and_the_default(void **state)
{
	(void)state;
	expect_refused("0", "1 to 32");
	expect_refused("33", "1 to 32");
	expect_refused("99999999999999999999", "1 to 32");
	expect_refused("10.0.0.0/8", "RANGE=NAME");
	expect_refused("10.0.0.0/8=a,10.0.0.0/40=b", "10.0.0.0/40");
	expect_refused("10.0.0.0/8=", "name");
	expect_refused("10.0.0.0/8=a_name_that_is_longer_than_any_name_needs_to_be", "name");
	expect_refused(",", "nothing");
	expect_refused("@", "cannot be read");
	expect_refused("@/nowhere/islands", "cannot be read");
	expect_refused("@/", "not a file");
	expect_refused("@/dev/zero", "not a file");
}

static void a_file_that_cannot_be_used_is_a_warning_with_the_line(void **state)
{
	static const struct {
		const char *text, *why;
	} files[] = {
	    {"", "nothing"},
	    {"# nothing\n", "nothing"},
	    {"10.0.0.0/8 a\n10.0.0.0/8\n", "line 2: 10.0.0.0/8 has no name"},
	    {"\n10.0.0.0/8 a b\n", "line 2: it is RANGE NAME"},
	    {"ten a\n", "line 1: \"ten\""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		expect_refused(file_of(files[i].text), files[i].why);
		unlink(path);
	}
}

static void a_pipe_is_not_waited_for(void **state)
{
	const char *value = file_of("");

	(void)state;
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	expect_refused(value, "not a file");
	unlink(path);
}

static void there_is_an_end_to_ranges(void **state)
{
	static char text[(HA_ISLANDS_MAX + 1) * 20];
	size_t used = 0;

	(void)state;
	for (unsigned i = 0; i <= HA_ISLANDS_MAX; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "9.%u.%u.0/24 a\n",
					 i / 256, i % 256);
	expect_refused(file_of(text), "more than 4096");
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(by_default_it_is_24_bits_of_ipv4_and_64_of_ipv6, setup),
	    cmocka_unit_test_setup(a_number_is_bits_of_ipv4, setup),
	    cmocka_unit_test_setup(ranges_of_one_name_are_one_island_and_the_longest_counts, setup),
	    cmocka_unit_test_setup(an_address_of_no_range_is_an_island_of_its_own, setup),
	    cmocka_unit_test_setup(a_file_has_a_range_and_a_name_in_each_line, setup),
	    cmocka_unit_test_setup(what_cannot_be_used_is_a_warning_and_the_default, setup),
	    cmocka_unit_test_setup(a_file_that_cannot_be_used_is_a_warning_with_the_line, setup),
	    cmocka_unit_test_setup(a_pipe_is_not_waited_for, setup),
	    cmocka_unit_test_setup(there_is_an_end_to_ranges, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
