/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans over fabrics that are drawn by hand, and over a thousand random ones, where what must hold
 * of every plan is looked at without the planner's own notions: by the graph, and by ha_plan_make.
 */
#include "../unit/cmocka_all.h"

#include "tools/nccl-ha-ctrld/place.h"

#include <stdio.h>
#include <string.h>

#define MEMBERS_MAX 64
#define WINDOW	    (16 * 65536)

static struct nc_topology topology;
static struct nc_use use;
static struct nc_plan plan;
static char why[256];

static void open_fabric(const char *text)
{
	struct nc_fault fault;

	if (!nc_topology_read(&topology, text, strlen(text), &fault))
		fail_msg("%u:%u: %s\n%s", fault.line, fault.column, fault.text, text);
	assert_true(nc_use_begin(&use, &topology));
}

static void close_fabric(void)
{
	for (unsigned i = 0; i < topology.n_links; i++)
		assert_int_equal(use.loads[i], 0);
	for (unsigned i = 0; i < topology.n_switches; i++) {
		assert_int_equal(use.switches[i].bytes, 0);
		assert_int_equal(use.switches[i].groups, 0);
	}
	nc_use_end(&use);
	nc_topology_free(&topology);
}

static unsigned vertex(const char *name)
{
	unsigned v;

	assert_int_equal(nc_vertex_find(&topology, name, &v), NC_FOUND);
	return v;
}

/* Names with a space behind each. */
static unsigned members_of(const char *names, unsigned *members)
{
	char name[NC_END_MAX];
	unsigned n = 0;
	int length;

	for (; sscanf(names, "%127s%n", name, &length) == 1; names += length)
		members[n++] = vertex(name);
	return n;
}

static bool place_wish(struct nc_plan *into, const char *names, struct nc_wish wish)
{
	unsigned members[MEMBERS_MAX];

	wish.members = members;
	wish.n_members = members_of(names, members);
	wish.window_bytes = WINDOW;
	why[0] = '\0';
	return nc_place(&use, &wish, into, why, sizeof(why));
}

static bool place_in(struct nc_plan *into, const char *names, unsigned lanes, unsigned spares,
		     const bool *gone)
{
	return place_wish(into, names,
			  (struct nc_wish){.lanes = lanes, .spares = spares, .gone = gone});
}

static bool place(const char *names, unsigned lanes, unsigned spares)
{
	return place_in(&plan, names, lanes, spares, NULL);
}

static bool place_reproducibly(const char *names, unsigned lanes, unsigned spares)
{
	return place_wish(
	    &plan, names,
	    (struct nc_wish){.lanes = lanes, .spares = spares, .is_reproducible = true});
}

static const char *node_name(unsigned node)
{
	return nc_vertex_name(&topology, plan.nodes[node - plan.n_members].vertex);
}

/* "leaf0 leaf0 leaf1 | leaf0:spine0": the members' parents, then each node's that has one. */
static void expect_tree(const struct nc_tree *tree, const char *expected)
{
	char text[1024] = "";
	size_t used = 0;

	for (unsigned i = 0; i < plan.n_members + plan.n_nodes; i++) {
		uint16_t up = tree->parents[i];

		if (i == plan.n_members)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "|");
		if (i >= plan.n_members && up != HA_PLAN_NONE)
			used += (size_t)snprintf(text + used, sizeof(text) - used, " %s:%s",
						 node_name(i), node_name(up));
		else if (i < plan.n_members)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s ",
						 node_name(up));
	}
	assert_string_equal(text, expected);
}

/* ---- drawn by hand --------------------------------------------------------------------------- */

#define HOST(name)	 "- {name: " name ", ports: [{nic: n}]}\n"
#define LINK(a, b, gbps) "- {a: " a ", b: " b ", gbps: " gbps "}\n"

static const char star[] =
    "version: 1\nswitches:\n- {name: s, capacity: {groups: 2}}\nhosts:\n" HOST("a") HOST("b")
	HOST("c") "links:\n" LINK("a", "s", "1") LINK("b", "s", "1") LINK("c", "s", "1");

