/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on a drill: what had to come of it, and whether its faults proved anything. */
#include "drill.h"

#include "tools/common/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void drill_complain(struct drill_run *run, const char *fmt, ...)
{
	size_t old = run->complaints ? strlen(run->complaints) : 0;
	char text[500];
	char *grown;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	run->ncomplaints++;
	grown = realloc(run->complaints, old + strlen(text) + 8);
	if (!grown)
		return;
	run->complaints = grown;
	snprintf(grown + old, strlen(text) + 8, "    %s\n", text);
}

/* ---- reading the witnesses ------------------------------------------------------------------ */

static double number(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

static bool text_is(const json_t *object, const char *name, const char *want)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text && !strcmp(text, want);
}

/* Whether one of "a|b|c" is in the text. */
static bool contains_one_of(const char *text, const char *list)
{
	char copy[300], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", list);
	for (char *item = strtok_r(copy, "|", &save); item; item = strtok_r(NULL, "|", &save))
		if (strstr(text, item))
			return true;
	return false;
}

double drill_longest_stall_ms(const struct drill_run *run)
{
	const json_t *row, *stall;
	double longest = 0;
	size_t i, j;

	json_array_foreach(json_object_get(run->report, "rows"), i, row)
	{
		json_array_foreach(json_object_get(row, "stalls"), j, stall)
		{
			if (number(stall, "duration_ms") > longest)
				longest = number(stall, "duration_ms");
		}
	}
	return longest;
}

int drill_events(const struct drill_run *run, const char *kind)
{
	const json_t *event;
	int n = 0;
	size_t i;

	json_array_foreach(run->events, i, event)
	{
		n += text_is(event, "kind", kind);
	}
	return n;
}

uint64_t drill_sum(const struct drill_run *run, const char *member)
{
	const json_t *event;
	double sum = 0;
	size_t i;

	json_array_foreach(run->events, i, event)
	{
		sum += number(event, member);
	}
	return (uint64_t)sum;
}

const char *drill_reasons(const struct drill_run *run, char *buf, size_t len)
{
	const json_t *event;
	size_t i, used = 0;

	snprintf(buf, len, "-");
	json_array_foreach(run->events, i, event)
	{
		const char *reason = json_string_value(json_object_get(event, "reason"));

		if (!reason || !text_is(event, "kind", "switch") || (used && strstr(buf, reason)) ||
		    used + 2 >= len)
			continue;
		used += (size_t)snprintf(buf + used, len - used, "%s%s", used ? ", " : "", reason);
		if (used >= len)
			break;
	}
	return buf;
}

/* ---- did the faults do anything? ------------------------------------------------------------ */

/*
 * Whether the plugin was told of a port or device that died, at this step or soon after. A short
 * flap that traffic leaves at once may cost no packet, and this is how it shows.
 */
static bool was_noticed(const struct drill_run *run, const struct drill_step *step)
{
	const json_t *event;
	size_t i;

	json_array_foreach(run->events, i, event)
	{
		uint64_t at_ns =
		    (uint64_t)json_integer_value(json_object_get(event, "monotonic_ns"));

		if (text_is(event, "kind", "failure") && at_ns >= step->done_ns &&
		    at_ns < step->done_ns + 2 * NP_NS_PER_S &&
		    (text_is(event, "reason", "local port down") ||
		     text_is(event, "reason", "local device failed")))
			return true;
	}
	return false;
}

static bool cost_nothing(const struct drill_run *run, const struct drill_step *step)
{
	return drill_step_loses(step) && step->lost_after <= step->lost_before &&
	       !was_noticed(run, step);
}

static void judge_steps(struct drill_run *run)
{
	const struct drill_script *s = &run->script;
	int idle = 0;

	for (int i = 0; i < s->nsteps; i++) {
		const struct drill_step *step = &s->steps[i];

		if (!step->done_ns) {
			drill_complain(run,
				       "the run had ended before '%s': %d of %d steps were done",
				       step->text, i, s->nsteps);
			return;
		}
		if (!cost_nothing(run, step))
			continue;
		idle++;
		if (!run->drill->random)
			drill_complain(run,
				       "'%s' cost not one packet and nobody noticed: it proves "
				       "nothing",
				       step->text);
	}
	/* A short cut in one direction of a rail that carries but heartbeats may miss them all. */
	if (run->drill->random && idle > s->nsteps / 10)
		drill_complain(run, "%d of %d faults cost not one packet", idle, s->nsteps);
}

