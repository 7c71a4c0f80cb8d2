/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standby ports on made-up machines: PCI distances as real topologies have them, each criterion of
 * the ranking against all later ones, and that connections of one NIC spread over the others.
 */
#include "../cmocka_all.h"

#include "device/rank.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SYS "/sys/devices/"

static void distances_in_a_server_with_switches(void **state)
{
	/* Two NICs and a switch between them and the root port. */
	static const char a[] =
	    SYS "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0";
	static const char b[] =
	    SYS "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0";
	/* Another function of the card at a. */
	static const char a1[] =
	    SYS "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.1";
	/* A switch behind a port of the switch. */
	static const char deep[] = SYS "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:04.0/"
				       "0000:1b:00.0/0000:1c:00.0/0000:1d:00.0";
	static const char other_port[] = SYS "pci0000:15/0000:15:02.0/0000:20:00.0";
	static const char other_bridge[] = SYS "pci0000:37/0000:37:01.0/0000:38:00.0";

	(void)state;
	assert_int_equal(ha_pci_distance(a, 0, a, 0), HA_DISTANCE_DEVICE);
	assert_int_equal(ha_pci_distance(a, 0, b, 0), HA_DISTANCE_SWITCH);
	assert_int_equal(ha_pci_distance(b, 0, a, 0), HA_DISTANCE_SWITCH);
	assert_int_equal(ha_pci_distance(a, 0, a1, 0), HA_DISTANCE_ROOT);
	assert_int_equal(ha_pci_distance(a, 0, deep, 0), HA_DISTANCE_ROOT);
	assert_int_equal(ha_pci_distance(a, 0, other_port, 0), HA_DISTANCE_NUMA);
	/* Below one host bridge is on one node, also where the kernel does not say which. */
	assert_int_equal(ha_pci_distance(a, -1, other_port, -1), HA_DISTANCE_NUMA);
	assert_int_equal(ha_pci_distance(a, 0, other_bridge, 0), HA_DISTANCE_NUMA);
	assert_int_equal(ha_pci_distance(a, 0, other_bridge, 1), HA_DISTANCE_FAR);
	assert_int_equal(ha_pci_distance(a, -1, other_bridge, -1), HA_DISTANCE_FAR);
}

static void distances_in_a_virtual_machine(void **state)
{
	(void)state;
	/* All devices below one bridge without root ports. */
	assert_int_equal(
	    ha_pci_distance(SYS "pci0000:00/0000:00:05.0", 0, SYS "pci0000:00/0000:00:06.0", 0),
	    HA_DISTANCE_NUMA);
	/* One emulated root port each. */
	assert_int_equal(ha_pci_distance(SYS "pci0000:00/0000:00:02.0/0000:01:00.0", -1,
					 SYS "pci0000:00/0000:00:02.1/0000:02:00.0", -1),
			 HA_DISTANCE_NUMA);
	/* A domain each, as some clouds have it. */
	assert_int_equal(
	    ha_pci_distance(SYS "pci0101:00/0101:00:00.0", 0, SYS "pci0102:00/0102:00:00.0", 0),
	    HA_DISTANCE_NUMA);
	assert_int_equal(
	    ha_pci_distance(SYS "pci0101:00/0101:00:00.0", 0, SYS "pci0102:00/0102:00:00.0", 1),
	    HA_DISTANCE_FAR);
}

static void distances_of_what_is_not_on_pci(void **state)
{
	(void)state;
	assert_int_equal(ha_pci_distance("", -1, "", -1), HA_DISTANCE_FAR);
	assert_int_equal(ha_pci_distance("", 1, "", 1), HA_DISTANCE_NUMA);
	assert_int_equal(ha_pci_distance("", 0, SYS "pci0000:15/0000:15:01.0", 0),
			 HA_DISTANCE_NUMA);
	assert_int_equal(ha_pci_distance(SYS "virtual/a", -1, SYS "virtual/b", -1),
			 HA_DISTANCE_FAR);
	/* A part that begins like another is another. */
	assert_int_equal(ha_pci_distance(SYS "pci0000:1/0000:1:1", -1, SYS "pci0000:15/0", -1),
			 HA_DISTANCE_FAR);
	/* A copy of the tree elsewhere, with a folder that is called like it. */
	assert_int_equal(ha_pci_distance("/devices/pci/x" SYS "pci0000:15/0000:15:01.0/1/2", -1,
					 SYS "pci0000:15/0000:15:01.0/3/4", -1),
			 HA_DISTANCE_ROOT);
}

/* ---- machines ------------------------------------------------------------------------------- */

static struct ha_device_set set;

static struct ha_nic *add_nic(int numa, const char *fmt, ...)
{
	struct ha_nic *nic = &set.nics[set.nnics];
	va_list args;

