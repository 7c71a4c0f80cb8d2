/* SPDX-License-Identifier: Apache-2.0 */
/* The registration cache of one NIC. */
#include "memory/cache.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct ha_mr_cache {
	struct ha_nic *nic;
	struct ibv_pd *pd;

	/*
	 * Protects what follows and the entries. Never held over a verb: an entry is there before
	 * it is registered, so that two threads that want the same pages register them once.
	 */
	pthread_mutex_t lock;
	pthread_cond_t registered;    /* or not, but some entry is not being registered any more */
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
	pthread_cond_init(&cache->registered, NULL);
	return cache;
}

int ha_mr_cache_free(struct ha_mr_cache *cache)
{
	int left = cache->nentries;

	for (int i = 0; i < left; i++) {
		ha_verbs_dereg(cache->nic, cache->entries[i]->mr);
		free(cache->entries[i]);
	}
	pthread_cond_destroy(&cache->registered);
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

/* With the lock held: an entry that the caller has to register. NULL: no memory for our records. */
static struct ha_mr_entry *add(struct ha_mr_cache *cache, const struct ha_mr_range *range)
{
	struct ha_mr_entry *entry = calloc(1, sizeof *entry);

	if (!entry || !reserve_one(cache)) {
		free(entry);
		return NULL;
	}
	entry->range = *range;
	entry->nic = cache->nic;
	entry->registering = true;
	entry->refs = 1;
	insert(cache, entry);
	return entry;
}

/* With the lock held: one user less, of an entry without a registration. */
static void drop_failed(struct ha_mr_entry *entry)
{
	if (--entry->refs == 0)
		free(entry);
}

/* With the lock held, which is let go meanwhile. False: it failed, and the entry is not the
 * caller's any more. */
static bool register_entry(struct ha_mr_cache *cache, struct ha_mr_entry *entry)
{
	struct ibv_mr *mr;

	pthread_mutex_unlock(&cache->lock);
	mr = ha_verbs_reg(cache->nic, cache->pd, &entry->range);
	atomic_store_explicit(&cache->nic->registered_ns, ha_now_ns(), memory_order_relaxed);
	pthread_mutex_lock(&cache->lock);
	entry->mr = mr;
	entry->registering = false;
	pthread_cond_broadcast(&cache->registered);
	if (mr)
		return true;
	extract(cache, entry);
	drop_failed(entry);
	return false;
}

/* With the lock held, which is let go meanwhile. False: as above. */
static bool share_entry(struct ha_mr_cache *cache, struct ha_mr_entry *entry)
{
	entry->refs++;
	while (entry->registering)
		pthread_cond_wait(&cache->registered, &cache->lock);
	if (entry->mr)
		return true;
	drop_failed(entry);
	return false;
}

static bool same_pages(const struct ha_mr_entry *entry, const struct ha_mr_range *range)
{
	return entry->range.addr == range->addr && entry->range.length == range->length;
}

ha_result_t ha_mr_cache_get(struct ha_mr_cache *cache, const struct ha_mr_range *range,
			    struct ha_mr_entry **out)
{
	struct ha_mr_entry *entry;
	bool ok = false, again;

	pthread_mutex_lock(&cache->lock);
	do {
		again = false;
		entry = find(cache, range);
		if (entry) {
			/* What failed for more pages than these may do for these. */
			again = !same_pages(entry, range);
			ok = share_entry(cache, entry);
		} else {
			entry = add(cache, range);
			ok = entry && register_entry(cache, entry);
		}
	} while (!ok && again);
	pthread_mutex_unlock(&cache->lock);
	*out = ok ? entry : NULL;
	return ok ? HA_OK : HA_ERR_SYSTEM;
}

bool ha_mr_cache_release(struct ha_mr_cache *cache, struct ha_mr_entry *entry)
{
	bool last;

	pthread_mutex_lock(&cache->lock);
	last = --entry->refs == 0;
	if (last)
		extract(cache, entry);
	pthread_mutex_unlock(&cache->lock);
	return last;
}

int ha_mr_cache_entries(struct ha_mr_cache *cache)
{
	int n;

	pthread_mutex_lock(&cache->lock);
	n = cache->nentries;
	pthread_mutex_unlock(&cache->lock);
	return n;
}
