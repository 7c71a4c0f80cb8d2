/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery against devices that are made up: which are used, in which order, what is said of
 * them and why others are left out; events and refreshed addresses.
 */
#include "../captured_log.h"
#include "../cmocka_all.h"
#include "../fake_verbs.h"
#include "../read_events.h"

#include "device/address.h"
#include "device/device.h"
#include "device/gid.h"
#include "device/partition.h"
#include "device/rank.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

static struct ha_config config;

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static int setup(void **state)
{
	(void)state;
	fake_verbs_reset();
	capture_log();
	ha_config_load(&config, no_env);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < fake_ndevices; i++) {
		assert_int_equal(fake_devices[i].opens, fake_devices[i].closes);
		assert_int_equal(fake_devices[i].pds, 0);
		assert_int_equal(fake_devices[i].regs, fake_devices[i].deregs);
	}
	fake_verbs_done();
	return 0;
}

static struct ha_device_set *discovered(void)
{
	struct ha_device_set *set;

	assert_int_equal(ha_device_set_open(&config, &set), HA_OK);
	assert_non_null(set);
	return set;
}

/* "mlx5_0:1 mlx5_1:1": what discovery found. */
static const char *names(const struct ha_device_set *set)
{
	static char text[1024];
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < set->nports; i++)
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%d", i ? " " : "",
					 set->ports[i].nic->name, set->ports[i].port_num);
	return text;
}

static void expect_devices(const char *hca, const char *expected)
{
	struct ha_device_set *set;

	snprintf(config.ib_hca, sizeof config.ib_hca, "%s", hca);
	set = discovered();
	assert_string_equal(names(set), expected);
	ha_device_set_close(set);
}

static void properties_are_what_device_and_sysfs_say(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set;
	struct ha_port_addr addr;
	char expected[512];

	(void)state;
	fake_sysfs_write("1", "devices/pci0000:10/0000:10:00.0/numa_node");
	fake->ports[1].attr.lid = 77;
	set = discovered();
	assert_int_equal(set->nnics, 1);
	assert_int_equal(set->nports, 1);
	assert_string_equal(set->nics[0].name, "mlx5_0");
	snprintf(expected, sizeof expected, "%s/devices/pci0000:10/0000:10:00.0", fake_sysfs);
	assert_string_equal(set->nics[0].pci_path, expected);
	assert_int_equal(set->nics[0].numa_node, 1);
	assert_int_equal(set->nics[0].guid, 0x1001);
	assert_int_equal(set->ports[0].index, 0);
	assert_int_equal(set->ports[0].speed_mbps, 400000);
	assert_int_equal(set->ports[0].max_comms, 256);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_ACTIVE);
	ha_port_addr(&set->ports[0], &addr);
	assert_int_equal(addr.gid_index, 3);
	assert_memory_equal(&addr.gid, &fake->ports[1].gids[3].gid, 16);
	assert_int_equal(addr.lid, 77);
	assert_int_equal(addr.mtu, IBV_MTU_4096);
	assert_true(logged("mlx5_0:1 RoCE 400000 Mb/s"));
	assert_true(logged("maxComms 256"));
	assert_true(logged("2047 by 131071 queue pairs at 4"));
	assert_true(logged("queue pairs are the scarcest"));
	ha_device_set_close(set);
}

static void a_device_whose_queues_are_too_short_is_left_out(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_device_add("mlx5_0")->attr.max_cqe = 100;
	fake_device_add("mlx5_1")->attr.max_qp_wr = 20;
	fake_device_add("mlx5_2")->attr.max_cqe = 200;
	set = discovered();
	assert_string_equal(names(set), "mlx5_2:1");
	assert_true(logged("mlx5_0:1 is not used: completion queues"));
	assert_true(
	    logged("mlx5_1:1 is not used: queues of a device that are too short (max_qp_wr)"));
	ha_device_set_close(set);
}

static void devices_come_in_the_order_of_their_numbers(void **state)
{
	(void)state;
	fake_device_add("mlx5_10");
	fake_device_add("mlx5_2");
	fake_device_add("mlx5_1");
	expect_devices("", "mlx5_1:1 mlx5_2:1 mlx5_10:1");
}

static void hca_filter_takes_prefixes_names_ports_and_exclusions(void **state)
{
	(void)state;
	fake_device_add("mlx5_1")->attr.phys_port_cnt = 2;
	fake_device_add("mlx5_10");
	fake_device_add("bnxt_re0");
	expect_devices("mlx5", "mlx5_1:1 mlx5_1:2 mlx5_10:1");
	expect_devices("mlx5_1", "mlx5_1:1 mlx5_1:2 mlx5_10:1");
	expect_devices("=mlx5_1", "mlx5_1:1 mlx5_1:2");
	expect_devices("=mlx5_1:2,bnxt_re0", "bnxt_re0:1 mlx5_1:2");
	expect_devices("^mlx5_1", "bnxt_re0:1");
	expect_devices("^=mlx5_1", "bnxt_re0:1 mlx5_10:1");
	expect_devices("^=mlx5_1:1", "bnxt_re0:1 mlx5_1:2 mlx5_10:1");
	expect_devices("mlx5:2", "mlx5_1:2");
	expect_devices("nothing", "");
	assert_true(logged("no usable RDMA port among 3 devices with NCCL_IB_HCA=nothing"));
}

