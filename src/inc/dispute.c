/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/dispute.h"

#include "base/bytes.h"

#include <stdio.h>

void ha_dispute_encode(const struct ha_dispute *dispute, uint8_t out[HA_DISPUTE_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, dispute->about, 1);
	ha_put_zeros(&w, 3);
	ha_put_uint(&w, dispute->member, 2);
	ha_put_uint(&w, dispute->other, 2);
	ha_put_uint(&w, dispute->operation, 8);
	ha_put_uint(&w, dispute->unit, 8);
}

bool ha_dispute_decode(const uint8_t *data, size_t size, unsigned int members,
		       struct ha_dispute *dispute)
{
	struct ha_reader r = {data};
	bool is_zero;
	uint8_t about;

	if (size != HA_DISPUTE_BYTES)
		return false;
	about = ha_get8(&r);
	is_zero = !ha_get_uint(&r, 3);
	dispute->about = (enum ha_dispute_about)about;
	dispute->member = ha_get16(&r);
	dispute->other = ha_get16(&r);
	dispute->operation = ha_get64(&r);
	dispute->unit = ha_get64(&r);
	return is_zero && about > HA_DISPUTE_NONE && about < HA_DISPUTE_KINDS &&
	       dispute->member < members && dispute->other < members &&
	       dispute->member != dispute->other;
}

static const char *const names[HA_DISPUTE_KINDS] = {
    [HA_DISPUTE_NONE] = "nothing",	  [HA_DISPUTE_NUMBER] = "which operation it is",
    [HA_DISPUTE_TYPE] = "its type",	  [HA_DISPUTE_OP] = "what it does",
    [HA_DISPUTE_BYTES_OF] = "its length", [HA_DISPUTE_UNIT] = "its units",
};

void ha_dispute_text(const struct ha_dispute *dispute, char *text, size_t size)
{
	const unsigned long long operation = dispute->operation, unit = dispute->unit;

	if (dispute->about == HA_DISPUTE_LEFT)
		snprintf(text, size,
			 "member %u asks for unit %llu, and member %u has left before it",
			 dispute->member, unit, dispute->other);
	else
		snprintf(text, size, "members %u and %u differ in operation %llu, unit %llu, in %s",
			 dispute->member, dispute->other, operation, unit, names[dispute->about]);
}
