/* SPDX-License-Identifier: Apache-2.0 */
/* ha-failover-bench: the scenarios, the table and the JSON report. */
#include "bench.h"
#include "program.h"

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB	   1024
#define NOTEWORTHY 0.01

/* Where its samples are reported, and how many are enough for a quick look. */
#define MARK(name, often) .mark = (name), .quick = (often)
#define FEW		  .conns = 4, .depth = 4, .bytes = 64 * KIB
#define GOAL(name, limit) .goals = {{(name), (limit)}}
#define SILENT(ms)                                                                                 \
	.kind = BENCH_CUT, FEW, .heartbeat_ms = (ms), .notice_ms = 3 * (ms), GOAL("p99", 5)

static const struct bench_scenario scenarios[] = {
    {.name = "port-down-sender",
     .what = "port down at the sending end to the first payload on the standby",
     .kind = BENCH_LINK_DOWN,
     .at = BENCH_SENDER,
     FEW,
     .repetitions = 150,
     MARK("port_down_ms", 15),
     .goals = {{"p50", 1}, {"p99", 3}}},
    {.name = "port-down-receiver",
     .what = "port down at the receiving end to the first payload on the standby",
     .kind = BENCH_LINK_DOWN,
     .at = BENCH_RECEIVER,
     FEW,
     .repetitions = 150,
     MARK("port_down_ms", 15),
     .goals = {{"p50", 1}, {"p99", 3}}},
    {.name = "512-connections",
     .what = "port down to the last of 512 connections moved, each end in turn",
     .kind = BENCH_LINK_DOWN,
     .at = -1,
     .conns = 512,
     .depth = 2,
     .bytes = 4 * KIB,
     .all = true,
     .repetitions = 200,
     MARK("all_512_ms", 10),
     GOAL("max", 50)},
    {.name = "qp-error",
     .what = "a queue pair in ERR to the first payload on another one, each end's in turn",
     .kind = BENCH_QP_ERROR,
     .at = -1,
     .conns = 1,
     .depth = 4,
     .bytes = 64 * KIB,
     .repetitions = 200,
     MARK("qp_error_ms", 30),
     GOAL("p99", 2)},
    {.name = "peer-death",
     .what = "kill -9 of a host to an error on all its connections, each end in turn",
     .kind = BENCH_DEATH,
     FEW,
     .repetitions = 200,
     MARK("peer_death_ms", 30),
     .notice_ms = 50, /* paths must deny it first */
     GOAL("p99", 50)},
    {.name = "silent-cut",
     .what = "cut in the switch, noticed and moved, with the default settings",
     .kind = BENCH_CUT,
     FEW,
     .repetitions = 200,
     MARK("silent_cut_ms", 30),
     .notice_ms = 80, /* of silence, and questions that are not answered */
     GOAL("p99", 20)},
    {.name = "silent-cut-50ms",
     .what = "the same, HA_NCCL_HEARTBEAT_MS=50",
     SILENT(50),
     .repetitions = 100},
    {.name = "silent-cut-10ms", .what = "the same with 10", SILENT(10), .repetitions = 150},
    {.name = "silent-cut-crossed",
     .what = "the same with default settings, of a switch that every path has an end at",
     .kind = BENCH_CUT,
     FEW,
     .crossed = true,
     .repetitions = 30,
     .notice_ms = 300,
     GOAL("p99", 5)},
    {.name = "healthy",
     .what = "no switch under saturated traffic with every processor busy besides",
     .kind = BENCH_HEALTHY,
     .conns = 8,
     .depth = 8,
     .bytes = 256 * KIB},
};

#define NSCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

enum {
	KEY_SECONDS = 0x100,
	KEY_SLACK,
	KEY_JSON,
	KEY_LIST,
	KEY_MARKS,
	KEY_QUICK,
	KEY_LIE,
	KEY_BE_HOST,
	KEY_SHARED
};

struct arguments {
	struct bench_settings settings;
	const char *json, *marks;
	bool chosen[NSCENARIOS];
	bool any, list;
	int host, shared_fd;
};

