/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the interface for connection set-up. */
#include "base/net.h"

#include "base/log.h"
#include "base/name_filter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_NETIFS 256

/* Tried in turn until one gives an interface, when NCCL_SOCKET_IFNAME is not set. */
static const char *const default_filters[] = {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};

const char *ha_sockaddr_text(const union ha_sockaddr *addr, char *buf, size_t size)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (!addr) {
		snprintf(buf, size, "none");
	} else if (addr->sa.sa_family == AF_INET) {
		inet_ntop(AF_INET, &addr->in.sin_addr, ip, sizeof ip);
		snprintf(buf, size, "%s:%u", ip, ntohs(addr->in.sin_port));
	} else if (addr->sa.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &addr->in6.sin6_addr, ip, sizeof ip);
		if (addr->in6.sin6_scope_id)
			snprintf(buf, size, "[%s%%%u]:%u", ip, addr->in6.sin6_scope_id,
				 ntohs(addr->in6.sin6_port));
		else
			snprintf(buf, size, "[%s]:%u", ip, ntohs(addr->in6.sin6_port));
	} else {
		snprintf(buf, size, "address family %d", addr->sa.sa_family);
	}
	return buf;
}

socklen_t ha_sockaddr_len(const union ha_sockaddr *addr)
{
	switch (addr->sa.sa_family) {
	case AF_INET:
		return sizeof addr->in;
	case AF_INET6:
		return sizeof addr->in6;
	default:
		return 0;
	}
}

int ha_net_listen(const union ha_sockaddr *wanted, int backlog, union ha_sockaddr *bound)
{
	socklen_t len = sizeof(*bound);
	int fd = socket(wanted->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, &wanted->sa, ha_sockaddr_len(wanted)) != 0 || listen(fd, backlog) != 0 ||
	    getsockname(fd, &bound->sa, &len) != 0) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

static bool usable(const struct ha_config *config, const struct ha_netif *netif)
{
	int family = netif->addr.sa.sa_family;

	if (!netif->up || (family != AF_INET && family != AF_INET6))
		return false;
	if (config->socket_family != AF_UNSPEC && family != config->socket_family)
		return false;
	/* ::1 is no address a peer could connect to. 127.0.0.1 passes: it is all that a machine
	 * without a network has, and lo is tried last. */
	return family != AF_INET6 || !IN6_IS_ADDR_LOOPBACK(&netif->addr.in6.sin6_addr);
}

static int first_match(const struct ha_config *config, const char *spec, const struct ha_netif *all,
		       int nall)
{
	struct ha_name_filter filter;

	ha_name_filter_parse(&filter, "NCCL_SOCKET_IFNAME", spec);
	for (int i = 0; i < nall; i++)
		if (usable(config, &all[i]) &&
		    ha_name_filter_passes(&filter, all[i].name, HA_FILTER_ANY_PORT))
			return i;
	return -1;
}

int ha_net_select(const struct ha_config *config, const struct ha_netif *all, int nall)
{
	if (config->socket_ifname[0])
		return first_match(config, config->socket_ifname, all, nall);
	for (size_t i = 0; i < sizeof default_filters / sizeof default_filters[0]; i++) {
		int found = first_match(config, default_filters[i], all, nall);

		if (found >= 0)
			return found;
	}
	return -1;
}

/* Interfaces with an IP address, in the kernel's order. Returns how many. */
static int read_netifs(struct ha_netif *all, int max)
{
	struct ifaddrs *list;
	int n = 0;

	if (getifaddrs(&list) != 0) {
		HA_WARN("cannot list the network interfaces: %s", strerror(errno));
		return 0;
	}
	for (const struct ifaddrs *ifa = list; ifa && n < max; ifa = ifa->ifa_next) {
		struct ha_netif *netif = &all[n];
		socklen_t length;

		if (!ifa->ifa_addr)
			continue;
		memset(netif, 0, sizeof *netif);
		netif->addr.sa.sa_family = ifa->ifa_addr->sa_family;
		length = ha_sockaddr_len(&netif->addr);
		if (!length)
			continue;
		memcpy(&netif->addr, ifa->ifa_addr, length);
		snprintf(netif->name, sizeof netif->name, "%s", ifa->ifa_name);
		netif->up = (ifa->ifa_flags & IFF_UP) != 0;
		n++;
	}
	freeifaddrs(list);
	return n;
}

ha_result_t ha_net_choose(const struct ha_config *config, struct ha_netif *out)
{
	struct ha_netif all[MAX_NETIFS];
	char text[HA_SOCKADDR_TEXT_MAX];
	int chosen = ha_net_select(config, all, read_netifs(all, MAX_NETIFS));

	if (chosen < 0) {
		HA_WARN("no network interface for connection set-up%s%.200s: check "
			"NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY against 'ip address'",
			config->socket_ifname[0] ? " fits NCCL_SOCKET_IFNAME=" : "",
			config->socket_ifname);
		return HA_ERR_SYSTEM;
	}
	*out = all[chosen];
	HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET, "connection set-up over %s, %s", out->name,
		ha_sockaddr_text(&out->addr, text, sizeof text));
	return HA_OK;
}
