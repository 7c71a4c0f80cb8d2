/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of a drill for people to look at: a timeline in which faults, the plugin's events
 * and stalls stand in one order, and throughput over time for a plot.
 */
#include "drill.h"

#include "tools/common/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	double at_s;
	char text[320];
};

struct timeline {
	struct entry *entries;
	size_t n, room;
};

static void add(struct timeline *t, double at_s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void add(struct timeline *t, double at_s, const char *fmt, ...)
{
	va_list ap;

	if (t->n == t->room) {
		size_t room = t->room ? 2 * t->room : 128;
		struct entry *grown = realloc(t->entries, room * sizeof(*grown));

		if (!grown)
			return;
		t->entries = grown;
		t->room = room;
	}
	t->entries[t->n].at_s = at_s;
	va_start(ap, fmt);
	vsnprintf(t->entries[t->n].text, sizeof(t->entries[t->n].text), fmt, ap);
	va_end(ap);
	t->n++;
}

static double seconds_since_zero(const struct drill_run *run, uint64_t ns)
{
	return ((double)ns - (double)run->zero_ns) / 1e9;
}

static double number(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

static const char *text(const json_t *object, const char *name)
{
	const char *s = json_string_value(json_object_get(object, name));

	return s ? s : "";
}

/* ---- the timeline ---------------------------------------------------------------------------- */

static void add_steps(struct timeline *t, const struct drill_run *run)
{
	for (int i = 0; i < run->script.nsteps; i++) {
		const struct drill_step *step = &run->script.steps[i];

		if (step->done_ns)
			add(t, seconds_since_zero(run, step->done_ns), "==== %s", step->text);
	}
}

/* "send 1f… (a:12 sim0:1 -> b:13 sim0:1)" is said in short as "send 1f…". */
static int short_name(const char *name)
{
	const char *end = strstr(name, " (");

	return end ? (int)(end - name) : (int)strlen(name);
}

static void add_switch(struct timeline *t, double at_s, const json_t *event)
{
	const json_t *from = json_object_get(event, "from"), *to = json_object_get(event, "to");
	const char *name = text(event, "name");

	add(t, at_s,
	    "switch of %.*s from %s to %s: %s; blackout %.1f ms, %.0f replayed, %.0f not "
	    "resent",
	    short_name(name), name, from ? text(from, "port") : "-", to ? text(to, "port") : "-",
	    text(event, "reason"), number(event, "blackout_ms"), number(event, "replayed_messages"),
	    number(event, "completed_without_resend"));
}

/* What else happened, to a port or a connection. */
static void add_other(struct timeline *t, double at_s, const json_t *event)
{
	const json_t *path = json_object_get(event, "from");
	const char *name = text(event, "name"), *port, *reason = text(event, "reason");

	if (!json_is_object(path))
		path = json_object_get(event, "to");
	port = text(path, "port");
	if (!*reason)
		reason = text(event, "detail");
	add(t, at_s, "%s%s%s%s%.*s%s%s", text(event, "kind"), *port ? " of " : "", port,
	    *name ? " for " : "", short_name(name), name, *reason ? ": " : "", reason);
}

static void add_events(struct timeline *t, const struct drill_run *run)
{
	const json_t *event;
	size_t i;

	json_array_foreach(run->events, i, event)
	{
		uint64_t ns = (uint64_t)json_integer_value(json_object_get(event, "monotonic_ns"));

		if (!strcmp(text(event, "kind"), "switch"))
			add_switch(t, seconds_since_zero(run, ns), event);
		else
			add_other(t, seconds_since_zero(run, ns), event);
	}
}

/* When a rank's clock of the report started. */
static uint64_t origin_ns(const struct drill_run *run, size_t rank)
{
	const json_t *origins =
	    json_object_get(json_object_get(run->report, "clock"), "monotonic_ns");

	return (uint64_t)json_integer_value(json_array_get(origins, rank));
}

static void add_stalls(struct timeline *t, const struct drill_run *run)
{
	const json_t *row, *stall;
	size_t i, j;

	json_array_foreach(json_object_get(run->report, "rows"), i, row)
	{
		json_array_foreach(json_object_get(row, "stalls"), j, stall)
		{
			size_t rank = (size_t)number(stall, "rank");
			double start_s = seconds_since_zero(run, origin_ns(run, rank)) +
					 number(stall, "start_ms") / 1e3;
			double ms = number(stall, "duration_ms");

			add(t, start_s + ms / 1e3, "rank %zu goes on after a stall of %.1f ms",
			    rank, ms);
		}
	}
}

static int by_time(const void *a, const void *b)
{
	double x = ((const struct entry *)a)->at_s, y = ((const struct entry *)b)->at_s;

	return (x > y) - (x < y);
}

static void write_timeline(FILE *f, const struct drill_run *run)
{
	struct timeline t = {0};

	add_steps(&t, run);
	add_events(&t, run);
	add_stalls(&t, run);
	if (t.n)
		qsort(t.entries, t.n, sizeof(t.entries[0]), by_time);
	for (size_t i = 0; i < t.n; i++)
		fprintf(f, "%9.3f s  %s\n", t.entries[i].at_s, t.entries[i].text);
	free(t.entries);
}

/* ---- for the plot ---------------------------------------------------------------------------- */

#define BIN 5 /* intervals of the report that make a point of the plot */

static double received(const json_t *ranks, size_t from, size_t to)
{
	const json_t *bytes;
	double sum = 0;
	size_t r;

	json_array_foreach(ranks, r, bytes)
	{
		for (size_t i = from; i < to; i++)
			sum += json_number_value(json_array_get(bytes, i));
	}
	return sum;
}

/* Seconds and GB/s received, all ranks together. */
static void write_throughput(FILE *f, const struct drill_run *run)
{
	const json_t *timeline = json_object_get(run->report, "timeline");
	const json_t *ranks = json_object_get(timeline, "bytes_received"), *bytes;
	double interval_ms = number(timeline, "interval_ms");
	double begun_s = seconds_since_zero(run, origin_ns(run, 0));
	size_t longest = 0, r;

	json_array_foreach(ranks, r, bytes)
	{
		if (json_array_size(bytes) > longest)
			longest = json_array_size(bytes);
	}
	for (size_t i = 0; i + BIN <= longest; i += BIN)
		fprintf(f, "%.3f %.4f\n", begun_s + (double)i * interval_ms / 1e3,
			received(ranks, i, i + BIN) / (BIN * interval_ms * 1e6));
}

/* Seconds, and GB/s received over each rail from then until the next sample. */
static void write_rails(FILE *f, const struct drill_run *run)
{
	const int rails = run->drill->rails ? run->drill->rails : 2;

	for (int i = 0; i + 1 < run->nsamples; i++) {
		const struct drill_sample *now = &run->samples[i], *next = now + 1;

		fprintf(f, "%.3f", seconds_since_zero(run, now->at_ns));
		for (int rail = 0; rail < rails; rail++)
			fprintf(f, " %.4f",
				(double)(next->bytes[rail] - now->bytes[rail]) /
				    (double)(next->at_ns - now->at_ns));
		fputc('\n', f);
	}
}

/* What mends this one: the next step on the same rail that is no breaking. */
static const struct drill_step *mending(const struct drill_run *run, int broken)
{
	const struct drill_step *step = &run->script.steps[broken];

	for (int i = broken + 1; i < run->script.nsteps; i++) {
		const struct drill_step *s = &run->script.steps[i];

		if (!drill_step_breaks(s) && s->rail == step->rail && s->host == step->host)
			return s;
	}
	return NULL;
}

/* Commands for gnuplot: a shaded area per fault. */
static void write_faults(FILE *f, const struct drill_run *run)
{
	for (int i = 0; i < run->script.nsteps; i++) {
		const struct drill_step *step = &run->script.steps[i], *end;
		double from, to;

		if (!step->done_ns || !drill_step_breaks(step))
			continue;
		end = mending(run, i);
		from = seconds_since_zero(run, step->done_ns);
		to = seconds_since_zero(run, end && end->done_ns ? end->done_ns : run->ended_ns);
		fprintf(f,
			"set object rectangle from %.3f, graph 0 to %.3f, graph 1 fillcolor rgb "
			"'#d62728' fillstyle solid 0.12 noborder behind\n"
			"set label '%s' at %.3f, graph 0.95 offset 0.5,0 textcolor rgb '#d62728'\n",
			from, to, step->text, from);
	}
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool write_file(const char *dir, const char *name, const struct drill_run *run,
		       void (*write)(FILE *f, const struct drill_run *run))
{
	char path[4096];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	if (f)
		write(f, run);
	ok = f && !ferror(f);
	ok = f && fclose(f) == 0 && ok;
	if (!ok)
		fprintf(stderr, "ha-drill: cannot write %s: %s\n", path, strerror(errno));
	return ok;
}

static void write_output(FILE *f, const struct drill_run *run)
{
	for (int i = 0; i < run->nlines; i++)
		fprintf(f, "%s\n", run->lines[i].text);
}

static void write_report(FILE *f, const struct drill_run *run)
{
	if (run->report) /* a run that failed has none */
		json_dumpf(run->report, f, JSON_INDENT(1));
}

static void write_event_log(FILE *f, const struct drill_run *run)
{
	const json_t *event;
	size_t i;

	json_array_foreach(run->events, i, event)
	{
		json_dumpf(event, f, JSON_COMPACT);
		fputc('\n', f);
	}
}

bool drill_record(const struct drill_run *run, const char *dir)
{
	bool ok = write_file(dir, "timeline.txt", run, write_timeline);

	ok = write_file(dir, "throughput.dat", run, write_throughput) && ok;
	ok = write_file(dir, "faults.gp", run, write_faults) && ok;
	if (run->drill->samples_rails)
		ok = write_file(dir, "rails.dat", run, write_rails) && ok;
	ok = write_file(dir, "output.txt", run, write_output) && ok;
	ok = write_file(dir, "events.jsonl", run, write_event_log) && ok;
	return write_file(dir, "report.json", run, write_report) && ok;
}
