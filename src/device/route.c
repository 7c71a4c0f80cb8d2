/* SPDX-License-Identifier: Apache-2.0 */
#include "device/route.h"

#include "device/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define TIMEOUT_US   500000
#define ANSWER_BYTES 4096
#define IPV4_OFFSET  12 /* of the address in a GID */
#define SEQ	     1u

/* An address as the kernel has it: of 4 or 16 bytes. */
struct address {
	uint8_t family;
	uint8_t length;
	const uint8_t *bytes;
};

static struct address address_of(const union ibv_gid *gid)
{
	if (ha_gid_is_ipv4(gid))
		return (struct address){AF_INET, 4, gid->raw + IPV4_OFFSET};
	return (struct address){AF_INET6, 16, gid->raw};
}

/* ---- whose address it is --------------------------------------------------------------------- */

static bool is_address(const struct sockaddr *addr, const struct address *wanted)
{
	const void *bytes;

	if (!addr || addr->sa_family != wanted->family)
		return false;
	if (wanted->family == AF_INET)
		bytes = &((const struct sockaddr_in *)(const void *)addr)->sin_addr;
	else
		bytes = &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr;
	return memcmp(bytes, wanted->bytes, wanted->length) == 0;
}

static bool interface_has(uint32_t ifindex, const struct address *wanted)
{
	char name[IF_NAMESIZE];
	struct ifaddrs *all;
	bool found = false;

	if (!if_indextoname(ifindex, name) || getifaddrs(&all) != 0)
		return false;
	for (const struct ifaddrs *one = all; one && !found; one = one->ifa_next)
		found = strcmp(one->ifa_name, name) == 0 && is_address(one->ifa_addr, wanted);
	freeifaddrs(all);
	return found;
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct question {
	struct nlmsghdr header;
	struct rtmsg route;
	uint8_t attributes[64];
};

static void add(struct question *q, unsigned short type, const void *data, size_t length)
{
	struct rtattr *attr =
	    (struct rtattr *)(void *)((uint8_t *)q + NLMSG_ALIGN(q->header.nlmsg_len));

	attr->rta_type = type;
	attr->rta_len = (unsigned short)RTA_LENGTH(length);
	memcpy(RTA_DATA(attr), data, length);
	q->header.nlmsg_len =
	    (uint32_t)(NLMSG_ALIGN(q->header.nlmsg_len) + RTA_ALIGN(attr->rta_len));
}

/* For what is in the tables: without FIB_MATCH the kernel takes any IPv4 address for one on the
 * link of an interface that is named. */
static struct question question_of(const struct address *from, const struct address *to,
				   uint32_t ifindex)
{
	struct question q = {
	    .header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
		       .nlmsg_type = RTM_GETROUTE,
		       .nlmsg_flags = NLM_F_REQUEST,
		       .nlmsg_seq = SEQ},
	    .route = {.rtm_family = from->family,
		      .rtm_dst_len = (uint8_t)(to->length * 8),
		      .rtm_src_len = (uint8_t)(from->length * 8),
		      .rtm_flags = RTM_F_FIB_MATCH},
	};

	add(&q, RTA_DST, to->bytes, to->length);
	add(&q, RTA_SRC, from->bytes, from->length);
	add(&q, RTA_OIF, &ifindex, sizeof(ifindex));
	return q;
}

static enum ha_route ask(int fd, const struct question *q, uint32_t ifindex)
{
	const struct timeval timeout = {.tv_usec = TIMEOUT_US};
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	_Alignas(struct nlmsghdr) uint8_t answer[ANSWER_BYTES];
	ssize_t n;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) != 0 ||
	    sendto(fd, q, q->header.nlmsg_len, 0, (const struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return HA_ROUTE_UNKNOWN;
	n = recv(fd, answer, sizeof(answer), 0);
	return n < 0 ? HA_ROUTE_UNKNOWN
		     : ha_route_parse(answer, (size_t)n, q->header.nlmsg_seq, ifindex);
}

enum ha_route ha_route_ask(const struct ha_port_addr *own, const uint8_t remote_gid[16])
{
	struct address from, to;
	struct question q;
	union ibv_gid remote;
	enum ha_route route;
	int fd;

	memcpy(remote.raw, remote_gid, sizeof(remote.raw));
	from = address_of(&own->gid);
	to = address_of(&remote);
	if (own->link_layer != IBV_LINK_LAYER_ETHERNET || own->ifindex == 0 ||
	    from.family != to.family || ha_gid_is_link_local(&own->gid) ||
	    ha_gid_is_link_local(&remote) || !interface_has(own->ifindex, &from))
		return HA_ROUTE_UNKNOWN;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return HA_ROUTE_UNKNOWN;
	q = question_of(&from, &to, own->ifindex);
	route = ask(fd, &q, own->ifindex);
	close(fd);
	return route;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static enum ha_route of_error(int error)
{
	switch (error) {
	case -ENETUNREACH:
	case -EHOSTUNREACH:
	case -EACCES: /* an administrator's route says so */
		return HA_ROUTE_NONE;
	default: /* a kernel that does not know the question, an address that is gone */
		return HA_ROUTE_UNKNOWN;
	}
}

/* By the interface that was asked for, or by several of which that is one. */
static bool leaves_by(const struct nlmsghdr *header, uint32_t ifindex)
{
	const struct rtattr *attr = RTM_RTA(NLMSG_DATA(header));
	size_t left = header->nlmsg_len - NLMSG_LENGTH(sizeof(struct rtmsg));
	uint32_t oif;

	while (RTA_OK(attr, left)) {
		if (attr->rta_type == RTA_OIF && RTA_PAYLOAD(attr) >= sizeof(oif)) {
			memcpy(&oif, RTA_DATA(attr), sizeof(oif));
			return oif == ifindex;
		}
		if (RTA_ALIGN(attr->rta_len) > left) /* the last one, which nothing fills up */
			break;
		attr = RTA_NEXT(attr, left);
	}
	return true;
}

static enum ha_route of_route(const struct nlmsghdr *header, uint32_t ifindex)
{
	const struct rtmsg *route = NLMSG_DATA(header);

	if (header->nlmsg_len < NLMSG_LENGTH(sizeof(*route)))
		return HA_ROUTE_UNKNOWN;
	switch (route->rtm_type) {
	case RTN_UNREACHABLE:
	case RTN_PROHIBIT:
	case RTN_BLACKHOLE:
		return HA_ROUTE_NONE;
	default:
		return leaves_by(header, ifindex) ? HA_ROUTE_FOUND : HA_ROUTE_UNKNOWN;
	}
}

enum ha_route ha_route_parse(const void *answer, size_t length, uint32_t seq, uint32_t ifindex)
{
	const struct nlmsghdr *header = answer;

	if (length < sizeof(*header) || header->nlmsg_len < sizeof(*header) ||
	    header->nlmsg_len > length || header->nlmsg_seq != seq)
		return HA_ROUTE_UNKNOWN;
	if (header->nlmsg_type == RTM_NEWROUTE)
		return of_route(header, ifindex);
	if (header->nlmsg_type == NLMSG_ERROR &&
	    header->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)))
		return of_error(((const struct nlmsgerr *)NLMSG_DATA(header))->error);
	return HA_ROUTE_UNKNOWN;
}
