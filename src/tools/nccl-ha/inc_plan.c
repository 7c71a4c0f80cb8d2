/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/inc_plan.h"

#include <stdint.h>
#include <stdio.h>

#define NONE SIZE_MAX

struct plan {
	const char *group;
	const json_t *members, *nodes;
	const json_t *trees[2]; /* lanes, spares */
	size_t n_members, n;	/* members and nodes */
};

static const char *const kinds[] = {"lane", "spare"};

/* ---- what it says ---------------------------------------------------------------------------- */

static const char *name_of(const struct plan *p, size_t i)
{
	if (i < p->n_members)
		return json_string_value(json_array_get(p->members, i));
	return json_string_value(
	    json_object_get(json_array_get(p->nodes, i - p->n_members), "switch"));
}

static long long number_of(const json_t *object, const char *name)
{
	return (long long)json_integer_value(json_object_get(object, name));
}

/* Of a switch that is several nodes: which of them. */
static long long part_of(const struct plan *p, size_t node)
{
	return number_of(json_array_get(p->nodes, node - p->n_members), "part");
}

static size_t parent_of(const json_t *tree, size_t i)
{
	const json_t *parent = json_array_get(json_object_get(tree, "parents"), i);

	return json_is_integer(parent) ? (size_t)json_integer_value(parent) : NONE;
}

/* The next child of a node after `child`, of NONE the first; NONE: there is no more. */
static size_t next_child(const struct plan *p, const json_t *tree, size_t node, size_t child)
{
	if (node < p->n_members)
		return NONE;
	for (size_t i = child + 1; i < p->n; i++) /* NONE + 1 is 0 */
		if (parent_of(tree, i) == node)
			return i;
	return NONE;
}

/* What has neither parent nor children is not in the tree. */
static size_t root_of(const struct plan *p, const json_t *tree)
{
	for (size_t i = p->n_members; i < p->n; i++)
		if (parent_of(tree, i) == NONE && next_child(p, tree, i, NONE) != NONE)
			return i;
	return NONE;
}

static bool are_trees(const struct plan *p, const json_t *trees)
{
	const json_t *tree;
	size_t at;

	json_array_foreach(trees, at, tree)
	{
		if (json_array_size(json_object_get(tree, "parents")) != p->n ||
		    root_of(p, tree) == NONE)
			return false;
		for (size_t i = 0; i < p->n; i++)
			if (parent_of(tree, i) != NONE &&
			    (parent_of(tree, i) < p->n_members || parent_of(tree, i) >= p->n))
				return false;
	}
	return json_is_array(trees);
}

static bool read_plan(struct plan *p, const json_t *json)
{
	p->group = json_string_value(json_object_get(json, "group"));
	p->members = json_object_get(json, "members");
	p->nodes = json_object_get(json, "nodes");
	p->trees[0] = json_object_get(json, "lanes");
	p->trees[1] = json_object_get(json, "spares");
	p->n_members = json_array_size(p->members);
	p->n = p->n_members + json_array_size(p->nodes);
	for (size_t i = 0; i < p->n; i++)
		if (!name_of(p, i))
			return false;
	return p->group && p->n > 0 && are_trees(p, p->trees[0]) && are_trees(p, p->trees[1]);
}

/* ---- for people ------------------------------------------------------------------------------ */

/* Nothing above a root leads back to it: each node has one parent. So this ends. */
static void print_below(const struct plan *p, const json_t *tree, size_t node, int indent)
{
	printf("%*s%s", indent, "", name_of(p, node));
	if (node >= p->n_members && part_of(p, node) > 0)
		printf(" (part %lld)", part_of(p, node));
	printf("\n");
	for (size_t i = next_child(p, tree, node, NONE); i != NONE;
	     i = next_child(p, tree, node, i))
		print_below(p, tree, i, indent + 2);
}

static void print_tree(const struct plan *p, const json_t *tree, const char *kind, size_t number)
{
	printf("%s %zu, depth %lld, streams %lld:\n", kind, number, number_of(tree, "depth"),
	       number_of(tree, "streams"));
	print_below(p, tree, root_of(p, tree), 2);
}

/* ---- YAML ------------------------------------------------------------------------------------ */

/* Names have no letter that would have to be escaped; quotes, as "1" and "no" are names. */
static void yaml_end(const struct plan *p, bool is_up, size_t peer)
{
	printf("    - {up: %s, %s: %zu, peer: \"%s\"}\n", is_up ? "true" : "false",
	       peer < p->n_members ? "host_id" : "switch_id", peer, name_of(p, peer));
}

static void yaml_node(const struct plan *p, const json_t *tree, size_t node)
{
	const size_t parent = parent_of(tree, node);

	printf("  - id: %zu\n    switch: \"%s\"\n    part: %lld\n    root: %s\n    connections:\n",
	       node, name_of(p, node), part_of(p, node), parent == NONE ? "true" : "false");
	if (parent != NONE)
		yaml_end(p, true, parent);
	for (size_t i = next_child(p, tree, node, NONE); i != NONE;
	     i = next_child(p, tree, node, i))
		yaml_end(p, false, i);
}

static void yaml_tree(const struct plan *p, const json_t *tree, const char *kind, size_t number)
{
	(void)number;
	printf("- kind: %s\n  depth: %lld\n  streams: %lld\n  switches:\n", kind,
	       number_of(tree, "depth"), number_of(tree, "streams"));
	for (size_t i = p->n_members; i < p->n; i++)
		if (next_child(p, tree, i, NONE) != NONE)
			yaml_node(p, tree, i);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void each_tree(const struct plan *p, void (*print)(const struct plan *p, const json_t *tree,
							  const char *kind, size_t number))
{
	const json_t *tree;
	size_t i;

	for (size_t kind = 0; kind < 2; kind++)
		json_array_foreach(p->trees[kind], i, tree) print(p, tree, kinds[kind], i);
}

bool nh_inc_plan_print(const json_t *plan, bool as_yaml)
{
	struct plan p;

	if (!read_plan(&p, plan))
		return false;
	if (!as_yaml) {
		printf("%s: %zu members\n", p.group, p.n_members);
		each_tree(&p, print_tree);
		return true;
	}
	printf("group: \"%s\"\nmembers:\n", p.group);
	for (size_t i = 0; i < p.n_members; i++)
		printf("- \"%s\"\n", name_of(&p, i));
	printf("trees:\n");
	each_tree(&p, yaml_tree);
	return true;
}