/* Two leaves below two spines. */
static const char clos[] =
    "version: 1\nswitches: [{name: l0}, {name: l1}, {name: s0}, {name: s1}]\n"
    "hosts:\n" HOST("a") HOST("b") HOST("c") HOST("d") "links:\n" LINK("a", "l0", "100")
	LINK("b", "l0", "100") LINK("c", "l1", "100") LINK("d", "l1", "100") LINK("l0", "s0", "400")
	    LINK("l0", "s1", "400") LINK("l1", "s0", "400") LINK("l1", "s1", "400");

static void members_of_one_switch_meet_there(void **state)
{
	(void)state;
	open_fabric(star);
	assert_true(place("c a b", 2, 1));
	assert_int_equal(plan.n_lanes, 2);
	assert_int_equal(plan.n_spares, 0); /* there is no other switch */
	assert_int_equal(plan.n_nodes, 1);
	expect_tree(&plan.trees[0], "s s s |");
	expect_tree(&plan.trees[1], "s s s |");
	assert_int_equal(plan.trees[0].depth, 1);
	nc_unplace(&use, &plan);
	close_fabric();
}

static void lanes_have_roots_of_their_own_and_leaves_add_before_the_spine(void **state)
{
	(void)state;
	open_fabric(clos);
	assert_true(place("a b c d", 2, 1));
	assert_int_equal(plan.n_lanes, 2);
	expect_tree(&plan.trees[0], "l0 l0 l1 l1 | l1:l0");
	expect_tree(&plan.trees[1], "l0 l0 l1 l1 | l0:l1");
	nc_unplace(&use, &plan);
	close_fabric();
}

/* Both leaves add for the lanes: so the spare's streams go through them as they are. */
static void a_spare_adds_nowhere_where_a_lane_adds(void **state)
{
	(void)state;
	open_fabric(clos);
	assert_true(place("a b c d", 2, 2));
	assert_int_equal(plan.n_spares, 2);
	expect_tree(&plan.trees[2], "s0 s0 s0 s0 |");
	expect_tree(&plan.trees[3], "s1 s1 s1 s1 |");
	nc_unplace(&use, &plan);
	close_fabric();
}

static void switches_that_only_forward_are_in_no_tree(void **state)
{
	(void)state;
	open_fabric("version: 1\nswitches: [{name: l0, aggregate: false}, {name: l1}, {name: s}]\n"
		    "hosts:\n" HOST("a") HOST("b") HOST("c")
			HOST("d") "links:\n" LINK("a", "l0", "100") LINK("b", "l0", "100")
			    LINK("c", "l1", "100") LINK("d", "l1", "100") LINK("l0", "s", "100")
				LINK("l1", "s", "100"));
	assert_true(place("a b c d", 1, 0));
	expect_tree(&plan.trees[0], "s s l1 l1 | s:l1");
	for (unsigned i = 0; i < plan.trees[0].n_loads; i++) {
		const struct nc_link *link = &topology.links[plan.trees[0].loads[i].link];

		assert_int_equal(plan.trees[0].loads[i].streams,
				 link->a == vertex("l0") && link->b == vertex("s") ? 2 : 1);
	}
	assert_int_equal(plan.trees[0].n_loads, 6);
	nc_unplace(&use, &plan);
	close_fabric();
}

static void a_group_goes_where_links_are_free(void **state)
{
	struct nc_plan first;
	unsigned through[2][2] = {{0}};

	(void)state;
	open_fabric(clos);
	assert_true(place_in(&first, "a c", 1, 0, NULL));
	assert_true(place("b d", 1, 0));
	for (unsigned i = 0; i < topology.n_links; i++)
		for (unsigned s = 0; s < 2; s++)
			if (topology.links[i].a == vertex(s ? "s1" : "s0") ||
			    topology.links[i].b == vertex(s ? "s1" : "s0"))
				through[s][0] += use.loads[i] > 0;
	assert_int_equal(through[0][0], 2);
	assert_int_equal(through[1][0], 2);
	nc_unplace(&use, &first);
	nc_unplace(&use, &plan);
	close_fabric();
}

