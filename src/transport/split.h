/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message over rails: whether it is cut, and where. Arithmetic without a division, and without a
 * connection in it.
 */
#ifndef HA_TRANSPORT_SPLIT_H
#define HA_TRANSPORT_SPLIT_H

#include "transport/share.h"

#include <stdint.h>

/* Cuts are at multiples of this from the start of a message: NCCL's LL128 needs chunks of 128 bytes
 * to land whole. */
#define HA_SPLIT_ALIGN 128

struct ha_piece {
	uint8_t slot;
	uint64_t offset, length;
};

/*
 * The pieces of a message, one for each rail that gets bytes, in the order of their offsets and
 * without gaps; returns how many. 0 when none of the rails' slots is usable: nothing can be posted
 * now. Else a message of no bytes is one piece, too.
 *
 * Every rail but the first one that has a share gets `bytes * share / 1024`, rounded down to
 * HA_SPLIT_ALIGN, from offset 0 on in the order of rails; that first one takes what is left, at
 * the end. So every cut is at a multiple of HA_SPLIT_ALIGN, whatever the size.
 *
 * usable: mask of slots that may carry this message. A message of less than whole_below bytes is
 * not cut: it goes to the slot `lead`, or where that is not usable to the one with the largest
 * share.
 */
unsigned ha_split(uint64_t bytes, const struct ha_shares *shares, unsigned usable, unsigned lead,
		  uint64_t whole_below, struct ha_piece out[HA_MAX_PATHS]);

/* ---- small messages -------------------------------------------------------------------------- */

enum ha_way {
	HA_WAY_LEAD,  /* on the lead: another would only add latency */
	HA_WAY_WHOLE, /* on one rail, in turns */
	HA_WAY_SPLIT,
};

/* How a message goes; stripe_min: so many bytes are worth a stripe (HA_NCCL_STRIPE_MIN). */
static inline enum ha_way ha_way_of(uint64_t bytes, uint64_t stripe_min)
{
	if (bytes < stripe_min / 4)
		return HA_WAY_LEAD;
	return bytes < 2 * stripe_min ? HA_WAY_WHOLE : HA_WAY_SPLIT;
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

/* The queue pair, of those of a path, of the turn'th message over it. */
static inline unsigned ha_qp_in_turn(uint64_t turn, unsigned nqps)
{
	return __builtin_expect(nqps == 1, 1) ? 0 : (unsigned)(turn % nqps);
}

#endif
