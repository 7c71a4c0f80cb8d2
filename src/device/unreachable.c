/* SPDX-License-Identifier: Apache-2.0 */
#include "device/unreachable.h"

#include "base/clock.h"

#include <string.h>

/* An answer that takes less costs nobody anything. */
#define SLOW_NS (50 * HA_NS_PER_MS)

void ha_unreachable_init(struct ha_unreachable *unreachable)
{
	memset(unreachable, 0, sizeof(*unreachable));
	pthread_mutex_init(&unreachable->lock, NULL);
}

void ha_unreachable_destroy(struct ha_unreachable *unreachable)
{
	pthread_mutex_destroy(&unreachable->lock);
}

/* With the lock: the pair's entry, or -1. */
static int find(const struct ha_unreachable *unreachable, const struct ha_unreachable_key *key)
{
	for (int i = 0; i < HA_UNREACHABLE_MAX; i++)
		if (unreachable->entries[i].port == key->port &&
		    memcmp(unreachable->entries[i].gid, key->gid,
			   sizeof(unreachable->entries[i].gid)) == 0)
			return i;
	return -1;
}

/* With the lock: the one that ends first, a free one if there is one. */
static int oldest(const struct ha_unreachable *unreachable)
{
	int found = 0;

	for (int i = 1; i < HA_UNREACHABLE_MAX; i++)
		if (unreachable->entries[i].until_ns < unreachable->entries[found].until_ns)
			found = i;
	return found;
}

void ha_unreachable_note(struct ha_unreachable *unreachable, const struct ha_unreachable_key *key,
			 uint64_t began_ns, uint64_t now_ns)
{
	uint64_t took_ns = now_ns - began_ns;
	int i;

	if (took_ns < SLOW_NS)
		return;
	pthread_mutex_lock(&unreachable->lock);
	i = find(unreachable, key);
	if (i < 0)
		i = oldest(unreachable);
	unreachable->entries[i].port = key->port;
	memcpy(unreachable->entries[i].gid, key->gid, sizeof(unreachable->entries[i].gid));
	/* Half of a thread's time at most. */
	unreachable->entries[i].until_ns = now_ns + took_ns;
	pthread_mutex_unlock(&unreachable->lock);
}

bool ha_unreachable_lately(struct ha_unreachable *unreachable, const struct ha_unreachable_key *key,
			   uint64_t now_ns)
{
	bool lately;
	int i;

	pthread_mutex_lock(&unreachable->lock);
	i = find(unreachable, key);
	lately = i >= 0 && now_ns < unreachable->entries[i].until_ns;
	pthread_mutex_unlock(&unreachable->lock);
	return lately;
}

void ha_unreachable_forget(struct ha_unreachable *unreachable, const struct ha_unreachable_key *key)
{
	pthread_mutex_lock(&unreachable->lock);
	for (int i = 0; i < HA_UNREACHABLE_MAX; i++)
		if ((!key->port || unreachable->entries[i].port == key->port) &&
		    (!key->gid || memcmp(unreachable->entries[i].gid, key->gid,
					 sizeof(unreachable->entries[i].gid)) == 0))
			memset(&unreachable->entries[i], 0, sizeof(unreachable->entries[i]));
	pthread_mutex_unlock(&unreachable->lock);
}

uint64_t ha_unreachable_hash(const struct ha_unreachable_key *key)
{
	uint64_t hash = (uintptr_t)key->port, part;

	for (int i = 0; i < 16; i += 8) {
		memcpy(&part, key->gid + i, sizeof(part));
		hash = (hash ^ part) * 0x9e3779b97f4a7c15ull;
	}
	return hash;
}
