/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/receipt.h"

#include "base/text.h"
#include "tools/nccl-ha-ctrld/plan_json.h"
#include "tools/nccl-ha-ctrld/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRONG(...) (snprintf(why, size, __VA_ARGS__), false)

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *address_json(const union ha_sockaddr *at)
{
	char text[HA_SOCKADDR_TEXT_MAX];

	return json_string(ha_sockaddr_text(at, text, sizeof(text)));
}

static json_t *nodes_json(const struct nc_topology *t, const struct nc_plan *plan,
			  const union ha_sockaddr *at)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < plan->n_nodes; i++)
		json_array_append_new(list, json_pack("{s:s, s:i, s:o}", "switch",
						      nc_vertex_name(t, plan->nodes[i].vertex),
						      "part", (int)plan->nodes[i].part, "at",
						      address_json(&at[i])));
	return list;
}

static json_t *loads_json(const struct nc_topology *t, const struct nc_tree *tree)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < tree->n_loads; i++) {
		const struct nc_link *link = &t->links[tree->loads[i].link];

		json_array_append_new(list, json_pack("[s, s, i]", nc_vertex_name(t, link->a),
						      nc_vertex_name(t, link->b),
						      (int)tree->loads[i].streams));
	}
	return list;
}

static json_t *memory_json(const struct nc_topology *t, const struct nc_tree *tree)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < tree->n_memory; i++)
		json_array_append_new(list,
				      json_pack("[s, I]", nc_vertex_name(t, tree->memory[i].vertex),
						(json_int_t)tree->memory[i].bytes));
	return list;
}

static json_t *trees_json(const struct nc_topology *t, const struct nc_plan *plan)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < plan->n_lanes + plan->n_spares; i++) {
		const struct nc_tree *tree = &plan->trees[i];

		json_array_append_new(
		    list, json_pack("{s:i, s:i, s:o, s:o, s:o}", "root", (int)tree->root, "depth",
				    (int)tree->depth, "parents", nc_parents_json(plan, tree),
				    "loads", loads_json(t, tree), "memory", memory_json(t, tree)));
	}
	return list;
}

