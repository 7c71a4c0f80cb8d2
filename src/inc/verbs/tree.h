/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A switch's part of one tree: edges to its children and, but for the root, to its parent, with a
 * lane between them (inc/lane.h). What comes from the children is added and goes up or down again.
 *
 * Each child has `window` landing buffers here. A unit's are posted again when it is reduced, which
 * is before its result can be on its way: so a child that is no further than the window beyond its
 * results always finds one. Nothing is kept that a unit's result does not need, and nothing at all
 * for the case that this switch dies: what it knows is then contributed again to another one.
 *
 * Made for one epoch of one group. The first thing that is wrong stays as its fault, and nothing
 * moves any more: the members notice, as there are no results. One thread.
 */
#ifndef HA_INC_VERBS_TREE_H
#define HA_INC_VERBS_TREE_H

#include "inc/header.h"
#include "inc/lane.h"
#include "inc/verbs/edge.h"

struct ha_tree_shape {
	struct ha_lane_shape lane; /* unit_bytes: a multiple of HA_CUT_ALIGN */
	bool is_inner_below;	   /* some child is a switch, which sends partial results */
	uint32_t epoch;
	uint64_t group;
};

enum ha_tree_fault {
	HA_TREE_SOUND,
	HA_TREE_EDGE,	   /* one has failed: `child`, HA_UNIT_UP for the parent's */
	HA_TREE_HEADER,	   /* a child sent what is no unit of this group, epoch and form */
	HA_TREE_DISAGREES, /* a child contributes to another unit or operation than the first one */
	HA_TREE_LANE,	   /* the order of what came cannot be */
};

struct ha_tree;

/* Edges wait to be connected. HA_ERR_SYSTEM: a verb or memory; *out is NULL, or what is left where
 * the device does not let go of that either: to be closed. */
ha_result_t ha_tree_open(const struct ha_tree_shape *shape, struct ha_port *port,
			 struct ha_tree **out) HA_MUST_CHECK;
/* To a child, by its place; HA_UNIT_UP: to the parent. */
struct ha_edge *ha_tree_edge(struct ha_tree *tree, unsigned int target);

/* What it has added up so far. */
struct ha_tree_work {
	uint64_t units, bytes; /* a unit's once, however many children contribute to it */
};
struct ha_tree_work ha_tree_work(const struct ha_tree *tree);

/* Moves everything that can be moved. True: something was. */
bool ha_tree_progress(struct ha_tree *tree);

/* As ha_edge_look, of all its edges. */
void ha_tree_look(struct ha_tree *tree, uint64_t now_ns);

enum ha_tree_fault ha_tree_fault(const struct ha_tree *tree, unsigned int *child);
/* Of DISAGREES: which members do, and in what. */
const struct ha_dispute *ha_tree_dispute(const struct ha_tree *tree);

/* HA_ERR_SYSTEM: the device does not let go of it; to be called again. NULL is fine. */
ha_result_t ha_tree_close(struct ha_tree *tree) HA_MUST_CHECK;

#endif
