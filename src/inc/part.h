/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the controller tells a member, or a switch, of its group's plan: its places in the trees,
 * each with where its parent is, and what all have to know.
 *
 * A member has a place in each tree. A switch has one for each node that it is, in any tree; a tree
 * in which it has none it does not hear of.
 *
 * Little-endian, 64 bytes and 32 more for each place:
 *
 *    0  4  magic         4  4  how many places        8  8  group
 *   16  4  bytes of the largest unit                 20  2  window     22  2  members
 *   24  1  lanes        25  1  spares                26  2  zero       28 20  leader's address
 *   48  4  checksum of the rest                      52 12  zero
 *
 *    0  1  tree          1  1  some child is a switch 2  2  node        4  2  children
 *    6  2  parent        8  2  place there           10  2  zero       12 20  parent's address
 *
 * An address is its family (2: 0 none, 4, 6), port (2) and 16 bytes: of IPv6 in network order, of
 * IPv4 a number of 4 and 12 zeros.
 */
#ifndef HA_INC_PART_H
#define HA_INC_PART_H

#include "base/net.h"
#include "inc/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_PART_HEAD_BYTES  64
#define HA_PART_PLACE_BYTES 32
#define HA_PART_PLACES	    4096
#define HA_PART_WINDOW	    32
#define HA_PART_UNIT_BYTES  (1u << 20)

/* What a node has in a tree. */
struct ha_part_place {
	uint8_t tree;	  /* lanes first, then spares */
	bool inner_below; /* some child is a switch */
	uint16_t node;
	uint16_t children;    /* 0: a member */
	uint16_t parent;      /* HA_PLAN_NONE: it is the root */
	uint16_t place;	      /* which of its parent's children it is */
	union ha_sockaddr at; /* the parent's; AF_UNSPEC: of the root */
};

struct ha_part {
	uint64_t group;
	uint32_t unit_bytes;
	uint16_t window, members;
	uint8_t lanes, spares;	  /* one lane at least, together at most HA_PLAN_LANES */
	union ha_sockaddr leader; /* where members reach member 0 */
	unsigned int n;
	struct ha_part_place *places; /* allocated */
};

size_t ha_part_bytes(const struct ha_part *part);
/* out: as many bytes. */
void ha_part_encode(const struct ha_part *part, uint8_t *out);

/* False: these bytes are no part, or there is no memory. Else ha_part_free is to be called. */
bool ha_part_decode(const void *data, size_t size, struct ha_part *part) HA_MUST_CHECK;
void ha_part_free(struct ha_part *part);

/* Of a node in a tree; NULL: there is none. */
const struct ha_part_place *ha_part_find(const struct ha_part *part, unsigned int tree,
					 uint16_t node);

#endif