static const struct argp_option option_table[] = {
    {"repetitions", 'n', "N", 0, "Faults per scenario (default: the scenario's, 30 to 200)", 0},
    {"connections", 'C', "N", 0, "At most so many connections", 0},
    {"seconds", KEY_SECONDS, "S", 0, "Of healthy traffic (default: 60)", 0},
    {"slack", KEY_SLACK, "FACTOR", 0,
     "Multiplies the goals, but not the time to notice (default: 1)", 0},
    {"json", KEY_JSON, "FILE", 0, "Writes every sample to FILE", 0},
    {"marks", KEY_MARKS, "FILE", 0,
     "Runs the scenarios that have marks, and writes their percentiles to FILE, all or none", 0},
    {"quick", KEY_QUICK, NULL, 0, "30 faults of each kind, 10 with 512 connections", 0},
    {"list", KEY_LIST, NULL, 0, "Names the scenarios", 0},
    {"verbose", 'v', NULL, 0, "A line per fault", 0},
    /* For the tests of this program: what did not take place must not be counted. */
    {"lie", KEY_LIE, NULL, OPTION_HIDDEN, "Breaks nothing, only says so", 0},
    {"be-host", KEY_BE_HOST, "H", OPTION_HIDDEN, NULL, 0},
    {"shared-fd", KEY_SHARED, "FD", OPTION_HIDDEN, NULL, 0},
    {0},
};

