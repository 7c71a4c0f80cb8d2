/* SPDX-License-Identifier: Apache-2.0 */
/* The interface for connection set-up: NCCL's defaults, its variables, and addresses as text. */
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "base/net.h"

#include <arpa/inet.h>

static struct ha_netif netif(const char *name, const char *address)
{
	struct ha_netif n = {.up = true};

	snprintf(n.name, sizeof n.name, "%s", name);
	if (strchr(address, ':')) {
		n.addr.in6.sin6_family = AF_INET6;
		assert_int_equal(inet_pton(AF_INET6, address, &n.addr.in6.sin6_addr), 1);
	} else {
		n.addr.in.sin_family = AF_INET;
		assert_int_equal(inet_pton(AF_INET, address, &n.addr.in.sin_addr), 1);
	}
	return n;
}

static struct ha_netif all[8];
static int nall;

static void given(const char *name, const char *address)
{
	all[nall++] = netif(name, address);
}

/* The name chosen, with a 6 after it for an IPv6 address; "-" for none. */
static const char *chosen(const char *ifname, int family)
{
	static char text[IF_NAMESIZE + 2];
	struct ha_config config = {.socket_family = family};
	int i;

	snprintf(config.socket_ifname, sizeof config.socket_ifname, "%s", ifname);
	i = ha_net_select(&config, all, nall);
	if (i < 0)
		return "-";
	snprintf(text, sizeof text, "%s%s", all[i].name,
		 all[i].addr.sa.sa_family == AF_INET6 ? "6" : "");
	return text;
}

static int setup(void **state)
{
	(void)state;
	capture_log();
	nall = 0;
	return 0;
}

static void defaults_prefer_ib_then_anything_real_then_docker_then_lo(void **state)
{
	(void)state;
	given("lo", "127.0.0.1");
	assert_string_equal(chosen("", AF_UNSPEC), "lo");
	given("docker0", "172.17.0.1");
	assert_string_equal(chosen("", AF_UNSPEC), "docker0");
	given("virbr0", "192.168.122.1");
	assert_string_equal(chosen("", AF_UNSPEC), "docker0");
	given("eth0", "10.0.0.1");
	assert_string_equal(chosen("", AF_UNSPEC), "eth0");
	given("ib0", "10.1.0.1");
	assert_string_equal(chosen("", AF_UNSPEC), "ib0");
}

/* What fails with the fabric, and what leads nowhere, is taken when there is nothing else. */
static void the_way_that_does_not_fail_with_the_fabric_comes_first(void **state)
{
	(void)state;
	given("lo", "127.0.0.1");
	given("ib0", "10.1.0.1");
	all[nall - 1].fabric = all[nall - 1].physical = true;
	assert_string_equal(chosen("", AF_UNSPEC), "ib0");
	given("cni0", "10.244.0.1"); /* pods of this host */
	assert_string_equal(chosen("", AF_UNSPEC), "ib0");
	given("idrac", "169.254.3.2"); /* a service processor */
	all[nall - 1].physical = true;
	given("idrac", "fe80::5");
	all[nall - 1].physical = true;
	assert_string_equal(chosen("", AF_UNSPEC), "ib0");
	given("eno1", "192.168.0.1");
	all[nall - 1].physical = true;
	assert_string_equal(chosen("", AF_UNSPEC), "eno1");
	given("eth0", "10.2.0.1"); /* of a container */
	all[nall - 1].default_route = true;
	assert_string_equal(chosen("", AF_UNSPEC), "eth0");
	given("docker0", "172.17.0.1");
	all[nall - 1].default_route = true;
	assert_string_equal(chosen("", AF_UNSPEC), "eth0");
}

static void a_default_route_over_the_fabric_is_not_preferred(void **state)
{
	(void)state;
	given("eth4", "10.1.0.1"); /* of a RoCE NIC */
	all[nall - 1].fabric = all[nall - 1].physical = all[nall - 1].default_route = true;
	assert_string_equal(chosen("", AF_UNSPEC), "eth4");
	given("eno1", "192.168.0.1");
	all[nall - 1].physical = true;
	assert_string_equal(chosen("", AF_UNSPEC), "eno1");
	all[nall - 1].up = false;
	assert_string_equal(chosen("", AF_UNSPEC), "eth4");
}

/* Who names one means it. */
static void what_is_asked_for_is_taken_as_nccl_does_it(void **state)
{
	(void)state;
	given("ib0", "10.1.0.1");
	all[nall - 1].fabric = true;
	given("ib0", "fd00::1");
	all[nall - 1].fabric = true;
	given("eno1", "192.168.0.1");
	all[nall - 1].default_route = all[nall - 1].physical = true;
	assert_string_equal(chosen("", AF_UNSPEC), "eno1");
	assert_string_equal(chosen("ib", AF_UNSPEC), "ib0");
	assert_string_equal(chosen("=ib0", AF_INET6), "ib06");
	assert_string_equal(chosen("^eno", AF_UNSPEC), "ib0");
	assert_string_equal(chosen("", AF_INET6), "ib06"); /* nothing else of this family */
}

