/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent says of one flow, as it is read for each message: no call, no lock, and never a
 * loop that whoever writes could keep going.
 */
#ifndef HA_HINTS_HINT_H
#define HA_HINTS_HINT_H

#include "nccl_ha/mpib_agent.h"

#include <stdint.h>

#define HA_HINT_TRIES 8
#define HA_HINT_NONE  UINT32_MAX /* nobody says anything: go by islands */

/* Both addresses of an entry as one word, as they lie in memory. */
typedef uint64_t ha_hint_ips_t;

struct ha_hint {
	/* hints.c writes, with the addresses first. The memory stays mapped while anybody may read.
	 */
	const struct mpib_hint_entry *entry; /* NULL: none */
	ha_hint_ips_t ips;		     /* of this flow; 0: the agent fills in none */
	uint32_t last;			     /* the reader's: the last that was whole */
};

static inline ha_hint_ips_t ha_hint_ips(const struct mpib_hint_entry *entry, int order)
{
	return __atomic_load_n((const ha_hint_ips_t *)(const void *)&entry->src_ip, order);
}

/* Whether the entry was whole, and of whom; then *share is its. */
enum ha_hint_look { HA_HINT_TORN, HA_HINT_OURS, HA_HINT_OTHERS };

static inline enum ha_hint_look ha_hint_look(const struct ha_hint *hint,
					     const struct mpib_hint_entry *entry, uint32_t *share)
{
	/* Acquire, each of them: see base/seqlock.h, whose words are wider. */
	uint32_t before = __atomic_load_n(&entry->seq, __ATOMIC_ACQUIRE);
	uint32_t parts = __atomic_load_n(&entry->sup_bw, __ATOMIC_ACQUIRE);
	ha_hint_ips_t ips = ha_hint_ips(entry, __ATOMIC_ACQUIRE);

	if ((before & 1) || __atomic_load_n(&entry->seq, __ATOMIC_RELAXED) != before)
		return HA_HINT_TORN;
	*share = parts < MPIB_HINT_ALL ? parts : MPIB_HINT_ALL;
	return ips == __atomic_load_n(&hint->ips, __ATOMIC_RELAXED) ? HA_HINT_OURS : HA_HINT_OTHERS;
}

/* What ha_hint_read does when there is no entry, or the first look met a writer or another flow. */
uint32_t ha_hint_read_again(struct ha_hint *hint, const struct mpib_hint_entry *entry);

/*
 * Parts of MPIB_HINT_ALL that the second rail is to carry, or HA_HINT_NONE. While an entry is being
 * written, for as long as that may take, and when it is another flow's, the last one that was read
 * stands. One reader of a hint at a time.
 */
static inline uint32_t ha_hint_read(struct ha_hint *hint)
{
	/* Acquire: the addresses that came with it. */
	const struct mpib_hint_entry *entry = __atomic_load_n(&hint->entry, __ATOMIC_ACQUIRE);
	uint32_t share;

	if (__builtin_expect(!entry || ha_hint_look(hint, entry, &share) != HA_HINT_OURS, 0))
		return ha_hint_read_again(hint, entry);
	hint->last = share;
	return share;
}

#endif
