/* SPDX-License-Identifier: Apache-2.0 */
#include "inccl/bounce.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 4096

bool ha_inccl_bounce_make(struct ha_inccl_bounce *bounce, struct ha_coll *coll)
{
	const size_t bytes = 2 * HA_INCCL_PLACES * bounce->piece_bytes;

	if (bounce->memory)
		return true;
	bounce->memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
	if (!bounce->memory)
		return false;
	memset(bounce->memory, 0, bytes);
	if (ha_coll_register(coll, bounce->memory, bytes, HA_MEM_HOST, &bounce->mr) == HA_OK)
		return true;
	free(bounce->memory);
	bounce->memory = NULL;
	return false;
}

void ha_inccl_bounce_end(struct ha_inccl_bounce *bounce)
{
	if (bounce->mr)
		ha_mr_deregister(bounce->mr);
	free(bounce->memory);
}

bool ha_inccl_bounce_take(struct ha_inccl_bounce *bounce, unsigned int *place)
{
	for (unsigned int i = 0; i < HA_INCCL_PLACES; i++) {
		if (bounce->used >> i & 1)
			continue;
		bounce->used |= 1u << i;
		*place = i;
		return true;
	}
	return false;
}

void ha_inccl_bounce_free(struct ha_inccl_bounce *bounce, unsigned int place)
{
	bounce->used &= ~(1u << place);
}
