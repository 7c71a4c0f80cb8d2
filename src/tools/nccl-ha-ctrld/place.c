/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/place.h"

#include "tools/nccl-ha-ctrld/draft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a switch may still do for this group, by vertex. */
struct site {
	unsigned trees; /* that add there already */
	uint64_t bytes; /* of those */
	bool root;	/* of one of them */
};

struct placing {
	const struct nc_topology *t;
	struct nc_use *use;
	const struct nc_wish *wish;
	struct nc_paths paths;
	struct nc_draft tried, chosen[HA_PLAN_LANES];
	unsigned n_chosen, n_lanes;
	uint64_t *costs;     /* by link */
	bool *wanted, *adds; /* by vertex */
	bool *alone;	     /* by vertex: the root that is tried, if it is to add everything */
	bool *passed;	     /* by vertex: lanes go over it */
	struct site *sites;  /* by vertex */
	unsigned *roots;     /* where a tree may begin */
	unsigned n_roots;
	unsigned *barred; /* who is short of memory for what is tried */
	char *why;
	size_t why_size;
};

#define NO(p, ...) (snprintf((p)->why, (p)->why_size, __VA_ARGS__), false)

/* ---- what is wished ------------------------------------------------------------------------- */

static bool check_members(struct placing *p)
{
	const struct nc_wish *w = p->wish;

	if (w->n_members < 2)
		return NO(p, "a group of %u has nothing to add: it has 2 members or more",
			  w->n_members);
	for (unsigned i = 0; i < w->n_members; i++) {
		unsigned vertex = w->members[i];

		if (p->wanted[vertex])
			return NO(p, "two members have the port %s: give each its own",
				  nc_vertex_name(p->t, vertex));
		if (w->gone && w->gone[vertex])
			return NO(p, "%s is a member, and said to have failed",
				  nc_vertex_name(p->t, vertex));
		p->wanted[vertex] = true;
	}
	return true;
}

static bool begin(struct placing *p)
{
	const unsigned n = nc_vertices(p->t) + 1;

	p->costs = calloc(p->t->n_links + 1, sizeof(*p->costs));
	p->wanted = calloc(n, sizeof(*p->wanted));
	p->adds = calloc(n, sizeof(*p->adds));
	p->alone = calloc(n, sizeof(*p->alone));
	p->passed = calloc(n, sizeof(*p->passed));
	p->sites = calloc(n, sizeof(*p->sites));
	p->roots = calloc(n, sizeof(*p->roots));
	p->barred = calloc(n, sizeof(*p->barred));
	return (nc_paths_begin(&p->paths, p->t) && nc_draft_begin(&p->tried, p->t) && p->costs &&
		p->wanted && p->adds && p->alone && p->passed && p->sites && p->roots &&
		p->barred) ||
	       NO(p, "out of memory");
}

static void end(struct placing *p)
{
	nc_paths_end(&p->paths);
	nc_draft_end(&p->tried);
	for (unsigned i = 0; i < p->n_chosen; i++)
		nc_draft_end(&p->chosen[i]);
	free(p->costs);
	free(p->wanted);
	free(p->adds);
	free(p->alone);
	free(p->passed);
	free(p->sites);
	free(p->roots);
	free(p->barred);
}

/* ---- where a tree may begin ----------------------------------------------------------------- */

/* Whether a program is there that adds. */
static bool is_adding(const struct placing *p, unsigned vertex)
{
	return nc_switch_at(p->t, vertex)->aggregates &&
	       !p->use->switches[vertex - p->t->n_ports].is_idle;
}

static bool has_room(const struct placing *p, unsigned vertex)
{
	const struct nc_switch *at = nc_switch_at(p->t, vertex);
	const struct nc_switch_use *has = &p->use->switches[vertex - p->t->n_ports];

	return has->groups < at->capacity.groups &&
	       p->sites[vertex].trees < (unsigned)at->capacity.threads;
}

/* How far a switch is from the members: what is wrong with it comes first. */
struct reach {
	unsigned root, missed; /* members that it does not reach */
	unsigned a_missed;     /* the first of them */
	unsigned farthest;
	uint64_t sum;
};

/* Links to each member, of those with the least. */
static struct reach reach_of(struct placing *p, unsigned root)
{
	struct reach reach = {.root = root};