	memset(nic, 0, sizeof *nic);
	nic->index = set.nnics++;
	nic->guid = 0x1000u + (unsigned)nic->index;
	nic->numa_node = numa;
	va_start(args, fmt);
	vsnprintf(nic->pci_path, sizeof nic->pci_path, fmt, args);
	va_end(args);
	return nic;
}

static struct ha_port *add_port(struct ha_nic *nic, int speed_mbps)
{
	struct ha_port *port = &set.ports[set.nports_all];

	memset(port, 0, sizeof *port);
	port->index = set.nports_all++;
	set.nports = set.nports_all;
	port->nic = nic;
	port->port_num = 1;
	port->speed_mbps = speed_mbps;
	port->link_layer = IBV_LINK_LAYER_ETHERNET;
	return port;
}

static int clear(void **state)
{
	(void)state;
	memset(&set, 0, sizeof set);
	return 0;
}

/* Eight NICs in pairs below four switches, two switches a socket. */
static void eight_nics_on_four_switches(void)
{
	for (int i = 0; i < 8; i++) {
		int sw = i / 2, bus = 0x10 + 0x20 * sw;

		add_port(add_nic(sw / 2,
				 SYS "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:%02x.0/"
				     "0000:%02x:00.0",
				 bus, bus, bus + 1, bus + 2, i % 2, bus + 3 + i % 2),
			 400000);
	}
}

static void the_neighbour_on_the_switch_then_the_socket_then_the_rest(void **state)
{
	struct ha_port *out[HA_MAX_PORTS];

	(void)state;
	eight_nics_on_four_switches();
	for (int primary = 0; primary < 8; primary++)
		for (uint64_t spread = 0; spread < 50; spread++) {
			assert_int_equal(
			    ha_standby_rank(&set, &set.ports[primary], spread, out, HA_MAX_PORTS),
			    8);
			assert_int_equal(out[0]->index, primary);
			assert_int_equal(out[1]->index, primary ^ 1);
			assert_int_equal(out[2]->index / 4, primary / 4);
			assert_int_equal(out[3]->index / 4, primary / 4);
			for (int i = 4; i < 8; i++)
				assert_int_not_equal(out[i]->index / 4, primary / 4);
			for (int i = 0; i < 8; i++)
				for (int j = 0; j < i; j++)
					assert_ptr_not_equal(out[i], out[j]);
		}
}

static void the_same_answer_every_time_and_no_more_than_asked_for(void **state)
{
	struct ha_port *all[HA_MAX_PORTS], *some[HA_MAX_PORTS];

	(void)state;
	eight_nics_on_four_switches();
	ha_standby_rank(&set, &set.ports[3], 77, all, HA_MAX_PORTS);
	for (int max = 0; max <= 9; max++) {
		int n = ha_standby_rank(&set, &set.ports[3], 77, some, max);

		assert_int_equal(n, max < 8 ? max : 8);
		for (int i = 0; i < n; i++)
			assert_ptr_equal(some[i], all[i]);
	}
}

/* Eight NICs that are all alike to each other: where do the connections of one of them go? */
static void connections_of_one_nic_spread_over_its_equals(void **state)
{
	enum { CONNECTIONS = 700 };
	struct ha_port *out[HA_MAX_PORTS];
	int landed[8] = {0};

	(void)state;
	for (int i = 0; i < 8; i++)
		add_port(add_nic(0, SYS "pci0000:00/0000:00:%02x.0", i + 3), 400000);
	for (uint64_t c = 0; c < CONNECTIONS; c++) {
		ha_standby_rank(&set, &set.ports[2], c, out, HA_MAX_PORTS);
		landed[out[1]->index]++;
	}
	assert_int_equal(landed[2], 0);
	for (int i = 0; i < 8; i++)
		if (i != 2)
			assert_in_range(landed[i], CONNECTIONS / 7 / 2, CONNECTIONS / 7 * 2);
}

static void another_chip_comes_before_the_second_port_of_the_same(void **state)
{
	struct ha_nic *dual = add_nic(0, SYS "pci0000:10/0000:10:01.0/0000:11:00.0");
	/* The second function of that card: a device of its own with the same GUID. */
	struct ha_nic *function = add_nic(0, SYS "pci0000:10/0000:10:01.0/0000:11:00.1");
	struct ha_nic *far = add_nic(1, SYS "pci0000:80/0000:80:01.0/0000:81:00.0");
	struct ha_port *primary = add_port(dual, 200000), *second = add_port(dual, 200000);
	struct ha_port *twin = add_port(function, 200000), *other = add_port(far, 200000);
	struct ha_port *out[8];

	(void)state;
	function->guid = dual->guid;
	assert_int_equal(ha_standby_rank(&set, primary, 5, out, 8), 4);
	assert_ptr_equal(out[1], other);
	assert_ptr_equal(out[2], second);
	assert_ptr_equal(out[3], twin);
	/* No GUID is no chip in common. */
	function->guid = dual->guid = 0;
	assert_int_equal(ha_standby_rank(&set, primary, 5, out, 8), 4);
	assert_ptr_equal(out[1], twin);
	assert_ptr_equal(out[3], second);
}

