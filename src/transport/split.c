/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/split.h"

static unsigned largest_share(uint64_t word)
{
	unsigned largest = 0;

	for (unsigned slot = 1; slot < HA_MAX_PATHS; slot++)
		if (ha_share_of(word, slot) > ha_share_of(word, largest))
			largest = slot;
	return largest;
}

/* bytes * share / 1024 without overflow, down to a place where a message may be cut. */
static uint64_t part(uint64_t bytes, unsigned share)
{
	uint64_t whole = (bytes >> 10) * share, rest = ((bytes & 1023) * share) >> 10;

	return (whole + rest) & ~(uint64_t)(HA_SPLIT_ALIGN - 1);
}

static unsigned cut(uint64_t bytes, const struct ha_shares *shares, uint64_t word,
		    struct ha_piece *out)
{
	unsigned n = 0, first = HA_MAX_PATHS;
	uint64_t at = 0;

	for (unsigned rail = 0; rail < shares->rails; rail++) {
		const uint8_t slot = shares->slot_of_rail[rail];
		const unsigned share = ha_share_of(word, slot);
		uint64_t length;

		if (share == 0)
			continue;
		if (first == HA_MAX_PATHS) {
			first = slot;
			continue;
		}
		length = part(bytes, share);
		if (length == 0)
			continue;
		out[n++] = (struct ha_piece){.slot = slot, .offset = at, .length = length};
		at += length;
	}
	/* Something is left: the first rail has a share of 1024, too. */
	out[n++] = (struct ha_piece){.slot = (uint8_t)first, .offset = at, .length = bytes - at};
	return n;
}

unsigned ha_split(uint64_t bytes, const struct ha_shares *shares, unsigned usable, unsigned lead,
		  uint64_t whole_below, struct ha_piece out[HA_MAX_PATHS])
{
	uint64_t word;

	usable &= shares->slots;
	if (usable == 0)
		return 0;
	word = shares->of_mask[usable - 1];
	if (bytes != 0 && bytes >= whole_below)
		return cut(bytes, shares, word, out);
	if (!(usable >> lead & 1))
		lead = largest_share(word);
	out[0] = (struct ha_piece){.slot = (uint8_t)lead, .offset = 0, .length = bytes};
	return 1;
}