	nc_paths_find(
	    &p->paths,
	    &(struct nc_paths_wish){
		.topology = p->t, .costs = p->costs, .wanted = p->wanted, .gone = p->wish->gone},
	    root);
	for (unsigned i = 0; i < p->wish->n_members; i++) {
		unsigned member = p->wish->members[i];

		if (p->paths.up[member] == NC_NO_VERTEX) {
			if (reach.missed++ == 0)
				reach.a_missed = member;
			continue;
		}
		if (reach.farthest < p->paths.distances[member].links)
			reach.farthest = p->paths.distances[member].links;
		reach.sum += p->paths.distances[member].links;
	}
	return reach;
}

static int by_distance(const void *a, const void *b)
{
	const struct reach *one = a, *other = b;

	if (one->farthest != other->farthest)
		return one->farthest < other->farthest ? -1 : 1;
	if (one->sum != other->sum)
		return one->sum < other->sum ? -1 : 1;
	return (one->root > other->root) - (one->root < other->root);
}

/* Why there is no root, of all switches that add: `best` reaches the most members. */
static bool no_root(struct placing *p, unsigned adding, unsigned full, const struct reach *best)
{
	if (adding == 0)
		return NO(p, "no switch of the fabric adds, of those that have not failed and "
			     "that a program serves (nccl-ha-switchd)");
	if (best->missed > 0)
		return NO(
		    p, "no switch that adds reaches all members: %s reaches %u of %u, and not %s",
		    nc_vertex_name(p->t, best->root), p->wish->n_members - best->missed,
		    p->wish->n_members, nc_vertex_name(p->t, best->a_missed));
	return NO(p,
		  "no switch that reaches all members has room for another group: %s, the first "
		  "of %u, has %d",
		  nc_vertex_name(p->t, best->root), full,
		  p->use->switches[best->root - p->t->n_ports].groups);
}

static bool find_roots(struct placing *p)
{
	struct reach *reaches = calloc(p->t->n_switches + 1, sizeof(*reaches));
	struct reach best = {.missed = UINT32_MAX};
	unsigned adding = 0, full = 0;

	if (!reaches)
		return NO(p, "out of memory");
	memset(p->costs, 0, p->t->n_links * sizeof(*p->costs)); /* links alone count */
	for (unsigned v = p->t->n_ports; v < nc_vertices(p->t); v++) {
		if (!is_adding(p, v) || (p->wish->gone && p->wish->gone[v]))
			continue;
		adding++;
		reaches[p->n_roots] = reach_of(p, v);
		if (reaches[p->n_roots].missed < best.missed)
			best = reaches[p->n_roots];
		if (reaches[p->n_roots].missed > 0)
			continue;
		if (has_room(p, v))
			p->n_roots++;
		else
			full++;
	}
	qsort(reaches, p->n_roots, sizeof(*reaches), by_distance);
	if (p->n_roots > NC_ROOTS_TRIED)
		p->n_roots = NC_ROOTS_TRIED;
	for (unsigned i = 0; i < p->n_roots; i++)
		p->roots[i] = reaches[i].root;
	free(reaches);
	return p->n_roots > 0 || no_root(p, adding, full, &best);
}

/* ---- one tree -------------------------------------------------------------------------------- */

static bool is_spare(const struct placing *p)
{
	return p->n_chosen >= p->n_lanes;
}

/* Of one stream of a lane, while lanes are chosen. */
static uint32_t share_of(unsigned lanes)
{
	return NC_WHOLE / lanes;
}

static void look_at_sites(struct placing *p)
{
	for (unsigned v = p->t->n_ports; v < nc_vertices(p->t); v++)
		p->adds[v] =
		    is_adding(p, v) && has_room(p, v) && !(is_spare(p) && p->sites[v].trees > 0);
	for (unsigned l = 0; l < p->t->n_links; l++)
		p->costs[l] = nc_use_cost(p->use, l, share_of(p->wish->lanes));
}

/* The first switch that has less memory than the tree wants of it. */
static unsigned find_overfull(const struct placing *p)
{
	for (unsigned i = 0; i < p->paths.n_order; i++) {
		unsigned v = p->paths.order[i];
		const uint64_t most = (uint64_t)nc_switch_at(p->t, v)->capacity.memory_mb << 20;

		if (p->tried.arriving[v] > 0 &&
		    p->use->switches[v - p->t->n_ports].bytes + p->sites[v].bytes +
			    nc_draft_bytes(p->t, &p->tried, v, p->wish->window_bytes) >
			most)
			return v;
	}
	return NC_NO_VERTEX;
}

/* The tree from this root into p->tried. Who has no memory forwards: then others have more to add,
 * and it goes on until all have enough, or the root has not. */
