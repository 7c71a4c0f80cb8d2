/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet addresses of IP addresses, asked of the kernel over rtnetlink; see neighbours.h. */
#include "simverbs/roce/neighbours.h"

#include "simverbs/roce/icrc.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdalign.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_BYTES   32768
#define ANSWER_LIMIT_S 1
/* In these states the kernel would use it. */
#define USABLE (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP)

/* An IP address as netlink has it. */
struct ip {
	uint8_t family, bytes;
	const uint8_t *at;
};

static struct ip ip_of(const union ibv_gid *gid)
{
	if (sv_roce_is_v4(gid))
		return (struct ip){AF_INET, 4, gid->raw + 12};
	return (struct ip){AF_INET6, 16, gid->raw};
}

struct request {
	struct nlmsghdr header;
	union {
		struct rtmsg route;
		struct ndmsg neighbour;
	};
	uint8_t attributes[64];
};

static void add(struct request *req, uint16_t type, const void *data, uint16_t bytes)
{
	struct rtattr *attr =
	    (struct rtattr *)(void *)((uint8_t *)req + NLMSG_ALIGN(req->header.nlmsg_len));

	attr->rta_type = type;
	attr->rta_len = (uint16_t)RTA_LENGTH(bytes);
	memcpy(RTA_DATA(attr), data, bytes);
	req->header.nlmsg_len = NLMSG_ALIGN(req->header.nlmsg_len) + RTA_ALIGN(attr->rta_len);
}

/* Sends a request and takes the first answer. Its length, or -errno. */
static ssize_t ask(const struct request *req, void *answer, size_t size)
{
	struct timeval limit = {.tv_sec = ANSWER_LIMIT_S};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t n;

	if (fd < 0)
		return -errno;
	/* It answers at once; should it not, nobody hangs here. */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	n = send(fd, req, req->header.nlmsg_len, 0);
	if (n >= 0)
		n = recv(fd, answer, size, 0);
	if (n < 0)
		n = -errno;
	close(fd);
	return n;
}

static const struct rtattr *find(const void *first, size_t bytes, uint16_t type)
{
	const struct rtattr *attr = first;

	while (RTA_OK(attr, bytes)) {
		if (attr->rta_type == type)
			return attr;
		if (RTA_ALIGN(attr->rta_len) > bytes) /* the last one, which nothing fills up */
			break;
		attr = RTA_NEXT(attr, bytes);
	}
	return NULL;
}

/* 0 if the answer is one of this type and not shorter; *body and *bytes are its attributes. */
static int open_answer(const struct nlmsghdr *h, ssize_t n, uint16_t type, size_t header,
		       const void **body, size_t *bytes)
{
	if (n < 0)
		return (int)n;
	if (!NLMSG_OK(h, (size_t)n))
		return -EPROTO;
	if (h->nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *err = NLMSG_DATA(h);

		return h->nlmsg_len >= NLMSG_LENGTH(sizeof(*err)) && err->error ? err->error
										: -EPROTO;
	}
	if (h->nlmsg_type != type || h->nlmsg_len < NLMSG_LENGTH(header))
		return -EPROTO;
	*body = (const uint8_t *)NLMSG_DATA(h) + NLMSG_ALIGN(header);
	*bytes = h->nlmsg_len - NLMSG_LENGTH(NLMSG_ALIGN(header));
	return 0;
}

/* The router on the way, or the address itself. */
static int next_hop(unsigned ifindex, const struct ip *to, uint8_t hop[16])
{
	alignas(struct nlmsghdr) uint8_t answer[ANSWER_BYTES];
	struct request req = {
	    .header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
		       .nlmsg_type = RTM_GETROUTE,
		       .nlmsg_flags = NLM_F_REQUEST},
	    .route = {.rtm_family = to->family, .rtm_dst_len = (uint8_t)(to->bytes * 8)},
	};
	const struct rtattr *gateway;
	const void *body = NULL;
	size_t bytes = 0;
	int err;

	add(&req, RTA_DST, to->at, to->bytes);
	add(&req, RTA_OIF, &ifindex, sizeof(ifindex));
	err = open_answer((struct nlmsghdr *)(void *)answer, ask(&req, answer, sizeof(answer)),
			  RTM_NEWROUTE, sizeof(struct rtmsg), &body, &bytes);
	if (err)
		return err;
	gateway = find(body, bytes, RTA_GATEWAY);
	memcpy(hop, gateway && RTA_PAYLOAD(gateway) == to->bytes ? RTA_DATA(gateway) : to->at,
	       to->bytes);
	return 0;
}

int sv_roce_neighbour(unsigned ifindex, const union ibv_gid *to, uint8_t mac[6])
{
	alignas(struct nlmsghdr) uint8_t answer[ANSWER_BYTES];
	struct request req = {
	    .header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ndmsg)),
		       .nlmsg_type = RTM_GETNEIGH,
		       .nlmsg_flags = NLM_F_REQUEST},
	    .neighbour = {.ndm_ifindex = (int)ifindex},
	};
	const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)answer;
	struct ip ip = ip_of(to);
	const struct rtattr *address;
	uint8_t hop[16];
	const void *body = NULL;
	size_t bytes = 0;
	int err = next_hop(ifindex, &ip, hop);

	if (err)
		return err;
	req.neighbour.ndm_family = ip.family;
	add(&req, NDA_DST, hop, ip.bytes);
	err = open_answer(h, ask(&req, answer, sizeof(answer)), RTM_NEWNEIGH, sizeof(struct ndmsg),
			  &body, &bytes);
	if (err)
		return err == -ENOENT ? -EAGAIN : err;
	address = find(body, bytes, NDA_LLADDR);
	if (!(((const struct ndmsg *)NLMSG_DATA(h))->ndm_state & USABLE) || !address ||
	    RTA_PAYLOAD(address) != 6)
		return -EAGAIN;
	memcpy(mac, RTA_DATA(address), 6);
	return 0;
}
