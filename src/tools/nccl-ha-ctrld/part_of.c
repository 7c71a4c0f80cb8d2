/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/part_of.h"

#include <stdlib.h>

bool nc_parts_begin(struct nc_parts *parts, const struct nc_topology *topology,
		    const struct nc_plan *plan, const union ha_sockaddr *at)
{
	const uint16_t *parents[HA_PLAN_LANES];
	const unsigned n = plan->n_lanes + plan->n_spares;
	struct ha_plan_where where;

	parts->plan = plan;
	parts->at = calloc(plan->n_nodes + 1, sizeof(*parts->at));
	for (unsigned i = 0; i < plan->n_nodes && parts->at; i++)
		parts->at[i] = at[plan->nodes[i].vertex - topology->n_ports];
	for (unsigned i = 0; i < n; i++)
		parents[i] = plan->trees[i].parents;
	return parts->at && ha_plan_make(&parts->trees, plan->n_members, plan->n_nodes, n, parents,
					 &where) == HA_PLAN_OK;
}

void nc_parts_end(struct nc_parts *parts)
{
	ha_plan_free(&parts->trees);
	free(parts->at);
	*parts = (struct nc_parts){0};
}

/* Whether the node of that number is one of this switch. */
static bool is_of(const struct nc_parts *parts, unsigned node, unsigned vertex)
{
	return node >= parts->plan->n_members &&
	       parts->plan->nodes[node - parts->plan->n_members].vertex == vertex;
}

static bool is_switch(const struct nc_parts *parts, unsigned node)
{
	return node >= parts->plan->n_members;
}

static bool has_switch_below(const struct nc_parts *parts, const struct ha_plan_tree *tree,
			     uint16_t node)
{
	for (unsigned i = 0; i < tree->node[node].children; i++)
		if (is_switch(parts, ha_plan_child(tree, node, i)))
			return true;
	return false;
}

static void add_place(const struct nc_parts *parts, struct ha_part *part, unsigned lane,
		      uint16_t node)
{
	const struct ha_plan_tree *tree = &parts->trees.tree[lane];
	const struct ha_plan_node *at = &tree->node[node];
	struct ha_part_place *place = &part->places[part->n++];

	*place = (struct ha_part_place){
	    .tree = (uint8_t)lane,
	    .inner_below = has_switch_below(parts, tree, node),
	    .node = node,
	    .children = at->children,
	    .parent = at->parent,
	    .place = at->parent == HA_PLAN_NONE ? 0 : at->place,
	};
	if (at->parent != HA_PLAN_NONE)
		place->at = parts->at[at->parent - parts->plan->n_members];
}

/* A switch without a parent and without children is not in the tree. */
static bool is_in(const struct ha_plan_tree *tree, unsigned node)
{
	return tree->node[node].parent != HA_PLAN_NONE || tree->node[node].children > 0;
}

bool nc_parts_is_in_lanes(const struct nc_parts *parts, unsigned node)
{
	for (unsigned i = 0; i < parts->plan->n_lanes; i++)
		if (is_in(&parts->trees.tree[i], parts->plan->n_members + node))
			return true;
	return false;
}

static uint8_t *encoded(struct ha_part *part, size_t *length)
{
	uint8_t *bytes = NULL;

	*length = ha_part_bytes(part);
	if (part->n > 0 && part->n <= HA_PART_PLACES)
		bytes = malloc(*length);
	if (bytes)
		ha_part_encode(part, bytes);
	free(part->places);
	return bytes;
}

uint8_t *nc_part_of_member(const struct nc_parts *parts, unsigned rank, size_t *length)
{
	struct ha_part part = parts->whole;

	part.places = calloc(HA_PLAN_LANES, sizeof(*part.places));
	for (unsigned i = 0; i < parts->trees.lanes && part.places; i++)
		add_place(parts, &part, i, (uint16_t)rank);
	return encoded(&part, length);
}

uint8_t *nc_part_of_switch(const struct nc_parts *parts, unsigned vertex, size_t *length)
{
	const unsigned nodes = parts->plan->n_members + parts->plan->n_nodes;
	struct ha_part part = parts->whole;

	part.places =
	    calloc((size_t)parts->plan->n_nodes * HA_PLAN_LANES + 1, sizeof(*part.places));
	for (unsigned i = 0; i < parts->trees.lanes && part.places; i++)
		for (unsigned node = parts->plan->n_members; node < nodes; node++)
			if (is_of(parts, node, vertex) && is_in(&parts->trees.tree[i], node))
				add_place(parts, &part, i, (uint16_t)node);
	return encoded(&part, length);
}
