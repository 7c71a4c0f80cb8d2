/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/inc_metrics.h"

#include "inc/switch_counts.h"
#include "tools/nccl-ha/label.h"

#include <string.h>

#define LABELS_MAX 512

struct metric {
	const char *key; /* in the report */
	const char *name, *type, *help;
};

static const struct metric of_controller[] = {
    {"connections", "connections", "gauge", "Connections to the controller now"},
    {"plans", "plans_total", "counter", "Groups that got a plan"},
    {"refusals", "refusals_total", "counter", "Groups that got none"},
    {"refused_connections", "refused_connections_total", "counter",
     "Connections that had another key, spoke another version or said what cannot be"},
    {"silent_connections", "silent_connections_total", "counter",
     "Connections that did not prove the site's key in time"},
    {"crowded_out_connections", "crowded_out_connections_total", "counter",
     "Connections that had to go before that, as there were too many"},
};

static const struct metric of_switches[] = {
    {"served", "served", "gauge", "1: a program serves the switch; 0: it forwards only"},
    {"groups", "groups", "gauge", "Groups that have a part of the switch now"},
    {"groups_most", "groups_limit", "gauge", "How many groups may have"},
    {"bytes", "memory_bytes", "gauge", "Memory that groups have of the switch now"},
    {"bytes_most", "memory_limit_bytes", "gauge", "How much groups may have"},
};

/* A report has those of switches whose program has said something. */
static const struct metric of_programs[] = {
#define ROW(name, help) {#name, #name, NULL, help},
    HA_SWITCH_COUNTERS(ROW)
#undef ROW
};

static const char *const states[] = {"gathering", "held", "orphaned", "refused"};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static void family(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name, type);
}

static long long value_of(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_true(value) ? 1 : (long long)json_integer_value(value);
}

static void write_controller(const json_t *said, FILE *out)
{
	for (size_t i = 0; i < LENGTH(of_controller); i++) {
		const struct metric *m = &of_controller[i];
		char name[96];

		snprintf(name, sizeof(name), "nccl_ha_inc_controller_%s", m->name);
		family(out, name, m->type, m->help);
		fprintf(out, "%s %lld\n", name, value_of(said, m->key));
	}
}

static void write_groups(const json_t *groups, FILE *out)
{
	family(
	    out, "nccl_ha_inc_controller_groups", "gauge",
	    "Groups that the controller knows now, by state: gathering, held, orphaned, refused");
	for (size_t s = 0; s < LENGTH(states); s++) {
		const json_t *one;
		size_t i, n = 0;

		json_array_foreach(groups, i, one)
		{
			const char *state = json_string_value(json_object_get(one, "state"));

			n += state && strcmp(state, states[s]) == 0;
		}
		fprintf(out, "nccl_ha_inc_controller_groups{state=\"%s\"} %zu\n", states[s], n);
	}
}

/* Of all that have it. */
static void write_switches(const json_t *switches, const struct metric *m, const char *name,
			   FILE *out)
{
	const json_t *one;
	size_t i;

	json_array_foreach(switches, i, one)
	{
		const char *text = json_string_value(json_object_get(one, "switch"));
		char labels[LABELS_MAX] = "";

		if (!json_object_get(one, m->key))
			continue;
		nh_label_append(labels, sizeof(labels), "switch", text ? text : "");
		fprintf(out, "%s{%s} %lld\n", name, labels, value_of(one, m->key));
	}
}

/* As switch_counts.h has it: a total, unless the text ends in "now". */
static bool is_total(const struct metric *m)
{
	const size_t length = strlen(m->help);

	return length < 4 || strcmp(m->help + length - 4, " now") != 0;
}

static void write_switch(const json_t *switches, const struct metric *m, FILE *out)
{
	const char *type = m->type ? m->type : is_total(m) ? "counter" : "gauge";
	char name[96];

	snprintf(name, sizeof(name), "nccl_ha_inc_switch_%s%s", m->name,
		 !m->type && is_total(m) ? "_total" : "");
	family(out, name, type, m->help);
	write_switches(switches, m, name, out);
}

bool nh_inc_metrics(const json_t *said, FILE *out)
{
	const json_t *switches = json_object_get(said, "switches");

	write_controller(said, out);
	write_groups(json_object_get(said, "groups"), out);
	for (size_t i = 0; i < LENGTH(of_switches); i++)
		write_switch(switches, &of_switches[i], out);
	for (size_t i = 0; i < LENGTH(of_programs); i++)
		write_switch(switches, &of_programs[i], out);
	return fflush(out) == 0 && !ferror(out);
}
