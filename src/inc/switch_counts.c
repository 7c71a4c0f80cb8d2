/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/switch_counts.h"

#include "base/bytes.h"

void ha_switch_counts_encode(const struct ha_switch_counts *counts,
			     uint8_t out[HA_SWITCH_COUNTS_BYTES])
{
	struct ha_writer w = {out};

#define PUT(name, help) ha_put_uint(&w, counts->name, 8);
	HA_SWITCH_COUNTERS(PUT)
#undef PUT
}

bool ha_switch_counts_decode(const void *data, size_t size, struct ha_switch_counts *counts)
{
	struct ha_reader r = {data};

	if (size != HA_SWITCH_COUNTS_BYTES)
		return false;
#define GET(name, help) counts->name = ha_get64(&r);
	HA_SWITCH_COUNTERS(GET)
#undef GET
	return true;
}
