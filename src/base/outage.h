/* SPDX-License-Identifier: Apache-2.0 */
/* How long an outage is borne before it is an error. */
#ifndef HA_BASE_OUTAGE_H
#define HA_BASE_OUTAGE_H

#include "base/clock.h"
#include "base/config.h"

/* In ns, of HA_NCCL_OUTAGE_MS or what stands in for it (give_up_ms, which is not negative). */
static inline uint64_t ha_outage_ns(const struct ha_config *config)
{
	return (unsigned int)config->give_up_ms * HA_NS_PER_MS;
}

#endif
