/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the progress thread notes while messages complete: a latency histogram, the stalls, and
 * bytes over time. All of one rank; merged across ranks by the main thread afterwards.
 */
#ifndef NP_RECORDER_H
#define NP_RECORDER_H

#include <stddef.h>
#include <stdint.h>

/*
 * A log-linear histogram of nanoseconds: 32 buckets per power of two, so a value is known to 3 %,
 * from 0 to 2^40 ns (18 minutes); what lies above counts as the top.
 */
#define NP_HIST_SUB_BITS 5
#define NP_HIST_BUCKETS	 ((40 - NP_HIST_SUB_BITS + 1) << NP_HIST_SUB_BITS)

struct np_histogram {
	uint64_t count;
	uint64_t sum_ns;
	uint64_t min_ns;
	uint64_t max_ns;
	uint64_t buckets[NP_HIST_BUCKETS];
};

void np_histogram_reset(struct np_histogram *h);
void np_histogram_add(struct np_histogram *h, uint64_t ns);
void np_histogram_merge(struct np_histogram *to, const struct np_histogram *from);
/* The value below which the fraction q of the samples lies; 0 when there is none. */
uint64_t np_histogram_quantile(const struct np_histogram *h, double q);
/* Smallest value of a bucket. */
uint64_t np_histogram_bucket_ns(size_t bucket);

/* An interval without any completion while an operation was under way. */
struct np_stall {
	uint64_t start_ns; /* since the start of the run */
	uint64_t duration_ns;
};

#define NP_STALLS_KEPT 64

struct np_recorder {
	struct np_histogram latency;

	uint64_t stall_threshold_ns;
	uint64_t stalls_seen; /* the longest NP_STALLS_KEPT are kept */
	struct np_stall stalls[NP_STALLS_KEPT];

	uint64_t origin_ns; /* the start of the run */
	uint64_t last_ns;   /* the last completion, or when the iteration started */

	uint64_t bucket_ns; /* 0: no timeline */
	uint64_t *timeline; /* bytes received per bucket */
	size_t timeline_len;
	size_t timeline_cap;
};

/*
 * Adds one to an array of NP_STALLS_KEPT of which *seen were added before; when it is full, in the
 * place of the shortest.
 */
void np_stalls_add(struct np_stall *stalls, uint64_t *seen, struct np_stall stall);

/* Forgets latencies and stalls; the timeline goes on. */
void np_recorder_reset(struct np_recorder *r);
void np_recorder_free(struct np_recorder *r);

/* An iteration starts: what passed since the last completion was not the network's time. */
static inline void np_recorder_start(struct np_recorder *r, uint64_t now_ns)
{
	r->last_ns = now_ns;
}

/* A message completed. `bytes` is what it brought in, 0 for a send. */
void np_recorder_complete(struct np_recorder *r, uint64_t now_ns, uint64_t latency_ns,
			  uint64_t bytes);

#endif
