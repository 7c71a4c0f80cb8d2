/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ha-drill: breaks a live fabric under traffic, as drills say or at random, and judges what comes
 * of it.
 */
#include "drill.h"

#include "tools/common/clock.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMES_MAX 1000

enum {
	KEY_LIST = 0x100,
	KEY_SOAK,
	KEY_SEED,
	KEY_SLACK,
	KEY_SCRIPT,
	KEY_OUT,
	KEY_FILE,
	KEY_RAILS,
	KEY_OPEN,
	KEY_JSON,
	KEY_TIMES
};

struct arguments {
	const char *names[64];
	int nnames;
	bool list;
	int verbose;
	const char *out;
	double soak_s;
	unsigned seed;
	double slack;
	bool print_script;
	const char *file; /* a script, instead of drills */
	int rails;
	bool open;
	const char *json;
	int times;
};

static const struct argp_option option_table[] = {
    {"list", KEY_LIST, NULL, 0, "Names the drills and what each proves", 0},
    {"soak", KEY_SOAK, "SECONDS", 0,
     "Instead: random faults that always leave one path, for so long", 0},
    {"seed", KEY_SEED, "N", 0, "Of the soak (default: 1); the same seed gives the same faults", 0},
    {"show-script", KEY_SCRIPT, NULL, 0, "Prints the soak's script and does nothing", 0},
    {"script", KEY_FILE, "FILE", 0,
     "Instead: the faults in this file, which must leave one path (docs/testing.md)", 0},
    {"rails", KEY_RAILS, "N", 0, "Of the fabric for --script (default: 3)", 0},
    {"open", KEY_OPEN, NULL, 0, "With --script: a job that dies is reported and is no failure", 0},
    {"json", KEY_JSON, "FILE", 0, "Writes what came of the last drill, for programs", 0},
    {"slack", KEY_SLACK, "FACTOR", 0, "Multiplies the limits on times (default: 1)", 0},
    {"out", KEY_OUT, "DIR", 0,
     "Keeps the last drill's timeline, throughput, events and output there", 0},
    {"times", KEY_TIMES, "N", 0,
     "Runs each drill so often (default: 1); how long errors may take is judged of all of them, "
     "without slack, too",
     0},
    {"verbose", 'v', NULL, 0, "Shows faults and warnings as they come; twice: all output", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case KEY_LIST:
		a->list = true;
		return 0;
	case KEY_SOAK:
		a->soak_s = atof(arg);
		if (a->soak_s < 2)
			argp_error(state, "--soak: '%s' is no time of at least 2 s", arg);
		return 0;
	case KEY_SEED:
		a->seed = (unsigned)strtoul(arg, NULL, 0);
		return 0;
	case KEY_FILE:
		a->file = arg;
		return 0;
	case KEY_RAILS:
		a->rails = atoi(arg);
		if (a->rails < 1 || a->rails > 16)
			argp_error(state, "--rails: '%s' is not 1 to 16", arg);
		return 0;
	case KEY_OPEN:
		a->open = true;
		return 0;
	case KEY_JSON:
		a->json = arg;
		return 0;
	case KEY_TIMES:
		a->times = atoi(arg);
		if (a->times < 1 || a->times > TIMES_MAX)
			argp_error(state, "--times: '%s' is not 1 to %d", arg, TIMES_MAX);
		return 0;
	case KEY_OUT:
		a->out = arg;
		return 0;
	case KEY_SCRIPT:
		a->print_script = true;
		return 0;
	case KEY_SLACK:
		a->slack = atof(arg);
		if (a->slack < 1)
			argp_error(state, "--slack: '%s' is not at least 1", arg);
		return 0;
	case 'v':
		a->verbose++;
		return 0;
	case ARGP_KEY_ARG:
		if (a->nnames == (int)(sizeof(a->names) / sizeof(a->names[0])))
			argp_error(state, "too many drills");
		a->names[a->nnames++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (!a->list && a->soak_s <= 0 && !a->nnames && !a->file)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the table ------------------------------------------------------------------------------ */

static void print_header(void)
{
	printf("%-28s %-8s %8s %11s %10s %9s %6s  %s\n", "drill", "verdict", "switches",
	       "blackout ms", "replayed", "not resent", "wrong", "detected by");
}

static void print_row(const struct drill_run *run)
{
	char reasons[200], wrong[24] = "-";

	if (run->report)
		snprintf(wrong, sizeof(wrong), "%lld",
			 (long long)json_integer_value(json_object_get(run->report, "wrong")));
	printf("%-28s %-8s %8d %11.1f %10llu %9llu %6s  %s\n", run->drill->name,
	       run->ncomplaints ? "FAILED" : "passed", drill_events(run, "switch"),
	       drill_longest_stall_ms(run), (unsigned long long)drill_sum(run, "replayed_messages"),
	       (unsigned long long)drill_sum(run, "completed_without_resend"), wrong,
	       drill_reasons(run, reasons, sizeof(reasons)));
	fflush(stdout);
}

/* What is needed to see why. */
static void print_failure(const struct drill_run *run)
{
	int from = run->nlines > 100 ? run->nlines - 100 : 0;

	printf("  %s: %s\n%s", run->drill->name, run->drill->proves,
	       run->complaints ? run->complaints : "");
	for (int i = 0; i < run->script.nsteps && !run->drill->random; i++) {
		const struct drill_step *step = &run->script.steps[i];

		if (step->done_ns)
			printf("    %9.1f ms  %s\n", (double)(step->done_ns - run->zero_ns) / 1e6,
			       step->text);
	}
	if (run->verbose > 1)
		return;
	if (from)
		printf("    (%d lines of output before these)\n", from);
	for (int i = from; i < run->nlines; i++)
		printf("    %9.1f ms | %s\n",
		       run->zero_ns ? ((double)run->lines[i].at_ns - (double)run->zero_ns) / 1e6
				    : 0.0,
		       run->lines[i].text);
}

/* ---- running -------------------------------------------------------------------------------- */

/*
 * With slack other programs use the machine as well, and may take a processor away for longer than
 * the slack has room for: how long nothing moved, or an error took, is then the least of several
 * runs. All else is judged in each of them.
 */
#define MEASURED_MAX 3

static void run_and_measure(struct drill_run *run, const struct drill *drill,
			    const struct arguments *a)
{
	int most = a->slack > 1 ? MEASURED_MAX : 1;

	for (int n = 1;; n++) {
		*run = (struct drill_run){.drill = drill, .slack = a->slack, .verbose = a->verbose};
		drill_run(run);
		print_row(run);
		if (n == most || !drill_was_only_slow(run) || drill_interrupted)
			return;
		drill_run_free(run);
	}
}

static bool run_one(const struct drill *drill, const struct arguments *a, double *error_ms)
{
	struct drill_run run;
	bool ok;

	run_and_measure(&run, drill, a);
	ok = run.ncomplaints == 0;
	*error_ms = run.error_ms;
	if (!ok)
		print_failure(&run);
	if (a->out && !drill_record(&run, a->out))
		ok = false;
	if (a->json && !drill_write_result(&run, a->json))
		ok = false;
	drill_run_free(&run);
	return ok;
}

static bool run_so_often(const struct drill *drill, const struct arguments *a)
{
	double error_ms[TIMES_MAX];
	bool ok = true;
	char said[200];
	int n = 0;

	while (n < a->times && !drill_interrupted)
		ok = run_one(drill, a, &error_ms[n++]) && ok;
	if (drill->error_max_ms > 0 && n > 1) {
		ok = drill_judge_errors(drill, error_ms, n, said, sizeof(said)) && ok;
		printf("%-28s %s\n", drill->name, said);
	}
	return ok;
}

static const struct drill *find(const char *name)
{
	for (int i = 0; i < ndrills; i++)
		if (!strcmp(drills[i].name, name))
			return &drills[i];
	return NULL;
}

static bool run_named(const struct arguments *a)
{
	bool ok = true;

	for (int i = 0; i < a->nnames; i++) {
		if (!strcmp(a->names[i], "all"))
			continue;
		if (!find(a->names[i])) {
			fprintf(stderr, "ha-drill: there is no drill '%s': see --list\n",
				a->names[i]);
			return false;
		}
	}
	print_header();
	for (int i = 0; i < a->nnames; i++) {
		if (strcmp(a->names[i], "all") != 0) {
			ok = run_so_often(find(a->names[i]), a) && ok;
			continue;
		}
		for (int j = 0; j < ndrills && !drill_interrupted; j++)
			ok = run_so_often(&drills[j], a) && ok;
	}
	return ok;
}

static bool run_soak(const struct arguments *a)
{
	char *script = drill_soak_script(a->soak_s, a->seed, 2, 3);
	struct drill drill = {
	    .name = "soak",
	    .proves = "random faults that leave one path cost time, not data",
	    .rails = 3,
	    .fabric = {"--rate", "2", "--pace"}, /* it is there for the many messages, too */
	    .args = {"--op", "allreduce", "--sizes", "256K", "--chunk", "32K", "-C", "3"},
	    .script = script,
	    .random = true,
	    .tail_ms = 2000,
	    .switches_min = 1,
	    .switches_max = -1,
	    .stall_max_ms = 5000,
	};
	double error_ms;
	bool ok = false;

	if (!script) {
		fprintf(stderr, "ha-drill: out of memory\n");
	} else if (a->print_script) {
		fputs(script, stdout);
		ok = true;
	} else {
		printf("soak of %g s, seed %u\n", a->soak_s, a->seed);
		print_header();
		ok = run_one(&drill, a, &error_ms);
	}
	free(script);
	return ok;
}

static char *read_text(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;

	/* A script has no NUL: this reads all of it. */
	if (!f || getdelim(&text, &room, '\0', f) < 0) {
		fprintf(stderr, "ha-drill: %s: %s\n", path, f ? "it is empty" : strerror(errno));
		free(text);
		text = NULL;
	}
	if (f)
		fclose(f);
	return text;
}

static bool run_script(const struct arguments *a)
{
	char *script = read_text(a->file), channels[12];
	struct drill drill = {
	    .name = "script",
	    .proves = "faults that leave one path cost time, not data",
	    .rails = a->rails,
	    .args = {"--op", "allreduce", "--sizes", "256K", "--chunk", "32K", "-C", channels},
	    .script = script,
	    .tail_ms = 1500,
	    .fate = a->open ? DRILL_OPEN : DRILL_SURVIVES,
	    .switches_max = -1,
	};
	double error_ms;
	bool ok;

	if (!script)
		return false;
	/* A connection per direction starts on every rail. */
	snprintf(channels, sizeof(channels), "%d", a->rails);
	print_header();
	ok = run_one(&drill, a, &error_ms);
	free(script);
	return ok;
}

static void list(void)
{
	for (int i = 0; i < ndrills; i++)
		printf("%-28s %s\n", drills[i].name, drills[i].proves);
}

static void interrupt(int signal)
{
	(void)signal;
	drill_interrupted = 1;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
	    .options = option_table,
	    .parser = parse,
	    .args_doc = "DRILL...|all",
	    .doc = "Breaks a live fabric under checked traffic and judges what comes of it.",
	};
	struct sigaction act = {.sa_handler = interrupt};
	struct arguments a = {.seed = 1, .slack = 1, .rails = 3, .times = 1};

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	if (a.list)
		list();
	else if (a.file)
		return run_script(&a) ? 0 : 1;
	else if (!(a.soak_s > 0 ? run_soak(&a) : run_named(&a)))
		return 1;
	return 0;
}
