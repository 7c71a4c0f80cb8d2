/* SPDX-License-Identifier: Apache-2.0 */
/* What groups have of a fabric: load of links, memory and places of switches. One thread's. */
#ifndef NC_USE_H
#define NC_USE_H

#include "tools/nccl-ha-ctrld/topology.h"

/* The load of a group on a link that all of its data goes over once; each lane has its part of it,
 * without a remainder. */
#define NC_WHOLE 840u

struct nc_switch_use {
	uint64_t bytes;
	int32_t groups;
	bool is_idle; /* no program serves it, or it is drained: it forwards only */
};

struct nc_use {
	const struct nc_topology *topology;
	uint64_t *loads; /* by link */
	struct nc_switch_use *switches;
};

/* False: no memory. Either way nc_use_end is to be called. */
bool nc_use_begin(struct nc_use *use, const struct nc_topology *topology) HA_MUST_CHECK;
void nc_use_end(struct nc_use *use);

/* How long a link that has this load takes for what a faster one with less takes less for. */
uint64_t nc_use_cost(const struct nc_use *use, unsigned link, uint64_t more_load);

#endif
