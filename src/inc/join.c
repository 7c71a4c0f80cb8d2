/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/join.h"

#include "base/bytes.h"

#define QPN_MASK 0xffffffu
#define MTU_MOST 5 /* 4096 bytes */

void ha_edge_address_encode(const struct ha_edge_address *edge, uint8_t out[HA_EDGE_ADDRESS_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, edge->qpn, 4);
	ha_put_uint(&w, edge->psn, 4);
	ha_put_bytes(&w, edge->gid, sizeof(edge->gid));
	ha_put_uint(&w, edge->lid, 2);
	ha_put_uint(&w, edge->mtu, 1);
	ha_put_zeros(&w, 1);
	ha_put_uint(&w, edge->word_rkey, 4);
	ha_put_uint(&w, edge->word, 8);
}

bool ha_edge_address_decode(const void *data, size_t size, struct ha_edge_address *edge)
{
	struct ha_reader r = {data};
	uint8_t zero;

	if (size != HA_EDGE_ADDRESS_BYTES)
		return false;
	edge->qpn = ha_get32(&r);
	edge->psn = ha_get32(&r);
	ha_get_bytes(&r, edge->gid, sizeof(edge->gid));
	edge->lid = ha_get16(&r);
	edge->mtu = ha_get8(&r);
	zero = ha_get8(&r);
	edge->word_rkey = ha_get32(&r);
	edge->word = ha_get64(&r);
	return zero == 0 && edge->qpn <= QPN_MASK && edge->psn <= QPN_MASK && edge->mtu >= 1 &&
	       edge->mtu <= MTU_MOST;
}

void ha_join_encode(const struct ha_join *join, uint8_t out[HA_JOIN_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, join->group, 8);
	ha_put_uint(&w, join->epoch, 4);
	ha_put_uint(&w, join->node, 2);
	ha_put_uint(&w, join->place, 2);
	ha_put_uint(&w, join->tree, 1);
	ha_put_zeros(&w, 7);
	ha_edge_address_encode(&join->edge, w.at);
}

bool ha_join_decode(const void *data, size_t size, struct ha_join *join)
{
	struct ha_reader r = {data};

	if (size != HA_JOIN_BYTES)
		return false;
	join->group = ha_get64(&r);
	join->epoch = ha_get32(&r);
	join->node = ha_get16(&r);
	join->place = ha_get16(&r);
	join->tree = ha_get8(&r);
	return ha_get_uint(&r, 7) == 0 &&
	       ha_edge_address_decode(r.at, HA_EDGE_ADDRESS_BYTES, &join->edge);
}
