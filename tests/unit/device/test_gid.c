/* SPDX-License-Identifier: Apache-2.0 */
/* Reading GID tables both ways, and which entry the preferences choose. */
#include "../captured_log.h"
#include "../cmocka_all.h"
#include "../fake_verbs.h"

#include "device/gid.h"
#include "device/sysfs.h"

#include <arpa/inet.h>
#include <stdlib.h>

static int setup(void **state)
{
	(void)state;
	capture_log();
	fake_verbs_reset();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_verbs_done();
	return 0;
}

static struct ha_config preferring(int family, int version, const char *range)
{
	struct ha_config config = {.ib_addr_family = family, .ib_roce_version_num = version};
	const char *slash = range ? strchr(range, '/') : NULL;
	char address[64];

	if (slash) {
		snprintf(address, sizeof address, "%.*s", (int)(slash - range), range);
		config.ib_addr_range.family = strchr(address, ':') ? AF_INET6 : AF_INET;
		config.ib_addr_range.prefix_len = (int)strtol(slash + 1, NULL, 10);
		assert_int_equal(
		    inet_pton(config.ib_addr_range.family, address, config.ib_addr_range.addr), 1);
	}
	return config;
}

/* The usual table of an mlx5 port with an IPv4 and an IPv6 address. */
static const struct {
	const char *address;
	int version;
} table[] = {
    {"fe80::1", 1},   {"fe80::1", 2},	{"::ffff:10.1.2.3", 1},	   {"::ffff:10.1.2.3", 2},
    {"fd00:1::3", 1}, {"fd00:1::3", 2}, {"::ffff:192.168.7.3", 1}, {"::ffff:192.168.7.3", 2},
};

static int chosen(struct ha_config config)
{
	struct ha_gid gids[8] = {0};

	for (int i = 0; i < 8; i++) {
		inet_pton(AF_INET6, table[i].address, gids[i].raw.raw);
		gids[i].index = i;
		gids[i].roce_version = table[i].version;
	}
	return ha_gid_choose(&config, gids, 8, -1);
}

static void default_preference_is_ipv4_over_roce_v2(void **state)
{
	(void)state;
	assert_int_equal(chosen(preferring(AF_INET, 2, NULL)), 3);
}

static void version_and_family_are_honoured(void **state)
{
	(void)state;
	assert_int_equal(chosen(preferring(AF_INET, 1, NULL)), 2);
	assert_int_equal(chosen(preferring(AF_INET6, 2, NULL)), 5);
	assert_int_equal(chosen(preferring(AF_INET6, 1, NULL)), 4);
}

static void address_range_outweighs_family_and_version(void **state)
{
	(void)state;
	assert_int_equal(chosen(preferring(AF_INET, 2, "192.168.0.0/16")), 7);
	assert_int_equal(chosen(preferring(AF_INET, 1, "192.168.7.3/32")), 6);
	assert_int_equal(chosen(preferring(AF_INET, 2, "fd00:1::/32")), 5);
	assert_int_equal(chosen(preferring(AF_INET, 2, "0.0.0.0/0")), 3);
	/* Nothing there: as without a range. */
	assert_int_equal(chosen(preferring(AF_INET, 2, "172.16.0.0/12")), 3);
}

static void prefix_lengths_that_are_no_multiple_of_8_work(void **state)
{
	(void)state;
	assert_int_equal(chosen(preferring(AF_INET, 2, "192.168.6.0/23")), 7);
	assert_int_equal(chosen(preferring(AF_INET, 2, "192.168.8.0/23")), 3);
	assert_int_equal(chosen(preferring(AF_INET, 2, "128.0.0.0/1")), 7);
}

static void link_local_is_the_last_resort(void **state)
{
	struct ha_config config = preferring(AF_INET6, 2, NULL);
	struct ha_gid gids[2] = {{.index = 4, .roce_version = 2}, {.index = 9, .roce_version = 2}};

	(void)state;
	inet_pton(AF_INET6, "fe80::1", gids[0].raw.raw);
	inet_pton(AF_INET6, "fd00::1", gids[1].raw.raw);
	assert_int_equal(ha_gid_choose(&config, gids, 2, -1), 1);
	assert_int_equal(ha_gid_choose(&config, gids, 1, -1), 0);
	assert_int_equal(ha_gid_choose(&config, gids, 0, -1), -1);
}

static void check_table(struct fake_device *device, int expected)
{
	struct ha_gid gids[FAKE_MAX_GIDS];
	int n = ha_gid_table(&device->ctx, 2, FAKE_MAX_GIDS, gids, FAKE_MAX_GIDS);
	char text[HA_GID_TEXT_MAX];

	assert_int_equal(n, expected);
	for (int i = 1; i < n; i++)
		assert_true(gids[i].index > gids[i - 1].index);
	assert_int_equal(gids[3].index, 3);
	assert_int_equal(gids[3].roce_version, 2);
	assert_int_equal(gids[2].roce_version, 1);
	assert_string_equal(ha_gid_text(&gids[3].raw, text, sizeof text), "::ffff:10.0.1.1");
}

static void table_is_read_in_one_call_of_one_port_and_in_order(void **state)
{
	struct fake_device *device = fake_device_add("mlx5_0");

	(void)state;
	device->attr.phys_port_cnt = 2;
	fake_gid_set(&device->ports[2], 7, "fe80::", 2); /* a default entry without an address */
	check_table(device, 4);
}

static void table_is_read_entry_by_entry_with_types_from_sysfs(void **state)
{
	struct fake_device *device = fake_device_add("mlx5_0");

	(void)state;
	device->attr.phys_port_cnt = 2;
	device->no_gid_table_call = true;
	for (int i = 0; i < 4; i++)
		fake_sysfs_write(i % 2 ? "RoCE v2" : "IB/RoCE v1",
				 "class/infiniband/mlx5_0/ports/2/gid_attrs/types/%d", i);
	check_table(device, 4);
}

static void unreadable_type_is_unknown_not_a_version(void **state)
{
	(void)state;
	fake_sysfs_write("RoCE v3", "class/infiniband/x/ports/1/gid_attrs/types/0");
	assert_int_equal(ha_sysfs_roce_version("/nonexistent/class/infiniband/x", 1, 0), 0);
	char path[300];
	snprintf(path, sizeof path, "%s/class/infiniband/x", fake_sysfs);
	assert_int_equal(ha_sysfs_roce_version(path, 1, 0), 0);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(default_preference_is_ipv4_over_roce_v2),
	    TEST(version_and_family_are_honoured),
	    TEST(address_range_outweighs_family_and_version),
	    TEST(prefix_lengths_that_are_no_multiple_of_8_work),
	    TEST(link_local_is_the_last_resort),
	    TEST(table_is_read_in_one_call_of_one_port_and_in_order),
	    TEST(table_is_read_entry_by_entry_with_types_from_sysfs),
	    TEST(unreadable_type_is_unknown_not_a_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