static void ifname_takes_prefixes_exact_names_and_exclusions(void **state)
{
	(void)state;
	given("lo", "127.0.0.1");
	given("eth0", "10.0.0.1");
	given("eth01", "10.0.1.1");
	given("ib0", "10.1.0.1");
	assert_string_equal(chosen("eth", AF_UNSPEC), "eth0");
	assert_string_equal(chosen("=eth01", AF_UNSPEC), "eth01");
	assert_string_equal(chosen("eth0,ib", AF_UNSPEC), "eth0");
	assert_string_equal(chosen("^eth,ib", AF_UNSPEC), "lo");
	assert_string_equal(chosen("^=eth0", AF_UNSPEC), "lo");
	assert_string_equal(chosen("^lo,=x", AF_UNSPEC), "eth0");
	assert_string_equal(chosen("=eth", AF_UNSPEC), "-");
}

static void family_restricts_the_choice(void **state)
{
	(void)state;
	given("eth0", "10.0.0.1");
	given("eth0", "fd00::1");
	assert_string_equal(chosen("", AF_UNSPEC), "eth0");
	assert_string_equal(chosen("", AF_INET6), "eth06");
	assert_string_equal(chosen("", AF_INET), "eth0");
}

static void what_cannot_carry_a_connection_is_passed_over(void **state)
{
	(void)state;
	given("lo", "::1");
	assert_string_equal(chosen("", AF_UNSPEC), "-");
	given("eth0", "10.0.0.1");
	all[nall - 1].up = false;
	assert_string_equal(chosen("", AF_UNSPEC), "-");
	given("eth1", "10.0.0.2");
	all[nall - 1].addr.sa.sa_family = AF_UNIX;
	assert_string_equal(chosen("", AF_UNSPEC), "-");
}

static void this_machine_has_an_interface(void **state)
{
	struct ha_config config = {.socket_family = AF_UNSPEC};
	struct ha_netif here[HA_NETIFS_MAX], got;
	int n = ha_net_list(here, HA_NETIFS_MAX);

	(void)state;
	strcpy(config.socket_ifname, "lo");
	config.socket_family = AF_INET;
	assert_int_equal(ha_net_choose(&config, here, n, &got), HA_OK);
	assert_string_equal(got.name, "lo");
	assert_true(logged("connection set-up over lo, 127.0.0.1:0"));
	assert_false(logged("fails with it"));
	for (int i = 0; i < n; i++)
		here[i].fabric = true;
	assert_int_equal(ha_net_choose(&config, here, n, &got), HA_OK);
	assert_true(logged("127.0.0.1:0, which goes over a NIC of the fabric and fails with it"));
	strcpy(config.socket_ifname, "=no-such-thing");
	assert_int_equal(ha_net_choose(&config, here, n, &got), HA_ERR_SYSTEM);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("NCCL_SOCKET_IFNAME=no-such-thing") ||
		    logged("NCCL_SOCKET_IFNAME==no-such-thing"));
}

/* How many lines warn where this is the only interface. */
static int warnings_with(struct ha_config config, const char *address)
{
	struct ha_netif got;

	captured_warnings = nall = 0;
	given("eth0", address);
	config.socket_family = AF_UNSPEC;
	assert_int_equal(ha_net_choose(&config, all, nall, &got), HA_OK);
	return captured_warnings;
}

static void
an_address_that_the_world_may_reach_is_warned_about_unless_somebody_chose_it(void **state)
{
	static const char *const global[] = {
	    "9.255.255.255", "11.0.0.1",	"100.63.0.1",	   "100.128.0.1",
	    "126.1.1.1",     "128.0.0.1",	"169.253.0.1",	   "172.15.255.255",
	    "172.32.0.1",    "192.0.1.1",	"192.0.3.1",	   "192.167.0.1",
	    "192.169.0.1",   "223.255.255.255", "2001:4860::8888", "2a00::1"};
	static const char *const others[] = {
	    "10.0.0.1",	   "100.64.0.1", "100.127.255.255", "127.0.0.1",
	    "169.254.1.1", "172.16.0.1", "172.31.255.1",    "192.0.2.2",
	    "192.168.1.1", "198.19.1.1", "198.51.100.1",    "203.0.113.9",
	    "2001:db8::1", "fd00::1",	 "fe80::1",	    "fc00::1"};
	const struct ha_config none = {.auth = HA_AUTH_IF_KEY, .job_key_fd = -1};
	struct ha_config chosen = none, key = none, off;

	(void)state;
	for (size_t i = 0; i < sizeof(global) / sizeof(global[0]); i++) {
		assert_int_equal(warnings_with(none, global[i]), 1);
		assert_true(logged(global[i]));
	}
	assert_true(logged("NCCL_SOCKET_IFNAME") && logged("HA_NCCL_JOB_KEY_FILE"));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_int_equal(warnings_with(none, others[i]), 0);
	strcpy(chosen.socket_ifname, "eth");
	assert_int_equal(warnings_with(chosen, global[0]), 0);
	strcpy(key.job_key_file, "/job/key");
	assert_int_equal(warnings_with(key, global[0]), 0);
	off = key;
	off.auth = HA_AUTH_OFF;
	assert_int_equal(warnings_with(off, global[0]), 1);
	key = none;
	key.job_key_fd = 3;
	assert_int_equal(warnings_with(key, global[0]), 0);
}

