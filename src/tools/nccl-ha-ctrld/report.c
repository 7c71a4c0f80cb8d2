/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/report.h"

#include "base/version.h"

#include <jansson.h>

struct listing {
	const struct nc_topology *t;
	json_t *groups;
};

static json_t *roots(const struct nc_topology *t, const struct nc_plan *plan, unsigned first,
		     unsigned n)
{
	json_t *list = json_array();

	for (unsigned i = first; i < first + n; i++) {
		const struct nc_node *root = &plan->nodes[plan->trees[i].root - plan->n_members];

		json_array_append_new(list, json_string(nc_vertex_name(t, root->vertex)));
	}
	return list;
}

static void list_group(void *arg, const struct nc_group_view *group)
{
	struct listing *l = arg;
	json_t *json = json_pack("{s:s, s:s, s:s, s:i, s:i}", "group", group->name, "label",
				 group->label, "state", group->state, "ranks", (int)group->ranks,
				 "connected", (int)group->here);

	if (group->plan) {
		json_object_set_new(json, "lanes",
				    roots(l->t, group->plan, 0, group->plan->n_lanes));
		json_object_set_new(
		    json, "spares",
		    roots(l->t, group->plan, group->plan->n_lanes, group->plan->n_spares));
	}
	json_array_append_new(l->groups, json);
}

/* Nothing of a switch whose program has said nothing yet. */
static void add_counts(json_t *json, const struct nc_counted *counted)
{
	if (!counted->is_said)
		return;
#define ADD(name, help)                                                                            \
	json_object_set_new(json, #name, json_integer((json_int_t)counted->counts.name));
	HA_SWITCH_COUNTERS(ADD)
#undef ADD
}

/* Those that add. */
static json_t *switches(const struct nc_groups *groups)
{
	const struct nc_topology *t = groups->topology;
	json_t *list = json_array();

	for (unsigned i = 0; i < t->n_switches; i++) {
		const struct nc_switch_use *use = &groups->use.switches[i];

		json_t *json;

		if (!t->switches[i].aggregates)
			continue;
		json =
		    json_pack("{s:s, s:b, s:i, s:i, s:I, s:I}", "switch", t->switches[i].name,
			      "served", !use->is_idle, "groups", (int)use->groups, "groups_most",
			      (int)t->switches[i].capacity.groups, "bytes", (json_int_t)use->bytes,
			      "bytes_most", (json_int_t)t->switches[i].capacity.memory_mb << 20);
		add_counts(json, &groups->counted[i]);
		json_array_append_new(list, json);
	}
	return list;
}

struct nc_text *nc_report(const struct nc_groups *groups, const struct nc_counts *counts)
{
	struct listing l = {groups->topology, json_array()};
	struct nc_text *text;

	nc_groups_each(groups, list_group, &l);
	text = nc_text_of(json_pack(
	    "{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "version", ha_version, "connections",
	    (int)counts->connections, "plans", (json_int_t)groups->plans, "refusals",
	    (json_int_t)groups->refusals, "refused_connections", (json_int_t)counts->refused,
	    "silent_connections", (json_int_t)counts->silent, "crowded_out_connections",
	    (json_int_t)counts->crowded_out, "groups", l.groups, "switches", switches(groups)));
	return text;
}
