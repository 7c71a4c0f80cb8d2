/* SPDX-License-Identifier: Apache-2.0 */
#include "hints/hint.h"

uint32_t ha_hint_read_again(struct ha_hint *hint, const struct mpib_hint_entry *entry)
{
	enum ha_hint_look seen = HA_HINT_TORN;
	uint32_t share = HA_HINT_NONE;

	if (!entry)
		return HA_HINT_NONE;
	for (int tries = HA_HINT_TRIES - 1; tries > 0 && seen == HA_HINT_TORN; tries--)
		seen = ha_hint_look(hint, entry, &share);
	if (seen == HA_HINT_OURS)
		hint->last = share;
	return hint->last;
}
