/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time. Tests that run on a virtual clock replace the source. */
#ifndef HA_BASE_CLOCK_H
#define HA_BASE_CLOCK_H

#include <stdint.h>

#define HA_NS_PER_US 1000ull
#define HA_NS_PER_MS 1000000ull
#define HA_NS_PER_S  1000000000ull

/* Nanoseconds of CLOCK_MONOTONIC (vDSO, no system call), or of the source set below. Any thread. */
uint64_t ha_now_ns(void);

/* Nanoseconds of CLOCK_MONOTONIC whatever the source: for threads that wait for each other, which
 * takes real time also where a test's clock stands still. Any thread. */
uint64_t ha_real_ns(void);

/* The calling thread sleeps for so long in real time, or less where a signal ends it. */
void ha_real_sleep_ns(uint64_t ns);

/* Nanoseconds of CLOCK_REALTIME, for people: never for intervals. Any thread. */
uint64_t ha_wall_clock_ns(void);

/* The earlier of two times, of which 0 is never. */
static inline uint64_t ha_earlier_ns(uint64_t a, uint64_t b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Replaces the source; NULL restores CLOCK_MONOTONIC. Before any other thread runs. */
void ha_clock_set_source(uint64_t (*now_ns)(void));

#endif
