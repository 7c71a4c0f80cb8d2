/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time of the tools. Ranks of one machine share this clock. */
#ifndef NP_CLOCK_H
#define NP_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NP_NS_PER_MS 1000000ull
#define NP_NS_PER_S  1000000000ull

static inline uint64_t np_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

#endif
