/* SPDX-License-Identifier: Apache-2.0 */
#include "device/unreachable.h"

#include "base/clock.h"

#include <string.h>

/* An answer that takes less costs nobody anything. */
#define SLOW_NS (50 * HA_NS_PER_MS)

void ha_absent_init(struct ha_absent *absent)
{
	memset(absent, 0, sizeof(*absent));
	pthread_mutex_init(&absent->lock, NULL);
}

void ha_absent_destroy(struct ha_absent *absent)
{
	pthread_mutex_destroy(&absent->lock);
}

/* With the lock: the pair's entry, or -1. */
static int find(const struct ha_absent *absent, const struct ha_absent_key *key)
{
	for (int i = 0; i < HA_ABSENT_MAX; i++)
		if (absent->entries[i].port == key->port &&
		    memcmp(absent->entries[i].gid, key->gid, sizeof(absent->entries[i].gid)) == 0)
			return i;
	return -1;
}

/* With the lock: the one that ends first, a free one if there is one. */
static int oldest(const struct ha_absent *absent)
{
	int found = 0;

	for (int i = 1; i < HA_ABSENT_MAX; i++)
		if (absent->entries[i].until_ns < absent->entries[found].until_ns)
			found = i;
	return found;
}

void ha_absent_note(struct ha_absent *absent, const struct ha_absent_key *key, uint64_t began_ns,
		    uint64_t now_ns)
{
	uint64_t took_ns = now_ns - began_ns;
	int i;

	if (took_ns < SLOW_NS)
		return;
	pthread_mutex_lock(&absent->lock);
	i = find(absent, key);
	if (i < 0)
		i = oldest(absent);
	absent->entries[i].port = key->port;
	memcpy(absent->entries[i].gid, key->gid, sizeof(absent->entries[i].gid));
	/* Half of a thread's time at most. */
	absent->entries[i].until_ns = now_ns + took_ns;
	pthread_mutex_unlock(&absent->lock);
}

bool ha_absent_lately(struct ha_absent *absent, const struct ha_absent_key *key, uint64_t now_ns)
{
	bool lately;
	int i;

	pthread_mutex_lock(&absent->lock);
	i = find(absent, key);
	lately = i >= 0 && now_ns < absent->entries[i].until_ns;
	pthread_mutex_unlock(&absent->lock);
	return lately;
}

void ha_absent_forget(struct ha_absent *absent)
{
	pthread_mutex_lock(&absent->lock);
	memset(absent->entries, 0, sizeof(absent->entries));
	pthread_mutex_unlock(&absent->lock);
}

uint64_t ha_absent_hash(const struct ha_absent_key *key)
{
	uint64_t hash = (uintptr_t)key->port, part;

	for (int i = 0; i < 16; i += 8) {
		memcpy(&part, key->gid + i, sizeof(part));
		hash = (hash ^ part) * 0x9e3779b97f4a7c15ull;
	}
	return hash;
}
