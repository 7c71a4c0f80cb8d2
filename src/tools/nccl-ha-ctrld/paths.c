/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/paths.h"

#include <stdlib.h>

/* A switch may be in the heap several times: all but the nearest are stale. */
struct nc_heap_entry {
	struct nc_distance distance;
	unsigned vertex;
};

struct search {
	struct nc_paths *paths;
	const struct nc_paths_wish *wish;
	unsigned n_heap;
};

bool nc_paths_begin(struct nc_paths *paths, const struct nc_topology *topology)
{
	unsigned n = nc_vertices(topology);

	*paths = (struct nc_paths){
	    .distances = calloc(n + 1, sizeof(*paths->distances)),
	    .up = calloc(n + 1, sizeof(*paths->up)),
	    .up_link = calloc(n + 1, sizeof(*paths->up_link)),
	    .order = calloc(topology->n_switches + 1, sizeof(*paths->order)),
	    /* A link is looked at once from each end. */
	    .heap = calloc(2 * (size_t)topology->n_links + 1, sizeof(*paths->heap)),
	};
	return paths->distances && paths->up && paths->up_link && paths->order && paths->heap;
}

void nc_paths_end(struct nc_paths *paths)
{
	free(paths->distances);
	free(paths->up);
	free(paths->up_link);
	free(paths->order);
	free(paths->heap);
	*paths = (struct nc_paths){0};
}

static int compare(const struct nc_distance *a, const struct nc_distance *b)
{
	if (a->avoided != b->avoided)
		return a->avoided < b->avoided ? -1 : 1;
	if (a->cost != b->cost)
		return a->cost < b->cost ? -1 : 1;
	return (a->links > b->links) - (a->links < b->links);
}

/* ---- the heap -------------------------------------------------------------------------------- */

static bool is_before(const struct nc_heap_entry *a, const struct nc_heap_entry *b)
{
	int order = compare(&a->distance, &b->distance);

	return order < 0 || (order == 0 && a->vertex < b->vertex);
}

static void push(struct search *s, struct nc_heap_entry entry)
{
	struct nc_heap_entry *heap = s->paths->heap;
	unsigned at = s->n_heap++;

	while (at > 0 && is_before(&entry, &heap[(at - 1) / 2])) {
		heap[at] = heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap[at] = entry;
}

static struct nc_heap_entry pop(struct search *s)
{
	struct nc_heap_entry *heap = s->paths->heap, first = heap[0], last = heap[--s->n_heap];
	unsigned at = 0;

	for (;;) {
		unsigned child = 2 * at + 1;

		if (child + 1 < s->n_heap && is_before(&heap[child + 1], &heap[child]))
			child++;
		if (child >= s->n_heap || !is_before(&heap[child], &last))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return first;
}

/* ---- the search ------------------------------------------------------------------------------ */

static bool may_enter(const struct nc_paths_wish *w, unsigned vertex)
{
	if (w->gone && w->gone[vertex])
		return false;
	return !nc_is_port(w->topology, vertex) || w->wanted[vertex];
}

/* A way to a vertex over this edge of another one. */
static void offer(struct search *s, unsigned from, const struct nc_edge *edge)
{
	const struct nc_paths_wish *w = s->wish;
	struct nc_paths *p = s->paths;
	struct nc_distance way = p->distances[from];

	if (!may_enter(w, edge->to))
		return;
	way.avoided += w->avoid && w->avoid[edge->to];
	way.cost += w->costs[edge->link];
	way.links++;
	if (p->up[edge->to] != NC_NO_VERTEX && compare(&way, &p->distances[edge->to]) >= 0)
		return;
	p->distances[edge->to] = way;
	p->up[edge->to] = from;
	p->up_link[edge->to] = edge->link;
	if (!nc_is_port(w->topology, edge->to))
		push(s, (struct nc_heap_entry){way, edge->to});
}

void nc_paths_find(struct nc_paths *paths, const struct nc_paths_wish *wish, unsigned root)
{
	const struct nc_topology *t = wish->topology;
	struct search s = {paths, wish, 0};

	for (unsigned v = 0; v < nc_vertices(t); v++)
		paths->up[v] = NC_NO_VERTEX;
	paths->n_order = 0;
	paths->up[root] = root;
	paths->distances[root] = (struct nc_distance){0};
	push(&s, (struct nc_heap_entry){.vertex = root});
	while (s.n_heap > 0) {
		struct nc_heap_entry next = pop(&s);

		if (compare(&next.distance, &paths->distances[next.vertex]) != 0)
			continue;
		paths->order[paths->n_order++] = next.vertex;
		for (unsigned e = t->first[next.vertex]; e < t->first[next.vertex + 1]; e++)
			offer(&s, next.vertex, &t->edges[e]);
	}
}