static void judge_faults(struct drill_run *run)
{
	const json_t *rule;
	size_t i;

	judge_steps(run);
	json_array_foreach(json_object_get(run->fabric, "faults"), i, rule)
	{
		if (number(rule, "fired") < 1)
			drill_complain(run, "the rule '%s' never fired",
				       json_string_value(json_object_get(rule, "rule")));
	}
}

/* ---- survival -------------------------------------------------------------------------------- */

static void judge_data(struct drill_run *run)
{
	const json_t *row;
	size_t i;

	if (run->status != 0)
		drill_complain(run, "nccl-net-perf ended with status %d, not 0", run->status);
	if (!run->report) {
		drill_complain(run, "nccl-net-perf left no report");
		return;
	}
	if (number(run->report, "wrong") > 0)
		drill_complain(run, "%.0f elements are wrong", number(run->report, "wrong"));
	json_array_foreach(json_object_get(run->report, "rows"), i, row)
	{
		if (number(row, "checked") < 1)
			drill_complain(run, "nothing was checked");
	}
}

static void judge_stalls(struct drill_run *run)
{
	const struct drill *d = run->drill;
	double stall = drill_longest_stall_ms(run);

	if (d->stall_max_ms > 0 && stall > d->stall_max_ms * run->slack) {
		drill_complain(run, "nothing moved for %.1f ms; the limit is %.1f ms", stall,
			       d->stall_max_ms * run->slack);
		run->nslow++;
	}
	if (stall < d->stall_min_ms)
		drill_complain(run,
			       "the longest stall was %.1f ms where the fault should have "
			       "stopped everything for %.1f ms",
			       stall, d->stall_min_ms);
}

static void judge_switches(struct drill_run *run)
{
	const struct drill *d = run->drill;
	int switches = drill_events(run, "switch");
	const json_t *counters = json_object_get(run->report, "counters");
	const json_t *connections = json_object_get(counters, "connections");
	double counted = number(connections, "failovers");
	int most = d->switches_max;
	char reasons[300];

	if (switches < d->switches_min)
		drill_complain(run, "%d switches in the event log, at least %d are due", switches,
			       d->switches_min);
	if (number(connections, "fences_destroyed") > 0)
		most += d->switches_sick;
	if (d->switches_max >= 0 && switches > most)
		drill_complain(run, "%d switches in the event log, at most %d are due", switches,
			       most);
	if (run->report && (int)counted != switches)
		drill_complain(run, "%d switches in the event log, but the counters say %.0f",
			       switches, counted);
	drill_reasons(run, reasons, sizeof(reasons));
	if (d->reasons && !contains_one_of(reasons, d->reasons))
		drill_complain(run, "the reasons are '%s', and none of '%s'", reasons, d->reasons);
}

static void judge_sheds(struct drill_run *run)
{
	int sheds = drill_events(run, "shed"), mended = drill_events(run, "mended");

	if (sheds < run->drill->sheds_min)
		drill_complain(run, "%d sheds in the event log, at least %d are due", sheds,
			       run->drill->sheds_min);
	if (run->drill->sheds_min && mended != sheds)
		drill_complain(run, "%d sheds in the event log, and %d are mended", sheds, mended);
}

/* Heartbeats go over every rail: a rail that carries traffic has far more than they. */
static void judge_rails(struct drill_run *run)
{
	uint64_t most = 0, carried;
	int at = run->drill->ends_on_rail - 1;

	if (at < 0)
		return;
	for (int rail = 0; rail < 16; rail++)
		if (rail != at && run->rail_bytes[rail] > most)
			most = run->rail_bytes[rail];
	carried = run->rail_bytes[at];
	if (carried < 1 << 20 || carried < 10 * most)
		drill_complain(run,
			       "in the end rail %d carried %llu bytes and another one %llu: the "
			       "traffic is not where it belongs",
			       at, (unsigned long long)carried, (unsigned long long)most);
}

/* ---- clean errors ---------------------------------------------------------------------------- */

/* When the first line with this text came; 0: never. */
static uint64_t line_at(const struct drill_run *run, const char *list)
{
	for (int i = 0; i < run->nlines; i++)
		if (contains_one_of(run->lines[i].text, list))
			return run->lines[i].at_ns;
	return 0;
}

static uint64_t first_fault_ns(const struct drill_run *run)
{
	for (int i = 0; i < run->script.nsteps; i++)
		if (drill_step_breaks(&run->script.steps[i]))
			return run->script.steps[i].done_ns;
	return 0;
}

/* The step that killed a host's process, the last one; NULL: none did. */
static const struct drill_step *killing(const struct drill_run *run)
{
	const struct drill_step *found = NULL;

	for (int i = 0; i < run->script.nsteps; i++)
		if (run->script.steps[i].action == DRILL_KILL_PROCESS)
			found = &run->script.steps[i];
	return found;
}

