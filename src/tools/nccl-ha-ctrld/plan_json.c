/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/plan_json.h"

json_t *nc_members_json(const struct nc_topology *t, const struct nc_plan *plan,
			const unsigned *members)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < plan->n_members; i++)
		json_array_append_new(list, json_string(nc_vertex_name(t, members[i])));
	return list;
}

static json_t *nodes_json(const struct nc_topology *t, const struct nc_plan *plan)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < plan->n_nodes; i++)
		json_array_append_new(list, json_pack("{s:s, s:i}", "switch",
						      nc_vertex_name(t, plan->nodes[i].vertex),
						      "part", (int)plan->nodes[i].part));
	return list;
}

json_t *nc_parents_json(const struct nc_plan *plan, const struct nc_tree *tree)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < plan->n_members + plan->n_nodes; i++)
		json_array_append_new(list, tree->parents[i] == HA_PLAN_NONE
						? json_null()
						: json_integer(tree->parents[i]));
	return list;
}

/* 1: every link carries the group's data once. */
static uint32_t most_streams(const struct nc_tree *tree)
{
	uint32_t most = 0;

	for (unsigned i = 0; i < tree->n_loads; i++)
		most = tree->loads[i].streams > most ? tree->loads[i].streams : most;
	return most;
}

static json_t *trees_json(const struct nc_topology *t, const struct nc_plan *plan, unsigned first,
			  unsigned n)
{
	json_t *list = json_array();

	for (unsigned i = first; i < first + n; i++) {
		const struct nc_tree *tree = &plan->trees[i];
		const struct nc_node *root = &plan->nodes[tree->root - plan->n_members];

		json_array_append_new(
		    list, json_pack("{s:s, s:i, s:i, s:o}", "root", nc_vertex_name(t, root->vertex),
				    "depth", (int)tree->depth, "streams", (int)most_streams(tree),
				    "parents", nc_parents_json(plan, tree)));
	}
	return list;
}

json_t *nc_plan_json(const struct nc_topology *topology, const struct nc_plan *plan,
		     const unsigned *members)
{
	return json_pack(
	    "{s:o, s:o, s:o, s:o}", "members", nc_members_json(topology, plan, members), "nodes",
	    nodes_json(topology, plan), "lanes", trees_json(topology, plan, 0, plan->n_lanes),
	    "spares", trees_json(topology, plan, plan->n_lanes, plan->n_spares));
}
