/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what the kernel says of routes and mounts, some of whose names are a user's: the
 * answer to a question about a route, a line of mountinfo, the tables of routes. No answer says
 * more than it holds, who mounts something calls it what he likes, and nothing but an interface of
 * ours is taken for one.
 */
#include "fuzz.h"

/* What is asked stands inside of these. */
#include "../../src/base/mount.c"
#include "../../src/base/net.c"
#include "device/route.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#define SEQ	5
#define IFINDEX 3

/* In every other input the number of the question is put right. */
static void route_answer(uint8_t *data, size_t size)
{
	_Alignas(struct nlmsghdr) uint8_t answer[4096];
	struct nlmsghdr *header = (struct nlmsghdr *)(void *)answer;
	enum ha_route route;

	if (size > sizeof(answer))
		return;
	memcpy(answer, data, size);
	if (size > sizeof(*header) && size % 2)
		header->nlmsg_seq = SEQ;
	route = ha_route_parse(answer, size, SEQ, IFINDEX);
	if (size < sizeof(*header) || header->nlmsg_len > size || header->nlmsg_seq != SEQ)
		FUZZ_CHECK(route == HA_ROUTE_UNKNOWN);
	FUZZ_CHECK(route == HA_ROUTE_UNKNOWN || route == HA_ROUTE_FOUND || route == HA_ROUTE_NONE);
}

/* Of FUSE it is ours only by the kernel's own word. */
static void mount_line(uint8_t *data, size_t size)
{
	char *line = strndup((const char *)data, size);
	const char *type = line ? strstr(line, " - fuse") : NULL;

	if (!line)
		abort();
	if (!is_served_by_another(line) && type && type == strstr(line, " - ") &&
	    strncmp(type, " - fusectl ", 11) != 0)
		FUZZ_CHECK(strstr(type, ",user_id=") != NULL);
	free(line);
}

static void route_tables(uint8_t *data, size_t size)
{
	struct ha_netif all[3] = {{.name = "eth0"}, {.name = "a:b"}, {.name = "eth1"}};

	for (unsigned i = 0; i < 2; i++) {
		FILE *in = size ? fmemopen(data, size, "r") : NULL;

		if (!in)
			return;
		(i ? read_ipv6_routes : read_ipv4_routes)(in, all, 2);
		fclose(in);
	}
	FUZZ_CHECK(!all[2].default_route); /* none of the two that were given */
	FUZZ_CHECK(!strcmp(all[0].name, "eth0") && !strcmp(all[1].name, "a:b"));
}

static const fuzz_decoder decoders[] = {route_answer, mount_line, route_tables};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_one_of(decoders, sizeof(decoders) / sizeof(decoders[0]), data, size);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

struct route {
	uint8_t decoder;
	struct nlmsghdr header;
	struct rtmsg route;
	struct rtattr attr;
	uint32_t oif;
	uint8_t odd;
} __attribute__((packed));

struct error {
	uint8_t decoder;
	struct nlmsghdr header;
	struct nlmsgerr error;
	uint8_t odd[2];
} __attribute__((packed));

static const struct route found = {
    .header = {.nlmsg_len = sizeof(struct route) - 2, .nlmsg_type = RTM_NEWROUTE, .nlmsg_seq = SEQ},
    .attr = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_OIF},
    .oif = IFINDEX};
static const struct error unreachable = {
    .header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct nlmsgerr)),
	       .nlmsg_type = NLMSG_ERROR,
	       .nlmsg_seq = SEQ},
    .error = {.error = -ENETUNREACH}};

const struct fuzz_seed fuzz_seeds[] = {
    {&found, sizeof(found)},
    {&unreachable, sizeof(unreachable)},
    FUZZ_TEXT("\1"
	      "36 35 98:0 / /mnt rw - fuse.sshfs a:/b rw,user_id=1000,group_id=1000"),
    FUZZ_TEXT("\1"
	      "36 35 98:0 / /mnt\\040- rw shared:1 - ext4 /dev/sda1 rw"),
    FUZZ_TEXT("\2"
	      "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
	      "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"),
    FUZZ_TEXT("\2"
	      "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
	      "fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth1\n"),
    {NULL, 0},
};