static void nonsense_in_the_filter_is_named_and_takes_no_device(void **state)
{
	(void)state;
	fake_device_add("mlx5_0");
	expect_devices("mlx5_0:x", "");
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("NCCL_IB_HCA: \"mlx5_0:x\""));
	expect_devices("mlx5_0:999999999999", "");
	expect_devices(":1", "");
	expect_devices("bad:0,mlx5_0", "mlx5_0:1");
	expect_devices(",,,", "mlx5_0:1"); /* no name at all is no filter */
	expect_devices("^", "mlx5_0:1");
}

static void ib_disable_uses_no_device(void **state)
{
	(void)state;
	fake_device_add("mlx5_0");
	config.ib_disable = true;
	expect_devices("", "");
	assert_int_equal(fake_devices[0].opens, 0);
	assert_true(logged("NCCL_IB_DISABLE=1"));
}

static void what_cannot_be_used_is_left_out_with_its_reason(void **state)
{
	(void)state;
	fake_device_add("down")->ports[1].attr.state = IBV_PORT_DOWN;
	fake_device_add("iwarp")->device.transport_type = IBV_TRANSPORT_IWARP;
	fake_device_add("locked")->open_errno = EACCES;
	fake_device_add("broken")->ports[1].query_error = EIO;
	fake_device_add("mute");
	memset(fake_devices[4].ports[1].gids, 0, sizeof fake_devices[4].ports[1].gids);
	fake_device_add("opa")->ports[1].attr.link_layer = 99;
	fake_device_add("good");
	expect_devices("", "good:1");
	assert_true(logged("down:1 is down: not used, but it may stand in"));
	assert_true(logged("iwarp is not used: neither InfiniBand nor RoCE"));
	assert_true(logged("locked: cannot be opened: Permission denied"));
	assert_true(logged("broken:1 is not used: Input/output error"));
	assert_true(logged("mute:1: no GID"));
	assert_true(logged("opa:1 is not used: link layer"));
}

/* Of the device that is asked: so often in a row it has no memory for it. */
static struct fake_port *short_of_memory;
static int refusals_left;

static void refuses_for_a_while(void)
{
	short_of_memory->query_error = refusals_left-- > 0 ? ENOMEM : 0;
}

static void a_port_that_cannot_be_asked_for_a_moment_is_asked_again(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_device_add("mlx5_0");
	short_of_memory = &fake_device_add("mlx5_1")->ports[1];
	short_of_memory->queried = refuses_for_a_while;
	refusals_left = 2;
	set = discovered();
	assert_string_equal(names(set), "mlx5_0:1 mlx5_1:1");
	assert_int_equal(refusals_left, -1);
	refusals_left = 2;
	assert_int_equal(ha_port_refresh(&set->ports[1]), HA_OK);
	assert_int_equal(refusals_left, -1);
	assert_true(logged("mlx5_1:1: ibv_query_port is refused: Cannot allocate memory; the "
			   "device is asked again"));
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
	/* Not for ever: who starts waits for it. */
	refusals_left = 3;
	set = discovered();
	assert_string_equal(names(set), "mlx5_0:1");
	assert_int_equal(refusals_left, 0);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("mlx5_1:1: cannot read the port's state: Cannot allocate memory"));
	assert_true(logged("mlx5_1:1 is not used: Cannot allocate memory"));
	ha_device_set_close(set);
}

static void a_device_that_cannot_be_opened_for_a_moment_is_asked_again(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_device_add("mlx5_0");
	fake_device_add("mlx5_1")->open_refusals = 2;
	set = discovered();
	assert_string_equal(names(set), "mlx5_0:1 mlx5_1:1");
	assert_int_equal(captured_warnings, 0);
	assert_true(logged("mlx5_1: ibv_open_device is refused: Cannot allocate memory; the device "
			   "is asked again"));
	ha_device_set_close(set);
	fake_devices[1].open_refusals = 3;
	set = discovered();
	assert_string_equal(names(set), "mlx5_0:1");
	assert_int_equal(fake_devices[1].open_refusals, 0);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("mlx5_1: cannot be opened: Cannot allocate memory"));
	ha_device_set_close(set);
}

static void ports_that_are_down_follow_the_others_and_are_not_reported(void **state)
{
	struct fake_device *fake;
	struct ha_device_set *set;

	(void)state;
	fake_device_add("a")->ports[1].attr.state = IBV_PORT_DOWN;
	fake = fake_device_add("b");
	fake->attr.phys_port_cnt = 2;
	fake->ports[1].attr.state = IBV_PORT_INIT;
	fake_device_add("c");
	set = discovered();
	assert_string_equal(names(set), "b:2 c:1");
	assert_int_equal(set->nnics, 3);
	assert_int_equal(set->nports_all, 4);
	assert_string_equal(set->ports[2].nic->name, "a");
	assert_string_equal(set->ports[3].nic->name, "b");
	assert_int_equal(set->ports[3].port_num, 1);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(set->ports[i].index, i);
		assert_int_equal(set->ports[i].was_up, i < 2);
		assert_int_equal(ha_port_usable(&set->ports[i]), i < 2);
	}
	ha_device_set_close(set);
	/* Without standby paths they have no use. */
	config.enable_backup = false;
	set = discovered();
	assert_int_equal(set->nnics, 2);
	assert_int_equal(set->nports_all, 2);
	assert_true(logged("a:1 is not used: the port is not active"));
	ha_device_set_close(set);
}

