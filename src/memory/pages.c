/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/pages.h"

#include <sys/mman.h>

void *ha_pages_new(size_t size)
{
	void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return pages == MAP_FAILED ? NULL : pages;
}

void ha_pages_free(void *pages, size_t size)
{
	if (pages)
		munmap(pages, size);
}
