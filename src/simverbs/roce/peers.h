/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at the other end: pairs of one of our addresses and one of somebody else's. The core knows
 * them by the index of a port. They stay as long as the device is open: queue pairs and address
 * handles keep the index. Only what the application asks for makes one, never a packet.
 */
#ifndef SV_ROCE_PEERS_H
#define SV_ROCE_PEERS_H

#include "simverbs/engine.h"

#include <netinet/in.h>

/* An address and SV_ROCE_PORT, as sockets want it. */
struct sv_roce_socket_address {
	union {
		struct sockaddr sa;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t bytes;
};
/* ifindex: of a link-local address. */
void sv_roce_socket_address(const union ibv_gid *gid, unsigned ifindex,
			    struct sv_roce_socket_address *to);

/* Where its port is, in network order. */
static inline in_port_t *sv_roce_socket_port(struct sv_roce_socket_address *address)
{
	return address->sa.sa_family == AF_INET ? &address->v4.sin_port : &address->v6.sin6_port;
}

struct sv_roce_peer {
	union ibv_gid local, remote;
	uint32_t index;	    /* its number */
	uint32_t gid_index; /* of the local address */
	struct sv_roce_socket_address to;
	uint32_t next; /* in its bucket, plus one */
};

#define SV_ROCE_BUCKETS 256u

struct sv_roce_peers {
	struct sv_roce_peer **all;
	uint32_t num, room;
	uint32_t buckets[SV_ROCE_BUCKETS]; /* the first of each, plus one */
};

/* The pair's number, from 0; -1: not known. */
int sv_roce_peers_find(const struct sv_roce_peers *peers, const union ibv_gid *local,
		       const union ibv_gid *remote);
/* The same, made if need be; -1: no memory, or there are `max`. ifindex: of a link-local address.
 */
int sv_roce_peers_add(struct sv_roce_peers *peers, uint32_t gid_index, const union ibv_gid *local,
		      const union ibv_gid *remote, unsigned ifindex, uint32_t max);
void sv_roce_peers_free(struct sv_roce_peers *peers);

#endif