static void a_port_that_was_down_gets_address_and_speed_when_it_comes_up(void **state)
{
	struct fake_device *fake = fake_device_add("late");
	struct fake_port *port = &fake->ports[1];
	struct fake_gid gids[FAKE_MAX_GIDS];
	struct ha_port_addr addr;
	struct ha_device_set *set;
	struct ha_port *late;

	(void)state;
	fake_device_add("other");
	/* An interface that is down has no addresses. */
	memcpy(gids, port->gids, sizeof gids);
	memset(port->gids, 0, sizeof port->gids);
	port->attr.state = IBV_PORT_DOWN;
	port->attr.active_mtu = IBV_MTU_1024;
	set = discovered();
	assert_int_equal(set->nports, 1);
	assert_int_equal(set->nports_all, 2);
	late = &set->ports[1];
	assert_int_equal(atomic_load(&late->speed_mbps), 0);
	assert_int_equal(late->gid_index, -1);
	assert_int_equal(captured_warnings, 0);
	/* The link comes first, ... */
	port->attr.state = IBV_PORT_ACTIVE;
	port->attr.active_mtu = IBV_MTU_4096;
	fake_event(fake, IBV_EVENT_PORT_ACTIVE, 1);
	assert_int_equal(read_events(set, late->nic), 1);
	assert_false(ha_port_usable(late));
	/* ... the address later. */
	memcpy(port->gids, gids, sizeof gids);
	fake_event(fake, IBV_EVENT_GID_CHANGE, 1);
	assert_int_equal(read_events(set, late->nic), 1);
	assert_true(ha_port_usable(late));
	ha_port_addr(late, &addr);
	assert_int_equal(addr.gid_index, 3);
	assert_int_equal(addr.mtu, IBV_MTU_4096);
	assert_int_equal(addr.addr_gen, 1);
	assert_int_equal(atomic_load(&late->speed_mbps), 400000);
	assert_false(late->was_up);
	ha_device_set_close(set);
}

static void a_flap_changes_no_device_number(void **state)
{
	struct fake_device *fake;
	struct ha_device_set *set;

	(void)state;
	fake = fake_device_add("a");
	fake_device_add("b");
	set = discovered();
	for (int i = 0; i < 3; i++) {
		fake->ports[1].attr.state = IBV_PORT_DOWN;
		fake_event(fake, IBV_EVENT_PORT_ERR, 1);
		assert_int_equal(read_events(set, &set->nics[0]), 1);
		assert_false(ha_port_usable(&set->ports[0]));
		assert_string_equal(names(set), "a:1 b:1");
		fake->ports[1].attr.state = IBV_PORT_ACTIVE;
		fake_event(fake, IBV_EVENT_PORT_ACTIVE, 1);
		assert_int_equal(read_events(set, &set->nics[0]), 1);
		assert_true(ha_port_usable(&set->ports[0]));
		assert_string_equal(names(set), "a:1 b:1");
	}
	ha_device_set_close(set);
}

static void more_devices_than_fit_are_refused_not_overrun(void **state)
{
	struct ha_device_set *set;
	char name[16];

	(void)state;
	for (int i = 0; i < FAKE_MAX_DEVICES; i++) {
		snprintf(name, sizeof name, "m%d", i);
		fake_device_add(name)->attr.phys_port_cnt = 2;
	}
	set = discovered();
	assert_int_equal(set->nnics, HA_MAX_NICS);
	assert_int_equal(set->nports, HA_MAX_PORTS);
	assert_true(logged("m32 and later devices are not used"));
	ha_device_set_close(set);
}

static void no_device_is_not_an_error(void **state)
{
	(void)state;
	expect_devices("", "");
	assert_int_equal(captured_warnings, 0);
	assert_true(logged("no usable RDMA port among 0 devices"));
}

static void infiniband_is_addressed_by_lid_and_its_first_gid(void **state)
{
	struct fake_port *port = &fake_device_add("ib0")->ports[1];
	struct ha_device_set *set;
	struct ha_port_addr addr;

	(void)state;
	port->attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
	port->attr.lid = 12;
	port->attr.sm_sl = 3;
	memset(port->gids, 0, sizeof port->gids);
	fake_gid_set(port, 0, "fe80::2:c903:0:1", 0);
	set = discovered();
	ha_port_addr(&set->ports[0], &addr);
	assert_int_equal(addr.lid, 12);
	assert_int_equal(addr.sm_sl, 3);
	assert_int_equal(addr.gid_index, 0);
	assert_true(set->ports[0].adaptive_routing);
	ha_device_set_close(set);
}

static void gid_index_is_taken_where_the_port_has_it(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_device_add("mlx5_0");
	config.ib_gid_index = 2;
	set = discovered();
	assert_int_equal(set->ports[0].gid_index, 2);
	ha_device_set_close(set);
	assert_int_equal(captured_warnings, 0);
	config.ib_gid_index = 11;
	set = discovered();
	assert_int_equal(set->ports[0].gid_index, 3);
	assert_true(logged("mlx5_0:1 has no GID at NCCL_IB_GID_INDEX=11"));
	ha_device_set_close(set);
}

static void pkey_index_is_taken_where_the_port_has_it(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_device_add("mlx5_0")->ports[1].pkeys[2] = 0x8001;
	config.ib_pkey = 2;
	set = discovered();
	assert_int_equal(set->ports[0].pkey_index, 2);
	ha_device_set_close(set);
	for (int bad = 3; bad < 100; bad += 96) { /* an empty entry, one beyond the table */
		capture_log();
		config.ib_pkey = bad;
		set = discovered();
		assert_int_equal(set->ports[0].pkey_index, 0);
		assert_true(logged("NCCL_IB_PKEY="));
		ha_device_set_close(set);
	}
}

