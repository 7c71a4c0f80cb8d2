/* SPDX-License-Identifier: Apache-2.0 */
/* The registration cache of one incarnation of a NIC. */
#include "memory/cache.h"

#include "base/clock.h"
#include "device/give_back.h"
#include "memory/verbs_mr.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct ha_mr_cache {
	struct ha_incarnation *on;
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

struct ha_mr_cache *ha_mr_cache_new(struct ha_incarnation *on, struct ibv_pd *pd)
{
	struct ha_mr_cache *cache = calloc(1, sizeof *cache);

	if (!cache)
		return NULL;
	cache->on = on;
	cache->pd = pd;
	pthread_mutex_init(&cache->lock, NULL);
	pthread_cond_init(&cache->registered, NULL);
	return cache;
}

/* With the shares of those who never gave it up. */
static void free_entry(struct ha_mr_entry *entry)
{
	while (!ha_list_empty(&entry->uses))
		free(ha_container_of(ha_list_pop_front(&entry->uses), struct ha_mr_use, link));
	free(entry);
}

int ha_mr_cache_free(struct ha_mr_cache *cache)
{
	int left = cache->nentries;

	for (int i = 0; i < left; i++) {
		ha_give_back(cache->on, HA_OBJECT_MR, cache->entries[i]->mr, NULL, NULL);
		free_entry(cache->entries[i]);
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

static bool lies_within(const struct ha_mr_range *want, uintptr_t addr, size_t length)
{
	return addr <= want->addr && want->addr - addr < length &&
	       length - (want->addr - addr) >= want->length;
}

static bool is_of_one_kind(const struct ha_mr_range *a, const struct ha_mr_range *b)
{
	if (a->type != b->type || (a->fd >= 0) != (b->fd >= 0))
		return false;
	return a->fd < 0 || (a->device == b->device && a->inode == b->inode &&
			     a->offset - a->addr == b->offset - b->addr);
}

/* Whether some handle vouches for it that these are the entry's pages still. */
static bool serves(const struct ha_mr_entry *entry, const struct ha_mr_range *range)
{
	struct ha_list *pos;

	if (!is_of_one_kind(&entry->range, range) ||
	    !lies_within(range, entry->range.addr, entry->range.length))
		return false;
	ha_list_for_each (pos, &entry->uses) {
		const struct ha_mr_use *use = ha_container_of(pos, struct ha_mr_use, link);

		if (lies_within(range, use->addr, use->length))
			return true;
	}
	return false;
}

/* Walks back from the nearest start, where a match almost always is. */
static struct ha_mr_entry *find(const struct ha_mr_cache *cache, const struct ha_mr_range *range)
{
	for (int i = upper_bound(cache, range->addr) - 1; i >= 0; i--)
		if (serves(cache->entries[i], range))
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
	entry->on = cache->on;
	entry->registering = true;
	ha_list_init(&entry->uses);
	insert(cache, entry);
	return entry;
}

/* With the lock held: one user less. True: it was the last. */
static bool leave(struct ha_mr_use *use)
{
	ha_list_remove(&use->link);
	return ha_list_empty(&use->entry->uses);
}

/* With the lock held, which is let go meanwhile. */
static void register_entry(struct ha_mr_cache *cache, struct ha_mr_entry *entry)
{
	struct ibv_mr *mr;

	pthread_mutex_unlock(&cache->lock);
	mr = ha_verbs_reg(cache->on, cache->pd, &entry->range);
	atomic_store_explicit(&cache->on->nic->registered_ns, ha_now_ns(), memory_order_relaxed);
	pthread_mutex_lock(&cache->lock);
	entry->mr = mr;
	entry->registering = false;
	pthread_cond_broadcast(&cache->registered);
	if (!mr)
		extract(cache, entry);
}

static bool same_pages(const struct ha_mr_entry *entry, const struct ha_mr_range *range)
{
	return entry->range.addr == range->addr && entry->range.length == range->length;
}

/*
 * With the lock held, which is let go meanwhile. False: use has no entry. *again: that was to be
 * one for more pages than these, and for these it may work.
 */
static bool obtain(struct ha_mr_cache *cache, const struct ha_mr_range *range,
		   struct ha_mr_use *use, bool *again)
{
	struct ha_mr_entry *entry = find(cache, range);
	bool ours = !entry;

	*again = entry && !same_pages(entry, range);
	if (ours)
		entry = add(cache, range);
	if (!entry)
		return false;
	use->entry = entry;
	ha_list_push_back(&entry->uses, &use->link);
	if (ours)
		register_entry(cache, entry);
	while (entry->registering)
		pthread_cond_wait(&cache->registered, &cache->lock);
	if (entry->mr)
		return true;
	if (leave(use))
		free(entry);
	return false;
}

ha_result_t ha_mr_cache_get(struct ha_mr_cache *cache, const struct ha_mr_range *range,
			    struct ha_mr_use **out)
{
	struct ha_mr_use *use = calloc(1, sizeof *use);
	bool ok, again;

	*out = NULL;
	if (!use)
		return HA_ERR_SYSTEM;
	use->addr = range->addr;
	use->length = range->length;
	pthread_mutex_lock(&cache->lock);
	do
		ok = obtain(cache, range, use, &again);
	while (!ok && again);
	pthread_mutex_unlock(&cache->lock);
	if (!ok) {
		free(use);
		return HA_ERR_SYSTEM;
	}
	*out = use;
	return HA_OK;
}

struct ha_mr_entry *ha_mr_cache_release(struct ha_mr_cache *cache, struct ha_mr_use *use)
{
	struct ha_mr_entry *last = NULL;

	pthread_mutex_lock(&cache->lock);
	if (leave(use)) {
		last = use->entry;
		extract(cache, last);
	}
	pthread_mutex_unlock(&cache->lock);
	free(use);
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
