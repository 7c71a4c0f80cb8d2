/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of addresses; see peers.h. */
#include "simverbs/roce/peers.h"

#include "simverbs/roce/packet.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bucket_of(const union ibv_gid *local, const union ibv_gid *remote)
{
	uint64_t a, b;

	memcpy(&a, local->raw + 8, sizeof(a));
	memcpy(&b, remote->raw + 8, sizeof(b));
	return (uint32_t)(((a ^ b << 1) * 0x9e3779b97f4a7c15ull) >> 56) % SV_ROCE_BUCKETS;
}

int sv_roce_peers_find(const struct sv_roce_peers *peers, const union ibv_gid *local,
		       const union ibv_gid *remote)
{
	uint32_t next = peers->buckets[bucket_of(local, remote)];

	while (next) {
		const struct sv_roce_peer *peer = peers->all[next - 1];

		if (!memcmp(&peer->remote, remote, sizeof(*remote)) &&
		    !memcmp(&peer->local, local, sizeof(*local)))
			return (int)next - 1;
		next = peer->next;
	}
	return -1;
}

void sv_roce_socket_address(const union ibv_gid *gid, unsigned ifindex,
			    struct sv_roce_socket_address *to)
{
	*to = (struct sv_roce_socket_address){0};
	if (sv_roce_is_v4(gid)) {
		to->v4.sin_family = AF_INET;
		to->v4.sin_port = htons(SV_ROCE_PORT);
		memcpy(&to->v4.sin_addr, gid->raw + 12, 4);
		to->bytes = sizeof(to->v4);
		return;
	}
	to->v6.sin6_family = AF_INET6;
	to->v6.sin6_port = htons(SV_ROCE_PORT);
	to->v6.sin6_scope_id = ifindex;
	memcpy(&to->v6.sin6_addr, gid->raw, 16);
	to->bytes = sizeof(to->v6);
}

int sv_roce_peers_add(struct sv_roce_peers *peers, uint32_t gid_index, const union ibv_gid *local,
		      const union ibv_gid *remote, unsigned ifindex, uint32_t max)
{
	uint32_t *bucket = &peers->buckets[bucket_of(local, remote)];
	int found = sv_roce_peers_find(peers, local, remote);
	struct sv_roce_peer *peer;

	if (found >= 0) {
		peers->all[found]->gid_index = gid_index; /* the address may have moved */
		return found;
	}
	if (peers->num == max)
		return -1;
	if (peers->num == peers->room) {
		uint32_t room = peers->room ? peers->room * 2 : 16;
		struct sv_roce_peer **all = realloc(peers->all, room * sizeof(*all));

		if (!all)
			return -1;
		peers->all = all;
		peers->room = room;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return -1;
	*peer = (struct sv_roce_peer){.local = *local,
				      .remote = *remote,
				      .index = peers->num,
				      .gid_index = gid_index,
				      .next = *bucket};
	sv_roce_socket_address(remote, ifindex, &peer->to);
	peers->all[peers->num++] = peer;
	*bucket = peers->num;
	return (int)peers->num - 1;
}

void sv_roce_peers_free(struct sv_roce_peers *peers)
{
	for (uint32_t i = 0; i < peers->num; i++)
		free(peers->all[i]);
	free(peers->all);
	*peers = (struct sv_roce_peers){0};
}
