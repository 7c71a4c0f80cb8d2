/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery in processes on a live simverbs fabric: what is reported is what the fabric's
 * sysfs-like tree says, and links and devices that fail under a process are noticed.
 */
#include "../unit/cmocka_all.h"
#include "../unit/read_events.h"
#include "pair.h"

#include "base/clock.h"
#include "device/device.h"
#include "device/sysfs.h"
#include "memory/mr.h"
#include "memory/pd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ha_device_set *discovered(void)
{
	static struct ha_config config;
	struct ha_device_set *set;

	ha_config_load(&config, NULL);
	NEED(ha_device_set_open(&config, &set) == HA_OK);
	return set;
}

static void say(int test_fd, char byte)
{
	NEED(write(test_fd, &byte, 1) == 1);
}

static void hear(int test_fd)
{
	char byte;

	NEED(read(test_fd, &byte, 1) == 1);
}

/* Reads events until the condition holds, as the progress thread would; false after 10 s. */
static bool events_until(struct ha_device_set *set, struct ha_nic *nic,
			 bool (*condition)(const struct ha_device_set *set))
{
	uint64_t deadline = ha_now_ns() + 10 * HA_NS_PER_S;

	while (!condition(set)) {
		struct pollfd fd = {.fd = nic->now->ctx->async_fd, .events = POLLIN};

		if (ha_now_ns() > deadline)
			return false;
		poll(&fd, 1, 100);
		read_events(set, nic);
	}
	return true;
}

static bool port_0_down(const struct ha_device_set *set)
{
	return atomic_load(&set->ports[0].state) == IBV_PORT_DOWN;
}

static bool port_0_active(const struct ha_device_set *set)
{
	return atomic_load(&set->ports[0].state) == IBV_PORT_ACTIVE;
}

static bool nic_0_fatal(const struct ha_device_set *set)
{
	return atomic_load(&set->nics[0].fatal);
}

/* ---- what is reported is what sysfs says ---------------------------------------------------- */

static void compare_with_sysfs(const struct ha_port *port)
{
	const char *path = port->nic->now->ctx->device->ibdev_path;
	char name[64], text[128], own[INET6_ADDRSTRLEN];
	union ibv_gid gid;

	NEED(ha_sysfs_read(path, "ports/1/rate", text, sizeof text));
	NEED((int)(strtod(text, NULL) * 1000) == port->speed_mbps); /* "400 Gb/sec (4X NDR)" */
	snprintf(name, sizeof name, "ports/1/gids/%d", port->gid_index);
	NEED(ha_sysfs_read(path, name, text, sizeof text));
	NEED(inet_pton(AF_INET6, text, gid.raw) == 1);
	NEED(inet_ntop(AF_INET6, port->gid.raw, own, sizeof own));
	NEED(memcmp(&gid, &port->gid, sizeof gid) == 0);
	NEED(ha_sysfs_roce_version(path, 1, port->gid_index) == port->roce_version);
	NEED(ha_sysfs_read(path, "device/numa_node", text, sizeof text));
	NEED(strtol(text, NULL, 10) == port->nic->numa_node);
	NEED(port->nic->pci_path[0] == '/');
	/* The PCI device is the one that this RDMA device hangs from. */
	snprintf(name, sizeof name, "infiniband/%.40s/node_guid", port->nic->name);
	NEED(ha_sysfs_read(port->nic->pci_path, name, text, sizeof text));
}

static int report_host(int peer_fd, int test_fd, void *arg)
{
	struct ha_device_set *set = discovered();

	(void)peer_fd, (void)test_fd, (void)arg;
	NEED(set->nports == 3);
	for (int i = 0; i < set->nports; i++) {
		compare_with_sysfs(&set->ports[i]);
		for (int j = 0; j < i; j++) {
			NEED(strcmp(set->ports[i].nic->pci_path, set->ports[j].nic->pci_path) != 0);
			NEED(set->ports[i].nic->guid != set->ports[j].nic->guid);
		}
		/* A module of this machine's kernel says nothing about a device not in it. */
		NEED(!(ha_nic_ptr_support(set->ports[i].nic) & HA_PTR_CUDA));
	}
	ha_device_set_close(set);
	return 0;
}

static void properties_agree_with_sysfs(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 3");
	pair_start(&pair, report_host, report_host, NULL);
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	assert_int_equal(pair_join(&pair, 1, 20), 0);
	fabric_down();
}

