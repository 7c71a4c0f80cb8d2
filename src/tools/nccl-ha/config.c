/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-ha config: the variables, what this environment or a running process makes of them, and the
 * documentation of them, all from the one table of base/config_table.c.
 */
#include "base/config.h"

#include "base/config_doc.h"
#include "base/config_timeout.h"
#include "base/log.h"
#include "tools/nccl-ha/snapshot.h"
#include "tools/nccl-ha/table.h"
#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum form { FORM_TEXT, FORM_JSON, FORM_MARKDOWN, FORM_MAN };

struct arguments {
	struct nh_select select;
	enum form form;
	bool changed;
};

enum { KEY_MARKDOWN = 0x2000, KEY_MAN };

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "As one JSON object", 0},
    {"changed", 'c', NULL, 0, "Only variables that are set", 0},
    {"markdown", KEY_MARKDOWN, NULL, 0, "The table as docs/configuration.md", 0},
    {"man", KEY_MAN, NULL, 0, "The table as the manual page nccl-ha-config(7)", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->select;
		return 0;
	case 'j':
		a->form = FORM_JSON;
		return 0;
	case 'c':
		a->changed = true;
		return 0;
	case KEY_MARKDOWN:
		a->form = FORM_MARKDOWN;
		return 0;
	case KEY_MAN:
		a->form = FORM_MAN;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- a variable's value --------------------------------------------------------------------- */

static const char *origin_text(uint32_t origin)
{
	switch (origin) {
	case NCCL_HA_CONFIG_DEFAULT:
		return "default";
	case NCCL_HA_CONFIG_ENVIRONMENT:
		return "environment";
	case NCCL_HA_CONFIG_INVALID:
		return "invalid";
	default:
		return "unknown";
	}
}

/* A default that is not a value is worded as in the documentation. */
static const char *shown_value(const struct nccl_ha_config_stats *value, char *buf, size_t size)
{
	const struct ha_config_var *var = ha_config_find(value->name);

	if (value->origin != NCCL_HA_CONFIG_ENVIRONMENT && var && var->default_text)
		return ha_config_default_text(var, buf, size);
	return *value->value ? value->value : "none";
}

static void print_values(const struct nccl_ha_config_stats *values, size_t n, bool changed)
{
	static const char *const heads[] = {"variable", "value", "from", NULL};
	struct nh_table *table = nh_table_new(heads);
	char buf[64];

	for (size_t i = 0; i < n; i++) {
		if (changed && values[i].origin == NCCL_HA_CONFIG_DEFAULT)
			continue;
		nh_table_add(table, "%s", values[i].name);
		nh_table_add(table, "%s", shown_value(&values[i], buf, sizeof(buf)));
		nh_table_add(table, "%s",
			     values[i].origin == NCCL_HA_CONFIG_INVALID
				 ? "default: what is set cannot be used"
				 : origin_text(values[i].origin));
	}
	nh_table_print(table, 0, stdout);
	nh_table_free(table);
}

static json_t *value_json(const struct nccl_ha_config_stats *value)
{
	return json_pack("{s:o, s:o, s:s}", "name", nh_json_text(value->name), "value",
			 *value->value ? nh_json_text(value->value) : json_null(), "origin",
			 origin_text(value->origin));
}

static void print_json(json_t *doc)
{
	json_dumpf(doc, stdout, NH_JSON_FORM | JSON_INDENT(2));
	putchar('\n');
	json_decref(doc);
}

/* ---- this environment ----------------------------------------------------------------------- */

static int warnings;

static void warn(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		 const char *text)
{
	(void)subsys;
	(void)file;
	(void)line;
	if (level != HA_LOG_WARN)
		return;
	warnings++;
	fprintf(stderr, "nccl-ha config: %s\n", text);
}

static json_t *choices_json(const struct ha_config_var *var)
{
	json_t *out = json_array();

	for (const struct ha_config_choice *c = var->choices; c && c->name; c++)
		json_array_append_new(out, json_string(c->name));
	return out;
}

static json_t *var_json(const struct ha_config_var *var, const struct nccl_ha_config_stats *value)
{
	static const char *const types[] = {
	    [HA_TYPE_BOOL] = "boolean",	      [HA_TYPE_INT] = "integer",
	    [HA_TYPE_CHOICE] = "choice",      [HA_TYPE_STRING] = "text",
	    [HA_TYPE_CIDR] = "address range",
	};
	char expected[160], fallback[64];
	json_t *out = value_json(value);

	json_object_set_new(out, "group", json_string(ha_config_group_title(var->group)));
	json_object_set_new(out, "type", json_string(types[var->type]));
	json_object_set_new(out, "values",
			    json_string(ha_config_expectation(var, expected, sizeof(expected))));
	json_object_set_new(out, "default",
			    json_string(ha_config_default_text(var, fallback, sizeof(fallback))));
	if (var->type == HA_TYPE_INT || var->type == HA_TYPE_BOOL) {
		json_object_set_new(out, "min", json_integer(var->min));
		json_object_set_new(out, "max", json_integer(var->max));
	}
	if (var->type == HA_TYPE_CHOICE)
		json_object_set_new(out, "choices", choices_json(var));
	json_object_set_new(out, "help", json_string(var->help));
	return out;
}

static int show_environment(const struct arguments *a)
{
	static struct nccl_ha_config_stats values[HA_CONFIG_MAX_VARS];
	static struct ha_config config;
	json_t *list = json_array();

	ha_log_set_sink(warn);
	ha_config_load(&config, NULL);
	ha_config_warn_unknown(environ);
	ha_config_warn_short_timeouts(&config);
	for (size_t i = 0; i < ha_config_nvars; i++) {
		const struct ha_config_var *var = &ha_config_vars[i];

		snprintf(values[i].name, sizeof(values[i].name), "%s", var->name);
		ha_config_value_text(&config, var, values[i].value, sizeof(values[i].value));
		values[i].origin = NCCL_HA_CONFIG_DEFAULT + config.origin[i];
		if (!a->changed || config.origin[i] != HA_ORIGIN_DEFAULT)
			json_array_append_new(list, var_json(var, &values[i]));
	}
	if (a->form == FORM_JSON)
		print_json(json_pack("{s:i, s:O, s:i, s:i}", "format", 1, "variables", list,
				     "give_up_ms", config.give_up_ms, "nccl_window_ms",
				     config.nccl_window_ms));
	else
		print_values(values, ha_config_nvars, a->changed);
	if (a->form == FORM_TEXT && !a->changed)
		printf(
		    "\nWith no path left a connection keeps trying for %d ms; NCCL's own transport "
		    "may bear %d ms.\n",
		    config.give_up_ms, config.nccl_window_ms);
	json_decref(list);
	return warnings ? NH_EXIT_ATTENTION : NH_EXIT_OK;
}

_Static_assert(HA_ORIGIN_ENVIRONMENT + NCCL_HA_CONFIG_DEFAULT == NCCL_HA_CONFIG_ENVIRONMENT &&
		   HA_ORIGIN_INVALID + NCCL_HA_CONFIG_DEFAULT == NCCL_HA_CONFIG_INVALID,
	       "the same order");

/* ---- running processes ---------------------------------------------------------------------- */

static bool same_config(const struct nh_process *a, const struct nh_process *b)
{
	return a->nconfig == b->nconfig &&
	       memcmp(a->config, b->config, a->nconfig * sizeof(*a->config)) == 0;
}

static json_t *process_json(const struct nh_process *process)
{
	json_t *list = json_array();

	for (size_t i = 0; i < process->nconfig; i++)
		json_array_append_new(list, value_json(&process->config[i]));
	return json_pack("{s:o, s:o, s:i, s:o, s:o}", "job", nh_json_text(process->job.job_id),
			 "rank",
			 process->job.rank < 0 ? json_null() : json_integer(process->job.rank),
			 "pid", (int)process->job.pid, "version",
			 nh_json_text(process->job.plugin_version), "variables", list);
}

/* Neighbours with the same values, as the ranks of a job have, share a table. */
static void print_processes(const struct nh_snapshot *snapshot, bool changed)
{
	for (size_t i = 0; i < snapshot->nprocesses;) {
		const struct nh_process *first = &snapshot->processes[i];

		printf("pid");
		for (; i < snapshot->nprocesses && same_config(first, &snapshot->processes[i]); i++)
			printf(" %s", snapshot->processes[i].key);
		printf(":\n");
		if (first->nconfig == 0)
			printf("an older version of the plugin, which does not publish its "
			       "configuration\n");
		print_values(first->config, first->nconfig, changed);
		putchar('\n');
	}
}

static int show_processes(const struct arguments *a, const char *command)
{
	json_t *processes = json_array();
	struct nh_snapshot snapshot;
	int status = NH_EXIT_OK;

	if (nh_snapshot_take(&snapshot, &a->select, command) != 0 || snapshot.nprocesses == 0) {
		nh_say_no_job(&snapshot, &a->select, command);
		status = NH_EXIT_NO_JOB;
	}
	for (size_t i = 0; i < snapshot.nprocesses; i++)
		json_array_append_new(processes, process_json(&snapshot.processes[i]));
	if (a->form == FORM_JSON)
		print_json(json_pack("{s:i, s:O}", "format", 1, "processes", processes));
	else
		print_processes(&snapshot, a->changed);
	json_decref(processes);
	nh_snapshot_free(&snapshot);
	return status;
}

int nh_cmd_config(int argc, char **argv)
{
	static const struct argp_child children[] = {{&nh_select_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
	    options,
	    parse,
	    NULL,
	    "Shows each variable, its value and where that came from: in this environment, or with "
	    "--job, --rank or --pid in running processes.\vExit status: 0, 1 if the environment "
	    "has a "
	    "value that cannot be used or a misspelt variable, 2 wrong usage, 3 no such process.",
	    children,
	    NULL,
	    NULL};
	struct arguments a = {.select = NH_SELECT_ALL};

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.form == FORM_MARKDOWN) {
		ha_config_write_markdown(stdout);
		return NH_EXIT_OK;
	}
	if (a.form == FORM_MAN) {
		ha_config_write_man(stdout);
		return NH_EXIT_OK;
	}
	return nh_select_is_narrow(&a.select) ? show_processes(&a, argv[0]) : show_environment(&a);
}
