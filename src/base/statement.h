/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one of two ends says to the other, and the code that only who has their key can make: over
 * who says it, where, and how many things he said there before. So nothing is believed that was
 * recorded, altered, cut, turned around or said in another order.
 */
#ifndef HA_BASE_STATEMENT_H
#define HA_BASE_STATEMENT_H

#include "base/hmac.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_CODE_BYTES 16

/* Number `count` of what `speaker` says there: a head, then a body. */
struct ha_statement {
	uint8_t speaker; /* one of two, as the ends agree */
	uint8_t where;	 /* one of several ways between the same ends */
	uint64_t count;
	const void *head, *body; /* may be NULL where their length is 0 */
	size_t head_length, body_length;
};

void ha_statement_code(const struct ha_hmac_key *key, const struct ha_statement *said,
		       uint8_t code[HA_CODE_BYTES]);
bool ha_statement_is_genuine(const struct ha_hmac_key *key, const struct ha_statement *said,
			     const uint8_t code[HA_CODE_BYTES]) HA_MUST_CHECK;

#endif