/* Who is left must know who is not. */
static void judge_name(struct drill_run *run, const struct drill_step *kill)
{
	char name[64];

	snprintf(name, sizeof(name), "process %d on host ", kill->pid);
	if (!line_at(run, name))
		drill_complain(run, "nothing in the output names the peer that was killed: '%s'",
			       name);
}

/* Ranks that must have ended with an error of the plugin's, each with a line that says so. */
static void judge_each_rank(struct drill_run *run, int killed, uint64_t fault_ns)
{
	const struct drill *d = run->drill;

	for (int rank = 0; rank < 2; rank++) {
		char clean[64];
		uint64_t at;
		double ms;

		snprintf(clean, sizeof(clean), "nccl-net-perf: rank %d: ", rank);
		if (rank == killed)
			continue;
		at = line_at(run, clean);
		for (int i = 0; i < run->nlines; i++)
			if (strstr(run->lines[i].text, clean) &&
			    strstr(run->lines[i].text, "stuck"))
				drill_complain(run, "rank %d was stuck: %s", rank,
					       run->lines[i].text);
		if (!at) {
			drill_complain(run, "rank %d was told of no error", rank);
			continue;
		}
		ms = (double)(at - fault_ns) / 1e6;
		if (ms > run->error_ms)
			run->error_ms = ms;
		if (at < fault_ns || ms < d->error_min_ms || ms > d->error_max_ms * run->slack)
			drill_complain(run,
				       "rank %d was told of the error %.0f ms after the fault, "
				       "which is not between %.0f and %.0f ms",
				       rank, ms, d->error_min_ms, d->error_max_ms * run->slack);
		run->nslow += at >= fault_ns && ms > d->error_max_ms * run->slack;
	}
}

uint64_t drill_error_ns(const struct drill_run *run)
{
	return line_at(run, "nccl-net-perf: rank");
}

static void judge_failure(struct drill_run *run)
{
	const struct drill *d = run->drill;
	const struct drill_step *kill = killing(run);
	uint64_t error_ns = drill_error_ns(run);

	if (run->status != 3)
		drill_complain(run, "nccl-net-perf ended with status %d, not 3", run->status);
	if (d->fate == DRILL_FAILS && line_at(run, "died of signal"))
		drill_complain(run, "a rank died");
	if (d->says && !line_at(run, d->says))
		drill_complain(run, "nothing in the output says '%s'", d->says);
	if (kill)
		judge_name(run, kill);
	judge_each_rank(run, kill ? kill->host : -1, first_fault_ns(run));
	/* nccl-net-perf gives the others two seconds after the first; closing takes no time. */
	if (error_ns && (double)(run->ended_ns - error_ns) > 3.5e9 * run->slack)
		drill_complain(run, "it took %.1f s from the first error to the end",
			       (double)(run->ended_ns - error_ns) / 1e9);
}

/* Its faults need not have happened, as it may have ended before them; wrong data is never right.
 */
static void judge_open(struct drill_run *run)
{
	if (run->status == 1 || number(run->report, "wrong") > 0)
		drill_complain(run, "%.0f elements are wrong (status %d)",
			       number(run->report, "wrong"), run->status);
}

void drill_judge(struct drill_run *run)
{
	if (run->drill->fate == DRILL_OPEN) {
		judge_open(run);
		return;
	}
	judge_faults(run);
	if (run->drill->fate != DRILL_SURVIVES) {
		judge_failure(run);
		return;
	}
	judge_data(run);
	judge_stalls(run);
	judge_switches(run);
	judge_sheds(run);
	judge_rails(run);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

bool drill_judge_errors(const struct drill *drill, double *ms, int n, char *said, size_t len)
{
	double p50, p99;

	qsort(ms, (size_t)n, sizeof(*ms), compare);
	p50 = ms[(n + 1) / 2 - 1];
	p99 = ms[(99 * n + 99) / 100 - 1];
	snprintf(said, len, "%d errors: p50 %.1f, p99 %.1f ms after the fault, at most %.0f: %s", n,
		 p50, p99, drill->error_max_ms, p99 <= drill->error_max_ms ? "met" : "MISSED");
	return p99 <= drill->error_max_ms;
}

void drill_run_free(struct drill_run *run)
{
	for (int i = 0; i < run->nlines; i++)
		free(run->lines[i].text);
	free(run->lines);
	drill_script_free(&run->script);
	json_decref(run->report);
	json_decref(run->events);
	json_decref(run->fabric);
	free(run->samples);
	free(run->complaints);
}
