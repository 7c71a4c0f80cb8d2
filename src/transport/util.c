/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/util.h"

#include "base/clock.h"

#include <string.h>
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

void ha_copy_text(char *out, size_t size, const char *text)
{
	size_t len = strnlen(text, size - 1);

	memcpy(out, text, len);
	out[len] = '\0';
}
