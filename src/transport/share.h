/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which part of a message each rail is to carry: parts of 1024, ready for every set of rails that
 * may be there when the message comes. Whoever decides on shares writes them here, with all the
 * divisions; the data path reads one word. Nothing here knows a connection.
 *
 * A rail is a position in a bundle of ports, and has one path slot at a time (wire.h); which one,
 * changes when its path is built anew. Masks are of slots, bit s for slot s.
 */
#ifndef HA_TRANSPORT_SHARE_H
#define HA_TRANSPORT_SHARE_H

#include "transport/wire.h"

#include <stdint.h>

#define HA_SHARE_ALL 1024u

/* One word: 16 bits of each slot, slot 0 lowest. */
static inline unsigned ha_share_of(uint64_t word, unsigned slot)
{
	return (unsigned)(word >> (16 * slot)) & 0xffffu;
}

static inline uint64_t ha_share_word(unsigned slot, unsigned share)
{
	return (uint64_t)share << (16 * slot);
}

struct ha_shares {
	uint64_t of_mask[(1u << HA_MAX_PATHS) - 1]; /* [mask - 1]: the shares add up to ALL */
	uint8_t slot_of_rail[HA_MAX_PATHS];
	uint8_t rails;
	uint8_t slots; /* mask of those that rails have */
};

/*
 * Shares in the ratio of weights, for each set of rails: of rails that are not there the others
 * take over, in their ratio. Rails whose weight is 0 get nothing, unless no other is there: then
 * they share alike. Parts of 1024 are rounded down, and the first rail with a weight has the rest.
 * rails: 1 to HA_MAX_PATHS, each with a slot of its own.
 */
void ha_shares_make(struct ha_shares *shares, unsigned rails, const uint8_t *slot_of_rail,
		    const uint16_t *weight);

/*
 * The same for two rails of which the second one's share is given, more than ALL being ALL. No
 * division: for each message, if need be. Only after ha_shares_make with the same two rails, which
 * need not have been of these weights.
 */
void ha_shares_hint(struct ha_shares *shares, unsigned second);

/*
 * Turns of messages that go whole: in the long run each rail carries its share of the bytes, and
 * turns are interleaved as far as they can be.
 */
struct ha_turns {
	int64_t owed[HA_MAX_PATHS]; /* bytes times ALL: add up to 0 */
};

/* The slot whose turn it is. word: one of ha_shares. bytes: at most 4 MiB. */
unsigned ha_turns_next(struct ha_turns *turns, uint64_t word, uint64_t bytes);

#endif