/* ---- links and devices that fail ------------------------------------------------------------ */

static int flapping_host(int peer_fd, int test_fd, void *arg)
{
	struct ha_device_set *set = discovered();

	(void)peer_fd, (void)arg;
	say(test_fd, 'r');
	NEED(events_until(set, &set->nics[0], port_0_down));
	NEED(atomic_load(&set->ports[1].state) == IBV_PORT_ACTIVE);
	say(test_fd, 'd');
	NEED(events_until(set, &set->nics[0], port_0_active));
	say(test_fd, 'u');
	hear(test_fd);
	ha_device_set_close(set);
	return 0;
}

static int undisturbed_host(int peer_fd, int test_fd, void *arg)
{
	struct ha_device_set *set = discovered();

	(void)peer_fd, (void)arg;
	say(test_fd, 'r');
	hear(test_fd);
	NEED(read_events(set, &set->nics[0]) == 0);
	NEED(port_0_active(set));
	NEED(!nic_0_fatal(set));
	ha_device_set_close(set);
	return 0;
}

static void a_link_that_goes_is_seen_by_its_own_host_only(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, flapping_host, undisturbed_host, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	assert_int_equal(fabric_tool("link %s 0 0 down", fabric_name()), 0);
	assert_int_equal(pair_wait_byte(&pair, 0), 'd');
	assert_int_equal(fabric_tool("link %s 0 0 up", fabric_name()), 0);
	assert_int_equal(pair_wait_byte(&pair, 0), 'u');
	pair_send_byte(&pair, 0, 'x');
	pair_send_byte(&pair, 1, 'x');
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	assert_int_equal(pair_join(&pair, 1, 20), 0);
	fabric_down();
}

static int dying_host(int peer_fd, int test_fd, void *arg)
{
	static char memory[100000];
	struct ha_device_set *set = discovered();
	struct ibv_mr *verbs_mr;
	struct ha_mr *mr;

	(void)peer_fd, (void)arg;
	NEED(ha_mr_register(set, &set->nics[0], memory, sizeof memory, HA_MEM_HOST, 0, -1, &mr) ==
	     HA_OK);
	say(test_fd, 'r');
	NEED(events_until(set, &set->nics[0], nic_0_fatal));
	NEED(!atomic_load(&set->nics[1].fatal));
	/* The buffer follows to the NIC that is left, and everything can be given back. */
	NEED(ha_mr_on(mr, &set->nics[1], &verbs_mr) == HA_OK);
	ha_mr_deregister(mr);
	ha_memory_close(set);
	ha_device_set_close(set);
	return 0;
}

static void a_device_that_dies_is_fatal_and_the_other_takes_the_memory(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, dying_host, undisturbed_host, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	assert_int_equal(fabric_tool("device %s 0 0 kill", fabric_name()), 0);
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	pair_send_byte(&pair, 1, 'x');
	assert_int_equal(pair_join(&pair, 1, 20), 0);
	fabric_down();
}

static int port_down_host(int peer_fd, int test_fd, void *arg)
{
	struct ha_device_set *set = discovered();

	(void)peer_fd, (void)test_fd, (void)arg;
	NEED(set->nports == 1);
	NEED(strcmp(set->ports[0].nic->name, "sim1") == 0);
	/* Kept, for it may come up. */
	NEED(set->nports_all == 2);
	NEED(strcmp(set->ports[1].nic->name, "sim0") == 0);
	NEED(!ha_port_usable(&set->ports[1]));
	ha_device_set_close(set);
	return 0;
}

static int both_ports_host(int peer_fd, int test_fd, void *arg)
{
	struct ha_device_set *set = discovered();

	(void)peer_fd, (void)test_fd, (void)arg;
	NEED(set->nports == 2);
	ha_device_set_close(set);
	return 0;
}

static void a_port_that_is_down_at_the_start_is_not_reported(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	assert_int_equal(fabric_tool("link %s 0 0 down", fabric_name()), 0);
	pair_start(&pair, port_down_host, both_ports_host, NULL);
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	assert_int_equal(pair_join(&pair, 1, 20), 0);
	fabric_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(properties_agree_with_sysfs),
	    cmocka_unit_test(a_link_that_goes_is_seen_by_its_own_host_only),
	    cmocka_unit_test(a_device_that_dies_is_fatal_and_the_other_takes_the_memory),
	    cmocka_unit_test(a_port_that_is_down_at_the_start_is_not_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
