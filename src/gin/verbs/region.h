/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that all ranks of a group registered under one number: this rank's, and where each other
 * one's lies. Registered in the same order by all, so the n-th is the n-th everywhere.
 */
#ifndef HA_GIN_VERBS_REGION_H
#define HA_GIN_VERBS_REGION_H

#include "gin/applier.h"
#include "gin/verbs/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_GIN_REGIONS 65536 /* as many as a record can name */

struct ha_mr;

/* Another rank's, as it says. A key is of one epoch: two epochs may be known, of which the stream
 * is in one. */
struct ha_gin_remote {
	bool is_known, is_signals; /* the second one only with the first */
	uint64_t base, size;
	struct ha_gin_key {
		uint32_t before; /* the epoch after its own; 0: it is not known */
		uint32_t rkey;
	} keys[2]; /* by the epoch's lowest bit */
};

struct ha_gin_memory {
	uint32_t number;
	struct ha_mr *mr; /* NULL: not registered here, yet or any more */
	uint64_t base, size;
	bool is_signals;
	struct ha_gin_word *words;	/* of signals, one for each 8 bytes */
	struct ha_gin_remote remotes[]; /* by rank */
};

/* Of an epoch. False: it is not known. */
static inline bool ha_gin_rkey(const struct ha_gin_remote *remote, uint32_t epoch, uint32_t *rkey)
{
	const struct ha_gin_key *key = &remote->keys[epoch & 1];

	*rkey = key->rkey;
	return key->before == epoch + 1;
}

/* What a rank has said of its own. */
static inline void ha_gin_remote_is(struct ha_gin_remote *remote,
				    const struct ha_gin_message *message)
{
	remote->is_known = true;
	remote->is_signals = message->region.is_signals != 0;
	remote->base = message->region.base;
	remote->size = message->region.size;
	remote->keys[message->epoch & 1] =
	    (struct ha_gin_key){message->epoch + 1, message->region.rkey};
}

/* Whether [offset, offset + size) lies in that many bytes. */
static inline bool ha_gin_is_inside(uint64_t offset, uint64_t size, uint64_t bytes)
{
	return size <= bytes && offset <= bytes - size;
}

#endif
