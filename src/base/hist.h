/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histogram with one bucket per power of two: fixed size, one increment per sample, good enough
 * to tell 5 µs from 20 µs and a stall from both.
 *
 * One thread adds at a time; others may read meanwhile and see each counter at some recent value.
 */
#ifndef HA_BASE_HIST_H
#define HA_BASE_HIST_H

#include <stdint.h>

#define HA_HIST_BUCKETS 64

struct ha_hist {
	uint64_t count[HA_HIST_BUCKETS]; /* [0]: value 0; [i]: 2^(i-1) … 2^i - 1, last: and above */
	uint64_t sum;
	uint64_t max;
};

static inline int ha_hist_bucket(uint64_t value)
{
	int bucket = value ? 64 - __builtin_clzll(value) : 0;

	return bucket < HA_HIST_BUCKETS ? bucket : HA_HIST_BUCKETS - 1;
}

/* Relaxed stores, not read-modify-writes: there is one writer, and readers want no order. */
static inline void ha_hist_add(struct ha_hist *hist, uint64_t value)
{
	uint64_t *count = &hist->count[ha_hist_bucket(value)];

	__atomic_store_n(count, *count + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&hist->sum, hist->sum + value, __ATOMIC_RELAXED);
	if (value > hist->max)
		__atomic_store_n(&hist->max, value, __ATOMIC_RELAXED);
}

uint64_t ha_hist_samples(const struct ha_hist *hist);
uint64_t ha_hist_mean(const struct ha_hist *hist); /* 0 without samples */

/*
 * The value that `per_mille` of the samples do not exceed (500: median, 999: p99.9), estimated by
 * straight lines within a bucket and never above the maximum. 0 without samples.
 */
uint64_t ha_hist_quantile(const struct ha_hist *hist, unsigned int per_mille);

#endif
