/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time, or a test's virtual time. */
#include "base/clock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

/* Relaxed is enough: it is set before the threads that read it exist. */
static _Atomic(uint64_t (*)(void)) source;

uint64_t ha_real_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * HA_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t ha_now_ns(void)
{
	uint64_t (*now_ns)(void) = atomic_load_explicit(&source, memory_order_relaxed);

	return __builtin_expect(now_ns != NULL, 0) ? now_ns() : ha_real_ns();
}

void ha_real_sleep_ns(uint64_t ns)
{
	struct timespec time = {.tv_sec = (time_t)(ns / HA_NS_PER_S),
				.tv_nsec = (long)(ns % HA_NS_PER_S)};

	nanosleep(&time, NULL);
}

uint64_t ha_wall_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * HA_NS_PER_S + (uint64_t)now.tv_nsec;
}

void ha_clock_set_source(uint64_t (*now_ns)(void))
{
	atomic_store_explicit(&source, now_ns, memory_order_relaxed);
}