static bool try_root(struct placing *p, unsigned root, bool alone)
{
	const bool *avoid = is_spare(p) ? p->passed : NULL;
	const struct nc_draft_wish wish = {p->t,
					   p->use,
					   &p->paths,
					   root,
					   p->wish->members,
					   p->wish->n_members,
					   alone ? p->alone : p->adds,
					   avoid,
					   share_of(p->wish->lanes)};
	unsigned n_barred = 0, over = NC_NO_VERTEX;
	bool made;

	nc_paths_find(&p->paths,
		      &(struct nc_paths_wish){p->t, p->costs, p->wanted, p->wish->gone, avoid},
		      root);
	p->alone[root] = true;
	for (made = nc_draft_make(&p->tried, &wish); made; made = nc_draft_make(&p->tried, &wish)) {
		over = find_overfull(p);
		if (over == NC_NO_VERTEX || over == root)
			break;
		p->adds[over] = false;
		p->barred[n_barred++] = over;
	}
	p->alone[root] = false;
	while (n_barred > 0)
		p->adds[p->barred[--n_barred]] = true;
	return made && over == NC_NO_VERTEX &&
	       (!p->wish->is_reproducible || p->tried.depths[root] == 1);
}

static bool is_better(const struct placing *p, const struct nc_draft *a, const struct nc_draft *b)
{
	const bool a_again = p->sites[a->root].root, b_again = p->sites[b->root].root;

	if (a->shared != b->shared)
		return a->shared < b->shared;
	if (a->cost != b->cost)
		return a->cost < b->cost;
	if (a_again != b_again)
		return b_again;
	if (a->depths[a->root] != b->depths[b->root])
		return a->depths[a->root] < b->depths[b->root];
	if (a->adding != b->adding)
		return a->adding < b->adding;
	return a->root < b->root;
}

static void change_loads(struct placing *p, const struct nc_draft *d, uint64_t share)
{
	for (unsigned v = 0; v < nc_vertices(p->t); v++)
		if (d->streams[v] > 0 && d->up[v] != NC_NO_VERTEX)
			p->use->loads[d->up_link[v]] += share * d->streams[v];
}

/* Whoever is chosen next sees it. */
static void take(struct placing *p, const struct nc_draft *d)
{
	for (unsigned v = p->t->n_ports; v < nc_vertices(p->t); v++) {
		p->passed[v] |= d->streams[v] > 0;
		if (d->arriving[v] == 0)
			continue;
		p->sites[v].trees++;
		p->sites[v].bytes += nc_draft_bytes(p->t, d, v, p->wish->window_bytes);
	}
	p->sites[d->root].root = true;
	if (!is_spare(p))
		change_loads(p, d, share_of(p->wish->lanes));
	p->n_chosen++;
}

static void swap(struct nc_draft *a, struct nc_draft *b)
{
	struct nc_draft was = *a;

	*a = *b;
	*b = was;
}

/* The best of all roots into `best`. False: there is none. */
static bool try_roots(struct placing *p, bool alone, struct nc_draft *best)
{
	bool found = false;

	for (unsigned i = 0; i < p->n_roots; i++) {
		if (!p->adds[p->roots[i]] || !try_root(p, p->roots[i], alone) ||
		    (found && !is_better(p, &p->tried, best)))
			continue;
		swap(&p->tried, best);
		found = true;
	}
	return found;
}

/* Where several switches add and none of the trees is within their memory, one that has enough may
 * add everything; where every plan is to add alike nothing else may be. False: there is none, or no
 * memory here. */
static bool choose_tree(struct placing *p)
{
	struct nc_draft *best = &p->chosen[p->n_chosen];

	if (!nc_draft_begin(best, p->t)) {
		nc_draft_end(best);
		return NO(p, "out of memory");
	}
	look_at_sites(p);
	if ((!p->wish->is_reproducible && try_roots(p, false, best)) || try_roots(p, true, best)) {
		take(p, best);
		return true;
	}
	nc_draft_end(best);
	if (p->wish->is_reproducible)
		return NO(p,
			  "HA_NCCL_INC_REPRODUCIBLE=1 needs a switch that adds all %u members at "
			  "once: none that reaches them has so much max_fan_in, and memory for "
			  "their windows",
			  p->wish->n_members);
	return NO(p, "no switch that reaches all %u members has memory for their windows",
		  p->wish->n_members);
}

