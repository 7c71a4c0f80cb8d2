/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The IP interface that connection set-up goes over, chosen the way NCCL chooses it, and socket
 * addresses as text.
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
	union ha_sockaddr addr; /* port 0 */
};

#define HA_SOCKADDR_TEXT_MAX 80

/* "10.0.0.1:4711", "[fe80::1%2]:4711". NULL is "none". Returns buf. */
const char *ha_sockaddr_text(const union ha_sockaddr *addr, char *buf, size_t size);

/* Bytes of the address's own struct, for bind and connect; 0 for a family that is none of ours. */
socklen_t ha_sockaddr_len(const union ha_sockaddr *addr);

/*
 * A non-blocking listening socket at `wanted`, with a port of its own when that names none; *bound
 * is where it is. -1 with errno.
 */
int ha_net_listen(const union ha_sockaddr *wanted, int backlog, union ha_sockaddr *bound);

/*
 * The interface for connection set-up: of NCCL_SOCKET_FAMILY, filtered by NCCL_SOCKET_IFNAME. When
 * that is not set: names that start with "ib" first, then everything but docker, virbr and lo,
 * and each of those only when nothing better is there. HA_ERR_SYSTEM with a WARN when none fits.
 */
ha_result_t ha_net_choose(const struct ha_config *config, struct ha_netif *out) HA_MUST_CHECK;

/* The choice itself, from a given list in the kernel's order: an index, or -1. */
int ha_net_select(const struct ha_config *config, const struct ha_netif *all, int nall);

#endif
