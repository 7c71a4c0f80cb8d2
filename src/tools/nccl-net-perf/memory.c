/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers with canaries, and the one error of a rank. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/rank.h"

#define CANARY	       4096u
#define CANARY_BYTE(i) ((uint8_t)(0xa5u ^ (i)*29u))

static void fill_canary(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = CANARY_BYTE(i);
}

static uint64_t check_canary(const uint8_t *p, size_t len)
{
	uint64_t wrong = 0;

	for (size_t i = 0; i < len; i++)
		wrong += p[i] != CANARY_BYTE(i);
	return wrong;
}

bool np_buffer_alloc(struct np_buffer *b, size_t len)
{
	void *map;

	b->len = len;
	/* The one behind starts at the very next byte; whole pages in all. */
	b->map_len = CANARY + (len + CANARY + 4095) / 4096 * 4096;
	map = mmap(NULL, b->map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		b->map = NULL;
		return false;
	}
	b->map = map;
	b->data = b->map + CANARY;
	fill_canary(b->map, CANARY);
	fill_canary(b->data + len, CANARY);
	return true;
}

void np_buffer_free(struct np_buffer *b)
{
	if (b->map)
		munmap(b->map, b->map_len);
	b->map = NULL;
}

uint64_t np_buffer_overrun(const struct np_buffer *b)
{
	return check_canary(b->map, CANARY) + check_canary(b->data + b->len, CANARY);
}

bool np_error_set(struct np_error *e, enum np_exit status, const char *fmt, ...)
{
	va_list ap;

	if (e->status != NP_EXIT_OK)
		return false;
	e->status = status;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return false;
}
