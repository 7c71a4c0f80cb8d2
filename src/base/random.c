/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include "base/clock.h"

#include <sys/random.h>
#include <unistd.h>

uint64_t ha_random(void)
{
	uint64_t value = 0;

	while (value == 0)
		if (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value))
			/* Early boot or a filtered call: weak, but different each time. */
			value = (ha_now_ns() ^ (uint64_t)getpid() << 32) * 0x9e3779b97f4a7c15ull;
	return value;
}