static struct fake_port *partitioned(const char *name, uint16_t first, uint16_t second)
{
	struct fake_port *port = &fake_device_add(name)->ports[1];

	memset(port->pkeys, 0, sizeof port->pkeys);
	port->pkeys[0] = first;
	port->pkeys[1] = second;
	return port;
}

static void a_partition_is_found_at_another_index_of_another_port(void **state)
{
	struct ha_device_set *set;

	(void)state;
	partitioned("mlx5_0", 0xffff, 0x8001);
	partitioned("mlx5_1", 0x8001, 0xffff);
	partitioned("mlx5_2", 0x0001, 0x7fff); /* a limited member is one */
	partitioned("mlx5_3", 0x0001, 0x8001); /* and a full one is better */
	config.ib_pkey = 1;
	set = discovered();
	assert_int_equal(set->ports[0].pkey_index, 1);
	assert_int_equal(set->ports[1].pkey_index, 0);
	assert_int_equal(set->ports[2].pkey_index, 0);
	assert_int_equal(set->ports[3].pkey_index, 1);
	for (int i = 0; i < 4; i++)
		assert_true(ha_partition_same(&set->ports[0], &set->ports[i]));
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
}

static void an_index_out_of_range_is_said_with_all_that_matters(void **state)
{
	struct ha_device_set *set;

	(void)state;
	partitioned("mlx5_0", 0xffff, 0)->attr.pkey_tbl_len = 1;
	config.ib_pkey = 5;
	set = discovered();
	assert_int_equal(set->ports[0].pkey_index, 0);
	assert_true(logged("mlx5_0:1 has no partition key at NCCL_IB_PKEY=5 (its table's length: "
			   "1); using index 0 (0xffff)"));
	assert_int_equal(captured_warnings, 1);
	ha_device_set_close(set);
}

static void a_port_of_another_partition_stands_in_for_none(void **state)
{
	struct ha_port *out[4];
	struct ha_device_set *set;

	(void)state;
	partitioned("mlx5_0", 0xffff, 0x8001);
	partitioned("mlx5_1", 0xffff, 0x8002);
	partitioned("mlx5_2", 0x8001, 0xffff);
	config.ib_pkey = 1;
	set = discovered();
	/* As NCCL uses it: by the index. */
	assert_int_equal(set->ports[1].pkey_index, 1);
	assert_true(logged("mlx5_1:1 is not in partition 0x8001, which NCCL_IB_PKEY=1 is on "
			   "mlx5_0:1; connections over it use index 1 (0x8002)"));
	assert_int_equal(captured_warnings, 1);
	assert_int_equal(ha_standby_rank(set, &set->ports[0], 1, out, 4), 2);
	assert_ptr_equal(out[1], &set->ports[2]);
	assert_int_equal(ha_standby_rank(set, &set->ports[1], 1, out, 4), 1);
	assert_true(ha_port_usable(&set->ports[1]));
	ha_device_set_close(set);
}

/* The subnet manager fills the table, in an order of its own, when a port comes up. */
static void a_partition_is_looked_up_again(void **state)
{
	struct fake_port *second;
	struct ha_device_set *set;

	(void)state;
	partitioned("mlx5_0", 0xffff, 0x8001);
	second = partitioned("mlx5_1", 0, 0);
	second->attr.state = IBV_PORT_DOWN;
	config.ib_pkey = 1;
	set = discovered();
	assert_int_equal(set->nports_all, 2);
	second->attr.state = IBV_PORT_ACTIVE;
	assert_int_equal(ha_port_refresh(&set->ports[1]), HA_OK);
	assert_false(ha_port_usable(&set->ports[1])); /* not filled yet */
	assert_int_equal(captured_warnings, 0);
	second->pkeys[0] = 0xffff;
	for (int i = 0; i < 3; i++)
		assert_int_equal(ha_port_refresh(&set->ports[1]), HA_OK);
	assert_false(ha_port_usable(&set->ports[1]));
	assert_true(logged("mlx5_1:1 is not in partition 0x8001: it is not used until it is"));
	assert_int_equal(captured_warnings, 1); /* once */
	second->pkeys[2] = 0x8001;
	assert_int_equal(ha_port_refresh(&set->ports[1]), HA_OK);
	assert_true(ha_port_usable(&set->ports[1]));
	assert_int_equal(set->ports[1].pkey_index, 2);
	second->pkeys[2] = 0;
	second->pkeys[0] = 0x8001;
	assert_int_equal(ha_port_refresh(&set->ports[1]), HA_OK);
	assert_int_equal(set->ports[1].pkey_index, 0);
	ha_device_set_close(set);
}

static struct fake_port *infiniband_port(const char *name)
{
	struct fake_port *port = &fake_device_add(name)->ports[1];

	port->attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
	port->attr.lid = 7;
	memset(port->gids, 0, sizeof port->gids);
	fake_gid_set(port, 0, "fe80::1:2:c903:0:1", 0);
	return port;
}

