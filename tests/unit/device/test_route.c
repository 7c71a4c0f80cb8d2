/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel's routes say of two RoCE addresses: in a network namespace of its own, with
 * a network for each link and no way between them but what a test adds.
 */
#include "../cmocka_all.h"

#include "device/gid.h"
#include "device/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(const char *command)
{
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

/* Two rails, a /31 and a /127 on each. */
static int make_rails(void **state)
{
	int flags = CLONE_NEWNET | (geteuid() == 0 ? 0 : CLONE_NEWUSER);

	(void)state;
	if (unshare(flags) != 0)
		fail_msg("no network namespace of our own (%s): run it where unshare -rn works",
			 strerror(errno));
	must("ip link add r0 type veth peer name p0 && ip link add r1 type veth peer name p1");
	must("ip address add 10.9.0.0/31 dev r0 && ip address add 10.9.0.2/31 dev r1");
	must("ip address add 2001:db8:0:1::/127 dev r0 nodad");
	must("ip address add 2001:db8:0:2::/127 dev r1 nodad");
	must("for i in r0 p0 r1 p1; do ip link set $i up; done");
	return 0;
}

static struct ha_port_addr port_on(const char *interface, const char *address)
{
	struct ha_port_addr own = {.link_layer = IBV_LINK_LAYER_ETHERNET,
				   .ifindex = if_nametoindex(interface)};

	assert_int_not_equal(own.ifindex, 0);
	assert_int_equal(inet_pton(AF_INET6, address, own.gid.raw), 1);
	return own;
}

static enum ha_route route(const struct ha_port_addr *own, const char *remote)
{
	uint8_t gid[16];

	assert_int_equal(inet_pton(AF_INET6, remote, gid), 1);
	return ha_route_ask(own, gid);
}

static void rails_of_two_addresses_reach_their_own_end_alone(void **state)
{
	struct ha_port_addr r0 = port_on("r0", "::ffff:10.9.0.0");
	struct ha_port_addr r1 = port_on("r1", "::ffff:10.9.0.2");

	(void)state;
	assert_int_equal(route(&r0, "::ffff:10.9.0.1"), HA_ROUTE_FOUND);
	assert_int_equal(route(&r1, "::ffff:10.9.0.3"), HA_ROUTE_FOUND);
	/* Within 24 bits of each other, and no packet gets there. */
	assert_int_equal(route(&r0, "::ffff:10.9.0.3"), HA_ROUTE_NONE);
	assert_int_equal(route(&r1, "::ffff:10.9.0.1"), HA_ROUTE_NONE);
	/* Routed rails. */
	must("ip route add 10.9.0.2/31 via 10.9.0.1 dev r0 metric 9");
	assert_int_equal(route(&r0, "::ffff:10.9.0.3"), HA_ROUTE_FOUND);
	assert_int_equal(route(&r1, "::ffff:10.9.0.1"), HA_ROUTE_NONE);
	must("ip route del 10.9.0.2/31 via 10.9.0.1 dev r0");
	/* A table of each rail, as in `ip rule add from ADDRESS`. */
	must("ip route add default via 10.9.0.3 dev r1 table 101 && "
	     "ip rule add from 10.9.0.2 table 101");
	assert_int_equal(route(&r1, "::ffff:10.9.0.1"), HA_ROUTE_FOUND);
	assert_int_equal(route(&r0, "::ffff:10.9.0.3"), HA_ROUTE_NONE);
	must("ip rule del from 10.9.0.2 table 101");
}

static void the_same_of_ipv6(void **state)
{
	struct ha_port_addr r0 = port_on("r0", "2001:db8:0:1::");

	(void)state;
	assert_int_equal(route(&r0, "2001:db8:0:1::1"), HA_ROUTE_FOUND);
	assert_int_equal(route(&r0, "2001:db8:0:3::1"), HA_ROUTE_NONE);
	must("ip -6 route add 2001:db8:0:3::/64 via 2001:db8:0:1::1 dev r0");
	assert_int_equal(route(&r0, "2001:db8:0:3::1"), HA_ROUTE_FOUND);
}

static void an_administrators_route_counts(void **state)
{
	struct ha_port_addr r0 = port_on("r0", "::ffff:10.9.0.0");

	(void)state;
	must("ip route add unreachable 10.9.7.0/24");
	assert_int_equal(route(&r0, "::ffff:10.9.7.1"), HA_ROUTE_NONE);
}

static void addresses_that_are_not_the_kernels_are_not_its_business(void **state)
{
	struct ha_port_addr simulated = port_on("r0", "::ffff:10.0.0.1");
	struct ha_port_addr other = port_on("r1", "::ffff:10.9.0.0");
	struct ha_port_addr local = port_on("r0", "fe80::1");
	struct ha_port_addr r0 = port_on("r0", "::ffff:10.9.0.0");

	(void)state;
	assert_int_equal(route(&simulated, "::ffff:10.1.0.2"), HA_ROUTE_UNKNOWN);
	assert_int_equal(route(&other, "::ffff:10.9.0.3"), HA_ROUTE_UNKNOWN);
	assert_int_equal(route(&local, "fe80::2"), HA_ROUTE_UNKNOWN);
	assert_int_equal(route(&r0, "2001:db8::1"), HA_ROUTE_UNKNOWN);
	r0.ifindex = 0;
	assert_int_equal(route(&r0, "::ffff:10.9.0.3"), HA_ROUTE_UNKNOWN);
	r0.ifindex = 4711;
	assert_int_equal(route(&r0, "::ffff:10.9.0.3"), HA_ROUTE_UNKNOWN);
	r0 = port_on("r0", "::ffff:10.9.0.0");
	r0.link_layer = IBV_LINK_LAYER_INFINIBAND;
	assert_int_equal(route(&r0, "::ffff:10.9.0.3"), HA_ROUTE_UNKNOWN);
}

struct answer {
	struct nlmsghdr header;
	union {
		struct nlmsgerr error;
		struct rtmsg route;
	};
};

static void an_answer_is_taken_for_what_it_is(void **state)
{
	static const struct {
		int error;
		enum ha_route route;
	} errors[] = {{-ENETUNREACH, HA_ROUTE_NONE},
		      {-EHOSTUNREACH, HA_ROUTE_NONE},
		      {-EACCES, HA_ROUTE_NONE},
		      {-EINVAL, HA_ROUTE_UNKNOWN},
		      {-EOPNOTSUPP, HA_ROUTE_UNKNOWN},
		      {-EPERM, HA_ROUTE_UNKNOWN},
		      {0, HA_ROUTE_UNKNOWN}};
	struct answer a = {.header = {.nlmsg_type = NLMSG_ERROR, .nlmsg_seq = 5}};
	size_t length;

	(void)state;
	length = a.header.nlmsg_len = NLMSG_LENGTH(sizeof(a.error));
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		a.error.error = errors[i].error;
		assert_int_equal(ha_route_parse(&a, length, 5, 1), errors[i].route);
	}
	a.error.error = -ENETUNREACH;
	assert_int_equal(ha_route_parse(&a, length, 6, 1), HA_ROUTE_UNKNOWN);
	for (size_t cut = 0; cut < length; cut++)
		assert_int_equal(ha_route_parse(&a, cut, 5, 1), HA_ROUTE_UNKNOWN);
	a.header.nlmsg_type = RTM_NEWROUTE;
	for (uint8_t type = RTN_UNSPEC; type <= RTN_PROHIBIT; type++) {
		bool none =
		    type == RTN_BLACKHOLE || type == RTN_UNREACHABLE || type == RTN_PROHIBIT;

		length = a.header.nlmsg_len = NLMSG_LENGTH(sizeof(a.route));
		a.route = (struct rtmsg){.rtm_type = type};
		assert_int_equal(ha_route_parse(&a, length, 5, 1),
				 none ? HA_ROUTE_NONE : HA_ROUTE_FOUND);
	}
	a.header.nlmsg_type = NLMSG_DONE;
	assert_int_equal(ha_route_parse(&a, length, 5, 1), HA_ROUTE_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rails_of_two_addresses_reach_their_own_end_alone),
	    cmocka_unit_test(the_same_of_ipv6),
	    cmocka_unit_test(an_administrators_route_counts),
	    cmocka_unit_test(addresses_that_are_not_the_kernels_are_not_its_business),
	    cmocka_unit_test(an_answer_is_taken_for_what_it_is),
	};

	return cmocka_run_group_tests(tests, make_rails, NULL);
}