static void choose(struct arguments *a, const char *name, struct argp_state *state)
{
	for (size_t i = 0; i < NSCENARIOS; i++)
		if (!strcmp(scenarios[i].name, name)) {
			a->chosen[i] = a->any = true;
			return;
		}
	argp_error(state, "there is no scenario '%s': see --list", name);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'n':
		a->settings.repetitions = atoi(arg);
		if (a->settings.repetitions < 1)
			argp_error(state, "-n: '%s' is no number of faults", arg);
		return 0;
	case 'C':
		a->settings.conns = atoi(arg);
		if (a->settings.conns < 1)
			argp_error(state, "-C: '%s' is no number of connections", arg);
		return 0;
	case KEY_SECONDS:
		a->settings.seconds = atof(arg);
		if (!(a->settings.seconds > 0))
			argp_error(state, "--seconds: '%s' is no time", arg);
		return 0;
	case KEY_SLACK:
		a->settings.slack = atof(arg);
		if (!(a->settings.slack >= 1))
			argp_error(state, "--slack: '%s' is not at least 1", arg);
		return 0;
	case KEY_JSON:
		a->json = arg;
		return 0;
	case KEY_MARKS:
		a->marks = arg;
		return 0;
	case KEY_QUICK:
		a->settings.quick = true;
		return 0;
	case KEY_LIE:
		a->settings.lie = true;
		return 0;
	case KEY_LIST:
		a->list = true;
		return 0;
	case 'v':
		a->settings.verbose = true;
		return 0;
	case KEY_BE_HOST:
		a->host = atoi(arg);
		return 0;
	case KEY_SHARED:
		a->shared_fd = atoi(arg);
		return 0;
	case ARGP_KEY_ARG:
		choose(a, arg, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- reports --------------------------------------------------------------------------------- */

/* "p50 < 1, p99 < 3". Returns buf. */
static const char *goals_text(const struct bench_scenario *s, double slack, char *buf, size_t len)
{
	size_t used = 0;

	buf[0] = 0;
	for (int i = 0; i < BENCH_MAX_GOALS && s->goals[i].of && used < len; i++)
		used += (size_t)snprintf(buf + used, len - used, "%s%s < %g", i ? ", " : "",
					 s->goals[i].of, bench_limit_ms(s, &s->goals[i], slack));
	return buf;
}

static void print_row(const struct bench_result *r, double slack)
{
	const struct bench_scenario *s = r->scenario;
	char goals[64];

	if (s->kind == BENCH_HEALTHY)
		printf("%-20s %6s %7s %9s %9s %9s %9s  %-19s %s: %llu switches in %llu messages",
		       s->name, "-", "-", "-", "-", "-", "-", "0 switches",
		       r->passed ? "ok" : "MISSED", (unsigned long long)r->alarms.switches,
		       (unsigned long long)r->messages);
	else
		printf("%-20s %6d %7zu %9.2f %9.2f %9.2f %9.2f  %-19s %s", s->name, r->repetitions,
		       r->n, bench_quantile(r->samples_ms, r->n, 0.5),
		       bench_quantile(r->samples_ms, r->n, 0.9),
		       bench_quantile(r->samples_ms, r->n, 0.99),
		       bench_quantile(r->samples_ms, r->n, 1.0),
		       goals_text(s, slack, goals, sizeof(goals)), r->passed ? "ok" : "MISSED");
	printf("%s%s", r->why[0] ? ": " : "", r->why);
	/* A miss may be the machine's. */
	if (r->stolen_ms >= NOTEWORTHY * 1000 * r->seconds)
		printf(" (%.0f of %.0f ms other machines had one of our processors)", r->stolen_ms,
		       1000 * r->seconds);
	printf("\n");
	fflush(stdout);
}

static json_t *result_object(const struct bench_result *r, double slack)
{
	const struct bench_scenario *s = r->scenario;
	json_t *samples = json_array(), *o;
	char goals[64];

	for (size_t i = 0; i < r->n; i++)
		json_array_append_new(samples, json_real(r->samples_ms[i]));
	o = json_pack("{s:s, s:s, s:i, s:I, s:I, s:i, s:i, s:f, s:f, s:b, s:s, s:s}", "name",
		      s->name, "what", s->what, "connections", s->conns, "bytes",
		      (json_int_t)s->bytes, "messages", (json_int_t)r->messages, "depth", s->depth,
		      "faults", r->repetitions, "seconds", r->seconds, "stolen_ms", r->stolen_ms,
		      "passed", (int)r->passed, "why", r->why, "goals",
		      goals_text(s, slack, goals, sizeof(goals)));
	if (s->kind == BENCH_HEALTHY) {
		json_object_set_new(o, "switches", json_integer((json_int_t)r->alarms.switches));
		json_object_set_new(o, "suspicions",
				    json_integer((json_int_t)r->alarms.suspicions));
		json_object_set_new(o, "outages", json_integer((json_int_t)r->alarms.outages));
	} else {
		static const struct {
			const char *name;
			double q;
		} points[] = {{"p50_ms", 0.5}, {"p90_ms", 0.9}, {"p99_ms", 0.99}, {"max_ms", 1.0}};

		for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
			json_object_set_new(
			    o, points[i].name,
			    json_real(bench_quantile(r->samples_ms, r->n, points[i].q)));
	}
	json_object_set_new(o, "samples_ms", samples);
	return o;
}

/* ---- main ------------------------------------------------------------------------------------ */

static bool run_all(const struct arguments *a)
{
	struct bench_result results[NSCENARIOS];
	json_t *objects = json_array();
	bool ok = true;
	int n = 0;

	printf("%ld processors; milliseconds from the fault on\n", sysconf(_SC_NPROCESSORS_ONLN));
	printf("%-20s %6s %7s %9s %9s %9s %9s  %-19s %s\n", "scenario", "faults", "samples", "p50",
	       "p90", "p99", "max", "goal", "verdict");
	fflush(stdout);
	for (size_t i = 0; i < NSCENARIOS && !bench_interrupted; i++) {
		struct bench_result *r = &results[n];

		if (a->any ? !a->chosen[i] : a->marks && !scenarios[i].mark)
			continue;
		bench_run(&scenarios[i], &a->settings, r);
		print_row(r, a->settings.slack);
		json_array_append_new(objects, result_object(r, a->settings.slack));
		ok = ok && r->passed;
		n++;
	}
	if (a->json)
		ok = bench_write_report("ha-failover-bench", a->json, "scenarios", objects) && ok;
	if (a->marks)
		ok = bench_write_marks(a->marks, results, n, &a->settings) && ok;
	while (n > 0)
		free(results[--n].samples_ms);
	json_decref(objects);
	return ok;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
	    .options = option_table,
	    .parser = parse,
	    .args_doc = "[SCENARIO...]",
	    .doc = "Breaks a simulated fabric again and again and measures how long connections "
		   "take to move. Exit status 0: all goals were reached; 1: one was missed, or "
		   "what it is about was not measured; 64: the command line is wrong.",
	};
	struct arguments a = {.settings = {.seconds = 60, .slack = 1}, .host = -1, .shared_fd = -1};

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (getloadavg(&a.settings.load, 1) != 1)
		a.settings.load = -1; /* nobody says */
	bench_raise_files();
	if (a.host >= 0)
		return bench_be_host("ha-failover-bench", a.shared_fd, a.host);
	if (a.list) {
		for (size_t i = 0; i < NSCENARIOS; i++)
			printf("%-20s %s\n", scenarios[i].name, scenarios[i].what);
		return 0;
	}
	bench_catch_signals();
	return run_all(&a) ? 0 : 1;
}
