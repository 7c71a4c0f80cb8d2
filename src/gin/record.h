/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal's record: what the sender's NIC writes into the receiver's ring beside an operation's
 * notice, row number modulo the window. The peer may have written anything there and may go on
 * writing: who takes a record copies it first, and nothing in it is believed.
 */
#ifndef HA_GIN_RECORD_H
#define HA_GIN_RECORD_H

#include "gin/applier.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Both ends are little-endian machines of one job. */
struct ha_gin_record {
	uint64_t number; /* of the operation */
	uint32_t epoch;
	uint16_t
	    region; /* of the receiver's memory: registrations are numbered alike at all ranks */
	uint16_t unused; /* 0 */
	uint64_t offset; /* of the word, in bytes from where the region begins */
	uint64_t addend; /* not 0 */
};

_Static_assert(sizeof(struct ha_gin_record) == 32, "it is written inline");

/* Memory of the receiver that signals may go to. */
struct ha_gin_region {
	struct ha_gin_word *words; /* one for each 8 bytes; NULL: the number is not in use */
	uint64_t size;		   /* bytes */
};

/*
 * Takes the record of an operation of this number and epoch out of a row of the ring. False: it is
 * none of it, or names what is not there; then nothing is to be counted, and the peer is at fault.
 */
bool ha_gin_record_take(const volatile struct ha_gin_record *row, uint64_t number, uint32_t epoch,
			const struct ha_gin_region *regions, size_t count,
			struct ha_gin_record *record, struct ha_gin_word **word);

#endif
