/* SPDX-License-Identifier: Apache-2.0 */
/* Latency histogram, stalls and throughput over time. */
#include "tools/nccl-net-perf/recorder.h"

#include <stdlib.h>
#include <string.h>

/* ---- histogram ----------------------------------------------------------------------------- */

static size_t bucket_of(uint64_t ns)
{
	unsigned top, shift;

	if (ns < 1u << NP_HIST_SUB_BITS)
		return (size_t)ns;
	top = 63u - (unsigned)__builtin_clzll(ns);
	shift = top - NP_HIST_SUB_BITS;
	if (top >= 40)
		return NP_HIST_BUCKETS - 1;
	return ((size_t)shift << NP_HIST_SUB_BITS) + (size_t)(ns >> shift);
}

uint64_t np_histogram_bucket_ns(size_t bucket)
{
	size_t shift;

	if (bucket < 2u << NP_HIST_SUB_BITS)
		return bucket;
	shift = (bucket >> NP_HIST_SUB_BITS) - 1;
	return (uint64_t)(bucket - (shift << NP_HIST_SUB_BITS)) << shift;
}

void np_histogram_reset(struct np_histogram *h)
{
	memset(h, 0, sizeof(*h));
	h->min_ns = UINT64_MAX;
}

void np_histogram_add(struct np_histogram *h, uint64_t ns)
{
	h->count++;
	h->sum_ns += ns;
	if (ns < h->min_ns)
		h->min_ns = ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
	h->buckets[bucket_of(ns)]++;
}

void np_histogram_merge(struct np_histogram *to, const struct np_histogram *from)
{
	to->count += from->count;
	to->sum_ns += from->sum_ns;
	if (from->min_ns < to->min_ns)
		to->min_ns = from->min_ns;
	if (from->max_ns > to->max_ns)
		to->max_ns = from->max_ns;
	for (size_t i = 0; i < NP_HIST_BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
}

uint64_t np_histogram_quantile(const struct np_histogram *h, double q)
{
	uint64_t rank = (uint64_t)(q * (double)h->count), seen = 0;

	if (!h->count)
		return 0;
	if (rank >= h->count)
		return h->max_ns;
	for (size_t i = 0; i < NP_HIST_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen > rank) {
			uint64_t ns = np_histogram_bucket_ns(i);

			return ns < h->min_ns ? h->min_ns : ns;
		}
	}
	return h->max_ns;
}

/* ---- recorder ------------------------------------------------------------------------------ */

void np_recorder_reset(struct np_recorder *r)
{
	np_histogram_reset(&r->latency);
	r->stalls_seen = 0;
}

void np_recorder_free(struct np_recorder *r)
{
	free(r->timeline);
	r->timeline = NULL;
}

void np_stalls_add(struct np_stall *stalls, uint64_t *seen, struct np_stall stall)
{
	size_t at = (size_t)*seen;

	if (at >= NP_STALLS_KEPT) {
		at = 0;
		for (size_t i = 1; i < NP_STALLS_KEPT; i++)
			if (stalls[i].duration_ns < stalls[at].duration_ns)
				at = i;
	}
	if (*seen < NP_STALLS_KEPT || stall.duration_ns > stalls[at].duration_ns)
		stalls[at] = stall;
	++*seen;
}

static void add_to_timeline(struct np_recorder *r, uint64_t now_ns, uint64_t bytes)
{
	size_t bucket = (size_t)((now_ns - r->origin_ns) / r->bucket_ns);

	if (bucket >= r->timeline_cap) {
		size_t cap = bucket * 2 + 64;
		uint64_t *grown = realloc(r->timeline, cap * sizeof(*grown));

		if (!grown)
			return; /* a hole in a plot, no reason to fail the run */
		memset(grown + r->timeline_cap, 0, (cap - r->timeline_cap) * sizeof(*grown));
		r->timeline = grown;
		r->timeline_cap = cap;
	}
	if (bucket >= r->timeline_len)
		r->timeline_len = bucket + 1;
	r->timeline[bucket] += bytes;
}

void np_recorder_complete(struct np_recorder *r, uint64_t now_ns, uint64_t latency_ns,
			  uint64_t bytes)
{
	np_histogram_add(&r->latency, latency_ns);
	if (now_ns - r->last_ns > r->stall_threshold_ns)
		np_stalls_add(r->stalls, &r->stalls_seen,
			      (struct np_stall){.start_ns = r->last_ns - r->origin_ns,
						.duration_ns = now_ns - r->last_ns});
	r->last_ns = now_ns;
	if (r->bucket_ns && bytes)
		add_to_timeline(r, now_ns, bytes);
}
