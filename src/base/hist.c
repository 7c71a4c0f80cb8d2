/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a histogram. */
#include "base/hist.h"

uint64_t ha_hist_samples(const struct ha_hist *hist)
{
	uint64_t samples = 0;

	for (int i = 0; i < HA_HIST_BUCKETS; i++)
		samples += hist->count[i];
	return samples;
}

uint64_t ha_hist_mean(const struct ha_hist *hist)
{
	uint64_t samples = ha_hist_samples(hist);

	return samples ? hist->sum / samples : 0;
}

/* The value `rank` of `count` samples into a bucket, were they spread evenly over it. */
static uint64_t within_bucket(int bucket, uint64_t rank, uint64_t count, uint64_t max)
{
	uint64_t low = bucket ? 1ull << (bucket - 1) : 0;
	uint64_t high = bucket == HA_HIST_BUCKETS - 1 ? max : low + (bucket ? low - 1 : 0);
	uint64_t above;

	if (high > max)
		high = max;
	if (high <= low)
		return high;
	if (rank >= count) /* and a double may round the width of a huge bucket up */
		return high;
	above = (uint64_t)((double)(high - low) * ((double)rank / (double)count));
	return low + above;
}

uint64_t ha_hist_quantile(const struct ha_hist *hist, unsigned int per_mille)
{
	uint64_t samples = ha_hist_samples(hist), seen = 0, rank;

	if (!samples)
		return 0;
	/* The rank-th sample in ascending order, counted from 1 and rounded up. */
	rank = samples / 1000 * per_mille + (samples % 1000 * per_mille + 999) / 1000;
	if (rank == 0)
		rank = 1;
	for (int i = 0; i < HA_HIST_BUCKETS; i++) {
		if (seen + hist->count[i] >= rank)
			return within_bucket(i, rank - seen, hist->count[i], hist->max);
		seen += hist->count[i];
	}
	return hist->max;
}
