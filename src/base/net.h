/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The IP interface that connection set-up goes over, and socket addresses as text.
 */
#ifndef HA_BASE_NET_H
#define HA_BASE_NET_H

#include "base/config.h"
#include "base/result.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

union ha_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* One address of one interface. */
struct ha_netif {
	char name[IF_NAMESIZE];
	bool up;
	bool default_route;
	bool physical; /* a device of this machine, or stands on one; filled in by device/ */
	bool fabric;   /* goes over a NIC that data goes over; filled in by device/ */
	union ha_sockaddr addr; /* port 0 */
};

#define HA_NETIFS_MAX 256

#define HA_SOCKADDR_TEXT_MAX 80

/* "10.0.0.1:4711", "[fe80::1%2]:4711". NULL is "none". Returns buf. */
const char *ha_sockaddr_text(const union ha_sockaddr *addr, char *buf, size_t size);

/* Bytes of the address's own struct, for bind and connect; 0 for a family that is none of ours. */
socklen_t ha_sockaddr_len(const union ha_sockaddr *addr);

/* Whether both are addresses of one host, whatever the ports. Unknown ones (AF_UNSPEC) are not. */
bool ha_sockaddr_same_host(const union ha_sockaddr *a, const union ha_sockaddr *b);

/* Whether hosts anywhere may be able to send to it: not one that is kept for private networks,
 * carriers, links or a host itself. */
bool ha_sockaddr_is_global(const union ha_sockaddr *addr);

/*
 * For an address that another host told: where it is a link's own, the scope is a number of this
 * host's interface, over which the link is reached; else there is none.
 */
void ha_net_reach_over(union ha_sockaddr *addr, unsigned ifindex);

/*
 * A non-blocking listening socket at `wanted`, with a port of its own when that names none; *bound
 * is where it is. -1 with errno.
 */
int ha_net_listen(const union ha_sockaddr *wanted, int backlog, union ha_sockaddr *bound);

/*
 * The interfaces with an IP address, in the kernel's order, at most `max`: how many. None, with a
 * WARN, where the kernel does not tell.
 */
int ha_net_list(struct ha_netif *all, int max);

/*
 * The interface for connection set-up, of n: of NCCL_SOCKET_FAMILY, filtered by NCCL_SOCKET_IFNAME
 * as NCCL does. HA_ERR_SYSTEM with a WARN when none fits. A WARN, too, where nobody has chosen it,
 * the whole Internet may reach it, and the job has no key: NCCL listens there as well.
 *
 * Where that is not set NCCL would take one of InfiniBand first. These sockets are what is left
 * when the fabric fails, so here one comes first that does not go over it and leads out of this
 * host: it has a default route, or is a physical device and its address more than a link's own.
 * Only then it is names that start with "ib", everything but docker, virbr and lo, and each of
 * those.
 */
ha_result_t ha_net_choose(const struct ha_config *config, const struct ha_netif *all, int n,
			  struct ha_netif *out) HA_MUST_CHECK;

/* The choice itself: an index, or -1. Of the addresses that would do the same, one that is a link's
 * own comes last: another subnet cannot reach it. */
int ha_net_select(const struct ha_config *config, const struct ha_netif *all, int nall);

#endif
