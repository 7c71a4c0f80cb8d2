/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-net-check: does a network plugin keep NCCL's contract? Loads any plugin, runs every rule
 * of table.c on each API version it exports, prints a line per rule.
 */
#include "place.h"
#include "report.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/version.h"

#define EXIT_BROKEN 1 /* a rule failed */
#define EXIT_USAGE  2 /* nothing could be checked */
#define MAX_NAMES   64

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEFAULT_TIME_SCALE 4
#else
#define DEFAULT_TIME_SCALE 1
#endif

static void print_version(FILE *out, struct argp_state *state)
{
	(void)state;
	fprintf(out, "nccl-net-check (nccl-ha) %s\n", ha_version);
}

struct arguments {
	struct check_options opt;
	int api; /* 0: every version the plugin exports; -1: the newest */
	const char *json;
	const struct rule_set *set;
	const char *rules[MAX_NAMES];
	int rule_count;
	bool list, markdown;
	struct place_request place;
};

enum {
	KEY_API = 256,
	KEY_JSON,
	KEY_RULE,
	KEY_LIST,
	KEY_MARKDOWN,
	KEY_QUICK,
	KEY_CYCLES,
	KEY_DEV,
	KEY_SCALE,
	KEY_LIMIT,
	KEY_FAULT,
	KEY_COLLNET,
	KEY_EACH,
	KEY_SIMVERBS,
	KEY_FABRIC
};

static const struct argp_option options[] = {
    {"plugin", 'p', "NAME|PATH", 0, "the plugin: NAME for libnccl-net-NAME.so, or a path", 0},
    {"api", KEY_API, "vN|newest|all", 0, "API version (default: all that it exports)", 0},
    {"collnet", KEY_COLLNET, NULL, 0, "the rules of the plugin's collNet, instead of its net's", 0},
    {"each", KEY_EACH, "NAME=VALUE,VALUE", 0,
     "an environment variable that has another value in each of the two processes of a rule", 0},
    {"rule", KEY_RULE, "NAME", 0, "only this rule; may be given several times", 0},
    {"list", KEY_LIST, NULL, 0, "list the rules and exit", 0},
    {"json", KEY_JSON, "FILE", 0, "also write the results as JSON", 0},
    {"quick", KEY_QUICK, NULL, 0, "leave out the rules that move gigabytes", 0},
    {"cycles", KEY_CYCLES, "N", 0, "connect/transfer/close cycles of rule leaks (default 200)", 0},
    {"dev", KEY_DEV, "N", 0, "the device for rules that need only one (default 0)", 0},
    {"limit", KEY_LIMIT, "S", 0, "time limit of every rule in seconds, instead of its own", 0},
    {"time-scale", KEY_SCALE, "N", 0, "multiply all time limits, for slow machines", 0},
    {"simverbs", KEY_SIMVERBS, "HxR", 0,
     "bring up a simverbs fabric of H hosts with R rails for the run", 0},
    {"fault", KEY_FAULT, "RULE", 0, "add this fault rule to the fabric of --simverbs", 0},
    {"fabric", KEY_FABRIC, "NAME", 0, "run on this simverbs fabric, which is up", 0},
    {"markdown", KEY_MARKDOWN, NULL, 0, "print the contract as Markdown and exit", 0},
    {0},
};

static int number(const char *text, const char *what, int least, struct argp_state *state)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < least || value > 1000000000)
		argp_error(state, "%s: '%s' is not a number of at least %d", what, text, least);
	return (int)value;
}

static bool has_rule(const struct rule_set *set, const char *name)
{
	for (size_t i = 0; i < set->count; i++)
		if (strcmp(set->rules[i].name, name) == 0)
			return true;
	return false;
}

/* All options are known. */
static void check_rule_names(const struct arguments *a, struct argp_state *state)
{
	for (int i = 0; i < a->rule_count; i++)
		if (!has_rule(a->set, a->rules[i]))
			argp_error(state, "--rule: no rule '%s'; --list names them", a->rules[i]);
}

