/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a group: over which switches its trees go. It depends on the topology, on what other
 * groups have, and on what is wished, and on nothing else.
 *
 * Lanes are chosen one after the other, each as if those before it carried data already: of all
 * roots the one whose worst link is the least loaded, then one that is no other lane's root, then
 * the tree with fewer additions one after the other, then with fewer switches that add, then the
 * first by name. A spare tree adds at no switch that a lane or another spare adds at: whichever
 * switch fails, no spare fails with it. Among those it goes over the fewest switches that lanes go
 * over. There may be fewer lanes and spares than are wished; without a lane there is no plan.
 */
#ifndef NC_PLACE_H
#define NC_PLACE_H

#include "inc/plan.h"
#include "tools/nccl-ha-ctrld/use.h"

#define NC_ROOTS_TRIED 64 /* those that are nearest to all members */

struct nc_wish {
	const unsigned *members; /* ports, in the order of ranks */
	unsigned n_members;
	unsigned lanes, spares; /* together at most HA_PLAN_LANES */
	uint64_t window_bytes;	/* of one child's units */
	const bool *gone;	/* by vertex; NULL: nothing */
	bool is_reproducible;	/* in each tree one node adds all members: every plan adds alike */
};

/* Part 0 of a switch is what its parent sees; others are below it, where it has more children than
 * a node can have. */
struct nc_node {
	unsigned vertex, part;
};

struct nc_load {
	unsigned link;
	uint32_t streams;
};

struct nc_memory {
	unsigned vertex;
	uint64_t bytes;
};

struct nc_tree {
	uint16_t *parents; /* by node, as ha_plan_make takes them */
	uint16_t root;
	unsigned depth;
	struct nc_load *loads;
	struct nc_memory *memory;
	unsigned n_loads, n_memory;
};

/* Nodes are numbered as in struct ha_plan: the members, then `nodes`. */
struct nc_plan {
	unsigned n_members, n_nodes, n_lanes, n_spares;
	struct nc_node *nodes;
	struct nc_tree trees[HA_PLAN_LANES]; /* the lanes, then the spares */
};

/*
 * True: there is a plan, and `use` has it. False: `why` says why not, in one line, and what to do
 * where something can be done; `use` is as it was.
 */
bool nc_place(struct nc_use *use, const struct nc_wish *wish, struct nc_plan *plan, char *why,
	      size_t size) HA_MUST_CHECK;

/* A plan that was made before: `use` has it from now on, whatever else there is. */
void nc_replace(struct nc_use *use, const struct nc_plan *plan);
/* One that `use` has not. */
void nc_plan_end(struct nc_plan *plan);
/* What `use` has of it is given back. */
void nc_unplace(struct nc_use *use, struct nc_plan *plan);

#endif