static void the_gid_that_routers_know_is_used_where_there_is_one(void **state)
{
	struct fake_port *port = infiniband_port("ib0");
	struct ha_device_set *set;

	(void)state;
	fake_gid_set(port, 1, "fec0::1:2:c903:0:1", 0); /* no FLID */
	fake_gid_set(port, 2, "fec0:0:a002:1:2:c903:0:1", 0);
	set = discovered();
	assert_int_equal(set->ports[0].gid_index, 0);
	ha_device_set_close(set);
	config.ib_routable_flid_gid_index = 2;
	set = discovered();
	assert_int_equal(set->ports[0].gid_index, 2);
	assert_int_equal(ha_gid_flid(&set->ports[0].gid), 0xa002);
	ha_device_set_close(set);
	/* NCCL's variable for RoCE says nothing about InfiniBand. */
	config.ib_gid_index = 1;
	set = discovered();
	assert_int_equal(set->ports[0].gid_index, 2);
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
}

static void an_address_has_what_the_port_and_the_way_need(void **state)
{
	static const struct {
		uint8_t link_layer;
		bool required;
		const char *own, *remote;
		bool global;
		uint16_t dlid;
	} cases[] = {
	    {IBV_LINK_LAYER_INFINIBAND, false, "fe80::1", "fe80::2", false, 9},
	    {IBV_LINK_LAYER_INFINIBAND, true, "fe80::1", "fe80::2", true, 9},
	    /* In one subnet both may have the GIDs that routers know. */
	    {IBV_LINK_LAYER_INFINIBAND, false, "fec0:0:a001:1::1", "fec0:0:a001:1::2", false, 9},
	    {IBV_LINK_LAYER_INFINIBAND, false, "fe80::1:0:0:0:1", "fec0:0:a001:1::2", true, 9},
	    {IBV_LINK_LAYER_INFINIBAND, false, "fec0:0:a001:1::1", "fec0:0:a002:2::2", true,
	     0xa002},
	    {IBV_LINK_LAYER_INFINIBAND, false, "fec0:0:a001:1::1", "fe80::2:0:0:0:2", true, 9},
	    {IBV_LINK_LAYER_ETHERNET, false, "::ffff:10.0.0.1", "::ffff:10.0.0.2", true, 9},
	    {IBV_LINK_LAYER_ETHERNET, false, "2001:db8:1:1::1", "2001:db8:2:2::2", true, 9},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ha_port_addr own = {.link_layer = cases[i].link_layer,
					   .grh_required = cases[i].required,
					   .gid_index = 3};
		struct ha_remote_addr to = {.lid = 9, .sl = 2, .traffic_class = 106};
		struct ibv_ah_attr ah;

		assert_int_equal(inet_pton(AF_INET6, cases[i].own, own.gid.raw), 1);
		assert_int_equal(inet_pton(AF_INET6, cases[i].remote, to.gid), 1);
		memset(&ah, 0xff, sizeof ah);
		ha_address_fill(&own, 2, &to, &ah);
		if (ah.is_global != cases[i].global || ah.dlid != cases[i].dlid)
			fail_msg("%s to %s: GRH %d, LID %#x", cases[i].own, cases[i].remote,
				 ah.is_global, ah.dlid);
		assert_int_equal(ah.port_num, 2);
		assert_int_equal(ah.sl, 2);
		assert_int_equal(ah.grh.sgid_index, cases[i].global ? 3 : 0);
		assert_int_equal(ah.grh.traffic_class, cases[i].global ? 106 : 0);
		assert_int_equal(ah.grh.hop_limit, cases[i].global ? 255 : 0);
		if (cases[i].global)
			assert_memory_equal(ah.grh.dgid.raw, to.gid, 16);
	}
}

static void that_a_port_requires_a_grh_is_kept(void **state)
{
	struct fake_port *port = infiniband_port("ib0");
	struct ha_port_addr addr;
	struct ha_device_set *set;

	(void)state;
	port->attr.flags = IBV_QPF_GRH_REQUIRED;
	set = discovered();
	ha_port_addr(&set->ports[0], &addr);
	assert_true(addr.grh_required);
	port->attr.flags = 0;
	assert_int_equal(ha_port_refresh(&set->ports[0]), HA_OK);
	ha_port_addr(&set->ports[0], &addr);
	assert_false(addr.grh_required);
	ha_device_set_close(set);
}

static void adaptive_routing_follows_variable_then_link_layer(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_device_add("mlx5_0");
	set = discovered();
	assert_false(set->ports[0].adaptive_routing);
	ha_device_set_close(set);
	config.ib_adaptive_routing = 1;
	set = discovered();
	assert_true(set->ports[0].adaptive_routing);
	ha_device_set_close(set);
}

static void a_device_without_pci_has_none_rather_than_a_wrong_one(void **state)
{
	struct fake_device *fake = fake_device_add("rxe0");
	struct ha_device_set *set;

	(void)state;
	snprintf(fake->device.ibdev_path, sizeof fake->device.ibdev_path,
		 "%s/class/infiniband/elsewhere", fake_sysfs);
	set = discovered();
	assert_string_equal(set->nics[0].pci_path, "");
	assert_int_equal(set->nics[0].numa_node, -1);
	ha_device_set_close(set);
}

