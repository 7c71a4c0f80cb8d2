/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/report.h"

#include "base/clock.h"
#include "base/version.h"

#include <jansson.h>

struct listing {
	const struct nc_topology *t;
	json_t *groups;
	uint64_t now_ns;
	bool has_members;
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

/* null: has not asked. */
static json_t *members(const struct nc_topology *t, const struct nc_group_view *group)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < group->ranks; i++)
		json_array_append_new(list, group->ports[i] == NC_NO_VERTEX
						? json_null()
						: json_string(nc_vertex_name(t, group->ports[i])));
	return list;
}

/* How long its state lasts at most; nothing where that has no limit. */
static void add_limit(json_t *json, uint64_t deadline_ns, uint64_t now_ns)
{
	const uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

	if (deadline_ns)
		json_object_set_new(json, "left_ms",
				    json_integer((json_int_t)(left_ns / HA_NS_PER_MS)));
}

static void list_group(void *arg, const struct nc_group_view *group)
{
	struct listing *l = arg;
	json_t *json = json_pack("{s:s, s:s, s:s, s:i, s:i}", "group", group->name, "label",
				 group->label, "state", group->state, "ranks", (int)group->ranks,
				 "connected", (int)group->here);

	add_limit(json, group->deadline_ns, l->now_ns);
	if (l->has_members)
		json_object_set_new(json, "members", members(l->t, group));
	if (group->plan) {
		json_object_set_new(json, "epoch", json_integer(group->epoch));
		json_object_set_new(json, "way", json_integer(group->way));
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
		    json_pack("{s:s, s:b, s:b, s:i, s:i, s:I, s:I}", "switch", t->switches[i].name,
			      "served", groups->serving[i] != NULL, "drained",
			      groups->drains[i].is_on, "groups", (int)use->groups, "groups_most",
			      (int)t->switches[i].capacity.groups, "bytes", (json_int_t)use->bytes,
			      "bytes_most", (json_int_t)t->switches[i].capacity.memory_mb << 20);
		add_counts(json, &groups->counted[i]);
		json_array_append_new(list, json);
	}
	return list;
}

static struct nc_text *report(const struct nc_groups *groups, const struct nc_counts *counts,
			      uint64_t now_ns, bool has_members)
{
	struct listing l = {groups->topology, json_array(), now_ns, has_members};
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

struct nc_text *nc_report(const struct nc_groups *groups, const struct nc_counts *counts,
			  uint64_t now_ns)
{
	struct nc_text *text = report(groups, counts, now_ns, true);

	return text ? text : report(groups, counts, now_ns, false);
}
