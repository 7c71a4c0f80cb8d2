/* SPDX-License-Identifier: Apache-2.0 */
/* simverbs fault: adds, lists and removes fault rules. */
#include "tools/simverbs/tool.h"

#include <stdio.h>
#include <string.h>

struct fault_args {
	const char *name, *rule;
	bool list, clear;
	int clear_id; /* -1: all */
};

static error_t parse_fault(int key, char *arg, struct argp_state *state)
{
	struct fault_args *args = state->input;

	switch (key) {
	case 'l':
		args->list = true;
		return 0;
	case 'c':
		args->clear = true;
		args->clear_id =
		    arg ? (int)np_number(state, arg, "--clear", SV_FAULT_MAX_RULES) : -1;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0)
			args->name = arg;
		else if (state->arg_num == 1)
			args->rule = arg;
		else
			argp_usage(state);
		return 0;
	case ARGP_KEY_END:
		if (!args->name || (args->rule != NULL) + args->list + args->clear != 1)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int add(struct sv_fabric *fab, const char *rule)
{
	char err[256] = "";
	int id = sv_fabric_add_faults(fab, rule, false, err, sizeof(err));

	if (id < 0) {
		fprintf(stderr, "simverbs fault: %s\n", err[0] ? err : strerror(-id));
		return NP_EXIT_USAGE;
	}
	printf("%d\n", id);
	return NP_EXIT_OK;
}

static int list(struct sv_fabric *fab)
{
	struct sv_fault_table *table = &fab->h->faults;
	uint32_t i, n = atomic_load(&table->nrules);

	for (i = 0; i < n; i++)
		if (atomic_load(&table->rules[i].active))
			printf("%-3u matched %-8llu fired %-8llu %s\n", i,
			       (unsigned long long)atomic_load(&table->rules[i].matched),
			       (unsigned long long)atomic_load(&table->rules[i].fired),
			       table->rules[i].text);
	return NP_EXIT_OK;
}

static int clear(struct sv_fabric *fab, int id)
{
	int rc = sv_fabric_lock(fab);

	if (rc)
		return NP_EXIT_FAILED;
	rc = sv_fault_remove(&fab->h->faults, id);
	sv_fabric_unlock(fab);
	sv_fabric_notify(fab);
	if (rc) {
		fprintf(stderr, "simverbs fault: there is no rule %d\n", id);
		return NP_EXIT_FAILED;
	}
	return NP_EXIT_OK;
}

int np_cmd_fault(int argc, char **argv)
{
	static const struct argp_option options[] = {
	    {"list", 'l', NULL, 0, "List the rules, and how often each matched and fired", 0},
	    {"clear", 'c', "ID", OPTION_ARG_OPTIONAL, "Remove one rule, or all", 0},
	    {0},
	};
	static const struct argp argp = {
	    options,
	    parse_fault,
	    "NAME ['RULE']",
	    "Adds a fault rule and prints its number, or lists or removes rules. simverbs(1) has "
	    "the language; @FILE reads rules from a file, one a line.\v"
	    "  drop host=0 rail=1 op=write nth=5 count=3\n"
	    "  delay=20ms prob=0.01\n"
	    "  link=down host=1 rail=0 at=2s for=500ms",
	    NULL,
	    NULL,
	    NULL};
	struct fault_args args = {0};
	struct sv_fabric fab;
	int rc;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (!np_open_fabric(args.name, &fab))
		return NP_EXIT_FAILED;
	if (args.list)
		rc = list(&fab);
	else if (args.clear)
		rc = clear(&fab, args.clear_id);
	else
		rc = add(&fab, args.rule);
	sv_fabric_close(&fab);
	return rc;
}
