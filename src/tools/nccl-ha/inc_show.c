/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/inc_show.h"

#include "tools/nccl-ha/table.h"

#include <stdbool.h>
#include <stdio.h>

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text && *text ? text : "-";
}

static long long number_of(const json_t *object, const char *name)
{
	return (long long)json_integer_value(json_object_get(object, name));
}

/* A row for each object of a list. */
static void print_table(const char *const heads[], const json_t *list,
			void (*add_row)(struct nh_table *table, const json_t *one))
{
	struct nh_table *table = nh_table_new(heads);
	const json_t *one;
	size_t i;

	if (!table)
		return;
	json_array_foreach(list, i, one) add_row(table, one);
	nh_table_print(table, 0, stdout);
	nh_table_free(table);
}

static const char *service_of(const json_t *one)
{
	if (!json_is_true(json_object_get(one, "served")))
		return "NO";
	return json_is_true(json_object_get(one, "drained")) ? "drained" : "yes";
}

static void add_switch(struct nh_table *table, const json_t *one)
{
	nh_table_add(table, "%s", text_of(one, "switch"));
	nh_table_add(table, "%s", service_of(one));
	nh_table_add(table, "%lld", number_of(one, "groups"));
	nh_table_add(table, "%lld", number_of(one, "groups_most"));
	nh_table_add(table, "%lld", (number_of(one, "bytes") + (1 << 20) - 1) >> 20);
	nh_table_add(table, "%lld", number_of(one, "bytes_most") >> 20);
}

/* The roots of a group's trees: "s0 s1", or "-". */
static void add_roots(struct nh_table *table, const json_t *group, const char *name)
{
	const json_t *list = json_object_get(group, name), *root;
	char text[256] = "-";
	size_t i, used = 0;

	json_array_foreach(list, i, root)
	{
		int n = snprintf(text + used, sizeof(text) - used, "%s%s", used ? " " : "",
				 json_string_value(root) ? json_string_value(root) : "?");

		used += n > 0 ? (size_t)n : 0;
		if (used >= sizeof(text))
			break;
	}
	nh_table_add(table, "%s", text);
}

static void add_group(struct nh_table *table, const json_t *one)
{
	nh_table_add(table, "%s", text_of(one, "group"));
	nh_table_add(table, "%s", text_of(one, "state"));
	nh_table_add(table, "%lld", number_of(one, "ranks"));
	nh_table_add(table, "%lld", number_of(one, "connected"));
	nh_table_add(table, "%s", text_of(one, "label"));
	add_roots(table, one, "lanes");
	add_roots(table, one, "spares");
}

/* Way 0 is all lanes; then come the spares, each lane by itself, and members without switches. */
static void add_way(struct nh_table *table, const json_t *group)
{
	const json_t *lanes = json_object_get(group, "lanes"),
		     *spares = json_object_get(group, "spares");
	const size_t n_spares = json_array_size(spares), n_lanes = json_array_size(lanes);
	const long long way = number_of(group, "way");
	const size_t at = way > 0 ? (size_t)way - 1 : 0;
	const json_t *root =
	    at < n_spares ? json_array_get(spares, at) : json_array_get(lanes, at - n_spares);
	const char *name = json_string_value(root);

	if (n_lanes == 0)
		nh_table_add(table, "-");
	else if (way == 0)
		nh_table_add(table, "lanes");
	else if (!name)
		nh_table_add(table, "members");
	else
		nh_table_add(table, "%s %s", at < n_spares ? "spare" : "lane", name);
}

static void add_lease(struct nh_table *table, const json_t *group)
{
	const json_t *left = json_object_get(group, "left_ms");

	if (left)
		nh_table_add(table, "%.1f s left", (double)json_integer_value(left) / 1e3);
	else
		nh_table_add(table, "%s", json_object_get(group, "lanes") ? "held" : "-");
}

static void print_members(const json_t *group)
{
	const json_t *members = json_object_get(group, "members");
	const json_t *one;
	size_t i;

	printf("%s:", text_of(group, "group"));
	json_array_foreach(members, i, one)
	    printf(" %s", json_string_value(one) ? json_string_value(one) : "(has not asked)");
	printf("%s\n", members ? "" : " there are too many to be told");
}

static void add_group_at_length(struct nh_table *table, const json_t *one)
{
	nh_table_add(table, "%s", text_of(one, "group"));
	nh_table_add(table, "%s", text_of(one, "state"));
	nh_table_add(table, "%lld", number_of(one, "ranks"));
	add_lease(table, one);
	nh_table_add(table, "%lld", number_of(one, "epoch"));
	add_way(table, one);
	add_roots(table, one, "lanes");
	add_roots(table, one, "spares");
}

void nh_inc_print_groups(const json_t *list)
{
	static const char *const heads[] = {"group",   "state", ">ranks", "lease", ">epoch",
					    "goes by", "lanes", "spares", NULL};
	const json_t *one;
	size_t i;

	print_table(heads, list, add_group_at_length);
	json_array_foreach(list, i, one) print_members(one);
}

size_t nh_inc_unserved(const json_t *switches)
{
	const json_t *one;
	size_t i, n = 0;

	json_array_foreach(switches, i, one) n += !json_is_true(json_object_get(one, "served"));
	return n;
}

void nh_inc_print(const char *address, const json_t *said)
{
	static const char *const switch_heads[] = {"switch",	">served", ">groups", ">of",
						   ">MiB used", ">of",	   NULL};
	static const char *const group_heads[] = {"group", "state", ">ranks", ">connected",
						  "label", "lanes", "spares", NULL};
	const json_t *switches = json_object_get(said, "switches"),
		     *groups = json_object_get(said, "groups");

	printf("controller %s: %zu switches, %zu served; %zu groups; %lld plans and %lld refusals "
	       "since "
	       "it began\n",
	       address, json_array_size(switches),
	       json_array_size(switches) - nh_inc_unserved(switches), json_array_size(groups),
	       number_of(said, "plans"), number_of(said, "refusals"));
	print_table(switch_heads, switches, add_switch);
	print_table(group_heads, groups, add_group);
}