static void a_faster_way_is_taken_before_a_shorter_one(void **state)
{
	(void)state;
	open_fabric("version: 1\nswitches: [{name: l0}, {name: l1}, {name: x}]\nhosts:\n" HOST("a")
			HOST("b") HOST("c") HOST("d") "links:\n" LINK("a", "l0", "100")
			    LINK("b", "l0", "100") LINK("c", "l1", "100") LINK("d", "l1", "100")
				LINK("l0", "l1", "10") LINK("l0", "x", "100")
				    LINK("x", "l1", "100"));
	assert_true(place("a b c d", 1, 0));
	expect_tree(&plan.trees[0], "l0 l0 l1 l1 | l1:l0");
	for (unsigned i = 0; i < plan.trees[0].n_loads; i++)
		assert_int_equal(topology.links[plan.trees[0].loads[i].link].mbps, 100000);
	nc_unplace(&use, &plan);
	close_fabric();
}

static void what_has_failed_is_in_no_tree(void **state)
{
	bool gone[8] = {false};

	(void)state;
	open_fabric(clos);
	gone[vertex("s0")] = true;
	assert_true(place_in(&plan, "a b c d", 2, 2, gone));
	for (unsigned t = 0; t < plan.n_lanes + plan.n_spares; t++)
		for (unsigned i = 0; i < plan.trees[t].n_loads; i++) {
			const struct nc_link *link = &topology.links[plan.trees[t].loads[i].link];

			assert_true(link->a != vertex("s0") && link->b != vertex("s0"));
		}
	assert_int_equal(plan.n_spares, 1);
	nc_unplace(&use, &plan);
	gone[vertex("s1")] = true;
	assert_false(place_in(&plan, "a b c d", 1, 0, gone));
	assert_string_equal(why, "no switch that adds reaches all members: l0 reaches 2 of 4, and "
				 "not c/n");
	close_fabric();
}

/* Seven children with at most three: 3 3 1 as 2 2 3, and those three below part 0. */
static void a_switch_with_too_many_children_is_several_nodes(void **state)
{
	static const uint16_t parents[] = {8, 8, 9, 9, 10, 10, 10, HA_PLAN_NONE, 7, 7, 7};

	(void)state;
	open_fabric("version: 1\nswitches: [{name: s, capacity: {max_fan_in: 3}}]\nhosts:\n" HOST(
	    "a") HOST("b") HOST("c") HOST("d") HOST("e") HOST("f")
			HOST("g") "links:\n" LINK("a", "s", "1") LINK("b", "s", "1")
			    LINK("c", "s", "1") LINK("d", "s", "1") LINK("e", "s", "1")
				LINK("f", "s", "1") LINK("g", "s", "1"));
	assert_true(place("a b c d e f g", 1, 0));
	assert_int_equal(plan.n_nodes, 4);
	assert_memory_equal(plan.trees[0].parents, parents, sizeof(parents));
	assert_int_equal(plan.trees[0].depth, 2);
	/* 10 children and 4 results. */
	assert_int_equal(use.switches[0].bytes, 14ull * WINDOW);
	nc_unplace(&use, &plan);
	close_fabric();
}

/* Of parts of one and two the first is its child itself. */
static void a_part_of_one_child_is_no_node(void **state)
{
	static const uint16_t parents[] = {3, 4, 4, HA_PLAN_NONE, 3};

	(void)state;
	open_fabric("version: 1\nswitches: [{name: s, capacity: {max_fan_in: 2}}]\nhosts:\n" HOST(
	    "a") HOST("b") HOST("c") "links:\n" LINK("a", "s", "1") LINK("b", "s", "1")
			LINK("c", "s", "1"));
	assert_true(place("a b c", 1, 0));
	assert_int_equal(plan.n_nodes, 2);
	assert_memory_equal(plan.trees[0].parents, parents, sizeof(parents));
	assert_int_equal(use.switches[0].bytes, 6ull * WINDOW);
	nc_unplace(&use, &plan);
	close_fabric();
}

