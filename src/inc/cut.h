/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an operation is cut into units, which all members do alike, so nobody has to be asked.
 *
 * Units are numbered for the whole group and never again: those of an operation follow those of the
 * one before, however many lanes there are. Unit u goes over lane u mod lanes, as the (u div
 * lanes)th of it. So a plan with another number of lanes changes where a unit goes, and not which
 * one it is.
 */
#ifndef HA_INC_CUT_H
#define HA_INC_CUT_H

#include <stdint.h>

#define HA_CUT_ALIGN 64 /* a unit is a multiple of it, and so of every element */

struct ha_cut {
	uint64_t first;	     /* the operation's first unit */
	uint64_t bytes;	     /* of the whole vector, as the application has it */
	uint32_t unit_bytes; /* of a unit, but for the last one */
};

/* A unit's part of the vector. */
struct ha_piece {
	uint64_t offset;
	uint32_t bytes;
};

/* At least one: an operation of 0 bytes is a message, too. */
static inline uint64_t ha_cut_units(const struct ha_cut *cut)
{
	uint64_t whole = cut->bytes / cut->unit_bytes;

	return cut->bytes % cut->unit_bytes || !whole ? whole + 1 : whole;
}

static inline unsigned int ha_cut_lane(uint64_t unit, unsigned int lanes)
{
	return (unsigned int)(unit % lanes);
}

static inline uint64_t ha_cut_index(uint64_t unit, unsigned int lanes)
{
	return unit / lanes;
}

/* The unit that is the index-th of a lane: the inverse of both. */
static inline uint64_t ha_cut_unit(uint64_t index, unsigned int lane, unsigned int lanes)
{
	return index * lanes + lane;
}

/* Of one of the operation's own units. */
struct ha_piece ha_cut_piece(const struct ha_cut *cut, uint64_t unit);

#endif
