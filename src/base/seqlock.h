/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seqlock over a record of 64-bit words, for shared memory: a writer never waits for readers,
 * and a reader gets a record that no write was mixed into, or is told that it did not.
 *
 * The words are atomics with acquire and release order rather than plain words with fences:
 * on x86 it costs nothing, and ThreadSanitizer can check it.
 */
#ifndef HA_BASE_SEQLOCK_H
#define HA_BASE_SEQLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Begins a write, unless another writer is at it: then that one's values, of the same moment, stand
 * and this returns false. An odd sequence number marks a write in progress. Whoever sees a word of
 * the write must see the odd number, too: store words with release order, or by later system calls.
 */
static inline bool ha_seqlock_try_begin(uint64_t *seq)
{
	uint64_t before = __atomic_load_n(seq, __ATOMIC_RELAXED);

	/* Acquire: an earlier writer's words are in place before ours. */
	return !(before & 1) && __atomic_compare_exchange_n(seq, &before, before + 1, false,
							    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Ends it. */
static inline void ha_seqlock_end(uint64_t *seq)
{
	/* Release: whoever sees the even number sees all words. */
	__atomic_store_n(seq, __atomic_load_n(seq, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

/*
 * Copies the record. False when `tries` attempts all met a writer, or when a writer died in the
 * middle of a write: what was copied may then be a mixture.
 */
static inline bool ha_seqlock_read(const uint64_t *seq, const uint64_t *record, uint64_t *to,
				   size_t nwords, int tries)
{
	while (tries-- > 0) {
		/* Acquire: the words of the write that made this number are seen. */
		uint64_t before = __atomic_load_n(seq, __ATOMIC_ACQUIRE);

		/* Acquire on each word: a word of a later write makes the odd number of that write
		 * visible to the load below. */
		for (size_t i = 0; i < nwords; i++)
			to[i] = __atomic_load_n(&record[i], __ATOMIC_ACQUIRE);
		if (!(before & 1) && __atomic_load_n(seq, __ATOMIC_RELAXED) == before)
			return true;
	}
	return false;
}

#endif
