/* SPDX-License-Identifier: Apache-2.0 */
/* The request pool. */
#include "transport/request.h"

#include <stdlib.h>

int ha_request_pool_init(struct ha_request_pool *pool, struct ha_comm *comm, uint16_t count)
{
	pool->all = aligned_alloc(alignof(struct ha_request), count * sizeof(*pool->all));
	if (!pool->all)
		return -1;
	pool->count = count;
	for (uint16_t i = count; i-- > 0;) {
		pool->all[i] = (struct ha_request){.comm = comm, .id = i};
		ha_request_put(pool, &pool->all[i]);
	}
	return 0;
}

void ha_request_pool_free(struct ha_request_pool *pool)
{
	free(pool->all);
	*pool = (struct ha_request_pool){0};
}