static void gpu_memory_support_is_probed(void **state)
{
	static const char *const modules[] = {
	    "kernel/mm/memory_peers/nv_mem/version", "kernel/mm/memory_peers/nv_mem_nc/version",
	    "module/nvidia_peermem/version",	     "kernel/mm/memory_peers/amdkfd/version",
	    "kernel/memory_peers/amdkfd/version",    "memory_peers/amdkfd/version"};
	static const int unsupported[] = {EOPNOTSUPP, EPROTONOSUPPORT, ENOSYS};
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set;

	(void)state;
	set = discovered();
	assert_int_equal(ha_nic_ptr_support(&set->nics[0]), HA_PTR_HOST | HA_PTR_DMABUF);
	ha_device_set_close(set);
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		char path[512];

		fake->dmabuf_errno = unsupported[i % 3];
		fake_sysfs_write("1", "%s", modules[i]);
		set = discovered();
		assert_int_equal(ha_nic_ptr_support(&set->nics[0]), HA_PTR_HOST | HA_PTR_CUDA);
		ha_device_set_close(set);
		snprintf(path, sizeof path, "%s/%s", fake_sysfs, modules[i]);
		assert_int_equal(remove(path), 0);
	}
	set = discovered();
	assert_int_equal(ha_nic_ptr_support(&set->nics[0]), HA_PTR_HOST);
	ha_device_set_close(set);
}

static void relaxed_ordering_needs_both_wish_and_ability(void **state)
{
	static const struct {
		int wish;
		bool refuses, expected;
		int warnings;
	} cases[] = {{0, false, false, 0},
		     {1, false, true, 0},
		     {2, false, true, 0},
		     {1, true, false, 1},
		     {2, true, false, 0}};
	struct fake_device *fake = fake_device_add("mlx5_0");

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ha_device_set *set;

		config.ib_pci_relaxed_ordering = cases[i].wish;
		fake->refuses_relaxed = cases[i].refuses;
		capture_log();
		set = discovered();
		assert_int_equal(set->nics[0].relaxed_ordering, cases[i].expected);
		assert_int_equal(captured_warnings, cases[i].warnings);
		ha_device_set_close(set);
	}
}

static void path_migration_in_hardware_is_warned_about(void **state)
{
	(void)state;
	fake_device_add("mlx5_0");
	fake_sysfs_write("1", "class/infiniband/mlx5_0/ports/1/apm_enable");
	expect_devices("", "mlx5_0:1");
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("ports/1/apm_enable"));
	capture_log();
	config.enable_backup = false;
	expect_devices("", "mlx5_0:1");
	assert_int_equal(captured_warnings, 0);
}

/* ---- events --------------------------------------------------------------------------------- */

static int events_seen, unacked_at_callback, state_at_callback;

static void on_event(void *arg, const struct ibv_async_event *event, struct ha_nic *nic)
{
	struct ha_device_set *set = arg;

	(void)nic;
	events_seen++;
	unacked_at_callback = fake_devices[0].unacked;
	if (event->event_type == IBV_EVENT_PORT_ERR)
		state_at_callback = atomic_load(&set->ports[0].state);
}

static struct ha_device_set *with_events(void)
{
	struct ha_device_set *set = discovered();

	set->on_event = on_event;
	set->on_event_arg = set;
	events_seen = 0;
	state_at_callback = -1;
	return set;
}

static struct ha_port *goes_down;

static void it_goes_down(void)
{
	ha_port_is_down(goes_down);
}

static void a_port_that_goes_down_while_it_is_asked_stays_down(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set;

	(void)state;
	set = with_events();
	goes_down = &set->ports[0];
	fake->ports[1].queried = it_goes_down;
	assert_int_equal(ha_port_refresh(goes_down), HA_OK);
	assert_int_equal(atomic_load(&goes_down->state), IBV_PORT_DOWN);
	fake->ports[1].queried = NULL;
	assert_int_equal(ha_port_refresh(goes_down), HA_OK);
	assert_int_equal(atomic_load(&goes_down->state), IBV_PORT_ACTIVE);
	ha_device_set_close(set);
}

static void port_events_move_the_ports_state_only(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set;

	(void)state;
	fake->attr.phys_port_cnt = 2;
	set = with_events();
	fake->ports[1].attr.state = IBV_PORT_DOWN;
	fake_event(fake, IBV_EVENT_PORT_ERR, 1);
	assert_int_equal(read_events(set, &set->nics[0]), 1);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_DOWN);
	assert_int_equal(state_at_callback, IBV_PORT_DOWN); /* before the callback */
	assert_int_equal(atomic_load(&set->ports[1].state), IBV_PORT_ACTIVE);
	assert_false(atomic_load(&set->nics[0].fatal));
	fake->ports[1].attr.state = IBV_PORT_ACTIVE;
	fake_event(fake, IBV_EVENT_PORT_ACTIVE, 1);
	assert_int_equal(read_events(set, &set->nics[0]), 1);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_ACTIVE);
	assert_int_equal(events_seen, 2);
	assert_true(logged("mlx5_0:1: port"));
	ha_device_set_close(set);
}

static void every_event_is_acknowledged_before_the_call_returns(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set = with_events();

	(void)state;
	for (int i = 0; i < 100; i++)
		fake_event(fake, IBV_EVENT_COMM_EST, 0);
	assert_int_equal(read_events(set, &set->nics[0]), 64); /* bounded */
	assert_int_equal(unacked_at_callback, 1);
	assert_int_equal(fake->unacked, 0);
	assert_int_equal(read_events(set, &set->nics[0]), 36);
	assert_int_equal(read_events(set, &set->nics[0]), 0);
	assert_int_equal(fake->unacked, 0);
	ha_device_set_close(set);
}

static void device_fatal_is_the_devices_not_the_ports_state(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set = with_events();

	(void)state;
	fake_event(fake, IBV_EVENT_DEVICE_FATAL, 0);
	read_events(set, &set->nics[0]);
	assert_true(atomic_load(&set->nics[0].fatal));
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_ACTIVE);
	ha_device_set_close(set);
}

