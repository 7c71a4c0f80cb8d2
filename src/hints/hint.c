/* SPDX-License-Identifier: Apache-2.0 */
#include "hints/hint.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* A file may end anywhere, at any time. */
static bool read_entry(const struct ha_hint *hint, uint32_t at, struct mpib_hint_entry *entry)
{
	const int fd = __atomic_load_n(&hint->fd, __ATOMIC_RELAXED);

	return pread(fd, entry, sizeof(*entry), at) == sizeof(*entry);
}

/*
 * One read may be of the middle of a write, and says of its words no order. Two that are the same
 * were of one entry, which nobody wrote in between: its number would be another one.
 */
static bool read_whole(struct ha_hint *hint, uint32_t at)
{
	for (int tries = HA_HINT_TRIES; tries > 0; tries--) {
		struct mpib_hint_entry entry;

		if (!read_entry(hint, at, &entry))
			return false;
		if (memcmp(&entry, &hint->seen, sizeof(entry)) == 0)
			return !(entry.seq & 1);
		hint->seen = entry;
	}
	return false;
}

void ha_hint_look(struct ha_hint *hint, uint32_t at)
{
	const struct mpib_hint_entry *seen = &hint->seen;
	ha_hint_ips_t ips;

	if (!read_whole(hint, at))
		return;
	memcpy(&ips, &seen->src_ip, sizeof(ips));
	if (ips == __atomic_load_n(&hint->ips, __ATOMIC_RELAXED))
		hint->last = seen->sup_bw < MPIB_HINT_ALL ? seen->sup_bw : MPIB_HINT_ALL;
}