static bool choose_trees(struct placing *p)
{
	p->n_lanes = p->wish->lanes;
	while (p->n_chosen < p->wish->lanes && choose_tree(p))
		;
	p->n_lanes = p->n_chosen;
	if (p->n_lanes == 0)
		return false;
	while (p->n_chosen < p->n_lanes + p->wish->spares && choose_tree(p))
		;
	return true;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Numbers of a switch's nodes, by vertex: the first one. */
static bool number_nodes(struct placing *p, struct nc_plan *plan, uint32_t *first)
{
	unsigned at = p->wish->n_members;

	for (unsigned v = p->t->n_ports; v < nc_vertices(p->t); v++) {
		uint32_t most = 0;

		for (unsigned i = 0; i < p->n_chosen; i++) {
			uint32_t fan_in = (uint32_t)nc_switch_at(p->t, v)->capacity.max_fan_in;
			uint32_t arriving = p->chosen[i].arriving[v];
			uint32_t nodes = arriving ? nc_cut_of(arriving, fan_in).nodes : 0;

			most = nodes > most ? nodes : most;
		}
		first[v] = at;
		at += most;
	}
	if (at > HA_PLAN_NODES)
		return NO(p, "%u members and what adds for them are more than %d",
			  p->wish->n_members, HA_PLAN_NODES);
	plan->n_nodes = at - p->wish->n_members;
	plan->nodes = calloc(plan->n_nodes + 1, sizeof(*plan->nodes));
	if (!plan->nodes)
		return NO(p, "out of memory");
	for (unsigned v = p->t->n_ports; v < nc_vertices(p->t); v++) {
		unsigned next = v + 1 < nc_vertices(p->t) ? first[v + 1] : at;

		for (unsigned i = first[v]; i < next; i++)
			plan->nodes[i - p->wish->n_members] = (struct nc_node){v, i - first[v]};
	}
	return true;
}

/* Where children of each switch that adds are collected. */
struct children {
	const struct nc_draft *draft;
	const uint32_t *first_node; /* by vertex */
	uint32_t *first, *n;	    /* by vertex: of `nodes` */
	uint16_t *nodes;
};

/* From each member in turn up to where somebody was before: children come in the order of the
 * lowest member below them. */
static void collect_children(const struct placing *p, struct children *c)
{
	uint32_t at = 0;

	for (unsigned v = 0; v < nc_vertices(p->t); v++) {
		c->first[v] = at;
		c->n[v] = 0;
		at += c->draft->arriving[v];
	}
	for (unsigned i = 0; i < p->wish->n_members; i++) {
		unsigned v = p->wish->members[i];
		uint16_t node = (uint16_t)i;
		bool again = false;

		while (v != c->draft->root && !again) {
			do
				v = c->draft->up[v];
			while (c->draft->arriving[v] == 0);
			again = c->n[v] > 0;
			c->nodes[c->first[v] + c->n[v]++] = node;
			node = (uint16_t)c->first_node[v];
		}
	}
}

/* The nodes of one switch above its children: nc_cut_of says how many there are. */
static void write_switch(const struct placing *p, struct children *c, unsigned v, uint16_t *parents)
{
	const uint32_t fan_in = (uint32_t)nc_switch_at(p->t, v)->capacity.max_fan_in;
	uint16_t *nodes = &c->nodes[c->first[v]];
	uint32_t n = c->n[v], node = c->first_node[v];

	while (n > fan_in) {
		uint32_t parts = (n + fan_in - 1) / fan_in;

		for (uint32_t i = 0; i < parts; i++) {
			uint32_t from = nc_cut_begin(n, parts, i);
			uint32_t to = nc_cut_begin(n, parts, i + 1);

			if (to - from == 1) {
				nodes[i] = nodes[from];
				continue;
			}
			node++;
			for (uint32_t k = from; k < to; k++)
				parents[nodes[k]] = (uint16_t)node;
			nodes[i] = (uint16_t)node;
		}
		n = parts;
	}
	for (uint32_t i = 0; i < n; i++)
		parents[nodes[i]] = (uint16_t)c->first_node[v];
}

static void write_needs(const struct placing *p, const struct nc_draft *d, struct nc_tree *tree)
{
	for (unsigned v = 0; v < nc_vertices(p->t); v++) {
		if (d->streams[v] > 0 && d->up[v] != NC_NO_VERTEX)
			tree->loads[tree->n_loads++] =
			    (struct nc_load){d->up_link[v], d->streams[v]};
		if (d->arriving[v] > 0)
			tree->memory[tree->n_memory++] = (struct nc_memory){
			    v, nc_draft_bytes(p->t, d, v, p->wish->window_bytes)};
	}
}

static bool write_tree(struct placing *p, struct nc_plan *plan, struct children *c,
		       struct nc_tree *tree)
{
	const unsigned nodes = plan->n_members + plan->n_nodes, n = nc_vertices(p->t);

	tree->parents = calloc(nodes, sizeof(*tree->parents));
	tree->loads = calloc(n, sizeof(*tree->loads));
	tree->memory = calloc(n, sizeof(*tree->memory));
	if (!tree->parents || !tree->loads || !tree->memory)
		return NO(p, "out of memory");
	for (unsigned i = 0; i < nodes; i++)
		tree->parents[i] = HA_PLAN_NONE;
	tree->root = (uint16_t)c->first_node[c->draft->root];
	tree->depth = c->draft->depths[c->draft->root];
	collect_children(p, c);
	for (unsigned v = p->t->n_ports; v < n; v++)
		if (c->draft->arriving[v] > 0)
			write_switch(p, c, v, tree->parents);
	write_needs(p, c->draft, tree);
	return true;
}

static bool write_plan(struct placing *p, struct nc_plan *plan)
{
	const unsigned n = nc_vertices(p->t);
	uint32_t *first_node = calloc(n + 1, sizeof(*first_node));
	struct children c = {.first_node = first_node,
			     .first = calloc(n + 1, sizeof(*c.first)),
			     .n = calloc(n + 1, sizeof(*c.n)),
			     .nodes = calloc(n + HA_PLAN_NODES, sizeof(*c.nodes))};
	bool good = (first_node && c.first && c.n && c.nodes) || NO(p, "out of memory");

	*plan = (struct nc_plan){.n_members = p->wish->n_members,
				 .n_lanes = p->n_lanes,
				 .n_spares = p->n_chosen - p->n_lanes};
	good = good && number_nodes(p, plan, first_node);
	for (unsigned i = 0; good && i < p->n_chosen; i++) {
		c.draft = &p->chosen[i];
		good = write_tree(p, plan, &c, &plan->trees[i]);
	}
	free(first_node);
	free(c.first);
	free(c.n);
	free(c.nodes);
	return good;
}

/* ---- what is used ---------------------------------------------------------------------------- */

void nc_plan_end(struct nc_plan *plan)
{
	for (unsigned i = 0; i < HA_PLAN_LANES; i++) {
		free(plan->trees[i].parents);
		free(plan->trees[i].loads);
		free(plan->trees[i].memory);
	}
	free(plan->nodes);
	*plan = (struct nc_plan){0};
}

/* Spares cost memory and no bandwidth. sign: 1 or -1, and all arithmetic is modulo 2^64. */
static void change_use(struct nc_use *use, const struct nc_plan *plan, int sign)
{
	const uint64_t times = (uint64_t)(int64_t)sign;

	for (unsigned i = 0; i < plan->n_lanes; i++)
		for (unsigned k = 0; k < plan->trees[i].n_loads; k++)
			use->loads[plan->trees[i].loads[k].link] +=
			    times * share_of(plan->n_lanes) * plan->trees[i].loads[k].streams;
	for (unsigned i = 0; i < plan->n_lanes + plan->n_spares; i++)
		for (unsigned k = 0; k < plan->trees[i].n_memory; k++)
			use->switches[plan->trees[i].memory[k].vertex - use->topology->n_ports]
			    .bytes += times * plan->trees[i].memory[k].bytes;
	for (unsigned i = 0; i < plan->n_nodes; i++)
		if (plan->nodes[i].part == 0)
			use->switches[plan->nodes[i].vertex - use->topology->n_ports].groups +=
			    sign;
}

bool nc_place(struct nc_use *use, const struct nc_wish *wish, struct nc_plan *plan, char *why,
	      size_t size)
{
	struct placing p = {
	    .t = use->topology, .use = use, .wish = wish, .why = why, .why_size = size};
	bool good = begin(&p) && check_members(&p) && find_roots(&p) && choose_trees(&p);

	*plan = (struct nc_plan){0};
	for (unsigned i = 0; i < p.n_lanes && i < p.n_chosen; i++)
		change_loads(&p, &p.chosen[i], -(uint64_t)share_of(wish->lanes));
	good = good && write_plan(&p, plan);
	end(&p);
	if (good)
		change_use(use, plan, 1);
	else
		nc_plan_end(plan);
	return good;
}

void nc_replace(struct nc_use *use, const struct nc_plan *plan)
{
	change_use(use, plan, 1);
}

void nc_unplace(struct nc_use *use, struct nc_plan *plan)
{
	change_use(use, plan, -1);
	nc_plan_end(plan);
}
