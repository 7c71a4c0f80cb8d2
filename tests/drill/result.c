/* SPDX-License-Identifier: Apache-2.0 */
/* What came of a drill as JSON, for scripts that make more of it. Times are in ms from the script's
 * 0. */
#include "drill.h"

#include "tools/common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static double ms_since_zero(const struct drill_run *run, uint64_t ns)
{
	return ((double)ns - (double)run->zero_ns) / 1e6;
}

static double number(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

/* "at_ms" is null for a step that was never reached. */
static json_t *steps_array(const struct drill_run *run)
{
	json_t *steps = json_array();

	for (int i = 0; i < run->script.nsteps; i++) {
		const struct drill_step *s = &run->script.steps[i];

		json_array_append_new(
		    steps,
		    json_pack("{s:s, s:o, s:b, s:I}", "text", s->text, "at_ms",
			      s->done_ns ? json_real(ms_since_zero(run, s->done_ns)) : json_null(),
			      "breaks", (int)drill_step_breaks(s), "packets_lost",
			      s->done_ns ? (json_int_t)(s->lost_after - s->lost_before)
					 : (json_int_t)0));
	}
	return steps;
}

/* On each rank's clock of the report, which is moved to the script's. */
static json_t *stalls_array(const struct drill_run *run)
{
	const json_t *origins =
	    json_object_get(json_object_get(run->report, "clock"), "monotonic_ns");
	json_t *stalls = json_array();
	const json_t *row, *stall;
	size_t i, j;

	json_array_foreach(json_object_get(run->report, "rows"), i, row)
	{
		json_array_foreach(json_object_get(row, "stalls"), j, stall)
		{
			size_t rank = (size_t)number(stall, "rank");
			uint64_t origin =
			    (uint64_t)json_integer_value(json_array_get(origins, rank));

			json_array_append_new(
			    stalls,
			    json_pack("{s:I, s:f, s:f}", "rank", (json_int_t)rank, "at_ms",
				      ms_since_zero(run, origin) + number(stall, "start_ms"), "ms",
				      number(stall, "duration_ms")));
		}
	}
	return stalls;
}

static json_t *switches_array(const struct drill_run *run)
{
	json_t *switches = json_array();
	const json_t *event;
	size_t i;

	json_array_foreach(run->events, i, event)
	{
		const char *kind = json_string_value(json_object_get(event, "kind"));
		uint64_t ns = (uint64_t)json_integer_value(json_object_get(event, "monotonic_ns"));

		if (!kind || strcmp(kind, "switch") != 0)
			continue;
		json_array_append_new(
		    switches, json_pack("{s:f, s:O?, s:f, s:f}", "at_ms", ms_since_zero(run, ns),
					"reason", json_object_get(event, "reason"), "detection_ms",
					number(event, "detection_ms"), "blackout_ms",
					number(event, "blackout_ms")));
	}
	return switches;
}

static json_t *complaints_array(const struct drill_run *run)
{
	json_t *list = json_array();
	const char *from = run->complaints;

	while (from && *from) {
		const char *end = strchrnul(from, '\n');

		from += strspn(from, " ");
		json_array_append_new(list, json_stringn_nocheck(from, (size_t)(end - from)));
		from = *end ? end + 1 : end;
	}
	return list;
}

static uint64_t checked(const struct drill_run *run)
{
	const json_t *row;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach(json_object_get(run->report, "rows"), i, row)
	{
		sum += (uint64_t)number(row, "checked");
	}
	return sum;
}

bool drill_write_result(const struct drill_run *run, const char *path)
{
	uint64_t error_ns = drill_error_ns(run);
	json_t *root = json_pack(
	    "{s:i, s:b, s:o, s:i, s:f, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "layout", 1,
	    "passed", run->ncomplaints == 0, "complaints", complaints_array(run), "status",
	    run->status, "ended_ms", run->ended_ns ? ms_since_zero(run, run->ended_ns) : 0.0,
	    "error_ms", error_ns ? json_real(ms_since_zero(run, error_ns)) : json_null(), "wrong",
	    run->report ? json_integer((json_int_t)number(run->report, "wrong")) : json_null(),
	    "checked", (json_int_t)checked(run), "bytes",
	    (json_int_t)number(
		json_object_get(json_object_get(run->report, "counters"), "connections"), "bytes"),
	    "replayed_messages", (json_int_t)drill_sum(run, "replayed_messages"), "not_resent",
	    (json_int_t)drill_sum(run, "completed_without_resend"), "steps", steps_array(run),
	    "stalls", stalls_array(run), "switches", switches_array(run));
	bool ok;

	errno = 0;
	ok = root && json_dump_file(root, path, JSON_INDENT(1)) == 0;
	if (!ok)
		fprintf(stderr, "ha-drill: cannot write %s: %s\n", path,
			errno ? strerror(errno) : "not enough memory");
	json_decref(root);
	return ok;
}
