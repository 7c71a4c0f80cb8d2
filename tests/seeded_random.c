/* SPDX-License-Identifier: Apache-2.0 */
#include "seeded_random.h"

#include <stddef.h>
#include <sys/types.h>

/* Visible, because the run-time of a sanitizer refers to it, too. */
#pragma GCC visibility push(default)
ssize_t __wrap_getrandom(void *buf, size_t size, unsigned flags);
#pragma GCC visibility pop

static uint64_t sequence;

uint64_t mix(uint64_t value)
{
	value += 0x9e3779b97f4a7c15ull;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
	return value ^ (value >> 31);
}

void seed_random(uint64_t seed)
{
	sequence = mix(seed);
}

ssize_t __wrap_getrandom(void *buf, size_t size, unsigned flags)
{
	uint8_t *out = buf;

	(void)flags;
	for (size_t i = 0; i < size; i++) {
		if (i % sizeof(sequence) == 0)
			sequence = mix(sequence);
		out[i] = (uint8_t)(sequence >> 8 * (i % sizeof(sequence)));
	}
	return (ssize_t)size;
}
