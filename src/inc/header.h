/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes up a lane in front of a unit, in one message with it: which unit of which operation it
 * is. Each unit has its own, so whoever takes it need not remember what came before, and the units
 * of a lane may have gaps: after an epoch some of them are everywhere already.
 *
 * 64 bytes, little-endian:
 *
 *    0  4  magic
 *    4  1  kind          5  1  type         6  1  operation    7  1  flags
 *    8  8  number of the operation, from 1
 *   16  8  unit
 *   24  8  bytes of the unit, as the application has them
 *   32  4  bytes of the largest unit       36  4  epoch
 *   40  8  group
 *   48  2  member     50  2  zero            52  4  checksum of the rest
 *   56  8  bytes of the operation, as the application has them
 */
#ifndef HA_INC_HEADER_H
#define HA_INC_HEADER_H

#include "inc/dispute.h"

#define HA_INC_HEADER_BYTES   64
#define HA_INC_MAX_UNIT_BYTES (1u << 24)

enum ha_inc_kind {
	HA_INC_ALL_REDUCE = 1,
};

struct ha_inc_header {
	enum ha_inc_kind kind;
	uint8_t type;  /* enum ha_reduce_type */
	uint8_t op;    /* enum ha_reduce_op */
	bool is_empty; /* nothing follows, which counts as zeros: of the largest of bytes alone */
	bool is_wide;  /* what follows are partial results */
	uint64_t number;
	uint64_t unit;
	uint64_t bytes;
	uint32_t unit_bytes;
	uint32_t epoch;
	uint64_t group;
	uint64_t op_bytes; /* of the whole operation */
	uint16_t member;   /* that contributes; of partial results the first one's */
};

void ha_inc_header_encode(const struct ha_inc_header *header, uint8_t out[HA_INC_HEADER_BYTES]);

/* False: these bytes are no header that this version can act on. */
bool ha_inc_header_decode(const uint8_t *data, size_t size, struct ha_inc_header *header);

/* How many bytes follow a header that could be decoded. */
size_t ha_inc_header_payload(const struct ha_inc_header *header);

/* In what two children of a switch differ that have to contribute to one unit of one operation; of
 * several the first that somebody who looks for the reason would want to know. */
enum ha_dispute_about ha_inc_header_dispute(const struct ha_inc_header *a,
					    const struct ha_inc_header *b);

#endif
