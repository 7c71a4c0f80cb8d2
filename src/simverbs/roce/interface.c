/* SPDX-License-Identifier: Apache-2.0 */
/* Network interfaces; see interface.h. */
#include "simverbs/roce/interface.h"

#include "simverbs/roce/bytes.h"
#include "simverbs/roce/icrc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* IP, UDP and the longest headers of RoCE around a payload. */
#define OVERHEAD_BYTES 80u

static const union ibv_gid none;

bool sv_roce_no_gid(const union ibv_gid *gid)
{
	return !memcmp(gid, &none, sizeof(none));
}

static bool same(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static bool is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

static bool parse_address(const char *text, union ibv_gid *gid)
{
	struct in_addr v4;

	if (inet_pton(AF_INET, text, &v4) == 1) {
		sv_map_v4(gid, &v4);
		return true;
	}
	return inet_pton(AF_INET6, text, gid->raw) == 1 && !sv_roce_no_gid(gid);
}

int sv_roce_interface_init(struct sv_roce_interface *itf, const char *text)
{
	size_t length = strcspn(text, "@");

	*itf = (struct sv_roce_interface){.news_fd = -1};
	if (!length || length >= sizeof(itf->name)) {
		fprintf(stderr, "simverbs: SIMVERBS_ROCE: '%s' is not the name of an interface\n",
			text);
		return -EINVAL;
	}
	memcpy(itf->name, text, length);
	if (text[length] && !parse_address(text + length + 1, &itf->only)) {
		fprintf(stderr, "simverbs: SIMVERBS_ROCE: '%s' is not an address\n",
			text + length + 1);
		return -EINVAL;
	}
	itf->index = if_nametoindex(itf->name);
	if (!itf->index) {
		fprintf(
		    stderr,
		    "simverbs: SIMVERBS_ROCE: there is no interface %s (`ip link` lists them)\n",
		    itf->name);
		return -ENODEV;
	}
	return 0;
}

/* ---------------------------------------------------------------- news */

int sv_roce_interface_watch(struct sv_roce_interface *itf)
{
	struct sockaddr_nl to = {.nl_family = AF_NETLINK,
				 .nl_groups =
				     RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&to, sizeof(to))) {
		int err = errno;

		close(fd);
		return -err;
	}
	itf->news_fd = fd;
	return 0;
}

void sv_roce_interface_close(struct sv_roce_interface *itf)
{
	if (itf->news_fd >= 0)
		close(itf->news_fd);
	itf->news_fd = -1;
}

bool sv_roce_interface_news(struct sv_roce_interface *itf)
{
	char buf[8192];
	bool any = false;

	/* What they say is read from the interface itself. Some that were lost are news, too. */
	while (recv(itf->news_fd, buf, sizeof(buf), 0) >= 0 || errno == ENOBUFS)
		any = true;
	return any;
}

/* ---------------------------------------------------------------- state */

static void read_link(const struct sv_roce_interface *itf, struct sv_roce_interface_state *state)
{
	struct ifreq req = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(req.ifr_name, itf->name, sizeof(req.ifr_name));
	state->there = fd >= 0 && !ioctl(fd, SIOCGIFFLAGS, &req);
	state->loopback = state->there && (req.ifr_flags & IFF_LOOPBACK);
	state->up = state->there && (req.ifr_flags & IFF_UP) && (req.ifr_flags & IFF_RUNNING);
	if (state->there && !ioctl(fd, SIOCGIFMTU, &req))
		state->mtu_bytes = (uint32_t)req.ifr_mtu;
	if (state->there && !ioctl(fd, SIOCGIFHWADDR, &req))
		memcpy(state->mac, req.ifr_hwaddr.sa_data, sizeof(state->mac));
	if (fd >= 0)
		close(fd);
}

static bool take_address(const struct ifaddrs *a, union ibv_gid *gid)
{
	if (!a->ifa_addr)
		return false;
	if (a->ifa_addr->sa_family == AF_INET) {
		sv_map_v4(gid, &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr);
		return true;
	}
	if (a->ifa_addr->sa_family != AF_INET6)
		return false;
	memcpy(gid->raw, &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr, 16);
	return true;
}

/* Into the slot that it had, or the first that is free. */
static void place(union ibv_gid *now, const union ibv_gid *before, const union ibv_gid *gid)
{
	uint32_t first = is_link_local(gid) ? 0 : 1, end = first ? SV_MAX_GIDS : 1;

	for (uint32_t i = first; i < end; i++)
		if (same(&before[i], gid)) {
			now[i] = *gid;
			return;
		}
	for (uint32_t i = first; i < end; i++)
		if (sv_roce_no_gid(&now[i]) && sv_roce_no_gid(&before[i])) {
			now[i] = *gid;
			return;
		}
}

static void read_addresses(const struct sv_roce_interface *itf,
			   struct sv_roce_interface_state *state)
{
	union ibv_gid before[SV_MAX_GIDS], gid;
	struct ifaddrs *all = NULL;

	memcpy(before, state->gids, sizeof(before));
	memset(state->gids, 0, sizeof(state->gids));
	if (!sv_roce_no_gid(&itf->only)) {
		place(state->gids, before, &itf->only);
		return;
	}
	if (getifaddrs(&all)) {
		memcpy(state->gids, before, sizeof(before));
		return;
	}
	for (const struct ifaddrs *a = all; a; a = a->ifa_next)
		if (!strcmp(a->ifa_name, itf->name) && take_address(a, &gid))
			place(state->gids, before, &gid);
	freeifaddrs(all);
}

void sv_roce_interface_read(const struct sv_roce_interface *itf,
			    struct sv_roce_interface_state *state)
{
	read_link(itf, state);
	read_addresses(itf, state);
}

enum ibv_mtu sv_roce_path_mtu(uint32_t mtu_bytes)
{
	enum ibv_mtu mtu = IBV_MTU_4096;

	while (mtu > IBV_MTU_256 && (128u << mtu) + OVERHEAD_BYTES > mtu_bytes)
		mtu--;
	return mtu;
}