/* Both in one step, and s0 is the first by name. */
static void the_root_with_the_least_loaded_worst_link_is_taken(void **state)
{
	(void)state;
	open_fabric("version: 1\nswitches: [{name: f, aggregate: false}, {name: g, aggregate: "
		    "false}, {name: s0}, {name: s1}]\nhosts:\n" HOST("a") HOST("b") HOST("c")
			HOST("d") "links:\n" LINK("a", "f", "100") LINK("b", "f", "100")
			    LINK("c", "g", "100") LINK("d", "g", "100") LINK("f", "s0", "10")
				LINK("g", "s0", "10") LINK("f", "s1", "100")
				    LINK("g", "s1", "100"));
	assert_true(place("a b c d", 1, 0));
	expect_tree(&plan.trees[0], "s1 s1 s1 s1 |");
	nc_unplace(&use, &plan);
	close_fabric();
}

/* In the order of ranks, wherever they are. */
static void where_every_plan_is_to_add_alike_one_switch_adds_all(void **state)
{
	(void)state;
	open_fabric(clos);
	assert_true(place_reproducibly("a c b d", 2, 2));
	assert_int_equal(plan.n_lanes, 2);
	assert_int_equal(plan.n_spares, 2);
	expect_tree(&plan.trees[0], "l0 l0 l0 l0 |");
	expect_tree(&plan.trees[1], "l1 l1 l1 l1 |");
	expect_tree(&plan.trees[2], "s0 s0 s0 s0 |");
	expect_tree(&plan.trees[3], "s1 s1 s1 s1 |");
	nc_unplace(&use, &plan);
	close_fabric();
}

/* Below x nobody else adds, but its links are slow. */
static void and_of_those_that_could_the_best(void **state)
{
	(void)state;
	open_fabric("version: 1\nswitches: [{name: l0}, {name: l1}, {name: x}]\nhosts:\n" HOST("a")
			HOST("b") HOST("c") HOST("d") "links:\n" LINK("a", "l0", "100")
			    LINK("b", "l0", "100") LINK("c", "l1", "100") LINK("d", "l1", "100")
				LINK("l0", "l1", "100") LINK("a", "x", "1") LINK("b", "x", "1")
				    LINK("c", "x", "1") LINK("d", "x", "1"));
	assert_true(place_reproducibly("a b c d", 1, 0));
	expect_tree(&plan.trees[0], "l0 l0 l0 l0 |");
	nc_unplace(&use, &plan);
	close_fabric();
}

/* ---- no plan --------------------------------------------------------------------------------- */

static void expect_no(const char *names, const char *said)
{
	assert_false(place(names, 2, 1));
	assert_null(plan.nodes);
	if (!strstr(why, said))
		fail_msg("'%s' is not '%s'", why, said);
}

static void a_group_that_cannot_be_is_told_why(void **state)
{
	(void)state;
	open_fabric(star);
	expect_no("a", "a group of 1");
	expect_no("a b a", "two members have the port a/n");
	close_fabric();
	open_fabric("version: 1\nswitches: [{name: s}, {name: t}]\nhosts:\n" HOST("a") HOST("b")
			HOST("c") "links:\n" LINK("a", "s", "1") LINK("b", "t", "1"));
	expect_no("a b", "s reaches 1 of 2, and not b/n");
	expect_no("a c", "s reaches 1 of 2, and not c/n");
	close_fabric();
	open_fabric("version: 1\nswitches: [{name: s, aggregate: false}]\nhosts:\n" HOST("a")
			HOST("b") "links:\n" LINK("a", "s", "1") LINK("b", "s", "1"));
	expect_no("a b", "no switch of the fabric adds");
	close_fabric();
}

