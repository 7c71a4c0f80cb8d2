/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-ha inc: what the controller of all-reduces in the network has, its switches and groups, and
 * the plan of one; and taking a switch out of use, and back.
 */
#include "tools/common/clock.h"
#include "tools/controller/ask.h"
#include "tools/nccl-ha/inc_metrics.h"
#include "tools/nccl-ha/inc_plan.h"
#include "tools/nccl-ha/inc_show.h"
#include "tools/nccl-ha/select.h"
#include "tools/nccl-ha/tool.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS	 (200 * 1000 * 1000)
#define WAIT_MAX 3600
/* In which a switch's program that has lost its controller is back. */
#define REDIAL_NS 3000000000ull

enum what { SHOW, GROUPS, PLAN, DRAIN, UNDRAIN, WHATS };

static const char *const what_names[WHATS] = {
    [SHOW] = "", [GROUPS] = "groups", [PLAN] = "plan", [DRAIN] = "drain", [UNDRAIN] = "undrain"};

struct arguments {
	struct nc_controller controller;
	enum what what;
	const char *name; /* of a switch; of PLAN: of a group */
	long wait_s;
	bool json, metrics, yaml;
};

static const struct argp_option options[] = {
    {"connect", 'a', "HOST:PORT", 0, "The controller (default: HA_NCCL_INC_CONTROLLER)", 0},
    {"key-file", 'k', "FILE", 0, "The site's key (default: HA_NCCL_INC_KEY_FILE)", 0},
    {"json", 'j', NULL, 0, "What it says, as it says it", 0},
    {"metrics", 'm', NULL, 0, "For Prometheus, in its text format", 0},
    {"yaml", 'y', NULL, 0, "Of plan: each switch with its connections", 0},
    {"wait", 'w', "S", 0,
     "Of drain: wait up to S seconds until the switch's program has nothing to add any more", 0},
    {0},
};

static const char *of_environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static void take_word(struct arguments *a, const char *word, struct argp_state *state)
{
	if (a->what >= PLAN && !a->name) {
		a->name = word;
		return;
	}
	for (enum what what = GROUPS; what < WHATS && a->what == SHOW; what++)
		if (!strcmp(word, what_names[what])) {
			a->what = what;
			return;
		}
	argp_error(state, "unexpected argument '%s'", word);
}

