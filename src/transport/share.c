/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/share.h"

#include <string.h>

/* Shares of the rails in one set; weights that are not wanted are 0, and not all of them. */
static uint64_t in_ratio(const struct ha_shares *shares, const unsigned *weight)
{
	unsigned sum = 0, left = HA_SHARE_ALL, first = HA_MAX_PATHS;
	uint64_t word = 0;

	for (unsigned rail = 0; rail < shares->rails; rail++)
		sum += weight[rail];
	for (unsigned rail = 0; rail < shares->rails; rail++) {
		unsigned share = weight[rail] * HA_SHARE_ALL / sum;

		if (weight[rail] == 0)
			continue;
		if (first == HA_MAX_PATHS) {
			first = shares->slot_of_rail[rail];
			continue;
		}
		word |= ha_share_word(shares->slot_of_rail[rail], share);
		left -= share;
	}
	return word | ha_share_word(first, left);
}

static uint64_t word_of(const struct ha_shares *shares, unsigned mask, const uint16_t *weight)
{
	unsigned there[HA_MAX_PATHS] = {0}, alike[HA_MAX_PATHS] = {0}, sum = 0;

	for (unsigned rail = 0; rail < shares->rails; rail++) {
		if (!(mask >> shares->slot_of_rail[rail] & 1))
			continue;
		there[rail] = weight[rail];
		alike[rail] = 1;
		sum += weight[rail];
	}
	return in_ratio(shares, sum > 0 ? there : alike);
}

void ha_shares_make(struct ha_shares *shares, unsigned rails, const uint8_t *slot_of_rail,
		    const uint16_t *weight)
{
	memset(shares, 0, sizeof(*shares));
	shares->rails = (uint8_t)rails;
	for (unsigned rail = 0; rail < rails; rail++) {
		shares->slot_of_rail[rail] = slot_of_rail[rail];
		shares->slots |= (uint8_t)(1u << slot_of_rail[rail]);
	}
	for (unsigned mask = 1; mask < 1u << HA_MAX_PATHS; mask++)
		if (mask & shares->slots)
			shares->of_mask[mask - 1] = word_of(shares, mask, weight);
}

void ha_shares_hint(struct ha_shares *shares, unsigned second)
{
	const unsigned a = shares->slot_of_rail[0], b = shares->slot_of_rail[1];

	if (second > HA_SHARE_ALL)
		second = HA_SHARE_ALL;
	shares->of_mask[(1u << a | 1u << b) - 1] =
	    ha_share_word(a, HA_SHARE_ALL - second) | ha_share_word(b, second);
}

unsigned ha_turns_next(struct ha_turns *turns, uint64_t word, uint64_t bytes)
{
	unsigned next = HA_MAX_PATHS;

	for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++) {
		unsigned share = ha_share_of(word, slot);

		if (share == 0)
			continue; /* what it is owed waits until it is back */
		turns->owed[slot] += (int64_t)(share * bytes);
		if (next == HA_MAX_PATHS || turns->owed[slot] > turns->owed[next])
			next = slot;
	}
	turns->owed[next] -= (int64_t)(HA_SHARE_ALL * bytes);
	return next;
}
