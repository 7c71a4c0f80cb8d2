/* SPDX-License-Identifier: Apache-2.0 */
/* Which network interfaces go over the NICs that data goes over: on trees like sysfs. */
#include "../captured_log.h"
#include "../cmocka_all.h"
#include "../fake_verbs.h"

#include "device/netdev.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static struct ha_netif all[16];
static int n;

static int setup(void **state)
{
	(void)state;
	capture_log();
	fake_verbs_reset();
	n = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_verbs_done();
	return 0;
}

/* An interface with that type, 1 for Ethernet, and the PCI function `device`, or none. */
static void given(const char *name, const char *address, int type, const char *device)
{
	struct ha_netif *netif = &all[n++];
	char text[8], target[200], link[200];

	*netif = (struct ha_netif){.up = true};
	snprintf(netif->name, sizeof netif->name, "%s", name);
	netif->addr.sa.sa_family = strchr(address, ':') ? AF_INET6 : AF_INET;
	if (netif->addr.sa.sa_family == AF_INET6)
		assert_int_equal(inet_pton(AF_INET6, address, &netif->addr.in6.sin6_addr), 1);
	else
		assert_int_equal(inet_pton(AF_INET, address, &netif->addr.in.sin_addr), 1);
	snprintf(text, sizeof text, "%d\n", type);
	fake_sysfs_write(text, "class/net/%s/type", name);
	if (!device)
		return;
	fake_sysfs_write("0", "devices/%s/numa_node", device);
	snprintf(target, sizeof target, "%s/devices/%s", fake_sysfs, device);
	snprintf(link, sizeof link, "%s/class/net/%s/device", fake_sysfs, name);
	assert_int_equal(symlink(target, link), 0);
}

static void stands_on(const char *name, const char *lower)
{
	char link[200];

	snprintf(link, sizeof link, "%s/class/net/%s/lower_%s", fake_sysfs, name, lower);
	assert_int_equal(symlink("..", link), 0);
}

static void mark(void)
{
	struct ha_config config = {.ib_gid_index = -1,
				   .ib_roce_version_num = 2,
				   .ib_addr_family = AF_INET,
				   .ib_qps_per_connection = 1,
				   .expected_channels = 1,
				   .wr_per_conn = 64,
				   .max_recvs = 8};
	struct ha_device_set *set;
	char class_net[200];

	snprintf(class_net, sizeof class_net, "%s/class/net", fake_sysfs);
	assert_int_equal(ha_device_set_open(&config, &set), HA_OK);
	assert_true(set->nports > 0);
	ha_netdev_mark(set, class_net, all, n);
	ha_device_set_close(set);
}

static const struct ha_netif *find(const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(all[i].name, name))
			return &all[i];
	fail_msg("no interface %s", name);
	return NULL;
}

#define assert_fabric(name)	assert_true(find(name)->fabric)
#define assert_not_fabric(name) assert_false(find(name)->fabric)

static void interfaces_of_gids_and_of_the_pci_function_are_the_fabrics(void **state)
{
	(void)state;
	fake_device_add("mlx5_0");
	fake_sysfs_write("", "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0"); /* none */
	fake_sysfs_write("eth4\n", "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/1");
	fake_sysfs_write("eth4.7\n", "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/2");
	given("eno1", "192.168.0.1", 1, "pci0000:90/0000:90:00.0");
	given("eth4", "10.1.0.1", 1, NULL);
	given("eth4.7", "10.1.7.1", 1, NULL);
	given("eth5", "10.1.1.1", 1, NULL);
	given("lo", "127.0.0.1", 772, NULL);
	mark();
	assert_not_fabric("eno1");
	assert_fabric("eth4");
	assert_fabric("eth4.7");
	assert_not_fabric("eth5");
	assert_not_fabric("lo");
	assert_true(find("eno1")->physical);
	assert_false(find("eth5")->physical);
	assert_false(find("lo")->physical);
}

