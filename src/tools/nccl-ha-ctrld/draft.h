/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of a group over a fabric: paths from a root to its members, of which switches where
 * several meet add, as far as they may, and the others forward.
 *
 * What leaves a vertex towards the root is a number of streams: one of a member, one of a switch
 * that adds, as many as arrive at one that forwards.
 */
#ifndef NC_DRAFT_H
#define NC_DRAFT_H

#include "tools/nccl-ha-ctrld/paths.h"
#include "tools/nccl-ha-ctrld/use.h"

struct nc_draft {
	unsigned root;
	unsigned *up, *up_link; /* by vertex, as in struct nc_paths */
	uint32_t *streams;	/* by vertex; 0: not in the tree */
	uint32_t *arriving;	/* by vertex, of a switch that adds; 0: it does not */
	uint32_t *depths;	/* by vertex: additions below it, one after the other */
	/* What trees are compared by. */
	unsigned shared; /* switches that were to be avoided */
	unsigned adding; /* switches */
	uint64_t cost;	 /* of its worst link */
};

/* What a switch with more children than it can have is cut into: nodes of the same switch. */
struct nc_cut {
	uint32_t nodes, children, levels;
};

struct nc_cut nc_cut_of(uint32_t arriving, uint32_t max_fan_in);
/* Of n things in `parts`, as equal as they can be, where part i begins. */
uint32_t nc_cut_begin(uint32_t n, uint32_t parts, uint32_t i);

/* What a switch needs for a tree: its window of each child's units, and of results. */
uint64_t nc_draft_bytes(const struct nc_topology *topology, const struct nc_draft *draft,
			unsigned vertex, uint64_t window_bytes);

/* False: no memory. Either way nc_draft_end is to be called. */
bool nc_draft_begin(struct nc_draft *draft, const struct nc_topology *topology) HA_MUST_CHECK;
void nc_draft_end(struct nc_draft *draft);

struct nc_draft_wish {
	const struct nc_topology *topology;
	const struct nc_use *use;
	const struct nc_paths *paths; /* from the root */
	unsigned root;
	const unsigned *members; /* all of them are reached */
	unsigned n_members;
	const bool *adds;  /* by vertex: switches that may add */
	const bool *avoid; /* by vertex; NULL: nothing */
	uint32_t share;	   /* load of one stream on a link */
};

/* False: the root has less than two children, so that another switch does the same in less. */
bool nc_draft_make(struct nc_draft *draft, const struct nc_draft_wish *wish) HA_MUST_CHECK;

#endif
