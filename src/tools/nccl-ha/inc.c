/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha inc: what the controller of all-reduces in the network has: its switches and groups. */
#include "tools/controller/ask.h"
#include "tools/nccl-ha/inc_metrics.h"
#include "tools/nccl-ha/table.h"
#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/tool.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
	const char *connect, *key_file;
	const char *key_name; /* where key_file is from */
	bool json, metrics;
};

static const struct argp_option options[] = {
    {"connect", 'a', "HOST:PORT", 0, "The controller (default: HA_NCCL_INC_CONTROLLER)", 0},
    {"key-file", 'k', "FILE", 0, "The site's key (default: HA_NCCL_INC_KEY_FILE)", 0},
    {"json", 'j', NULL, 0, "What it says, as it says it", 0},
    {"metrics", 'm', NULL, 0, "For Prometheus, in its text format", 0},
    {0},
};

static const char *of_environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'a':
		a->connect = arg;
		return 0;
	case 'k':
		a->key_file = arg;
		a->key_name = "--key-file";
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case 'm':
		a->metrics = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		if (a->json && a->metrics)
			argp_error(state, "--json or --metrics, not both");
		if (!a->connect || !a->key_file)
			argp_error(
			    state,
			    "which controller? Say --connect HOST:PORT and --key-file FILE, or "
			    "set HA_NCCL_INC_CONTROLLER and HA_NCCL_INC_KEY_FILE");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- what it says --------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text && *text ? text : "-";
}

static long long number_of(const json_t *object, const char *name)
{
	return (long long)json_integer_value(json_object_get(object, name));
}

static void print_switches(const json_t *list)
{
	static const char *const heads[] = {"switch",	 ">served", ">groups", ">of",
					    ">MiB used", ">of",	    NULL};
	struct nh_table *table = nh_table_new(heads);
	const json_t *one;
	size_t i;

	if (!table)
		return;
	json_array_foreach(list, i, one)
	{
		nh_table_add(table, "%s", text_of(one, "switch"));
		nh_table_add(table, "%s",
			     json_is_true(json_object_get(one, "served")) ? "yes" : "NO");
		nh_table_add(table, "%lld", number_of(one, "groups"));
		nh_table_add(table, "%lld", number_of(one, "groups_most"));
		nh_table_add(table, "%lld", (number_of(one, "bytes") + (1 << 20) - 1) >> 20);
		nh_table_add(table, "%lld", number_of(one, "bytes_most") >> 20);
	}
	nh_table_print(table, 0, stdout);
	nh_table_free(table);
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

static void print_groups(const json_t *list)
{
	static const char *const heads[] = {"group", "state", ">ranks", ">connected",
					    "label", "lanes", "spares", NULL};
	struct nh_table *table = nh_table_new(heads);
	const json_t *one;
	size_t i;

	if (!table)
		return;
	json_array_foreach(list, i, one)
	{
		nh_table_add(table, "%s", text_of(one, "group"));
		nh_table_add(table, "%s", text_of(one, "state"));
		nh_table_add(table, "%lld", number_of(one, "ranks"));
		nh_table_add(table, "%lld", number_of(one, "connected"));
		nh_table_add(table, "%s", text_of(one, "label"));
		add_roots(table, one, "lanes");
		add_roots(table, one, "spares");
	}
	nh_table_print(table, 0, stdout);
	nh_table_free(table);
}

static size_t unserved(const json_t *switches)
{
	const json_t *one;
	size_t i, n = 0;

	json_array_foreach(switches, i, one) n += !json_is_true(json_object_get(one, "served"));
	return n;
}

static void print_text(const char *address, const json_t *said)
{
	const json_t *switches = json_object_get(said, "switches"),
		     *groups = json_object_get(said, "groups");

	printf("controller %s: %zu switches, %zu served; %zu groups; %lld plans and %lld refusals "
	       "since "
	       "it began\n",
	       address, json_array_size(switches), json_array_size(switches) - unserved(switches),
	       json_array_size(groups), number_of(said, "plans"), number_of(said, "refusals"));
	print_switches(switches);
	print_groups(groups);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int show(const struct arguments *a, const char *text)
{
	json_t *said = json_loads(text, 0, NULL);
	int status = NH_EXIT_OK;

	if (!json_is_object(said)) {
		fprintf(stderr, "nccl-ha inc: %s: what it says is no JSON object\n", a->connect);
		status = NH_EXIT_FAILED;
	} else if (a->metrics) {
		status = nh_inc_metrics(said, stdout) ? NH_EXIT_OK : NH_EXIT_FAILED;
	} else {
		print_text(a->connect, said);
		if (unserved(json_object_get(said, "switches")) > 0)
			status = NH_EXIT_ATTENTION;
	}
	json_decref(said);
	return status;
}

int nh_cmd_inc(int argc, char **argv)
{
	static const struct argp argp = {
	    .options = options,
	    .parser = parse,
	    .doc = "Shows what the controller of all-reduces in the network has: which switches "
		   "programs serve, what groups use, and which switches add for which group."};
	struct arguments a = {.connect = of_environment("HA_NCCL_INC_CONTROLLER"),
			      .key_file = of_environment("HA_NCCL_INC_KEY_FILE"),
			      .key_name = "HA_NCCL_INC_KEY_FILE"};
	char why[400];
	int status = NH_EXIT_FAILED;

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	char *text = nc_ask_status(a.connect, a.key_name, a.key_file, why, sizeof(why));
	if (!text)
		fprintf(stderr, "nccl-ha inc: %s\n", why);
	else if (a.json)
		status = puts(text) >= 0 ? NH_EXIT_OK : NH_EXIT_FAILED;
	else
		status = show(&a, text);
	free(text);
	return status;
}