static void so_is_another_interface_of_its_pci_function(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	char link[200], pci[PATH_MAX];

	(void)state;
	snprintf(link, sizeof link, "%.150s/device", fake->device.ibdev_path);
	assert_non_null(realpath(link, pci));
	given("eth9", "10.9.0.1", 1, pci + strlen(fake_sysfs) + strlen("/devices/"));
	given("eth8", "10.8.0.1", 1, "pci0000:90/0000:90:00.1");
	mark();
	assert_fabric("eth9");
	assert_not_fabric("eth8");
}

static void so_is_ip_over_infiniband_and_what_has_the_address_of_a_gid(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");

	(void)state;
	fake_gid_set(&fake->ports[1], 3, "::ffff:10.7.0.9", 2);
	given("ib0", "10.1.0.1", 32, NULL);
	given("bond0", "10.7.0.9", 1, NULL);
	given("bond1", "10.7.0.8", 1, NULL);
	mark();
	assert_fabric("ib0");
	assert_fabric("bond0");
	assert_not_fabric("bond1");
}

static void so_is_what_stands_on_one_of_them(void **state)
{
	(void)state;
	fake_device_add("mlx5_0");
	fake_sysfs_write("eth4\n", "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0");
	given("eth4", "10.1.0.1", 1, NULL);
	given("bond0", "10.2.0.1", 1, NULL);
	given("br0", "10.3.0.1", 1, NULL);
	given("br1", "10.4.0.1", 1, NULL);
	given("eno1", "10.5.0.1", 1, "pci0000:90/0000:90:00.0");
	given("ib0.8001", "10.6.0.1", 32, NULL);
	given("team0", "10.7.0.1", 1, NULL);
	stands_on("bond0", "eth4");
	stands_on("br0", "bond0");
	stands_on("br1", "eno1");
	stands_on("team0", "ib0.8001");
	mark();
	assert_fabric("bond0");
	assert_fabric("br0");
	assert_fabric("team0");
	assert_not_fabric("br1");
	assert_true(find("br1")->physical);
	assert_false(find("bond0")->physical);
}

/* A loop that no kernel makes must not be the end of us. */
static void a_loop_ends(void **state)
{
	(void)state;
	fake_device_add("mlx5_0");
	given("a", "10.1.0.1", 1, NULL);
	given("b", "10.2.0.1", 1, NULL);
	stands_on("a", "b");
	stands_on("b", "a");
	mark();
	assert_not_fabric("a");
	assert_false(find("b")->physical);
}

/* A simulated device has interfaces of its own, which may have the names of the kernel's. */
static void names_of_another_sysfs_are_not_taken_for_the_kernels(void **state)
{
	struct ha_netif eth0 = {.name = "eth0", .up = true, .addr.sa.sa_family = AF_INET};
	struct ha_config config = {.ib_gid_index = -1,
				   .ib_roce_version_num = 2,
				   .ib_addr_family = AF_INET,
				   .ib_qps_per_connection = 1,
				   .expected_channels = 1,
				   .wr_per_conn = 64,
				   .max_recvs = 8};
	struct ha_device_set *set;

	(void)state;
	fake_device_add("sim0");
	fake_sysfs_write("eth0\n", "class/infiniband/sim0/ports/1/gid_attrs/ndevs/0");
	assert_int_equal(ha_device_set_open(&config, &set), HA_OK);
	ha_netdev_mark(set, HA_CLASS_NET, &eth0, 1);
	assert_false(eth0.fabric);
	fake_sysfs_write("1", "class/net/eth0/type"); /* now it has one */
	ha_netdev_mark(set, HA_CLASS_NET, &eth0, 1);
	assert_true(eth0.fabric);
	ha_device_set_close(set);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(interfaces_of_gids_and_of_the_pci_function_are_the_fabrics),
	    TEST(so_is_another_interface_of_its_pci_function),
	    TEST(so_is_ip_over_infiniband_and_what_has_the_address_of_a_gid),
	    TEST(so_is_what_stands_on_one_of_them),
	    TEST(a_loop_ends),
	    TEST(names_of_another_sysfs_are_not_taken_for_the_kernels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