/* A switch that is several nodes adds them in parts, which are no tree of all of them. */
static void without_a_switch_that_adds_all_at_once_no_plan_adds_alike(void **state)
{
	(void)state;
	open_fabric("version: 1\nswitches: [{name: s, capacity: {max_fan_in: 2}}]\nhosts:\n" HOST(
	    "a") HOST("b") HOST("c") "links:\n" LINK("a", "s", "1") LINK("b", "s", "1")
			LINK("c", "s", "1"));
	assert_false(place_reproducibly("a b c", 1, 0));
	assert_null(plan.nodes);
	assert_non_null(strstr(why, "HA_NCCL_INC_REPRODUCIBLE=1 needs a switch that adds all 3"));
	assert_true(place_reproducibly("a b", 1, 0));
	nc_unplace(&use, &plan);
	close_fabric();
	open_fabric("version: 1\nswitches: [{name: s, capacity: {memory_mb: 3}}]\nhosts:\n" HOST(
	    "a") HOST("b") HOST("c") "links:\n" LINK("a", "s", "1") LINK("b", "s", "1")
			LINK("c", "s", "1"));
	assert_false(place_reproducibly("a b c", 1, 0)); /* which takes 4 MiB */
	close_fabric();
}

static void a_group_more_than_a_switch_takes_is_refused_until_another_one_ends(void **state)
{
	struct nc_plan first, second;

	(void)state;
	open_fabric(star);
	assert_true(place_in(&first, "a b", 1, 0, NULL));
	assert_true(place_in(&second, "b c", 1, 0, NULL));
	expect_no("a b", "has room for another group: s, the first of 1, has 2");
	nc_unplace(&use, &first);
	assert_true(place("a b", 1, 0));
	nc_unplace(&use, &plan);
	nc_unplace(&use, &second);
	close_fabric();
}

/* (3 + 1) windows of 1 MiB for each tree: 9 MiB are enough for two of three. */
static void memory_and_threads_limit_the_trees(void **state)
{
	struct nc_plan first;

	(void)state;
	open_fabric("version: 1\nswitches: [{name: s, capacity: {memory_mb: 9}}]\nhosts:\n" HOST(
	    "a") HOST("b") HOST("c") "links:\n" LINK("a", "s", "1") LINK("b", "s", "1")
			LINK("c", "s", "1"));
	assert_true(place_in(&first, "a b c", 3, 0, NULL));
	assert_int_equal(first.n_lanes, 2);
	expect_no("a b", "memory");
	nc_unplace(&use, &first);
	close_fabric();
	open_fabric("version: 1\nswitches: [{name: s, capacity: {threads: 2}}]\nhosts:\n" HOST("a")
			HOST("b") "links:\n" LINK("a", "s", "1") LINK("b", "s", "1"));
	assert_true(place("a b", 3, 0));
	assert_int_equal(plan.n_lanes, 2);
	nc_unplace(&use, &plan);
	close_fabric();
}

/* l0 has memory for nothing: its members' streams are added at l1. */
static void a_switch_without_memory_forwards(void **state)
{
	(void)state;
	open_fabric("version: 1\nswitches: [{name: l0, capacity: {memory_mb: 2}}, {name: l1}]\n"
		    "hosts:\n" HOST("a") HOST("b") HOST("c")
			HOST("d") "links:\n" LINK("a", "l0", "1") LINK("b", "l0", "1")
			    LINK("c", "l1", "1") LINK("d", "l1", "1") LINK("l0", "l1", "10"));
	assert_true(place("a b c d", 1, 0));
	expect_tree(&plan.trees[0], "l1 l1 l1 l1 |");
	nc_unplace(&use, &plan);
	close_fabric();
}

/* ---- random fabrics -------------------------------------------------------------------------- */

static uint64_t seed;

static unsigned random_below(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed >> 33) % n;
}

struct lines {
	char line[160][128];
	unsigned n;
};

static struct lines switches, hosts, links;

#define ADD(list, ...) snprintf((list).line[(list).n++], sizeof((list).line[0]), __VA_ARGS__)

