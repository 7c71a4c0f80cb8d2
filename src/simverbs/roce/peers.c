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

static void set_address(struct sv_roce_peer *peer, unsigned ifindex)
{
	if (sv_roce_is_v4(&peer->remote)) {
		peer->to.v4 =
		    (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(SV_ROCE_PORT)};
		memcpy(&peer->to.v4.sin_addr, peer->remote.raw + 12, 4);
		peer->to_bytes = sizeof(peer->to.v4);
		return;
	}
	peer->to.v6 = (struct sockaddr_in6){
	    .sin6_family = AF_INET6, .sin6_port = htons(SV_ROCE_PORT), .sin6_scope_id = ifindex};
	memcpy(&peer->to.v6.sin6_addr, peer->remote.raw, 16);
	peer->to_bytes = sizeof(peer->to.v6);
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
	*peer = (struct sv_roce_peer){
	    .local = *local, .remote = *remote, .gid_index = gid_index, .next = *bucket};
	set_address(peer, ifindex);
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