static void speed_decides_among_the_near_and_slow_ports_come_last(void **state)
{
	struct ha_nic *sw[5];
	struct ha_port *primary, *slower, *equal, *faster, *management, *second, *out[8];

	(void)state;
	for (int i = 0; i < 5; i++)
		sw[i] = add_nic(0,
				SYS "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:%02x.0/"
				    "0000:%02x:00.0",
				i, 0x13 + i);
	primary = add_port(sw[0], 200000);
	second = add_port(sw[0], 200000);
	management = add_port(sw[1], 25000);
	slower = add_port(sw[2], 100000);
	faster = add_port(sw[3], 400000);
	equal = add_port(sw[4], 200000);
	assert_int_equal(ha_standby_rank(&set, primary, 1, out, 8), 6);
	assert_ptr_equal(out[1], equal);
	assert_ptr_equal(out[2], faster);
	assert_ptr_equal(out[3], slower);
	assert_ptr_equal(out[4], second);
	assert_ptr_equal(out[5], management);
}

static void a_port_of_another_link_layer_is_no_candidate(void **state)
{
	struct ha_port *primary = add_port(add_nic(0, "%s", ""), 400000);
	struct ha_port *infiniband = add_port(add_nic(0, "%s", ""), 400000);
	struct ha_port *out[4];

	(void)state;
	infiniband->link_layer = IBV_LINK_LAYER_INFINIBAND;
	assert_int_equal(ha_standby_rank(&set, primary, 1, out, 4), 1);
	assert_ptr_equal(out[0], primary);
	assert_int_equal(ha_standby_rank(&set, infiniband, 1, out, 4), 1);
	assert_ptr_equal(out[0], infiniband);
}

/* ---- fabrics -------------------------------------------------------------------------------- */

static enum ha_fabric between(uint8_t layer_a, const char *gid_a, uint8_t layer_b,
			      const char *gid_b)
{
	struct ha_port_addr local = {.link_layer = layer_a};
	union ibv_gid remote;

	assert_int_equal(inet_pton(AF_INET6, gid_a, local.gid.raw), 1);
	assert_int_equal(inet_pton(AF_INET6, gid_b, remote.raw), 1);
	return ha_fabric_between(&local, layer_b, &remote);
}

static void addresses_say_who_may_reach_whom(void **state)
{
	const uint8_t roce = IBV_LINK_LAYER_ETHERNET, ib = IBV_LINK_LAYER_INFINIBAND;

	(void)state;
	assert_int_equal(between(roce, "::ffff:10.1.0.1", ib, "::ffff:10.1.0.2"), HA_FABRIC_NEVER);
	assert_int_equal(between(roce, "::ffff:10.1.0.1", roce, "::ffff:10.1.0.200"),
			 HA_FABRIC_SAME);
	assert_int_equal(between(roce, "::ffff:10.1.0.1", roce, "::ffff:10.1.1.1"),
			 HA_FABRIC_POSSIBLE);
	assert_int_equal(between(roce, "::ffff:10.1.0.1", roce, "fd00::1"), HA_FABRIC_NEVER);
	assert_int_equal(between(roce, "fd00:1::1", roce, "fd00:1::2"), HA_FABRIC_SAME);
	assert_int_equal(between(roce, "fd00:1::1", roce, "fd00:2::1"), HA_FABRIC_POSSIBLE);
	assert_int_equal(between(roce, "fe80::1", roce, "fe80::2"), HA_FABRIC_POSSIBLE);
	assert_int_equal(between(roce, "fe80::1", roce, "::ffff:10.1.0.2"), HA_FABRIC_NEVER);
	assert_int_equal(between(ib, "fe80::1", ib, "fe80::2"), HA_FABRIC_SAME);
	assert_int_equal(between(ib, "fec0:0:0:1::1", ib, "fec0:0:0:2::1"), HA_FABRIC_POSSIBLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(distances_in_a_server_with_switches),
	    cmocka_unit_test(distances_in_a_virtual_machine),
	    cmocka_unit_test(distances_of_what_is_not_on_pci),
	    cmocka_unit_test_setup(the_neighbour_on_the_switch_then_the_socket_then_the_rest,
				   clear),
	    cmocka_unit_test_setup(the_same_answer_every_time_and_no_more_than_asked_for, clear),
	    cmocka_unit_test_setup(connections_of_one_nic_spread_over_its_equals, clear),
	    cmocka_unit_test_setup(another_chip_comes_before_the_second_port_of_the_same, clear),
	    cmocka_unit_test_setup(speed_decides_among_the_near_and_slow_ports_come_last, clear),
	    cmocka_unit_test_setup(a_port_of_another_link_layer_is_no_candidate, clear),
	    cmocka_unit_test(addresses_say_who_may_reach_whom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
