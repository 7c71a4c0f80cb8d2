/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/allocate.h"

#include <stdlib.h>

void *ha_ibgda_allocate(const struct ha_ibgda_memory *memory, size_t alignment, size_t bytes)
{
	void *at = NULL;

	if (memory && memory->allocate)
		return memory->allocate(memory->argument, alignment, bytes);
	return posix_memalign(&at, alignment, bytes) == 0 ? at : NULL;
}

void ha_ibgda_release(const struct ha_ibgda_memory *memory, void *at)
{
	if (at && memory && memory->release)
		memory->release(memory->argument, at);
	else
		free(at);
}

bool ha_ibgda_has_doorbell(const struct ha_ibgda_memory *memory, void *at, size_t bytes)
{
	return !memory || !memory->doorbell || memory->doorbell(memory->argument, at, bytes) == 0;
}
