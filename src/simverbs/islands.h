/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Islands: groups of hosts whose second rail reaches only hosts of the same group, as the links
 * inside a rack of coupled machines do. The other rails reach everybody.
 */
#ifndef SV_ISLANDS_H
#define SV_ISLANDS_H

#include <stdbool.h>
#include <stdint.h>

#define SV_ISLAND_RAIL	1
#define SV_ISLAND_HOSTS 256

struct sv_islands {
	uint32_t number; /* 0: there are none, and every rail reaches everybody */
	uint8_t of_host[SV_ISLAND_HOSTS];
};

/*
 * "0-3,4-7": islands 0 and 1; a host by itself is "5". Hosts that are not named are an island of
 * their own each. NULL or empty: none. 0; EINVAL: not such a text, a host that the fabric does not
 * have, or one in two islands.
 */
int sv_islands_parse(const char *text, uint32_t hosts, struct sv_islands *islands);

/* Is there no way between these two devices? */
static inline bool sv_islands_part(const struct sv_islands *islands, uint32_t host, uint32_t rail,
				   uint32_t peer_host, uint32_t peer_rail)
{
	return islands->number && (rail == SV_ISLAND_RAIL || peer_rail == SV_ISLAND_RAIL) &&
	       islands->of_host[host] != islands->of_host[peer_host];
}

/*
 * The third number of the address 10.RAIL.THIRD.HOST+1 of a device's port (from 0): the port, and
 * on the rail of islands also the island.
 */
static inline uint8_t sv_islands_octet(const struct sv_islands *islands, uint32_t host,
				       uint32_t rail, uint32_t port)
{
	if (!islands->number || rail != SV_ISLAND_RAIL)
		return (uint8_t)port;
	return (uint8_t)(port * islands->number + islands->of_host[host]);
}

#endif
