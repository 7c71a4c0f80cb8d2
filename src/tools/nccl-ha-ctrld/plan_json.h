/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as JSON: docs/inc.md has what is in it. */
#ifndef NC_PLAN_JSON_H
#define NC_PLAN_JSON_H

#include "tools/nccl-ha-ctrld/place.h"

#include <jansson.h>

/* An object with members, nodes, lanes and spares; the caller's. NULL: no memory. */
json_t *nc_plan_json(const struct nc_topology *topology, const struct nc_plan *plan,
		     const unsigned *members) HA_MUST_CHECK;

/* Parts of it: names by rank; numbers by node, null for none. */
json_t *nc_members_json(const struct nc_topology *topology, const struct nc_plan *plan,
			const unsigned *members);
json_t *nc_parents_json(const struct nc_plan *plan, const struct nc_tree *tree);

#endif
