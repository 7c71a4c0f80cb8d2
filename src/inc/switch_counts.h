/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a switch's program has counted, as it says it to the controller: each number as 8 bytes,
 * little-endian, in the order of the list.
 */
#ifndef HA_INC_SWITCH_COUNTS_H
#define HA_INC_SWITCH_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, help): totals since the program started, unless the text ends in "now". */
#define HA_SWITCH_COUNTERS(X)                                                                      \
	X(trees, "Trees of groups that the switch's program is in now")                            \
	X(trees_made, "Trees that it was in")                                                      \
	X(trees_failed, "Of these, trees that ended since something was wrong on them")            \
	X(units, "Units that it has added up")                                                     \
	X(unit_bytes, "Bytes of these units, each counted once")                                   \
	X(refused, "Connections that it has refused")

struct ha_switch_counts {
#define HA_SWITCH_COUNTER(name, help) uint64_t name;
	HA_SWITCH_COUNTERS(HA_SWITCH_COUNTER)
#undef HA_SWITCH_COUNTER
};

#define HA_SWITCH_COUNTS_BYTES sizeof(struct ha_switch_counts)

void ha_switch_counts_encode(const struct ha_switch_counts *counts,
			     uint8_t out[HA_SWITCH_COUNTS_BYTES]);
/* False: they are of another version. */
bool ha_switch_counts_decode(const void *data, size_t size, struct ha_switch_counts *counts);

#endif