static void check_arguments(const struct arguments *a, struct argp_state *state)
{
	if (a->json && a->metrics)
		argp_error(state, "--json or --metrics, not both");
	if (a->metrics && a->what != SHOW)
		argp_error(state, "--metrics goes with no command");
	if (a->wait_s && a->what != DRAIN)
		argp_error(state, "--wait is of drain");
	if (a->yaml && (a->what != PLAN || a->json))
		argp_error(state, "--yaml is of plan, in place of --json");
	if (a->what >= PLAN && !a->name)
		argp_error(state, "%s which %s? `nccl-ha inc` has their names", what_names[a->what],
			   a->what == PLAN ? "group" : "switch");
	if (!a->controller.address || !a->controller.key_file)
		argp_error(state,
			   "which controller? Say --connect HOST:PORT and --key-file FILE, or "
			   "set HA_NCCL_INC_CONTROLLER and HA_NCCL_INC_KEY_FILE");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'a':
		a->controller.address = arg;
		return 0;
	case 'k':
		a->controller.key_file = arg;
		a->controller.key_name = "--key-file";
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case 'm':
		a->metrics = true;
		return 0;
	case 'y':
		a->yaml = true;
		return 0;
	case 'w':
		a->wait_s = nh_number(state, "--wait", arg, 1, WAIT_MAX);
		return 0;
	case ARGP_KEY_ARG:
		take_word(a, arg, state);
		return 0;
	case ARGP_KEY_END:
		check_arguments(a, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the command ---------------------------------------------------------------------------- */

static int complain(const struct arguments *a, const char *why)
{
	fprintf(stderr, "nccl-ha inc%s%s: %s\n", a->what == SHOW ? "" : " ", what_names[a->what],
		why);
	return NH_EXIT_FAILED;
}

static json_t *document(const struct arguments *a, const char *text)
{
	json_t *said = json_loads(text, 0, NULL);

	if (json_is_object(said))
		return said;
	json_decref(said);
	(void)complain(a, "what the controller says is no JSON object");
	return NULL;
}

static int show(const struct arguments *a, const json_t *said)
{
	if (a->metrics)
		return nh_inc_metrics(said, stdout) ? NH_EXIT_OK : NH_EXIT_FAILED;
	nh_inc_print(a->controller.address, said);
	return nh_inc_unserved(json_object_get(said, "switches")) > 0 ? NH_EXIT_ATTENTION
								      : NH_EXIT_OK;
}

static bool print_json(const json_t *json)
{
	return json_dumpf(json, stdout, JSON_COMPACT) == 0 && putchar('\n') >= 0;
}

static int show_groups(const struct arguments *a, const json_t *said)
{
	const json_t *groups = json_object_get(said, "groups");

	if (a->json)
		return print_json(groups) ? NH_EXIT_OK : NH_EXIT_FAILED;
	nh_inc_print_groups(groups);
	return NH_EXIT_OK;
}

/* Of a group that was refused: the reason. */
static int show_plan(const struct arguments *a, const json_t *said)
{
	const char *why = json_string_value(json_object_get(said, "why"));

	if (a->json)
		return print_json(said) && !why ? NH_EXIT_OK : NH_EXIT_FAILED;
	if (why)
		return complain(a, why);
	if (!nh_inc_plan_print(said, a->yaml))
		return complain(a, "what the controller says is no plan");
	return NH_EXIT_OK;
}

static const json_t *switch_of(const json_t *said, const char *name)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(said, "switches"), i, one)
	{
		const char *said_name = json_string_value(json_object_get(one, "switch"));

		if (said_name && !strcmp(said_name, name))
			return one;
	}
	return NULL;
}

/* Of a switch that is to be drained. Who does not hear of its program knows nothing: one that has
 * lost the controller goes on with the trees that it has. */
enum drained { MISSING, TAKEN_BACK, UNSERVED, SILENT, ADDS, EMPTY };

static const struct {
	const char *text;
	enum nh_exit waited_for; /* when that is what came of it */
} drained[] = {
    [MISSING] = {"has gone: the controller's topology has no such switch any more", NH_EXIT_GONE},
    [TAKEN_BACK] = {"is not drained any more: somebody has taken that back", NH_EXIT_ATTENTION},
    [UNSERVED] = {"is drained, and no program serves it: one that has lost the controller may add "
		  "there still",
		  NH_EXIT_GONE},
    [SILENT] = {"is drained: nobody joins any more, and groups with another way take that",
		NH_EXIT_ATTENTION},
    [ADDS] = {"is drained, and has trees of groups still", NH_EXIT_ATTENTION},
    [EMPTY] = {"is drained, and adds nothing any more", NH_EXIT_OK},
};

static enum drained drained_of(const json_t *one)
{
	const json_t *trees = json_object_get(one, "trees");

	if (!one)
		return MISSING;
	if (!json_is_true(json_object_get(one, "drained")))
		return TAKEN_BACK;
	if (!json_is_true(json_object_get(one, "served")))
		return UNSERVED;
	if (!trees)
		return SILENT;
	return json_integer_value(trees) > 0 ? ADDS : EMPTY;
}

static int tell_drained(const struct arguments *a, const json_t *one)
{
	const enum drained is = drained_of(one);

	if (!a->json && is == ADDS)
		printf("%s %s: %lld\n", a->name, drained[is].text,
		       (long long)json_integer_value(json_object_get(one, "trees")));
	else if (!a->json)
		printf("%s %s\n", a->name, drained[is].text);
	else if (one && !print_json(one))
		return NH_EXIT_FAILED;
	return a->wait_s ? (int)drained[is].waited_for : NH_EXIT_OK;
}

static int tell_undrained(const struct arguments *a, const json_t *one)
{
	if (a->json)
		return print_json(one) ? NH_EXIT_OK : NH_EXIT_FAILED;
	printf("%s is not drained any more: groups may add there, and those that left it for a "
	       "while go back\n",
	       a->name);
	return NH_EXIT_OK;
}

