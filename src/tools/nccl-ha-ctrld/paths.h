/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shortest paths from one switch to all others and to some ports. A port ends a path: hosts
 * forward nothing. Of paths that are equally long the one over fewer links is taken, then the one
 * that is found first, which numbers alone decide.
 */
#ifndef NC_PATHS_H
#define NC_PATHS_H

#include "tools/nccl-ha-ctrld/topology.h"

/* What a path is to avoid before anything else; then its cost. */
struct nc_distance {
	uint32_t avoided; /* switches that it goes over and should not */
	uint32_t links;
	uint64_t cost;
};

struct nc_paths_wish {
	const struct nc_topology *topology;
	const uint64_t *costs; /* by link */
	const bool *wanted;    /* by vertex: ports that are to be reached */
	const bool *gone;      /* by vertex: what no path goes over; NULL: nothing */
	const bool *avoid;     /* by vertex; NULL: nothing */
};

struct nc_paths {
	struct nc_distance *distances; /* by vertex */
	unsigned *up;	   /* by vertex: the next one on the way to the root, NC_NO_VERTEX: none */
	unsigned *up_link; /* by vertex */
	unsigned *order;   /* switches that were reached, the nearest first: the root */
	unsigned n_order;
	struct nc_heap_entry *heap;
};

/* False: no memory. Either way nc_paths_end is to be called. */
bool nc_paths_begin(struct nc_paths *paths, const struct nc_topology *topology) HA_MUST_CHECK;
void nc_paths_end(struct nc_paths *paths);

void nc_paths_find(struct nc_paths *paths, const struct nc_paths_wish *wish, unsigned root);

#endif