static void a_device_that_was_unbound_is_fatal_and_said_once(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set = with_events();

	(void)state;
	fake->events_broken = true;
	assert_int_equal(read_events(set, &set->nics[0]), 0);
	assert_int_equal(read_events(set, &set->nics[0]), 0);
	assert_true(atomic_load(&set->nics[0].fatal));
	assert_int_equal(captured_warnings, 1);
	ha_device_set_close(set);
}

static void an_event_for_a_port_not_in_use_is_harmless(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set;

	(void)state;
	fake->attr.phys_port_cnt = 2;
	snprintf(config.ib_hca, sizeof config.ib_hca, "mlx5_0:1");
	set = with_events();
	fake_event(fake, IBV_EVENT_PORT_ERR, 2);
	fake_event(fake, IBV_EVENT_GID_CHANGE, 200);
	assert_int_equal(read_events(set, &set->nics[0]), 2);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_ACTIVE);
	assert_int_equal(events_seen, 2);
	ha_device_set_close(set);
}

static void a_gid_that_moved_is_followed_and_a_new_one_adopted(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct fake_port *port = &fake->ports[1];
	struct ha_device_set *set = with_events();
	struct ha_port_addr before, after;

	(void)state;
	ha_port_addr(&set->ports[0], &before);
	/* The same address at another index, as soft RoCE does after a change. */
	port->gids[6] = port->gids[3];
	memset(&port->gids[3], 0, sizeof port->gids[3]);
	fake_event(fake, IBV_EVENT_GID_CHANGE, 1);
	read_events(set, &set->nics[0]);
	ha_port_addr(&set->ports[0], &after);
	assert_int_equal(after.gid_index, 6);
	assert_memory_equal(&after.gid, &before.gid, sizeof before.gid);
	assert_int_equal(after.addr_gen, before.addr_gen + 1);
	/* Nothing changed: the generation stays. */
	fake_event(fake, IBV_EVENT_GID_CHANGE, 1);
	read_events(set, &set->nics[0]);
	ha_port_addr(&set->ports[0], &before);
	assert_int_equal(after.addr_gen, before.addr_gen);
	/* Another address altogether. */
	memset(port->gids, 0, sizeof port->gids);
	fake_gid_set(port, 5, "::ffff:10.9.9.9", 2);
	fake_event(fake, IBV_EVENT_GID_CHANGE, 1);
	read_events(set, &set->nics[0]);
	ha_port_addr(&set->ports[0], &after);
	assert_int_equal(after.gid_index, 5);
	/* No address left: the last one stays, with a warning. */
	memset(port->gids, 0, sizeof port->gids);
	capture_log();
	fake_event(fake, IBV_EVENT_GID_CHANGE, 1);
	read_events(set, &set->nics[0]);
	ha_port_addr(&set->ports[0], &before);
	assert_int_equal(before.gid_index, 5);
	assert_int_equal(captured_warnings, 1);
	ha_device_set_close(set);
}

/* The kernel removes one address and adds the other: for a moment only the link's own is there. */
static void an_address_that_had_to_do_is_left_for_a_better_one(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct fake_port *port = &fake->ports[1];
	struct ha_device_set *set;
	struct ha_port_addr addr;

	(void)state;
	memset(port->gids, 0, sizeof port->gids);
	fake_gid_set(port, 0, "fe80::1234", 2);
	fake_gid_set(port, 1, "::ffff:10.0.0.1", 2);
	set = with_events();
	memset(&port->gids[1], 0, sizeof port->gids[1]);
	fake_event(fake, IBV_EVENT_GID_CHANGE, 1);
	read_events(set, &set->nics[0]);
	ha_port_addr(&set->ports[0], &addr);
	assert_int_equal(addr.gid_index, 0);
	fake_gid_set(port, 1, "::ffff:10.0.0.11", 2);
	fake_event(fake, IBV_EVENT_GID_CHANGE, 1);
	read_events(set, &set->nics[0]);
	ha_port_addr(&set->ports[0], &addr);
	assert_int_equal(addr.gid_index, 1);
	/* Another one that is as good changes nothing, also before it in the table. */
	fake_gid_set(port, 0, "::ffff:10.0.0.12", 2);
	fake_event(fake, IBV_EVENT_GID_CHANGE, 1);
	read_events(set, &set->nics[0]);
	ha_port_addr(&set->ports[0], &addr);
	assert_int_equal(addr.gid_index, 1);
	ha_device_set_close(set);
}

static void lid_change_gives_the_new_lid(void **state)
{
	struct fake_device *fake = fake_device_add("mlx5_0");
	struct ha_device_set *set = with_events();
	struct ha_port_addr addr;

	(void)state;
	fake->ports[1].attr.lid = 4321;
	fake_event(fake, IBV_EVENT_LID_CHANGE, 1);
	read_events(set, &set->nics[0]);
	ha_port_addr(&set->ports[0], &addr);
	assert_int_equal(addr.lid, 4321);
	ha_device_set_close(set);
}

/* ---- rails of the fabric --------------------------------------------------------------------- */

static void add_at(const char *name, const char *address)
{
	struct fake_port *port = &fake_device_add(name)->ports[1];

	for (int i = 2; i < 4; i++)
		fake_gid_set(port, i, address, i - 1);
}

