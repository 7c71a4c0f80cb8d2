/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/group_put.h"

#include "base/log.h"

ha_result_t ha_gin_refuse_put(const char *what, uint32_t rank)
{
	HA_WARN("GIN: a put to rank %u is refused: %s", rank, what);
	return HA_ERR_ARGUMENT;
}

ha_result_t ha_gin_refuse_more(uint32_t rank)
{
	HA_WARN("GIN: more than %d requests to rank %u were not tested to their end", HA_GIN_WINDOW,
		rank);
	return HA_ERR_INTERNAL;
}
