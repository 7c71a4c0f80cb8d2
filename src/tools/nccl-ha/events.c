/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha events: what happened, from event logs; and what happens. */
#include "base/text.h"
#include "event/event.h"
#include "tools/common/clock.h"
#include "tools/nccl-ha/event_line.h"
#include "tools/nccl-ha/logs.h"
#include "tools/nccl-ha/snapshot.h"
#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/tool.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_US	    (100 * 1000)      /* at files that grow */
#define LOOK_JOB_NS (1 * NP_NS_PER_S) /* for processes that start */

struct arguments {
	struct nh_select select;
	struct nh_event_filter filter;
	bool follow, json;
	char **files;
	int nfiles;
};

enum { KEY_SINCE = 0x2000, KEY_REASON };

static const struct argp_option options[] = {
    {"follow", 'f', NULL, 0, "Wait for more, until interrupted", 0},
    {"kind", 'k', "KIND[,KIND...]", 0, "Only of these kinds:" HA_EVENT_NAMES, 0},
    {"connection", 'c', "TEXT", 0,
     "Only of connections whose number begins so, or whose name contains it", 0},
    {"reason", KEY_REASON, "TEXT", 0, "Only if the reason contains this", 0},
    {"since", KEY_SINCE, "TIME", 0,
     "Only later ones: 2026-11-22T06:30 (UTC), or 90s, 10m, 2h, 3d for so long ago", 0},
    {"json", 'j', NULL, 0, "The lines as they are: an object each", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;
	const char *wrong = NULL;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->select;
		return 0;
	case 'f':
		a->follow = true;
		return 0;
	case 'k':
		wrong = nh_event_filter_kinds(&a->filter, arg);
		break;
	case KEY_SINCE:
		wrong = nh_event_filter_since(&a->filter, arg);
		break;
	case 'c':
		a->filter.connection = arg;
		return 0;
	case KEY_REASON:
		a->filter.reason = arg;
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case ARGP_KEY_ARGS:
		a->files = state->argv + state->next;
		a->nfiles = state->argc - state->next;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	if (wrong)
		argp_error(state, "'%s' %s", arg, wrong);
	return 0;
}

/* ---- a batch of events, in the order of their times ----------------------------------------- */

struct entry {
	const char *time; /* in the event */
	json_t *event;
	char *line;
	size_t number; /* keeps those of the same moment in order */
};

struct batch {
	const struct arguments *a;
	const char *command;
	struct entry *entries;
	size_t n, room;
	bool heads_printed, problems;
	size_t no_events; /* lines that are none */
};

#define NO_EVENTS_TOLD 3 /* then silence: it may be a file of another kind */

static void problem(void *arg, const char *path, const char *what)
{
	struct batch *batch = arg;
	char safe[PATH_MAX];

	batch->problems = true;
	fprintf(stderr, "%s: %s: %s\n", batch->command,
		ha_printable(path, SIZE_MAX, safe, sizeof(safe)), what);
}

static void take_line(void *arg, const char *path, char *line)
{
	struct batch *batch = arg;
	json_t *event = json_loads(line, 0, NULL);
	const char *time = json_string_value(json_object_get(event, "time"));

	if (!time) {
		if (batch->no_events++ < NO_EVENTS_TOLD)
			problem(batch, path, "has a line that is no event; passed over");
		json_decref(event);
		return;
	}
	if (!nh_event_wanted(&batch->a->filter, event)) {
		json_decref(event);
		return;
	}
	if (batch->n == batch->room) {
		size_t room = batch->room ? 2 * batch->room : 256;
		struct entry *grown = realloc(batch->entries, room * sizeof(*grown));

		if (!grown) {
			json_decref(event);
			return;
		}
		batch->entries = grown;
		batch->room = room;
	}
	batch->entries[batch->n] = (struct entry){time, event, strdup(line), batch->n};
	batch->n++;
}

/* What is JSON has no control characters but beyond ASCII. */
static bool is_ascii(const char *line)
{
	for (; *line; line++)
		if ((unsigned char)*line >= 0x80)
			return false;
	return true;
}

static int by_time(const void *a, const void *b)
{
	const struct entry *e = a, *f = b;
	int order = strcmp(e->time, f->time);

	return order ? order : (e->number > f->number) - (e->number < f->number);
}

/* As it is, unless a terminal could obey it. */
static void print_json(const struct entry *entry)
{
	char *ascii;

	if (!entry->line || is_ascii(entry->line)) {
		puts(entry->line ? entry->line : "");
		return;
	}
	ascii = json_dumps(entry->event, JSON_COMPACT | NH_JSON_FORM);
	puts(ascii ? ascii : "");
	free(ascii);
}

static void print_batch(struct batch *batch)
{
	if (batch->n)
		qsort(batch->entries, batch->n, sizeof(*batch->entries), by_time);
	if (!batch->a->json && !batch->heads_printed && batch->n) {
		nh_event_print_heads(stdout);
		batch->heads_printed = true;
	}
	for (size_t i = 0; i < batch->n; i++) {
		if (batch->a->json)
			print_json(&batch->entries[i]);
		else
			nh_event_print(batch->entries[i].event, stdout);
		json_decref(batch->entries[i].event);
		free(batch->entries[i].line);
	}
	batch->n = 0;
	fflush(stdout);
}

/* ---- the logs of running processes ---------------------------------------------------------- */

/* Adds those of the processes that were asked for; an exit status. */
static int add_logs_of_processes(struct nh_logs *logs, const struct arguments *a,
				 const char *command)
{
	struct nh_snapshot snapshot;
	int without_log = NH_EXIT_FAILED;
	size_t with_log = 0;

	nh_snapshot_take(&snapshot, &a->select, command);
	for (size_t i = 0; i < snapshot.nprocesses; i++) {
		const char *path = snapshot.processes[i].job.event_log;

		if (*path && nh_logs_add_named(logs, path, snapshot.processes[i].uid))
			with_log++;
	}
	if (command && snapshot.nprocesses == 0) {
		nh_say_no_job(&snapshot, &a->select, command);
		fprintf(stderr, "%s: of jobs that have ended, name the files\n", command);
	} else if (command && !with_log) {
		fprintf(stderr,
			"%s: the event log is off: start the job with "
			"HA_NCCL_EVENT_LOG=/var/log/nccl-ha/%%h.%%p (one file for each process); "
			"NCCL's log has the same events as lines with NET/HA\n",
			command);
	}
	if (snapshot.nprocesses == 0)
		without_log = NH_EXIT_NO_JOB;
	nh_snapshot_free(&snapshot);
	return with_log ? NH_EXIT_OK : without_log;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static void follow(struct nh_logs *logs, struct batch *batch, const struct nh_logs_reader *reader)
{
	struct sigaction act = {.sa_handler = on_signal};
	uint64_t looked_ns = np_now_ns();

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	while (!stop) {
		usleep(LOOK_US);
		if (!batch->a->nfiles && np_now_ns() - looked_ns >= LOOK_JOB_NS) {
			add_logs_of_processes(logs, batch->a, NULL);
			looked_ns = np_now_ns();
		}
		nh_logs_read(logs, reader);
		print_batch(batch);
	}
}

static int show(struct nh_logs *logs, const struct arguments *a, const char *command)
{
	struct batch batch = {.a = a, .command = command};
	struct nh_logs_reader reader = {take_line, problem, &batch};
	int status = NH_EXIT_OK;

	for (int i = 0; i < a->nfiles; i++)
		nh_logs_add(logs, a->files[i]);
	if (!a->nfiles)
		status = add_logs_of_processes(logs, a, command);
	if (status != NH_EXIT_OK)
		return status;
	nh_logs_read(logs, &reader);
	print_batch(&batch);
	if (a->follow)
		follow(logs, &batch, &reader);
	else if (nh_logs_opened(logs) == 0 && !batch.problems)
		fprintf(stderr, "%s: no file matches\n", command);
	free(batch.entries);
	return nh_logs_opened(logs) ? NH_EXIT_OK : NH_EXIT_FAILED;
}

int nh_cmd_events(int argc, char **argv)
{
	static const struct argp_child children[] = {{&nh_select_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
	    options,
	    parse,
	    "[FILE...]",
	    "Shows events from event logs (HA_NCCL_EVENT_LOG), oldest first: from FILEs, which may "
	    "be "
	    "patterns in quotes, or from those of the running processes.\vWith --follow, files may "
	    "grow, be cut, be replaced, and new ones may match.\n\nExit status: 0, 1 if no log "
	    "could "
	    "be read or the event log is off, 2 wrong usage, 3 no such process.",
	    children,
	    NULL,
	    NULL};
	struct arguments a = {.select = NH_SELECT_ALL, .filter = NH_EVENT_FILTER_NONE};
	struct nh_logs *logs = nh_logs_new();
	int status;

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	a.filter.rank = a.select.rank;
	if (!logs) {
		fprintf(stderr, "%s: out of memory\n", argv[0]);
		return NH_EXIT_FAILED;
	}
	status = show(logs, &a, argv[0]);
	nh_logs_free(logs);
	return status;
}
