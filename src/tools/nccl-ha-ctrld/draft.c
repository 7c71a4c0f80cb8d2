/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/draft.h"

#include <stdlib.h>
#include <string.h>

bool nc_draft_begin(struct nc_draft *draft, const struct nc_topology *topology)
{
	unsigned n = nc_vertices(topology) + 1;

	*draft = (struct nc_draft){
	    .up = calloc(n, sizeof(*draft->up)),
	    .up_link = calloc(n, sizeof(*draft->up_link)),
	    .streams = calloc(n, sizeof(*draft->streams)),
	    .arriving = calloc(n, sizeof(*draft->arriving)),
	    .depths = calloc(n, sizeof(*draft->depths)),
	};
	return draft->up && draft->up_link && draft->streams && draft->arriving && draft->depths;
}

void nc_draft_end(struct nc_draft *draft)
{
	free(draft->up);
	free(draft->up_link);
	free(draft->streams);
	free(draft->arriving);
	free(draft->depths);
	*draft = (struct nc_draft){0};
}

/* ---- a switch with many children ------------------------------------------------------------ */

uint32_t nc_cut_begin(uint32_t n, uint32_t parts, uint32_t i)
{
	return (uint32_t)((uint64_t)n * i / parts);
}

/* A part of one child is no node: the child goes to the next level by itself. */
struct nc_cut nc_cut_of(uint32_t arriving, uint32_t max_fan_in)
{
	struct nc_cut cut = {1, 0, 1};
	uint32_t n = arriving;

	while (n > max_fan_in) {
		uint32_t parts = (n + max_fan_in - 1) / max_fan_in;

		for (uint32_t i = 0; i < parts; i++) {
			uint32_t size = nc_cut_begin(n, parts, i + 1) - nc_cut_begin(n, parts, i);

			cut.nodes += size > 1;
			cut.children += size > 1 ? size : 0;
		}
		cut.levels++;
		n = parts;
	}
	cut.children += n;
	return cut;
}

uint64_t nc_draft_bytes(const struct nc_topology *topology, const struct nc_draft *draft,
			unsigned vertex, uint64_t window_bytes)
{
	struct nc_cut cut = nc_cut_of(
	    draft->arriving[vertex], (uint32_t)nc_switch_at(topology, vertex)->capacity.max_fan_in);

	return (cut.children + cut.nodes) * window_bytes;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* What leaves a vertex arrives at the next one. */
static void send_up(struct nc_draft *d, const struct nc_draft_wish *w, unsigned vertex)
{
	unsigned up = w->paths->up[vertex];
	uint64_t cost =
	    nc_use_cost(w->use, w->paths->up_link[vertex], (uint64_t)w->share * d->streams[vertex]);

	d->up[vertex] = up;
	d->up_link[vertex] = w->paths->up_link[vertex];
	d->arriving[up] += d->streams[vertex];
	if (d->depths[up] < d->depths[vertex])
		d->depths[up] = d->depths[vertex];
	if (d->cost < cost)
		d->cost = cost;
}

/* All that will arrive has arrived. */
static void settle(struct nc_draft *d, const struct nc_draft_wish *w, unsigned vertex)
{
	const struct nc_switch *at = nc_switch_at(w->topology, vertex);
	uint32_t arriving = d->arriving[vertex];

	d->shared += w->avoid && w->avoid[vertex];
	if (arriving > 1 && w->adds[vertex]) {
		d->streams[vertex] = 1;
		d->depths[vertex] += nc_cut_of(arriving, (uint32_t)at->capacity.max_fan_in).levels;
		d->adding++;
	} else {
		d->streams[vertex] = arriving;
		d->arriving[vertex] = 0;
	}
	if (vertex == w->root)
		d->up[vertex] = NC_NO_VERTEX;
	else
		send_up(d, w, vertex);
}

bool nc_draft_make(struct nc_draft *draft, const struct nc_draft_wish *wish)
{
	const size_t n = nc_vertices(wish->topology);

	draft->root = wish->root;
	draft->shared = draft->adding = 0;
	draft->cost = 0;
	memset(draft->streams, 0, n * sizeof(*draft->streams));
	memset(draft->arriving, 0, n * sizeof(*draft->arriving));
	memset(draft->depths, 0, n * sizeof(*draft->depths));
	for (unsigned i = 0; i < wish->n_members; i++) {
		draft->streams[wish->members[i]] = 1;
		send_up(draft, wish, wish->members[i]);
	}
	for (unsigned i = wish->paths->n_order; i-- > 0;)
		if (draft->arriving[wish->paths->order[i]] > 0)
			settle(draft, wish, wish->paths->order[i]);
	return draft->arriving[wish->root] > 1;
}