struct nc_text *nc_receipt_write(const struct nc_topology *topology,
				 const struct nc_receipt *receipt, const union ha_sockaddr *at)
{
	const struct nc_plan *plan = &receipt->plan;
	const struct nc_ask *leader = &receipt->leader;
	char number[24];
	json_t *json;

	snprintf(number, sizeof(number), "%016" PRIx64, receipt->number);
	json = json_pack("{s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:i, s:o}", "group", leader->group,
			 "label", leader->label, "number", number, "unit", (int)leader->unit_bytes,
			 "window", (int)leader->window, "members",
			 nc_members_json(topology, plan, receipt->ports), "nodes",
			 nodes_json(topology, plan, at), "lanes", (int)plan->n_lanes, "trees",
			 trees_json(topology, plan));
	if (json && leader->listen.sa.sa_family != AF_UNSPEC)
		json_object_set_new(json, "listen", address_json(&leader->listen));
	return nc_text_of(json);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool find(const struct nc_topology *t, const char *name, bool is_port, unsigned *vertex)
{
	return name && nc_vertex_find(t, name, vertex) == NC_FOUND &&
	       nc_is_port(t, *vertex) == is_port;
}

static bool read_members(const struct nc_topology *t, const json_t *list, struct nc_receipt *r)
{
	const size_t n = json_array_size(list);

	if (n == 0 || n > NC_PORTS)
		return false;
	r->ports = calloc(n, sizeof(*r->ports));
	r->plan.n_members = r->leader.ranks = (unsigned)n;
	for (size_t i = 0; i < n && r->ports; i++)
		if (!find(t, json_string_value(json_array_get(list, i)), true, &r->ports[i]))
			return false;
	return r->ports != NULL;
}

static bool read_node(const struct nc_topology *t, json_t *json, struct nc_receipt *r,
		      struct nc_node *node)
{
	const char *name, *at;
	char why[128];
	int part;

	if (json_unpack(json, "{s:s, s:i, s:s !}", "switch", &name, "part", &part, "at", &at) !=
		0 ||
	    part < 0 || part >= HA_PLAN_NODES || !find(t, name, false, &node->vertex))
		return false;
	node->part = (unsigned)part;
	return nc_address_read(at, &r->at[node->vertex - t->n_ports], why, sizeof(why));
}

static bool read_nodes(const struct nc_topology *t, const json_t *list, struct nc_receipt *r)
{
	const size_t n = json_array_size(list);

	if (n == 0 || n + r->plan.n_members > HA_PLAN_NODES)
		return false;
	r->plan.nodes = calloc(n, sizeof(*r->plan.nodes));
	r->at = calloc(t->n_switches + 1, sizeof(*r->at));
	r->plan.n_nodes = (unsigned)n;
	for (size_t i = 0; i < n && r->plan.nodes && r->at; i++)
		if (!read_node(t, json_array_get(list, i), r, &r->plan.nodes[i]))
			return false;
	return r->plan.nodes && r->at;
}

/* Whether they are a tree is for ha_plan_make to say. */
static bool read_parents(const struct nc_plan *plan, const json_t *list, struct nc_tree *tree)
{
	const unsigned n = plan->n_members + plan->n_nodes;

	tree->parents = calloc(n, sizeof(*tree->parents));
	if (!tree->parents || json_array_size(list) != n)
		return false;
	for (unsigned i = 0; i < n; i++) {
		const json_t *parent = json_array_get(list, i);
		const json_int_t number = json_integer_value(parent);

		if (!json_is_null(parent) &&
		    (!json_is_integer(parent) || number < 0 || number >= n))
			return false;
		tree->parents[i] = json_is_null(parent) ? HA_PLAN_NONE : (uint16_t)number;
	}
	return true;
}

static bool find_link(const struct nc_topology *t, const char *a, const char *b, unsigned *link)
{
	unsigned from, to;

	if (nc_vertex_find(t, a, &from) != NC_FOUND || nc_vertex_find(t, b, &to) != NC_FOUND)
		return false;
	for (unsigned i = t->first[from]; i < t->first[from + 1]; i++)
		if (t->edges[i].to == to) {
			*link = t->edges[i].link;
			return true;
		}
	return false;
}

static bool read_loads(const struct nc_topology *t, const json_t *list, struct nc_tree *tree)
{
	const size_t n = json_array_size(list);

	tree->loads = calloc(n + 1, sizeof(*tree->loads));
	for (size_t i = 0; i < n && tree->loads; i++) {
		const char *a, *b;
		int streams;
		unsigned link;

		if (json_unpack(json_array_get(list, i), "[s, s, i !]", &a, &b, &streams) != 0 ||
		    streams < 0 || streams > NC_PORTS)
			return false;
		if (find_link(t, a, b, &link))
			tree->loads[tree->n_loads++] = (struct nc_load){link, (uint32_t)streams};
	}
	return tree->loads != NULL;
}

static bool read_memory(const struct nc_topology *t, const json_t *list, struct nc_tree *tree)
{
	const size_t n = json_array_size(list);

	tree->memory = calloc(n + 1, sizeof(*tree->memory));
	for (size_t i = 0; i < n && tree->memory; i++) {
		struct nc_memory *memory = &tree->memory[tree->n_memory];
		const char *name;
		json_int_t bytes;

		if (json_unpack(json_array_get(list, i), "[s, I !]", &name, &bytes) != 0 ||
		    bytes < 0 || bytes > (json_int_t)1 << 50 ||
		    !find(t, name, false, &memory->vertex))
			return false;
		memory->bytes = (uint64_t)bytes;
		tree->n_memory++;
	}
	return tree->memory != NULL;
}

static bool read_tree(const struct nc_topology *t, json_t *json, struct nc_plan *plan,
		      struct nc_tree *tree)
{
	json_t *parents, *loads, *memory;
	int root, depth;

	if (json_unpack(json, "{s:i, s:i, s:o, s:o, s:o !}", "root", &root, "depth", &depth,
			"parents", &parents, "loads", &loads, "memory", &memory) != 0 ||
	    root < (int)plan->n_members || root >= (int)(plan->n_members + plan->n_nodes) ||
	    depth < 0)
		return false;
	tree->root = (uint16_t)root;
	tree->depth = (unsigned)depth;
	return read_parents(plan, parents, tree) && read_loads(t, loads, tree) &&
	       read_memory(t, memory, tree);
}

static bool read_trees(const struct nc_topology *t, const json_t *list, int lanes,
		       struct nc_plan *plan)
{
	const size_t n = json_array_size(list);

	if (n > HA_PLAN_LANES || lanes < 1 || (size_t)lanes > n)
		return false;
	plan->n_lanes = (unsigned)lanes;
	plan->n_spares = (unsigned)n - plan->n_lanes;
	for (size_t i = 0; i < n; i++)
		if (!read_tree(t, json_array_get(list, i), plan, &plan->trees[i]))
			return false;
	return true;
}

static bool read_leader(const char *group, const char *label, const char *number,
			const char *listen, struct nc_receipt *r)
{
	char *end, why[128];

	if (!nc_is_name(group) || (*label && !nc_is_name(label)) || strlen(number) != 16)
		return false;
	ha_copy_text(r->leader.group, sizeof(r->leader.group), group);
	ha_copy_text(r->leader.label, sizeof(r->leader.label), label);
	r->number = strtoull(number, &end, 16);
	return !*end && (!listen || nc_address_read(listen, &r->leader.listen, why, sizeof(why)));
}

static bool take(const struct nc_topology *t, json_t *json, struct nc_receipt *r)
{
	const char *group, *label, *number, *listen = NULL;
	json_t *members, *nodes, *trees;
	int lanes, unit, window;

	if (json_unpack(json, "{s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:i, s:o, s?:s !}", "group",
			&group, "label", &label, "number", &number, "unit", &unit, "window",
			&window, "members", &members, "nodes", &nodes, "lanes", &lanes, "trees",
			&trees, "listen", &listen) != 0 ||
	    !nc_is_unit(unit, window))
		return false;
	r->leader.unit_bytes = (uint32_t)unit;
	r->leader.window = (uint32_t)window;
	if (!read_leader(group, label, number, listen, r) || !read_members(t, members, r) ||
	    !read_nodes(t, nodes, r) || !read_trees(t, trees, lanes, &r->plan))
		return false;
	r->leader.port = r->ports[0];
	return true;
}

bool nc_receipt_read(const struct nc_topology *topology, const char *text, size_t length,
		     struct nc_receipt *receipt, char *why, size_t size)
{
	json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
	bool good;

	*receipt = (struct nc_receipt){0};
	good = (json && take(topology, json, receipt)) ||
	       WRONG("this is no group of this topology, or there is no memory for it");
	json_decref(json);
	return good;
}

void nc_receipt_end(struct nc_receipt *receipt)
{
	free(receipt->ports);
	free(receipt->at);
	nc_plan_end(&receipt->plan);
	*receipt = (struct nc_receipt){0};
}
