/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registrations of the PD of one incarnation of a NIC: page-granular, reference-counted, shared
 * by all handles.
 *
 * Entries lie in an array sorted by first page. A registration keeps the pages that it began with,
 * whatever is mapped at their addresses later. So it serves a later handle only where an earlier
 * one still vouches for the memory: of pages that a handle in use covers nobody has given anything
 * back. Pages of the registration that were some other handle's, given up since, may be others by
 * now.
 */
#ifndef HA_MEMORY_CACHE_H
#define HA_MEMORY_CACHE_H

#include "base/list.h"
#include "base/result.h"
#include "device/device.h"
#include "progress/command.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to register: whole pages. Two registrations of different type do not share. */
struct ha_mr_range {
	uintptr_t addr;
	size_t length;
	int type;	 /* enum ha_mem_type | HA_MEM_STRICT_ORDER | HA_MEM_ATOMIC */
	int fd;		 /* dmabuf, or -1 */
	uint64_t offset; /* of addr in the dmabuf */
	/* Which dmabuf that is, whatever the descriptor. Another allocation may have its address.
	 */
	uint64_t device, inode;
	bool further; /* another NIC has it registered already */
};

/* A handle's share in an entry. Guarded by the cache's lock, entry and pages constant. */
struct ha_mr_use {
	struct ha_list link; /* among the entry's */
	struct ha_mr_entry *entry;
	uintptr_t addr; /* the pages that the handle asked for */
	size_t length;
};

/* Guarded by the cache's lock; of a user, while it is registered, mr is constant. */
struct ha_mr_entry {
	struct ha_mr_range range; /* fd is the first user's and not used after registration */
	struct ibv_mr *mr;	  /* NULL: it is being registered, or that failed */
	struct ha_list uses;
	bool registering;
	/* mr.c's, when the last user has given it up: the end of the registration. */
	struct ha_command end;
	struct ha_incarnation *on;
};

struct ha_mr_cache *ha_mr_cache_new(struct ha_incarnation *on, struct ibv_pd *pd);

/* Ends all registrations, given back or not, and returns how many were not. */
int ha_mr_cache_free(struct ha_mr_cache *cache);

/*
 * A share in an entry that covers the range, registered if there is none. Pair with _release. Any
 * thread. Waits for as long as the device takes, without any lock: others that need these pages
 * wait with it, nobody else does.
 */
ha_result_t ha_mr_cache_get(struct ha_mr_cache *cache, const struct ha_mr_range *range,
			    struct ha_mr_use **out) HA_MUST_CHECK;
/*
 * Frees the share. Never waits. Not NULL: nobody uses this entry any more and nobody will find it,
 * so the caller has to end the registration (ha_give_back) and to free it.
 */
struct ha_mr_entry *ha_mr_cache_release(struct ha_mr_cache *cache,
					struct ha_mr_use *use) HA_MUST_CHECK;

int ha_mr_cache_entries(struct ha_mr_cache *cache);

#endif