/* "NAME=VALUE,VALUE" */
static void parse_each(struct check_options *opt, const char *text, struct argp_state *state)
{
	struct check_each *each = &opt->each[opt->neach];

	if (opt->neach == CHECK_MAX_EACH)
		argp_error(state, "--each: too many");
	if (sscanf(text, "%63[^=]=%127[^,],%127[^,]", each->name, each->value[0], each->value[1]) !=
	    1 + CHECK_RANKS)
		argp_error(state, "--each: '%s' is not NAME=VALUE,VALUE", text);
	opt->neach++;
}

static int parse_api(const char *text, struct argp_state *state)
{
	if (strcmp(text, "all") == 0)
		return 0;
	int api = np_parse_api(text);
	if (api < 0)
		argp_error(state, "--api: '%s' is none of v%d … v%d, newest, all", text,
			   NP_API_OLDEST, NP_API_NEWEST);
	return api == 0 ? -1 : api;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'p':
		a->opt.plugin = arg;
		break;
	case KEY_API:
		a->api = parse_api(arg, state);
		break;
	case KEY_RULE:
		if (a->rule_count == MAX_NAMES)
			argp_error(state, "--rule: too many");
		a->rules[a->rule_count++] = arg;
		break;
	case KEY_COLLNET:
		a->set = &check_coll_rules;
		break;
	case KEY_EACH:
		parse_each(&a->opt, arg, state);
		break;
	case KEY_LIST:
		a->list = true;
		break;
	case KEY_JSON:
		a->json = arg;
		break;
	case KEY_QUICK:
		a->opt.quick = true;
		break;
	case KEY_CYCLES:
		a->opt.cycles = number(arg, "--cycles", 2, state);
		break;
	case KEY_DEV:
		a->opt.dev = number(arg, "--dev", 0, state);
		break;
	case KEY_LIMIT:
		a->opt.limit_s = number(arg, "--limit", 1, state);
		break;
	case KEY_SCALE:
		a->opt.time_scale = number(arg, "--time-scale", 1, state);
		break;
	case KEY_SIMVERBS: {
		int end = 0;
		if (sscanf(arg, "%dx%d%n", &a->place.hosts, &a->place.rails, &end) != 2 ||
		    arg[end] || a->place.hosts < 1 || a->place.rails < 1)
			argp_error(state, "--simverbs: '%s' is not HxR, e.g. 2x2", arg);
		a->place.fabric = NULL;
		break;
	}
	case KEY_FAULT:
		if (a->place.nfaults == PLACE_MAX_FAULTS)
			argp_error(state, "--fault: too many");
		a->place.faults[a->place.nfaults++] = arg;
		break;
	case KEY_FABRIC:
		a->place = (struct place_request){.fabric = arg};
		a->opt.fabric = arg;
		break;
	case KEY_MARKDOWN:
		a->markdown = true;
		break;
	case ARGP_KEY_ARG:
		if (a->opt.plugin)
			argp_error(state, "one plugin at a time: '%s' is too many", arg);
		a->opt.plugin = arg;
		break;
	case ARGP_KEY_END:
		if (!a->opt.plugin && !a->list && !a->markdown)
			argp_error(state, "which plugin? --plugin NAME or a path");
		check_rule_names(a, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* ---- what the plugin is ------------------------------------------------------------------- */

struct identity {
	unsigned versions;
	char name[64];
	char path[512];
};

/* Loads the plugin in a process of its own, so that this one stays untouched by it. */
static bool identify(const char *plugin, bool is_coll, struct identity *id)
{
	int wire[2];

	if (pipe(wire) != 0)
		return false;
	pid_t pid = fork();
	if (pid == 0) {
		char err[1024];
		close(wire[0]);
		struct np_plugin *p = np_open(plugin, 0, err, sizeof(err));
		if (!p) {
			fprintf(stderr, "nccl-net-check: %s\n", err);
			_exit(EXIT_USAGE);
		}
		id->versions = is_coll ? np_coll_versions(p) : np_versions(p);
		snprintf(id->name, sizeof(id->name), "%s", np_name(p));
		snprintf(id->path, sizeof(id->path), "%s", np_path(p));
		_exit(write(wire[1], id, sizeof(*id)) == (ssize_t)sizeof(*id) ? 0 : EXIT_USAGE);
	}
	close(wire[1]);
	ssize_t n = pid > 0 ? read(wire[0], id, sizeof(*id)) : -1;
	close(wire[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return n == (ssize_t)sizeof(*id);
}

/* ---- the run ------------------------------------------------------------------------------ */

static bool wanted(const struct arguments *a, const struct rule *rule)
{
	if (a->rule_count == 0)
		return !(a->opt.quick && (rule->flags & RULE_SLOW));
	for (int i = 0; i < a->rule_count; i++)
		if (strcmp(a->rules[i], rule->name) == 0)
			return true;
	return false;
}

static void skip(struct check_result *result, const struct rule *rule, int api,
		 const struct rule *closed)
{
	*result = (struct check_result){.rule = rule, .api = api, .outcome = CHECK_SKIP};
	snprintf(result->text, sizeof(result->text), "nothing works without rule %s", closed->name);
}

static size_t run_version(const struct arguments *a, int api, struct check_result *results)
{
	const struct rule *closed = NULL; /* the gate that did not open */
	size_t count = 0;

	for (size_t i = 0; i < a->set->count; i++) {
		const struct rule *rule = &a->set->rules[i];
		struct check_result *result = &results[count];
		if (!wanted(a, rule) || !rule_applies(rule, api))
			continue;
		if (closed)
			skip(result, rule, api, closed);
		else
			check_run_rule(rule, api, &a->opt, result);
		if (result->outcome == CHECK_FAIL && (rule->flags & RULE_GATE))
			closed = rule;
		report_line(result);
		count++;
	}
	return count;
}

/* The fabric is in place, if one is asked for. */
static int run(struct arguments *a)
{
	const bool is_coll = a->set == &check_coll_rules;
	struct identity id = {0};
	char versions[64];
	size_t count = 0;

	if (!place_prepare(&a->opt))
		return EXIT_USAGE;
	if (!identify(a->opt.plugin, is_coll, &id)) {
		fprintf(stderr, "nccl-net-check: '%s' cannot be checked\n", a->opt.plugin);
		return EXIT_USAGE;
	}
	printf("%s: \"%s\", %sversions %s\n", id.path, id.name, is_coll ? "collNet " : "",
	       np_versions_text(id.versions, versions, sizeof(versions)));
	struct check_result *results =
	    calloc(a->set->count * (NP_API_NEWEST - NP_API_OLDEST + 1), sizeof(*results));
	if (!results)
		return EXIT_USAGE;
	for (int api = NP_API_NEWEST; api >= NP_API_OLDEST; api--) {
		if (!(id.versions & 1u << api) || (a->api > 0 && a->api != api))
			continue;
		count += run_version(a, api, results + count);
		if (a->api < 0)
			break;
	}
	int failed = report_summary(results, count);
	int status = failed ? EXIT_BROKEN : 0;
	if (count == 0) {
		fprintf(stderr, "nccl-net-check: no rule applies to what was asked for\n");
		status = EXIT_USAGE;
	}
	if (a->json && !report_json(a->json, id.path, id.name, results, count))
		status = EXIT_USAGE;
	free(results);
	return status;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
	    .options = options,
	    .parser = parse_option,
	    .args_doc = "[PLUGIN]",
	    .doc = "Checks an NCCL network plugin against the contract that NCCL relies on."};
	struct arguments a = {.set = &check_net_rules,
			      .opt = {.cycles = 200, .time_scale = DEFAULT_TIME_SCALE}};

	argp_program_version_hook = print_version;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.list)
		report_list(a.set);
	else if (a.markdown)
		report_markdown(stdout);
	else if (place_is_right(&a.place))
		return run(&a);
	else {
		int status = place_run(&a.place, argc, argv);
		return status < 0 ? EXIT_USAGE : status;
	}
	return 0;
}
