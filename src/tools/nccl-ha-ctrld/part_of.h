/* SPDX-License-Identifier: Apache-2.0 */
/* Whose part of a plan it is: what a member, or a switch, is told of it (inc/part.h). */
#ifndef NC_PART_OF_H
#define NC_PART_OF_H

#include "inc/part.h"
#include "tools/nccl-ha-ctrld/place.h"

/* All that parts are made of. */
struct nc_parts {
	const struct nc_plan *plan;
	struct ha_plan trees;  /* of the plan: the lanes, then the spares */
	union ha_sockaddr *at; /* by node above the members: where its switch listens */
	struct ha_part whole;  /* what all parts have, without places */
};

/* at: by switch, where its program listens. False: no memory, or the plan is none. Either way
 * nc_parts_end is to be called. */
bool nc_parts_begin(struct nc_parts *parts, const struct nc_topology *topology,
		    const struct nc_plan *plan, const union ha_sockaddr *at) HA_MUST_CHECK;
/* Whether a node, by its number among the plan's, is in one of the lanes. */
bool nc_parts_is_in_lanes(const struct nc_parts *parts, unsigned node);

void nc_parts_end(struct nc_parts *parts);

/* Of a member. *length: of what is returned, which is the caller's to free. NULL: no memory. */
uint8_t *nc_part_of_member(const struct nc_parts *parts, unsigned rank, size_t *length);
/* Of a switch, by its vertex. NULL too where it is no node of the plan. */
uint8_t *nc_part_of_switch(const struct nc_parts *parts, unsigned vertex, size_t *length);

#endif
