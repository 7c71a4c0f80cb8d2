/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const fault_texts[HA_PLAN_FAULTS] = {
    [HA_PLAN_OK] = "the plan is sound",
    [HA_PLAN_SIZE] = "a plan has 1 to 8 lanes and 1 to 8192 members and switches",
    [HA_PLAN_PARENT] = "the parent of a node is no switch of the plan",
    [HA_PLAN_ORPHAN] = "a member has no parent",
    [HA_PLAN_ROOTS] = "a tree has not one root",
    [HA_PLAN_LOOP] = "a node is below itself",
    [HA_PLAN_IDLE] = "a switch has no member below it",
    [HA_PLAN_WIDE] = "a switch has more than 32 children",
    [HA_PLAN_MEMORY] = "no memory",
};

const char *ha_plan_fault_text(enum ha_plan_fault fault)
{
	return fault_texts[fault];
}

static unsigned int nodes_of(const struct ha_plan *plan)
{
	return plan->members + plan->switches;
}

/* Parents, and how many children each node has; `where` is the node that something is wrong with.
 */
static enum ha_plan_fault read_parents(const struct ha_plan *plan, struct ha_plan_tree *tree,
				       const uint16_t *parent, uint16_t *where)
{
	for (uint16_t i = 0; i < nodes_of(plan); i++) {
		struct ha_plan_node *up;

		*where = i;
		tree->node[i].parent = parent[i];
		if (parent[i] == HA_PLAN_NONE && i < plan->members)
			return HA_PLAN_ORPHAN;
		if (parent[i] == HA_PLAN_NONE)
			continue;
		if (parent[i] < plan->members || parent[i] >= nodes_of(plan))
			return HA_PLAN_PARENT;
		up = &tree->node[parent[i]];
		if (++up->children > HA_PLAN_CHILDREN) {
			*where = parent[i];
			return HA_PLAN_WIDE;
		}
	}
	return HA_PLAN_OK;
}

/* The switch that has children and no parent. */
static enum ha_plan_fault find_root(const struct ha_plan *plan, struct ha_plan_tree *tree,
				    uint16_t *where)
{
	tree->root = HA_PLAN_NONE;
	for (uint16_t i = (uint16_t)plan->members; i < nodes_of(plan); i++) {
		if (tree->node[i].parent != HA_PLAN_NONE || !tree->node[i].children)
			continue;
		*where = i;
		if (tree->root != HA_PLAN_NONE)
			return HA_PLAN_ROOTS;
		tree->root = i;
	}
	return HA_PLAN_OK;
}

/* Every way up ends at the root, as there is no other end: it may go in circles. */
static enum ha_plan_fault look_for_loops(const struct ha_plan *plan,
					 const struct ha_plan_tree *tree, uint16_t *where)
{
	for (uint16_t i = 0; i < nodes_of(plan); i++) {
		unsigned int steps = 0;

		*where = i;
		for (uint16_t at = i; tree->node[at].parent != HA_PLAN_NONE; steps++) {
			if (steps == nodes_of(plan))
				return HA_PLAN_LOOP;
			at = tree->node[at].parent;
		}
	}
	return HA_PLAN_OK;
}

/* From each member in turn up to where somebody was before: so children come in the order of the
 * lowest member below them. `taken` counts the children of each node that have a place. */
static void order_children(const struct ha_plan *plan, struct ha_plan_tree *tree, uint16_t *taken)
{
	uint16_t first = 0;

	for (unsigned int i = 0; i < nodes_of(plan); i++) {
		tree->node[i].first = first;
		tree->node[i].place = HA_PLAN_NONE;
		first = (uint16_t)(first + tree->node[i].children);
	}
	for (uint16_t member = 0; member < plan->members; member++) {
		uint16_t at = member;

		while (at != tree->root && tree->node[at].place == HA_PLAN_NONE) {
			uint16_t up = tree->node[at].parent;

			tree->node[at].place = taken[up]++;
			tree->child[tree->node[up].first + tree->node[at].place] = at;
			at = up;
		}
	}
}

static enum ha_plan_fault look_for_idle(const struct ha_plan *plan, const struct ha_plan_tree *tree,
					uint16_t *where)
{
	for (uint16_t i = (uint16_t)plan->members; i < nodes_of(plan); i++) {
		*where = i;
		if (tree->node[i].parent != HA_PLAN_NONE && tree->node[i].place == HA_PLAN_NONE)
			return HA_PLAN_IDLE;
	}
	return HA_PLAN_OK;
}

static enum ha_plan_fault make_tree(const struct ha_plan *plan, struct ha_plan_tree *tree,
				    const uint16_t *parent, uint16_t *where)
{
	enum ha_plan_fault fault;
	uint16_t *taken;

	tree->node = calloc(nodes_of(plan), sizeof(*tree->node));
	tree->child = calloc(nodes_of(plan), sizeof(*tree->child));
	taken = calloc(nodes_of(plan), sizeof(*taken));
	fault = tree->node && tree->child && taken ? HA_PLAN_OK : HA_PLAN_MEMORY;
	if (!fault)
		fault = read_parents(plan, tree, parent, where);
	if (!fault)
		fault = find_root(plan, tree, where);
	if (!fault)
		fault = look_for_loops(plan, tree, where);
	if (!fault) {
		order_children(plan, tree, taken);
		fault = look_for_idle(plan, tree, where);
	}
	free(taken);
	return fault;
}

enum ha_plan_fault ha_plan_make(struct ha_plan *plan, unsigned int members, unsigned int switches,
				unsigned int lanes, const uint16_t *const parent[],
				struct ha_plan_where *where)
{
	enum ha_plan_fault fault = HA_PLAN_OK;

	*plan = (struct ha_plan){.members = members, .switches = switches, .lanes = lanes};
	*where = (struct ha_plan_where){HA_PLAN_NONE, HA_PLAN_NONE};
	if (!members || !switches || !lanes || lanes > HA_PLAN_LANES || members > HA_PLAN_NODES ||
	    switches > HA_PLAN_NODES || members + switches > HA_PLAN_NODES)
		fault = HA_PLAN_SIZE;
	for (unsigned int lane = 0; !fault && lane < lanes; lane++) {
		where->lane = (uint16_t)lane;
		fault = make_tree(plan, &plan->tree[lane], parent[lane], &where->node);
	}
	if (fault)
		ha_plan_free(plan);
	return fault;
}

void ha_plan_free(struct ha_plan *plan)
{
	for (unsigned int lane = 0; lane < HA_PLAN_LANES; lane++) {
		free(plan->tree[lane].node);
		free(plan->tree[lane].child);
	}
	memset(plan, 0, sizeof(*plan));
}
