/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a child joins a tree: it says which place of which node it is to have, in which epoch, and
 * where its end of the edge is; the switch that is the node answers with its own end.
 *
 * 64 bytes, little-endian:
 *
 *    0  8  group         8  4  epoch        12  2  node       14  2  place
 *   16  1  tree         17  7  zero         24 40  the edge's end
 *
 * An end is 40 bytes: queue pair (4), packet number (4), GID (16), LID (2), MTU (1), zero (1), key
 * (4) and address (8) of the word.
 */
#ifndef HA_INC_JOIN_H
#define HA_INC_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_EDGE_ADDRESS_BYTES 40
#define HA_JOIN_BYTES	      64

/* What the other end of an edge has to know. */
struct ha_edge_address {
	uint32_t qpn, psn;
	uint8_t gid[16];
	uint16_t lid;
	uint8_t mtu; /* enum ibv_mtu */
	uint32_t word_rkey;
	uint64_t word;
};

struct ha_join {
	uint64_t group;
	uint32_t epoch;
	uint16_t node, place; /* the parent's number, and which of its children this is */
	uint8_t tree;
	struct ha_edge_address edge;
};

void ha_edge_address_encode(const struct ha_edge_address *edge, uint8_t out[HA_EDGE_ADDRESS_BYTES]);
/* False: these bytes are no end of an edge. */
bool ha_edge_address_decode(const void *data, size_t size, struct ha_edge_address *edge);

void ha_join_encode(const struct ha_join *join, uint8_t out[HA_JOIN_BYTES]);
bool ha_join_decode(const void *data, size_t size, struct ha_join *join);

#endif