static json_t *ask_again(const struct arguments *a)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	char why[400];
	char *text;
	json_t *said = NULL;

	nanosleep(&pause, NULL);
	text = nc_ask_status(&a->controller, why, sizeof(why));
	if (text)
		said = document(a, text);
	else
		(void)complain(a, why);
	free(text);
	return said;
}

/* Nothing that comes later would be different. A program that is not there has a while to be back.
 */
static bool is_settled(const json_t *one, uint64_t *served_ns)
{
	const enum drained is = drained_of(one);
	const uint64_t now_ns = np_now_ns();

	if (is != UNSERVED)
		*served_ns = now_ns;
	return is == EMPTY || is == MISSING || is == TAKEN_BACK || now_ns - *served_ns > REDIAL_NS;
}

/* said is a reference that it takes. */
static int wait_until_drained(const struct arguments *a, json_t *said)
{
	const uint64_t until_ns = np_now_ns() + (uint64_t)a->wait_s * 1000000000u;
	uint64_t served_ns = np_now_ns();
	int status;

	while (said && !is_settled(switch_of(said, a->name), &served_ns) &&
	       np_now_ns() < until_ns) {
		json_decref(said);
		said = ask_again(a);
	}
	if (!said)
		return NH_EXIT_FAILED;
	status = tell_drained(a, switch_of(said, a->name));
	json_decref(said);
	return status;
}

static int act(const struct arguments *a, const char *text)
{
	json_t *said;
	int status;

	if (a->what == SHOW && a->json)
		return puts(text) >= 0 ? NH_EXIT_OK : NH_EXIT_FAILED;
	said = document(a, text);
	if (!said)
		return NH_EXIT_FAILED;
	if (a->what == DRAIN)
		return wait_until_drained(a, said);
	if (a->what == PLAN)
		status = show_plan(a, said);
	else if (a->what == UNDRAIN)
		status = tell_undrained(a, switch_of(said, a->name));
	else
		status = a->what == GROUPS ? show_groups(a, said) : show(a, said);
	json_decref(said);
	return status;
}

int nh_cmd_inc(int argc, char **argv)
{
	static const struct argp argp = {
	    .options = options,
	    .parser = parse,
	    .args_doc = "\ngroups\nplan GROUP\ndrain SWITCH\nundrain SWITCH",
	    .doc = "Shows what the controller of all-reduces in the network has: which switches "
		   "programs serve, what groups use, and which switches add for which group.\v"
		   "  groups   its groups: members, trees, epoch, by which way they go, lease\n"
		   "  plan     a group's trees: which switches add for it, and what comes to each\n"
		   "  drain    nobody adds at this switch any more: groups take another way\n"
		   "  undrain  the switch is to be used again\n\n"
		   "Exit status:\n"
		   "  0  done. Of drain --wait: the switch's program adds nothing any more\n"
		   "  1  it could not be done, or a switch has no program that serves it. Of drain "
		   "--wait: it still adds, or is not drained any more\n"
		   "  2  wrong usage; nothing is printed\n"
		   "  3  of drain --wait: the switch has gone. No program serves it, or the "
		   "topology has it no more, so that nothing is known of what it adds"};
	struct arguments a = {.controller = {.address = of_environment("HA_NCCL_INC_CONTROLLER"),
					     .key_name = "HA_NCCL_INC_KEY_FILE",
					     .key_file = of_environment("HA_NCCL_INC_KEY_FILE")}};
	char why[400];
	char *text;
	int status;

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.what == PLAN)
		text = nc_ask_verdict(&a.controller, a.name, why, sizeof(why));
	else if (a.what == DRAIN || a.what == UNDRAIN)
		text = nc_ask_drain(&a.controller, a.name, a.what == DRAIN, why, sizeof(why));
	else
		text = nc_ask_status(&a.controller, why, sizeof(why));
	status = text ? act(&a, text) : complain(&a, why);
	free(text);
	return status;
}
