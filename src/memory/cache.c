/* SPDX-License-Identifier: Apache-2.0 */
/* The registration cache of one NIC. */
#include "memory/cache.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct ha_mr_cache {
	struct ha_nic *nic;
	struct ibv_pd *pd;

	/*
	 * Protects what follows and the entries' reference counts. It is held while verbs register,
	 * so that two threads that want the same pages register them once.
	 */
	pthread_mutex_t lock;
	struct ha_mr_entry **entries; /* ascending by address */
	int nentries, capacity;
};

struct ha_mr_cache *ha_mr_cache_new(struct ha_nic *nic, struct ibv_pd *pd)
{
	struct ha_mr_cache *cache = calloc(1, sizeof *cache);

	if (!cache)
		return NULL;
	cache->nic = nic;
	cache->pd = pd;
	pthread_mutex_init(&cache->lock, NULL);
	return cache;
}

int ha_mr_cache_free(struct ha_mr_cache *cache)
{
	int left = cache->nentries;

	for (int i = 0; i < left; i++) {
		ha_verbs_dereg(cache->nic, cache->entries[i]->mr);
		free(cache->entries[i]);
	}
	pthread_mutex_destroy(&cache->lock);
	free(cache->entries);
	free(cache);
	return left;
}

/* Number of entries that start at addr or below: those that may cover it come before. */
static int upper_bound(const struct ha_mr_cache *cache, uintptr_t addr)
{
	int low = 0, high = cache->nentries;

	while (low < high) {
		int middle = low + (high - low) / 2;

		if (cache->entries[middle]->range.addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool covers(const struct ha_mr_range *have, const struct ha_mr_range *want)
{
	return have->type == want->type && (have->fd >= 0) == (want->fd >= 0) &&
	       have->addr <= want->addr && want->addr - have->addr < have->length &&
	       have->length - (want->addr - have->addr) >= want->length;
}

/* Walks back from the nearest start, where a match almost always is. */
static struct ha_mr_entry *find(const struct ha_mr_cache *cache, const struct ha_mr_range *range)
{
	for (int i = upper_bound(cache, range->addr) - 1; i >= 0; i--)
		if (covers(&cache->entries[i]->range, range))
			return cache->entries[i];
	return NULL;
}

static bool reserve_one(struct ha_mr_cache *cache)
{
	int capacity = cache->capacity ? cache->capacity * 2 : 64;
	struct ha_mr_entry **entries;

	if (cache->nentries < cache->capacity)
		return true;
	entries = realloc(cache->entries, (size_t)capacity * sizeof(struct ha_mr_entry *));
	if (!entries)
		return false;
	cache->entries = entries;
	cache->capacity = capacity;
	return true;
}

static void insert(struct ha_mr_cache *cache, struct ha_mr_entry *entry)
{
	int at = upper_bound(cache, entry->range.addr);

	memmove(&cache->entries[at + 1], &cache->entries[at],
		(size_t)(cache->nentries - at) * sizeof(struct ha_mr_entry *));
	cache->entries[at] = entry;
	cache->nentries++;
}

static void extract(struct ha_mr_cache *cache, const struct ha_mr_entry *entry)
{
	int at = upper_bound(cache, entry->range.addr) - 1;

	while (cache->entries[at] != entry)
		at--;
	cache->nentries--;
	memmove(&cache->entries[at], &cache->entries[at + 1],
		(size_t)(cache->nentries - at) * sizeof(struct ha_mr_entry *));
}

/* With the lock held. NULL when registering failed, or memory for our own records did. */
static struct ha_mr_entry *add(struct ha_mr_cache *cache, const struct ha_mr_range *range)
{
	struct ha_mr_entry *entry = calloc(1, sizeof *entry);

	if (!entry || !reserve_one(cache)) {
		free(entry);
		return NULL;
	}
	entry->range = *range;
	entry->mr = ha_verbs_reg(cache->nic, cache->pd, range);
	if (!entry->mr) {
		free(entry);
		return NULL;
	}
	insert(cache, entry);
	return entry;
}

ha_result_t ha_mr_cache_get(struct ha_mr_cache *cache, const struct ha_mr_range *range,
			    struct ha_mr_entry **out)
{
	struct ha_mr_entry *entry;

	pthread_mutex_lock(&cache->lock);
	entry = find(cache, range);
	if (!entry)
		entry = add(cache, range);
	if (entry)
		entry->refs++;
	pthread_mutex_unlock(&cache->lock);
	*out = entry;
	return entry ? HA_OK : HA_ERR_SYSTEM;
}

void ha_mr_cache_put(struct ha_mr_cache *cache, struct ha_mr_entry *entry)
{
	bool last;

	pthread_mutex_lock(&cache->lock);
	last = --entry->refs == 0;
	if (last)
		extract(cache, entry);
	pthread_mutex_unlock(&cache->lock);
	if (!last)
		return;
	/* Nobody can find the entry any more. */
	ha_verbs_dereg(cache->nic, entry->mr);
	free(entry);
}

int ha_mr_cache_entries(struct ha_mr_cache *cache)
{
	int n;

	pthread_mutex_lock(&cache->lock);
	n = cache->nentries;
	pthread_mutex_unlock(&cache->lock);
	return n;
}