/* Some parts of it may not hang together, and some switches have little. */
static void draw_fabric(unsigned n_switches, unsigned n_hosts)
{
	switches.n = hosts.n = links.n = 0;
	for (unsigned i = 0; i < n_switches; i++)
		ADD(switches,
		    "- {name: s%u, aggregate: %s, capacity: {memory_mb: %u, threads: %u, groups: "
		    "%u, "
		    "max_fan_in: %u}}",
		    i, random_below(4) ? "true" : "false", 1 + random_below(64),
		    1 + random_below(4), random_below(4), 2 + random_below(5));
	for (unsigned i = 0; i < n_hosts; i++) {
		ADD(hosts, "- {name: h%u, ports: [{nic: n}]}", i);
		for (unsigned k = 0; k < 1 + random_below(2); k++)
			ADD(links, "- {a: h%u, b: s%u, gbps: %u}", i, random_below(n_switches),
			    1 + random_below(4));
	}
	for (unsigned i = 0; i + 1 < n_switches + random_below(6); i++) {
		unsigned a = random_below(n_switches), b = random_below(n_switches);

		if (a != b)
			ADD(links, "- {a: s%u, b: s%u, gbps: %u}", a, b, 1 + random_below(8));
	}
}

static void shuffle(struct lines *lines)
{
	for (unsigned i = lines->n; i > 1; i--) {
		unsigned k = random_below(i);
		char was[sizeof(lines->line[0])];

		memcpy(was, lines->line[k], sizeof(was));
		memcpy(lines->line[k], lines->line[i - 1], sizeof(was));
		memcpy(lines->line[i - 1], was, sizeof(was));
	}
}

static void write_lines(char *text, size_t size, const char *title, const struct lines *lines)
{
	size_t used = strlen(text);

	used += (size_t)snprintf(text + used, size - used, "%s:%s\n", title, lines->n ? "" : " []");
	for (unsigned i = 0; i < lines->n; i++)
		used += (size_t)snprintf(text + used, size - used, "%s\n", lines->line[i]);
}

static const char *fabric_text(void)
{
	static char text[65536];

	snprintf(text, sizeof(text), "version: 1\n");
	write_lines(text, sizeof(text), "switches", &switches);
	write_lines(text, sizeof(text), "hosts", &hosts);
	write_lines(text, sizeof(text), "links", &links);
	return text;
}

/* Whether links lead from one vertex to another, over switches. */
static bool is_connected(unsigned from, unsigned to)
{
	bool seen[256] = {false};
	unsigned queue[256], n = 0;

	seen[from] = true;
	queue[n++] = from;
	for (unsigned i = 0; i < n; i++) {
		if (nc_is_port(&topology, queue[i]) && queue[i] != from)
			continue;
		for (unsigned e = topology.first[queue[i]]; e < topology.first[queue[i] + 1]; e++) {
			unsigned next = topology.edges[e].to;

			if (!seen[next])
				queue[n++] = next;
			seen[next] = true;
		}
	}
	return seen[to];
}

static bool adds_in(const struct nc_tree *tree, unsigned v)
{
	for (unsigned i = 0; i < tree->n_memory; i++)
		if (tree->memory[i].vertex == v)
			return true;
	return false;
}

/* All trees as their members will read them. */
static void expect_sound(const unsigned *members)
{
	const uint16_t *parents[HA_PLAN_LANES];
	struct ha_plan_where where;
	struct ha_plan read;
	const unsigned trees = plan.n_lanes + plan.n_spares;

	for (unsigned i = 0; i < trees; i++)
		parents[i] = plan.trees[i].parents;
	assert_int_equal(ha_plan_make(&read, plan.n_members, plan.n_nodes, trees, parents, &where),
			 HA_PLAN_OK);
	for (unsigned i = 0; i < trees; i++) {
		assert_int_equal(read.tree[i].root, plan.trees[i].root);
		for (unsigned n = plan.n_members; n < plan.n_members + plan.n_nodes; n++) {
			unsigned v = plan.nodes[n - plan.n_members].vertex;
			const struct nc_switch *at = nc_switch_at(&topology, v);

			if (read.tree[i].node[n].children == 0)
				continue;
			assert_true(at->aggregates);
			assert_in_range(read.tree[i].node[n].children, 2, at->capacity.max_fan_in);
			assert_true(adds_in(&plan.trees[i], v));
		}
		for (unsigned m = 0; m < plan.n_members; m++)
			assert_true(is_connected(
			    members[m],
			    plan.nodes[read.tree[i].node[m].parent - plan.n_members].vertex));
	}
	ha_plan_free(&read);
	for (unsigned v = topology.n_ports; v < nc_vertices(&topology); v++) {
		unsigned lanes = 0, spares = 0;

		for (unsigned i = 0; i < trees; i++)
			*(i < plan.n_lanes ? &lanes : &spares) += adds_in(&plan.trees[i], v);
		assert_true(spares == 0 || (spares == 1 && lanes == 0));
		assert_true((int)(lanes + spares) <= nc_switch_at(&topology, v)->capacity.threads);
	}
}