static void addresses_print_as_people_write_them(void **state)
{
	char text[HA_SOCKADDR_TEXT_MAX];
	struct ha_netif v4 = netif("a", "10.1.2.3"), v6 = netif("a", "fe80::1");
	union ha_sockaddr other = {.sa.sa_family = AF_UNIX};

	(void)state;
	v4.addr.in.sin_port = htons(4711);
	v6.addr.in6.sin6_port = htons(80);
	assert_string_equal(ha_sockaddr_text(&v4.addr, text, sizeof text), "10.1.2.3:4711");
	assert_string_equal(ha_sockaddr_text(&v6.addr, text, sizeof text), "[fe80::1]:80");
	v6.addr.in6.sin6_scope_id = 2;
	assert_string_equal(ha_sockaddr_text(&v6.addr, text, sizeof text), "[fe80::1%2]:80");
	assert_string_equal(ha_sockaddr_text(NULL, text, sizeof text), "none");
	assert_string_equal(ha_sockaddr_text(&other, text, sizeof text), "address family 1");
	assert_int_equal(ha_sockaddr_len(&v4.addr), sizeof(struct sockaddr_in));
	assert_int_equal(ha_sockaddr_len(&v6.addr), sizeof(struct sockaddr_in6));
	assert_int_equal(ha_sockaddr_len(&other), 0);
}

/* The kernel lists a link's own address first where it was there first. */
static void an_address_that_leads_somewhere_comes_before_a_links_own(void **state)
{
	(void)state;
	given("eth0", "fe80::1");
	assert_string_equal(chosen("eth0", AF_UNSPEC), "eth06");
	assert_string_equal(chosen("", AF_INET6), "eth06");
	given("eth0", "169.254.1.1");
	given("eth0", "2001:db8::1");
	for (int asked = 0; asked < 2; asked++) {
		struct ha_config config = {.socket_family = AF_UNSPEC};

		snprintf(config.socket_ifname, sizeof config.socket_ifname, "%s",
			 asked ? "eth0" : "");
		assert_int_equal(ha_net_select(&config, all, nall), 2);
	}
}

/* An interface's number means nothing at another host. */
static void a_links_own_address_is_reached_over_an_interface_of_ours(void **state)
{
	struct ha_netif local = netif("a", "fe80::1"), global = netif("a", "2001:db8::1"),
			v4 = netif("a", "10.0.0.1");
	const struct ha_netif before = v4;

	(void)state;
	local.addr.in6.sin6_scope_id = global.addr.in6.sin6_scope_id = 77;
	ha_net_reach_over(&local.addr, 3);
	ha_net_reach_over(&global.addr, 3);
	ha_net_reach_over(&v4.addr, 3);
	assert_int_equal(local.addr.in6.sin6_scope_id, 3);
	assert_int_equal(global.addr.in6.sin6_scope_id, 0);
	assert_memory_equal(&v4, &before, sizeof(v4));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(defaults_prefer_ib_then_anything_real_then_docker_then_lo,
				   setup),
	    cmocka_unit_test_setup(the_way_that_does_not_fail_with_the_fabric_comes_first, setup),
	    cmocka_unit_test_setup(a_default_route_over_the_fabric_is_not_preferred, setup),
	    cmocka_unit_test_setup(what_is_asked_for_is_taken_as_nccl_does_it, setup),
	    cmocka_unit_test_setup(ifname_takes_prefixes_exact_names_and_exclusions, setup),
	    cmocka_unit_test_setup(family_restricts_the_choice, setup),
	    cmocka_unit_test_setup(what_cannot_carry_a_connection_is_passed_over, setup),
	    cmocka_unit_test_setup(an_address_that_leads_somewhere_comes_before_a_links_own, setup),
	    cmocka_unit_test_setup(a_links_own_address_is_reached_over_an_interface_of_ours, setup),
	    cmocka_unit_test_setup(this_machine_has_an_interface, setup),
	    cmocka_unit_test_setup(
		an_address_that_the_world_may_reach_is_warned_about_unless_somebody_chose_it,
		setup),
	    cmocka_unit_test_setup(addresses_print_as_people_write_them, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
