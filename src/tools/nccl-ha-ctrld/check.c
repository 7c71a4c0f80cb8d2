/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/check.h"

#include "tools/nccl-ha-ctrld/plan_json.h"

#include <stdio.h>
#include <stdlib.h>

#define UNIT_BYTES 65536
#define WINDOW	   16

struct checking {
	const struct nc_topology *t;
	struct nc_use use;
	unsigned *members;
	unsigned n_members;
	json_t *plans;
	bool all_planned, is_reproducible;
};

/* ---- what is odd ----------------------------------------------------------------------------- */

static void warn_of_unlinked(const struct nc_topology *t, const char *path)
{
	for (unsigned v = 0; v < nc_vertices(t); v++) {
		const struct nc_place *at =
		    nc_is_port(t, v) ? &t->ports[v].at : &nc_switch_at(t, v)->at;

		if (t->first[v] == t->first[v + 1])
			fprintf(stderr, "%s:%u:%u: %s has no link\n", path, at->line, at->column,
				nc_vertex_name(t, v));
	}
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Each for itself: what one has, the next may have as well. */
static void plan_group(struct checking *c, json_t *about)
{
	const struct nc_wish wish = {c->members,
				     c->n_members,
				     (unsigned)c->t->trees_per_group,
				     (unsigned)c->t->spare_trees,
				     (uint64_t)UNIT_BYTES * WINDOW,
				     NULL,
				     c->is_reproducible};
	struct nc_plan plan;
	char why[256];

	if (nc_place(&c->use, &wish, &plan, why, sizeof(why))) {
		json_object_update_missing_new(about, nc_plan_json(c->t, &plan, c->members));
		nc_unplace(&c->use, &plan);
	} else {
		json_object_set_new(about, "none", json_string(why));
		c->all_planned = false;
	}
	json_array_append_new(c->plans, about);
}

static bool find_named(struct checking *c, char *const *names, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned vertex;
		enum nc_found found = nc_vertex_find(c->t, names[i], &vertex);

		if (found != NC_FOUND || !nc_is_port(c->t, vertex)) {
			fprintf(stderr, "nccl-ha-ctrld: %s: %s\n", names[i],
				found == NC_AMBIGUOUS
				    ? "this host has several ports; name one, as HOST/NIC"
				    : "no host or port of this name");
			return false;
		}
		c->members[c->n_members++] = vertex;
	}
	return true;
}

/* The first port of each host that has one of this rail. */
static void find_of_rail(struct checking *c, int32_t rail)
{
	c->n_members = 0;
	for (unsigned i = 0; i < c->t->n_hosts; i++) {
		const struct nc_host *host = &c->t->hosts[i];
		unsigned port = host->first_port;

		while (port < host->first_port + host->n_ports && c->t->ports[port].rail != rail)
			port++;
		if (port < host->first_port + host->n_ports)
			c->members[c->n_members++] = port;
	}
}

static void plan_rails(struct checking *c)
{
	int32_t rail = NC_NO_RAIL, next = NC_NO_RAIL;

	do {
		find_of_rail(c, rail);
		if (c->n_members > 0)
			plan_group(c, rail == NC_NO_RAIL ? json_pack("{s:n}", "rail")
							 : json_pack("{s:i}", "rail", (int)rail));
		next = INT32_MAX;
		for (unsigned i = 0; i < c->t->n_ports; i++)
			if (c->t->ports[i].rail > rail && c->t->ports[i].rail < next)
				next = c->t->ports[i].rail;
		rail = next;
	} while (rail != INT32_MAX);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int print(const struct checking *c)
{
	const struct nc_topology *t = c->t;
	json_t *all = json_pack("{s:i, s:i, s:i, s:i, s:O}", "switches", (int)t->n_switches,
				"hosts", (int)t->n_hosts, "ports", (int)t->n_ports, "links",
				(int)t->n_links, "groups", c->plans);
	bool printed = all && json_dumpf(all, stdout, JSON_INDENT(1)) == 0 && putchar('\n') >= 0 &&
		       fflush(stdout) == 0;

	json_decref(all);
	if (!printed)
		fprintf(stderr, "nccl-ha-ctrld: the plan cannot be printed\n");
	return printed && c->all_planned ? 0 : 1;
}

int nc_check(const struct nc_topology *topology, const struct nc_check *check)
{
	struct checking c = {.t = topology,
			     .plans = json_array(),
			     .all_planned = true,
			     .is_reproducible = check->is_reproducible};
	int status = 1;

	c.members = calloc(topology->n_ports + check->n + 1, sizeof(*c.members));
	if (!nc_use_begin(&c.use, topology) || !c.members || !c.plans) {
		fprintf(stderr, "nccl-ha-ctrld: out of memory\n");
	} else if (!find_named(&c, check->names, check->n)) {
		status = 2;
	} else {
		warn_of_unlinked(topology, check->path);
		if (check->n > 0)
			plan_group(&c, json_object());
		else
			plan_rails(&c);
		status = print(&c);
	}
	json_decref(c.plans);
	nc_use_end(&c.use);
	free(c.members);
	return status;
}