/* One node for each tree, above all members, each in the place of its rank. */
static void expect_alike(void)
{
	for (unsigned i = 0; i < plan.n_lanes + plan.n_spares; i++) {
		const struct nc_tree *tree = &plan.trees[i];

		assert_int_equal(tree->depth, 1);
		for (unsigned n = 0; n < plan.n_members + plan.n_nodes; n++)
			assert_int_equal(tree->parents[n],
					 n < plan.n_members ? tree->root : HA_PLAN_NONE);
	}
}

/* Streams leave a switch that adds as one, and another one as many as came. */
static void expect_streams(void)
{
	for (unsigned i = 0; i < plan.n_lanes + plan.n_spares; i++) {
		const struct nc_tree *tree = &plan.trees[i];
		unsigned at_ports = 0;

		for (unsigned k = 0; k < tree->n_loads; k++) {
			const struct nc_link *link = &topology.links[tree->loads[k].link];

			assert_in_range(tree->loads[k].streams, 1, plan.n_members);
			if (nc_is_port(&topology, link->a) || nc_is_port(&topology, link->b)) {
				assert_int_equal(tree->loads[k].streams, 1);
				at_ports++;
			}
		}
		assert_int_equal(at_ports, plan.n_members);
	}
}

static void expect_within_capacity(void)
{
	for (unsigned i = 0; i < topology.n_switches; i++) {
		const struct nc_capacity *most = &topology.switches[i].capacity;

		assert_in_range(use.switches[i].groups, 0, most->groups);
		assert_true(use.switches[i].bytes <= (uint64_t)most->memory_mb << 20);
	}
}

/* A switch that adds, reaches all and has room for all of them, also if each of its nodes has two
 * children: no plan would be a fault. */
static bool could_be(const unsigned *members, unsigned n)
{
	for (unsigned s = 0; s < topology.n_switches; s++) {
		const struct nc_switch *at = &topology.switches[s];
		bool all = at->aggregates && use.switches[s].groups < at->capacity.groups &&
			   use.switches[s].bytes + 3ull * n * WINDOW <=
			       (uint64_t)at->capacity.memory_mb << 20;
		unsigned ways = 0;

		for (unsigned m = 0; m < n && all; m++)
			all = is_connected(members[m], topology.n_ports + s);
		/* Where it hangs by one link it adds nothing: its neighbour may not have room. */
		for (unsigned e = topology.first[topology.n_ports + s];
		     all && e < topology.first[topology.n_ports + s + 1]; e++)
			for (unsigned m = 0; m < n; m++)
				ways += topology.edges[e].to == members[m];
		if (all && ways > 1)
			return true;
	}
	return false;
}

static unsigned draw_members(unsigned *members)
{
	unsigned n = 0;

	for (unsigned v = 0; v < topology.n_ports; v++)
		if (random_below(2))
			members[n++] = v;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = random_below(i), was = members[k];

		members[k] = members[i - 1];
		members[i - 1] = was;
	}
	return n;
}

