/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that stay a region's, as they do where a device has pinned them: whatever the application
 * maps at their address later, the region goes on reading and writing the old ones.
 *
 * A process can have that for memory that is mapped shared: a second mapping of the same pages,
 * which the kernel makes for an mremap() of no bytes. Of private memory there is none.
 */
#include "core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Whether one shared mapping has all of [start, end): what the second one shows would be another
 * part of the file where it ends. */
static bool is_shared(uintptr_t start, uintptr_t end)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	bool shared = false;
	char *line = NULL;
	size_t size = 0;

	while (maps && getline(&line, &size, maps) > 0) {
		uintptr_t from, to;
		char access[5];

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, access) != 3)
			break;
		if (to <= start)
			continue;
		shared = from <= start && end <= to && access[3] == 's';
		break;
	}
	free(line);
	if (maps)
		fclose(maps);
	return shared;
}

void sv_mr_pin(struct sv_mr *mr)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), addr = (uintptr_t)mr->base;
	uintptr_t start = addr & ~(page - 1), end = (addr + mr->length + page - 1) & ~(page - 1);
	void *map;

	if (mr->length == 0 || !is_shared(start, end))
		return;
	map = mremap((void *)start, 0, end - start, MREMAP_MAYMOVE);
	if (map == MAP_FAILED)
		return;
	mr->map = map;
	mr->map_length = end - start;
	mr->base = (uint8_t *)map + (addr - start);
}

void sv_mr_unpin(struct sv_mr *mr)
{
	if (mr->map)
		munmap(mr->map, mr->map_length);
	mr->map = NULL;
}
