/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a group: for each lane a tree, whose leaves are the members and whose other nodes are
 * switches.
 *
 * Nodes have numbers: the members theirs, then the switches. A switch's children are in the order
 * of the lowest member below each. So the order of additions depends on who is below whom alone,
 * and not on how the controller numbers switches.
 *
 * Written once, by ha_plan_make(); any thread reads.
 */
#ifndef HA_INC_PLAN_H
#define HA_INC_PLAN_H

#include "reduce/fold.h"

#include <stdint.h>

#define HA_PLAN_LANES	 8
#define HA_PLAN_NODES	 8192 /* of a tree, members and switches */
#define HA_PLAN_CHILDREN HA_FOLD_SOURCES
#define HA_PLAN_NONE	 UINT16_MAX

struct ha_plan_node {
	uint16_t parent;   /* HA_PLAN_NONE: the root, or a switch that is not in this tree */
	uint16_t place;	   /* which of its parent's children it is */
	uint16_t children; /* how many it has */
	uint16_t first;	   /* where they begin in the tree's list */
};

struct ha_plan_tree {
	uint16_t root;
	struct ha_plan_node *node; /* by number */
	uint16_t *child;	   /* all nodes' children, each node's in its order */
};

struct ha_plan {
	unsigned int members, switches, lanes;
	struct ha_plan_tree tree[HA_PLAN_LANES];
};

enum ha_plan_fault {
	HA_PLAN_OK,
	HA_PLAN_SIZE,	/* no member, no lane, or more than there may be */
	HA_PLAN_PARENT, /* a parent that is no switch */
	HA_PLAN_ORPHAN, /* a member has no parent */
	HA_PLAN_ROOTS,	/* a switch without a parent, and another one */
	HA_PLAN_LOOP,	/* a node is below itself */
	HA_PLAN_IDLE,	/* a switch below another one has no member below it */
	HA_PLAN_WIDE,	/* more children than a switch can have */
	HA_PLAN_MEMORY,
	HA_PLAN_FAULTS
};

/* Where a fault is; HA_PLAN_NONE where it is in no lane or no node. */
struct ha_plan_where {
	uint16_t lane, node;
};

/*
 * parent[lane][node]: the number of its parent, HA_PLAN_NONE if it has none. A switch that has
 * neither parent nor children is not in that lane's tree. On a fault `plan` is empty and `where`
 * says of what.
 */
enum ha_plan_fault ha_plan_make(struct ha_plan *plan, unsigned int members, unsigned int switches,
				unsigned int lanes, const uint16_t *const parent[],
				struct ha_plan_where *where);
void ha_plan_free(struct ha_plan *plan); /* also one that could not be made */

const char *ha_plan_fault_text(enum ha_plan_fault fault); /* static */

/* The child in a place of a switch. */
static inline uint16_t ha_plan_child(const struct ha_plan_tree *tree, uint16_t node,
				     unsigned int place)
{
	return tree->child[tree->node[node].first + place];
}

#endif
