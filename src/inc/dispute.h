/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two members of a group that do not ask for the same operation: what whoever adds notices of it
 * and says to those below, a member to its leader, and the leader to all when it gives up. No other
 * way helps against it, so none is tried.
 *
 * 24 bytes, little-endian:
 *
 *    0  1  what they differ in     1  3  zero
 *    4  2  member                  6  2  the other one
 *    8  8  operation              16  8  unit
 */
#ifndef HA_INC_DISPUTE_H
#define HA_INC_DISPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_DISPUTE_BYTES 24

enum ha_dispute_about {
	HA_DISPUTE_NONE,   /* they agree */
	HA_DISPUTE_NUMBER, /* the operation that the unit is of */
	HA_DISPUTE_TYPE,
	HA_DISPUTE_OP,
	HA_DISPUTE_BYTES_OF, /* how many bytes it has, as a whole */
	HA_DISPUTE_UNIT,     /* which unit comes next, or its form */
	HA_DISPUTE_LEFT,     /* the other one has left, and the member asks for more */
	HA_DISPUTE_KINDS
};

struct ha_dispute {
	enum ha_dispute_about about;
	uint16_t member, other;
	uint64_t operation; /* by the member's count; of LEFT 0 */
	uint64_t unit;
};

void ha_dispute_encode(const struct ha_dispute *dispute, uint8_t out[HA_DISPUTE_BYTES]);

/* False: two of a group of so many members cannot differ in that. */
bool ha_dispute_decode(const uint8_t *data, size_t size, unsigned int members,
		       struct ha_dispute *dispute);

/* For people. */
void ha_dispute_text(const struct ha_dispute *dispute, char *text, size_t size);

#endif
