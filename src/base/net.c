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

bool ha_sockaddr_same_host(const union ha_sockaddr *a, const union ha_sockaddr *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	return a->sa.sa_family == AF_INET6 &&
	       IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr) &&
	       a->in6.sin6_scope_id == b->in6.sin6_scope_id;
}

/*
 * What is left of the connections of who listened there before must not keep its successor from a
 * port: both have to agree to that. Where any port will do that is said behind, as it could be one
 * that somebody is about to listen at.
 */
static int bind_to(int fd, const union ha_sockaddr *wanted)
{
	const bool is_v6 = wanted->sa.sa_family == AF_INET6;
	const bool is_named = (is_v6 ? wanted->in6.sin6_port : wanted->in.sin_port) != 0;
	const int on = 1;

	if (is_named)
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, &wanted->sa, ha_sockaddr_len(wanted)) != 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	return 0;
}

int ha_net_listen(const union ha_sockaddr *wanted, int backlog, union ha_sockaddr *bound)
{
	socklen_t len = sizeof(*bound);
	int fd = socket(wanted->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (bind_to(fd, wanted) != 0 || listen(fd, backlog) != 0 ||
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

static bool is_any(const struct ha_netif *netif)
{
	(void)netif;
	return true;
}

/* A way out of this host that does not fail with the fabric. */
static bool is_default_route_apart(const struct ha_netif *netif)
{
	return !netif->fabric && netif->default_route;
}

/* Such as a service processor's USB port has. */
static bool is_link_local(const union ha_sockaddr *addr)
{
	if (addr->sa.sa_family == AF_INET6)
		return IN6_IS_ADDR_LINKLOCAL(&addr->in6.sin6_addr);
	return ntohl(addr->in.sin_addr.s_addr) >> 16 == 0xa9fe; /* 169.254.0.0/16 */
}

void ha_net_reach_over(union ha_sockaddr *addr, unsigned ifindex)
{
	if (addr->sa.sa_family == AF_INET6)
		addr->in6.sin6_scope_id = is_link_local(addr) ? ifindex : 0;
}

static bool is_physical_apart(const struct ha_netif *netif)
{
	return !netif->fabric && netif->physical && !is_link_local(&netif->addr);
}

#define REAL "^docker,lo,virbr"

/* Tried in turn until one gives an interface, when NCCL_SOCKET_IFNAME is not set. From the third
 * on it is NCCL's own list. */
static const struct {
	const char *names;
	bool (*is)(const struct ha_netif *netif);
} defaults[] = {
    {REAL, is_default_route_apart},
    {REAL, is_physical_apart},
    {"ib", is_any},
    {REAL, is_any},
    {"docker", is_any},
    {"lo", is_any},
    {"virbr", is_any},
};

static int first_match(const struct ha_config *config, const char *names,
		       bool (*is)(const struct ha_netif *netif), const struct ha_netif *all,
		       int nall)
{
	struct ha_name_filter filter;
	int local = -1;

	ha_name_filter_parse(&filter, "NCCL_SOCKET_IFNAME", names);
	for (int i = 0; i < nall; i++) {
		if (!usable(config, &all[i]) || !is(&all[i]) ||
		    !ha_name_filter_passes(&filter, all[i].name, HA_FILTER_ANY_PORT))
			continue;
		if (!is_link_local(&all[i].addr))
			return i;
		if (local < 0)
			local = i;
	}
	return local;
}

int ha_net_select(const struct ha_config *config, const struct ha_netif *all, int nall)
{
	if (config->socket_ifname[0])
		return first_match(config, config->socket_ifname, is_any, all, nall);
	for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
		int found = first_match(config, defaults[i].names, defaults[i].is, all, nall);

		if (found >= 0)
			return found;
	}
	return -1;
}

/* ---- what the kernel has --------------------------------------------------------------------- */

#define ROUTE_UP     0x0001
#define ROUTE_REJECT 0x0200

static void note_default_route(struct ha_netif *all, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(all[i].name, name) == 0)
			all[i].default_route = true;
}

/* Interface, destination, gateway, flags, three counts, mask; the first line is a heading. */
static void read_ipv4_routes(FILE *in, struct ha_netif *all, int n)
{
	char line[256], name[IF_NAMESIZE];
	unsigned destination, flags, mask;

	while (fgets(line, sizeof line, in))
		if (sscanf(line, "%15s %x %*x %x %*d %*d %*d %x", name, &destination, &flags,
			   &mask) == 4 &&
		    destination == 0 && mask == 0 && (flags & ROUTE_UP) && !(flags & ROUTE_REJECT))
			note_default_route(all, n, name);
}

/* Destination, its bits, source, its bits, next hop, metric, two counts, flags, interface. */
static void read_ipv6_routes(FILE *in, struct ha_netif *all, int n)
{
	char line[256], destination[33], name[IF_NAMESIZE];
	unsigned bits, flags;

	while (fgets(line, sizeof line, in))
		if (sscanf(line, "%32s %x %*s %*x %*s %*x %*x %*x %x %15s", destination, &bits,
			   &flags, name) == 4 &&
		    bits == 0 && strspn(destination, "0") == 32 && (flags & ROUTE_UP) &&
		    !(flags & ROUTE_REJECT))
			note_default_route(all, n, name);
}

static void read_default_routes(struct ha_netif *all, int n)
{
	static const struct {
		const char *path;
		void (*read)(FILE *in, struct ha_netif *all, int n);
	} tables[] = {
	    {"/proc/net/route", read_ipv4_routes},
	    {"/proc/net/ipv6_route", read_ipv6_routes},
	};

	for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
		FILE *in = fopen(tables[i].path, "re");

		if (!in)
			continue; /* none of this family */
		tables[i].read(in, all, n);
		fclose(in);
	}
}