/* "3:0 -:-": rail and plane of each port. */
static const char *fabric_ids(const char *hca)
{
	static char text[1024];
	struct ha_device_set *set;
	size_t used = 0;

	snprintf(config.ib_hca, sizeof config.ib_hca, "%s", hca);
	set = discovered();
	for (int i = 0; i < set->nports; i++) {
		char rail[8] = "-", plane[8] = "-";

		if (set->ports[i].rail_id >= 0)
			snprintf(rail, sizeof rail, "%d", set->ports[i].rail_id);
		if (set->ports[i].plane_id >= 0)
			snprintf(plane, sizeof plane, "%d", set->ports[i].plane_id);
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%s", i ? " " : "",
					 rail, plane);
	}
	ha_device_set_close(set);
	return text;
}

static void rails_are_as_the_operator_says(void **state)
{
	(void)state;
	add_at("a", "::ffff:10.0.7.1");
	add_at("b", "::ffff:10.0.8.1");
	assert_string_equal(fabric_ids("=a:1:3:1,b:1:4:0"), "3:1 4:0");
	assert_string_equal(fabric_ids("a::5,b"), "5:- -:-"); /* and of b nothing */
	assert_string_equal(fabric_ids("a:::1,b:::0"), "-:1 -:0");
	assert_false(logged("the ports are in 2 subnets"));
	assert_string_equal(fabric_ids("^c:1:3:1"), "0:- 1:-"); /* what is left out has none */
	assert_int_equal(captured_warnings, 0);
}

static void else_ports_in_different_subnets_are_on_different_rails(void **state)
{
	(void)state;
	add_at("a", "::ffff:10.0.8.1");
	add_at("b", "::ffff:10.0.7.1");
	add_at("c", "::ffff:10.0.9.1");
	add_at("d", "::ffff:10.0.8.2");
	assert_string_equal(fabric_ids(""), "1:- 0:- 2:- 1:-");
	assert_true(logged("the ports are in 3 subnets"));
}

static void where_addresses_tell_no_rails_nothing_is_said(void **state)
{
	(void)state;
	add_at("a", "::ffff:10.0.8.1");
	add_at("b", "::ffff:10.0.8.2");
	assert_string_equal(fabric_ids(""), "-:- -:-"); /* one subnet: nobody knows */
	add_at("c", "fe80::5");
	assert_string_equal(fabric_ids(""), "-:- -:- -:-");
	assert_false(logged("subnets"));
	add_at("d", "::ffff:10.0.9.1");
	assert_string_equal(fabric_ids(""), "0:- 0:- -:- 1:-");
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(properties_are_what_device_and_sysfs_say),
	    TEST(a_device_whose_queues_are_too_short_is_left_out),
	    TEST(devices_come_in_the_order_of_their_numbers),
	    TEST(hca_filter_takes_prefixes_names_ports_and_exclusions),
	    TEST(nonsense_in_the_filter_is_named_and_takes_no_device),
	    TEST(ib_disable_uses_no_device),
	    TEST(what_cannot_be_used_is_left_out_with_its_reason),
	    TEST(a_port_that_cannot_be_asked_for_a_moment_is_asked_again),
	    TEST(a_device_that_cannot_be_opened_for_a_moment_is_asked_again),
	    TEST(ports_that_are_down_follow_the_others_and_are_not_reported),
	    TEST(a_port_that_was_down_gets_address_and_speed_when_it_comes_up),
	    TEST(a_flap_changes_no_device_number),
	    TEST(more_devices_than_fit_are_refused_not_overrun),
	    TEST(no_device_is_not_an_error),
	    TEST(infiniband_is_addressed_by_lid_and_its_first_gid),
	    TEST(gid_index_is_taken_where_the_port_has_it),
	    TEST(pkey_index_is_taken_where_the_port_has_it),
	    TEST(a_partition_is_found_at_another_index_of_another_port),
	    TEST(an_index_out_of_range_is_said_with_all_that_matters),
	    TEST(a_port_of_another_partition_stands_in_for_none),
	    TEST(a_partition_is_looked_up_again),
	    TEST(the_gid_that_routers_know_is_used_where_there_is_one),
	    TEST(an_address_has_what_the_port_and_the_way_need),
	    TEST(that_a_port_requires_a_grh_is_kept),
	    TEST(adaptive_routing_follows_variable_then_link_layer),
	    TEST(a_device_without_pci_has_none_rather_than_a_wrong_one),
	    TEST(gpu_memory_support_is_probed),
	    TEST(relaxed_ordering_needs_both_wish_and_ability),
	    TEST(path_migration_in_hardware_is_warned_about),
	    TEST(port_events_move_the_ports_state_only),
	    TEST(a_port_that_goes_down_while_it_is_asked_stays_down),
	    TEST(every_event_is_acknowledged_before_the_call_returns),
	    TEST(device_fatal_is_the_devices_not_the_ports_state),
	    TEST(a_device_that_was_unbound_is_fatal_and_said_once),
	    TEST(an_event_for_a_port_not_in_use_is_harmless),
	    TEST(a_gid_that_moved_is_followed_and_a_new_one_adopted),
	    TEST(an_address_that_had_to_do_is_left_for_a_better_one),
	    TEST(lid_change_gives_the_new_lid),
	    TEST(rails_are_as_the_operator_says),
	    TEST(else_ports_in_different_subnets_are_on_different_rails),
	    TEST(where_addresses_tell_no_rails_nothing_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