/* Every third group's plans are to add alike. */
static void every_plan_of_random_fabrics_is_sound_and_within_capacity(void **state)
{
	unsigned planned = 0, alike = 0, refused = 0, spares = 0;

	(void)state;
	for (unsigned round = 1; round <= 400; round++) {
		struct nc_plan placed[4];
		unsigned n_placed = 0;

		seed = round * 0x9e3779b97f4a7c15ull;
		draw_fabric(1 + random_below(8), 2 + random_below(16));
		open_fabric(fabric_text());
		for (unsigned group = 0; group < 4; group++) {
			unsigned members[MEMBERS_MAX], n = draw_members(members);
			struct nc_wish wish = {
			    members, n,	   1 + random_below(3),	    random_below(3),
			    WINDOW,  NULL, (round + group) % 3 == 0};
			bool must = n >= 2 && !wish.is_reproducible && could_be(members, n);

			if (nc_place(&use, &wish, &plan, why, sizeof(why))) {
				expect_sound(members);
				expect_streams();
				if (wish.is_reproducible)
					expect_alike();
				alike += wish.is_reproducible;
				placed[n_placed++] = plan;
				spares += plan.n_spares;
				planned++;
			} else {
				if (must)
					fail_msg("%s\n%s", why, fabric_text());
				assert_true(why[0]);
				refused++;
			}
			expect_within_capacity();
		}
		while (n_placed > 0)
			nc_unplace(&use, &placed[--n_placed]);
		close_fabric();
	}
	print_message("%u plans, %u of them of groups that add alike, with %u spare trees, %u "
		      "refusals\n",
		      planned, alike, spares, refused);
	assert_true(planned - alike > 200 && alike > 50 && refused > 300 && spares > 50);
}

static void the_order_of_a_file_changes_no_plan(void **state)
{
	(void)state;
	for (unsigned round = 1; round <= 60; round++) {
		unsigned members[MEMBERS_MAX], n, nodes;
		uint16_t parents[HA_PLAN_LANES][128];
		struct nc_wish wish = {members, 0, 2, 1, WINDOW, NULL, round % 2 == 0};

		seed = round * 0x9e3779b97f4a7c15ull;
		draw_fabric(4 + random_below(5), 4 + random_below(8));
		open_fabric(fabric_text());
		wish.n_members = n = draw_members(members);
		if (!nc_place(&use, &wish, &plan, why, sizeof(why))) {
			close_fabric();
			continue;
		}
		nodes = plan.n_members + plan.n_nodes;
		for (unsigned i = 0; i < plan.n_lanes + plan.n_spares; i++)
			memcpy(parents[i], plan.trees[i].parents, nodes * sizeof(uint16_t));
		nc_unplace(&use, &plan);
		close_fabric();
		shuffle(&switches);
		shuffle(&hosts);
		shuffle(&links);
		open_fabric(fabric_text());
		assert_true(nc_place(&use, &wish, &plan, why, sizeof(why)));
		assert_int_equal(plan.n_members + plan.n_nodes, nodes);
		for (unsigned i = 0; i < plan.n_lanes + plan.n_spares; i++)
			assert_memory_equal(parents[i], plan.trees[i].parents,
					    nodes * sizeof(uint16_t));
		nc_unplace(&use, &plan);
		close_fabric();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(members_of_one_switch_meet_there),
	    cmocka_unit_test(lanes_have_roots_of_their_own_and_leaves_add_before_the_spine),
	    cmocka_unit_test(a_spare_adds_nowhere_where_a_lane_adds),
	    cmocka_unit_test(switches_that_only_forward_are_in_no_tree),
	    cmocka_unit_test(a_group_goes_where_links_are_free),
	    cmocka_unit_test(a_faster_way_is_taken_before_a_shorter_one),
	    cmocka_unit_test(what_has_failed_is_in_no_tree),
	    cmocka_unit_test(a_switch_with_too_many_children_is_several_nodes),
	    cmocka_unit_test(a_part_of_one_child_is_no_node),
	    cmocka_unit_test(the_root_with_the_least_loaded_worst_link_is_taken),
	    cmocka_unit_test(where_every_plan_is_to_add_alike_one_switch_adds_all),
	    cmocka_unit_test(and_of_those_that_could_the_best),
	    cmocka_unit_test(a_group_that_cannot_be_is_told_why),
	    cmocka_unit_test(without_a_switch_that_adds_all_at_once_no_plan_adds_alike),
	    cmocka_unit_test(a_group_more_than_a_switch_takes_is_refused_until_another_one_ends),
	    cmocka_unit_test(memory_and_threads_limit_the_trees),
	    cmocka_unit_test(a_switch_without_memory_forwards),
	    cmocka_unit_test(every_plan_of_random_fabrics_is_sound_and_within_capacity),
	    cmocka_unit_test(the_order_of_a_file_changes_no_plan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
