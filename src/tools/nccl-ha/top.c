/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha top: what the ports of all processes carry, and which connections are in trouble, live.
 */
#include "base/text.h"
#include "tools/nccl-ha/rates.h"
#include "tools/nccl-ha/screen.h"
#include "tools/nccl-ha/table.h"
#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
	struct nh_select select;
	double interval_s;
	long count; /* frames; 0: until it is ended */
	bool json;
};

static const struct argp_option options[] = {
    {"interval", 'i', "S", 0,
     "Look again each S seconds (1; at least 0.25, as often as counters change)", 0},
    {"count", 'n', "N", 0, "End after N frames", 0},
    {"json", 'j', NULL, 0, "Each frame as a JSON object in a line", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->select;
		return 0;
	case 'i':
		a->interval_s = nh_seconds(state, "--interval", arg, 0.25, 3600);
		return 0;
	case 'n':
		a->count = nh_number(state, "--count", arg, 1, 1000000000);
		return 0;
	case 'j':
		a->json = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- a frame -------------------------------------------------------------------------------- */

/* The port itself is out of order, or heartbeats over it are not answered. */
static bool port_in_trouble(const struct nccl_ha_port_stats *port)
{
	return strcmp(nh_port_state_text(port), "active") != 0 ||
	       (port->sessions > 0 && port->sessions_up < port->sessions);
}

static const char *mark_of(const struct nh_rate *rate)
{
	if (rate->worst >= NH_FAILING_OVER)
		return NH_SCREEN_BAD;
	return rate->worst == NH_UNPROTECTED || port_in_trouble(&rate->port->stats) ? NH_SCREEN_WARN
										    : "";
}

static void print_summary(FILE *out, const struct nh_snapshot *now, double interval_s)
{
	struct nh_counts counts = {0};
	char date[NH_TEXT_MAX];

	for (size_t i = 0; i < now->nprocesses; i++)
		nh_count(&now->processes[i], &counts);
	fprintf(out, NH_SCREEN_HEAD "nccl-ha top  %s  each %g s: %zu processes, %zu connections, ",
		nh_date_text(now->taken_ns, date), interval_s, now->nprocesses, counts.connections);
	for (int i = 0; i < NH_STANDING_COUNT; i++)
		fprintf(out, "%s%zu %s", i ? ", " : "", counts.by_standing[i],
			nh_standing_text((enum nh_standing)i));
	fprintf(out, "%s\n", nh_screen_is_terminal() ? "  (q ends)" : "");
}

static void add_rate(struct nh_table *table, const struct nh_rate *rate, double per_s,
		     const char *unit)
{
	char text[NH_TEXT_MAX];

	nh_table_add(table, "%s", rate->known ? nh_amount_text(per_s, unit, text) : "-");
}

static void add_row(struct nh_table *table, const struct nh_rate *rate)
{
	static const char *const marks[NH_STANDING_COUNT] = {
	    [NH_PROTECTED] = "",
	    [NH_UNPROTECTED] = "unprotected",
	    [NH_FAILING_OVER] = "FAILING OVER",
	    [NH_FAILED] = "FAILED",
	};
	const struct nccl_ha_port_stats *port = &rate->port->stats;
	char name[NH_PORT_NAME_MAX], speed[NH_TEXT_MAX], rank[16] = "-";

	if (rate->process->job.rank >= 0)
		snprintf(rank, sizeof(rank), "%d", rate->process->job.rank);
	nh_table_add(table, "%.20s", *rate->process->job.job_id ? rate->process->job.job_id : "-");
	nh_table_add(table, "%s", rank);
	nh_table_add(table, "%s", rate->process->key);
	nh_table_add(table, "%s", nh_port_name(rate->port, name));
	nh_table_add(table, "%s%s", nh_port_state_text(port), nh_port_marks(port));
	nh_table_add(table, "%s", nh_speed_text(port->speed_mbps, speed));
	add_rate(table, rate, rate->bytes_per_s, "B/s");
	add_rate(table, rate, rate->messages_per_s, "/s");
	nh_table_add(table, "%zu", rate->counts.connections);
	nh_table_add(table, "%zu", rate->counts.by_standing[NH_PROTECTED]);
	nh_table_add(table, "%" PRIu64 "%s", port->departures, rate->departures ? " <" : "");
	nh_table_add(table, "%" PRIu64 "/%" PRIu64, port->sessions_up, port->sessions);
	nh_table_add(table, "%s", marks[rate->worst]);
}

/* Trouble first, when not all of it fits. */
static int by_trouble(const void *a, const void *b)
{
	const struct nh_rate *r = a, *s = b;
	int order = strcmp(mark_of(s), mark_of(r));

	if (order == 0)
		order = strcmp(r->process->path, s->process->path);
	return order ? order : (r->port->slot > s->port->slot) - (r->port->slot < s->port->slot);
}

/* The table of all ports; each line gets its mark in front. */
static void print_rates(FILE *out, struct nh_rate *rates, size_t n)
{
	static const char *const heads[] = {
	    "job",	 ">rank",  ">pid",	 "port",	"state",      ">speed", ">traffic",
	    ">messages", ">conns", ">protected", ">departures", ">answering", "",	NULL};
	struct nh_table *table = nh_table_new(heads);
	char *text = NULL;
	size_t length;
	FILE *memory = open_memstream(&text, &length);
	int lines, columns;

	nh_screen_size(&lines, &columns);
	if (lines && n + 2 > (size_t)lines)
		qsort(rates, n, sizeof(*rates), by_trouble);
	for (size_t i = 0; i < n; i++)
		add_row(table, &rates[i]);
	if (memory) {
		nh_table_print(table, 0, memory);
		fclose(memory);
	}
	nh_table_free(table);
	for (size_t i = 0; text && text[0]; i++) {
		char *end = strchr(text, '\n');

		if (end)
			*end = '\0';
		fprintf(out, "%s%s\n",
			i == 0	 ? NH_SCREEN_HEAD
			: i <= n ? mark_of(&rates[i - 1])
				 : "",
			text);
		memmove(text, end ? end + 1 : "", end ? strlen(end + 1) + 1 : 1);
	}
	free(text);
}

static void show_text(const struct nh_snapshot *now, struct nh_rate *rates, size_t n,
		      double interval_s)
{
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	if (!out)
		return;
	print_summary(out, now, interval_s);
	if (now->nprocesses == 0)
		fprintf(out, "no process uses the plugin here now\n");
	print_rates(out, rates, n);
	if (!nh_screen_is_terminal())
		fputc('\n', out);
	fclose(out);
	nh_screen_show(text);
	free(text);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *rate_json(const struct nh_rate *rate)
{
	const struct nccl_ha_job_stats *job = &rate->process->job;
	char name[NH_PORT_NAME_MAX];

	return json_pack(
	    "{s:o, s:o, s:i, s:s, s:s, s:b, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
	    "job", nh_json_text(job->job_id), "rank",
	    job->rank < 0 ? json_null() : json_integer(job->rank), "pid", (int)job->pid, "port",
	    nh_port_name(rate->port, name), "state", nh_port_state_text(&rate->port->stats),
	    "silent", nh_port_is_silent(&rate->port->stats), "bytes_per_s",
	    rate->known ? json_real(rate->bytes_per_s) : json_null(), "messages_per_s",
	    rate->known ? json_real(rate->messages_per_s) : json_null(), "connections",
	    (json_int_t)rate->counts.connections, "protected",
	    (json_int_t)rate->counts.by_standing[NH_PROTECTED], "unprotected",
	    (json_int_t)rate->counts.by_standing[NH_UNPROTECTED], "failing_over",
	    (json_int_t)rate->counts.by_standing[NH_FAILING_OVER], "failed",
	    (json_int_t)rate->counts.by_standing[NH_FAILED], "departures",
	    (json_int_t)rate->port->stats.departures, "sessions",
	    (json_int_t)rate->port->stats.sessions, "sessions_up",
	    (json_int_t)rate->port->stats.sessions_up);
}

static void show_json(const struct nh_snapshot *now, const struct nh_rate *rates, size_t n)
{
	json_t *ports = json_array(), *doc;
	char date[NH_TEXT_MAX];

	for (size_t i = 0; i < n; i++)
		json_array_append_new(ports, rate_json(&rates[i]));
	doc = json_pack("{s:i, s:s, s:I, s:o}", "format", 1, "time",
			nh_date_text(now->taken_ns, date), "processes", (json_int_t)now->nprocesses,
			"ports", ports);
	json_dumpf(doc, stdout, NH_JSON_FORM | JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	fflush(stdout);
	json_decref(doc);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void run(const struct arguments *a)
{
	struct nh_snapshot before = {0}, now;

	for (long frame = 1;; frame++) {
		struct nh_rate *rates;
		size_t n;

		nh_snapshot_take(&now, &a->select, NULL);
		rates = nh_rates(&before, &now, &n);
		if (a->json)
			show_json(&now, rates, n);
		else
			show_text(&now, rates, n, a->interval_s);
		free(rates);
		nh_snapshot_free(&before);
		before = now;
		if (frame == a->count ||
		    !nh_screen_wait(frame == 1 && a->interval_s > 0.5 ? 0.5 /* rates, soon */
								      : a->interval_s))
			break;
	}
	nh_snapshot_free(&before);
}

int nh_cmd_top(int argc, char **argv)
{
	static const struct argp_child children[] = {{&nh_select_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
	    options,
	    parse,
	    NULL,
	    "Shows what each port carries and how its connections stand, again and again. On a "
	    "terminal q or Ctrl-C ends it; elsewhere frames follow each other.\vA departure is a "
	    "connection that left the port for another one; < marks new ones. \"answering\" is how "
	    "many remote ports answer heartbeats, and how many are asked.",
	    children,
	    NULL,
	    NULL};
	struct arguments a = {.select = NH_SELECT_ALL, .interval_s = 1};

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (!a.json)
		nh_screen_open();
	run(&a);
	nh_screen_close();
	return NH_EXIT_OK;
}