int ha_net_list(struct ha_netif *all, int max)
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
	read_default_routes(all, n);
	return n;
}

/* Of IPv4: the beginning of the address, and how many bits of it. */
static const struct {
	uint32_t address;
	unsigned bits;
} not_global[] = {
    {0x00000000, 8},					 /* this host */
    {0x0a000000, 8},					 /* private, RFC 1918 */
    {0x64400000, 10},					 /* carriers', RFC 6598 */
    {0x7f000000, 8},					 /* loopback */
    {0xa9fe0000, 16},					 /* a link's own */
    {0xac100000, 12},					 /* private */
    {0xc0000000, 24},					 /* protocols' own */
    {0xc0000200, 24},					 /* for documentation, like two below */
    {0xc0a80000, 16},					 /* private */
    {0xc6120000, 15},					 /* for benchmarks */
    {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 3}, /* multicast, and what is not used */
};

bool ha_sockaddr_is_global(const union ha_sockaddr *addr)
{
	static const uint8_t documentation[] = {0x20, 0x01, 0x0d, 0xb8};
	const uint8_t *v6 = addr->in6.sin6_addr.s6_addr;
	uint32_t address;

	if (addr->sa.sa_family == AF_INET6) /* 2000::/3 is all that is given out */
		return (v6[0] & 0xe0) == 0x20 &&
		       memcmp(v6, documentation, sizeof(documentation)) != 0;
	if (addr->sa.sa_family != AF_INET)
		return false;
	address = ntohl(addr->in.sin_addr.s_addr);
	for (size_t i = 0; i < sizeof(not_global) / sizeof(not_global[0]); i++)
		if ((address ^ not_global[i].address) >> (32 - not_global[i].bits) == 0)
			return false;
	return true;
}

static bool has_key(const struct ha_config *config)
{
	return config->auth != HA_AUTH_OFF &&
	       (config->job_key_file[0] != '\0' || config->job_key_fd >= 0);
}

static void warn_where_anybody_comes(const struct ha_config *config, const struct ha_netif *netif)
{
	char text[HA_SOCKADDR_TEXT_MAX];

	if (config->socket_ifname[0] || has_key(config) || !ha_sockaddr_is_global(&netif->addr))
		return;
	HA_WARN("connection set-up goes over %s, %s, which hosts outside of the cluster may reach: "
		"name "
		"an interface that they do not in NCCL_SOCKET_IFNAME, or this one if a firewall "
		"keeps them out; or give the job a key, HA_NCCL_JOB_KEY_FILE",
		netif->name, ha_sockaddr_text(&netif->addr, text, sizeof text));
}

ha_result_t ha_net_choose(const struct ha_config *config, const struct ha_netif *all, int n,
			  struct ha_netif *out)
{
	char text[HA_SOCKADDR_TEXT_MAX];
	int chosen = ha_net_select(config, all, n);

	if (chosen < 0) {
		HA_WARN("no network interface for connection set-up%s%.200s: check "
			"NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY against 'ip address'",
			config->socket_ifname[0] ? " fits NCCL_SOCKET_IFNAME=" : "",
			config->socket_ifname);
		return HA_ERR_SYSTEM;
	}
	*out = all[chosen];
	HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET, "connection set-up over %s, %s%s", out->name,
		ha_sockaddr_text(&out->addr, text, sizeof text),
		out->fabric ? ", which goes over a NIC of the fabric and fails with it" : "");
	warn_where_anybody_comes(config, out);
	return HA_OK;
}
