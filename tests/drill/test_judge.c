/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of drills: a run that is right in every way passes, and each single thing wrong shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "drill.h"
#include "tools/common/clock.h"

/* ---- a run that survived -------------------------------------------------------------------- */

/* Everything that the judge looks at; what all is well looks like, until a test changes it. */
struct story {
	int status, wrong, checked;
	double stall_ms;
	int switches, counted, destroyed;
	const char *reason;
	uint64_t lost;
	bool ended_early;
	int fired;
	uint64_t on_rail[2];
};

static const struct drill survivor = {
    .name = "survivor",
    .script = "1000 link 0 0 down\n2000 link 0 0 up",
    .switches_min = 1,
    .switches_max = 2,
    .switches_sick = 1,
    .reasons = "heartbeats lost|local port down",
    .stall_min_ms = 5,
    .stall_max_ms = 50,
    .ends_on_rail = 1 + 1,
};

static const struct story well = {
    .checked = 3,
    .stall_ms = 20,
    .switches = 1,
    .counted = 1,
    .reason = "local port down",
    .lost = 2,
    .fired = 1,
    .on_rail = {1000, 50 << 20},
};

static void begin(struct drill_run *run, const struct drill *drill)
{
	char err[100];

	memset(run, 0, sizeof(*run));
	run->drill = drill;
	run->slack = 1;
	run->zero_ns = NP_NS_PER_S;
	assert_true(drill_script_parse(&run->script, drill->script, err, sizeof(err)));
	for (int i = 0; i < run->script.nsteps; i++)
		run->script.steps[i].done_ns = run->zero_ns + run->script.steps[i].at_us * 1000;
	run->events = json_array();
}

#define SLOW (-1)

/* How many complaints come of it. SLOW: one, that a stall was too long. */
static int survive(const struct story *s)
{
	struct drill_run run;
	int complaints;
	bool is_slow;

	begin(&run, &survivor);
	run.status = s->status;
	run.script.steps[0].lost_before = 7;
	run.script.steps[0].lost_after = 7 + s->lost;
	if (s->ended_early)
		run.script.steps[1].done_ns = 0;
	memcpy(run.rail_bytes, s->on_rail, sizeof(s->on_rail));
	run.report =
	    json_pack("{s:i, s:[{s:i, s:[{s:f}]}], s:{s:{s:i, s:i}}}", "wrong", s->wrong, "rows",
		      "checked", s->checked, "stalls", "duration_ms", s->stall_ms, "counters",
		      "connections", "failovers", s->counted, "fences_destroyed", s->destroyed);
	for (int i = 0; i < s->switches; i++)
		json_array_append_new(
		    run.events, json_pack("{s:s, s:s}", "kind", "switch", "reason", s->reason));
	run.fabric = json_pack("{s:[{s:s, s:i}]}", "faults", "rule", "drop", "fired", s->fired);
	drill_judge(&run);
	complaints = run.ncomplaints;
	is_slow = drill_was_only_slow(&run);
	drill_run_free(&run);
	return is_slow ? SLOW : complaints;
}

static void a_run_that_is_well_passes(void **state)
{
	(void)state;
	assert_int_equal(survive(&well), 0);
}

static void each_thing_that_is_not_shows(void **state)
{
	struct story s;

	(void)state;
#define EXPECT_COMPLAINT(change)                                                                   \
	do {                                                                                       \
		s = well;                                                                          \
		change;                                                                            \
		assert_int_equal(survive(&s), 1);                                                  \
	} while (0)
	EXPECT_COMPLAINT(s.status = 3);
	EXPECT_COMPLAINT(s.wrong = 1);
	EXPECT_COMPLAINT(s.checked = 0);
	EXPECT_COMPLAINT(s.stall_ms = 4);
	EXPECT_COMPLAINT(s.switches = s.counted = 3);
	EXPECT_COMPLAINT(s.switches = s.counted = 4; s.destroyed = 1);
	EXPECT_COMPLAINT(s.counted = 2);
	EXPECT_COMPLAINT(s.reason = "error completion");
	EXPECT_COMPLAINT(s.lost = 0);
	EXPECT_COMPLAINT(s.ended_early = true);
	EXPECT_COMPLAINT(s.fired = 0);
	EXPECT_COMPLAINT(s.on_rail[0] = 20 << 20);
	EXPECT_COMPLAINT(s.on_rail[1] = 20000);
	/* What may be measured again, and what may not as more than that is wrong. */
	s = well;
	s.stall_ms = 51;
	assert_int_equal(survive(&s), SLOW);
	s.wrong = 1;
	assert_int_equal(survive(&s), 2);
	/* A fence that had to destroy costs more switches. */
	s = well;
	s.switches = s.counted = 3;
	s.destroyed = 1;
	assert_int_equal(survive(&s), 0);
	/* No switch has no reason either. */
	s = well;
	s.switches = s.counted = 0;
	assert_int_equal(survive(&s), 2);
}

/* ---- a run that had to fail ------------------------------------------------------------------ */

static const struct drill loser = {
    .name = "loser",
    .script = "1000 cut 0",
    .fate = DRILL_FAILS,
    .error_min_ms = 500,
    .error_max_ms = 1000,
    .says = "no path is left",
};

struct end {
	int status;
	int told_ms[2]; /* when each rank says its error, after the fault; 0: never */
	int ended_ms;
	const char *says, *how;
};

static const struct end clean = {
    .status = 3,
    .told_ms = {700, 720},
    .ended_ms = 800,
    .says = "no path is left",
    .how = "test returned ncclRemoteError",
};

static void add_line(struct drill_run *run, int ms, const char *text)
{
	run->lines[run->nlines++] = (struct drill_line){
	    .at_ns = run->script.steps[0].done_ns + (uint64_t)ms * (uint64_t)NP_NS_PER_MS,
	    .text = strdup(text),
	};
}

static int fail_with(const struct end *e)
{
	struct drill_run run;
	int complaints;

	begin(&run, &loser);
	run.lines = calloc(3, sizeof(*run.lines));
	assert_non_null(run.lines);
	run.status = e->status;
	run.script.steps[0].lost_after = 1;
	add_line(&run, 600, e->says);
	for (int rank = 0; rank < 2; rank++) {
		char text[200];

		snprintf(text, sizeof(text), "nccl-net-perf: rank %d: %s", rank, e->how);
		if (e->told_ms[rank])
			add_line(&run, e->told_ms[rank], text);
	}
	run.ended_ns = run.script.steps[0].done_ns + (uint64_t)e->ended_ms * (uint64_t)NP_NS_PER_MS;
	drill_judge(&run);
	complaints = run.ncomplaints;
	drill_run_free(&run);
	return complaints;
}

static void an_error_must_be_clean_and_in_time(void **state)
{
	struct end e = clean;

	(void)state;
	assert_int_equal(fail_with(&e), 0);
#define EXPECT_BLAME(change)                                                                       \
	do {                                                                                       \
		e = clean;                                                                         \
		change;                                                                            \
		assert_int_equal(fail_with(&e), 1);                                                \
	} while (0)
	EXPECT_BLAME(e.status = 0);
	EXPECT_BLAME(e.told_ms[1] = 0);
	EXPECT_BLAME(e.told_ms[1] = 1001);
	EXPECT_BLAME(e.told_ms[1] = 499);
	EXPECT_BLAME(e.ended_ms = 5000);
	EXPECT_BLAME(e.says = "something else");
	e = clean;
	e.how = "stuck: nothing moved for 45 s";
	assert_int_equal(fail_with(&e), 2); /* each of them */
}

/* Told of a peer that died, by another process's number or by none. */
static int bereave(const char *says, double *error_ms)
{
	static const struct drill drill = {.name = "bereaved",
					   .script = "1000 process 1 kill",
					   .fate = DRILL_BEREAVED,
					   .error_max_ms = 100};
	struct drill_run run;
	int complaints;

	begin(&run, &drill);
	run.lines = calloc(2, sizeof(*run.lines));
	assert_non_null(run.lines);
	run.status = 3;
	run.script.steps[0].pid = 4711;
	add_line(&run, 30, says);
	add_line(&run, 31, "nccl-net-perf: rank 0: test returned ncclRemoteError");
	run.ended_ns = run.lines[1].at_ns;
	drill_judge(&run);
	complaints = run.ncomplaints;
	*error_ms = run.error_ms;
	drill_run_free(&run);
	return complaints;
}

static void a_peer_that_died_must_be_named(void **state)
{
	double error_ms;

	(void)state;
	assert_int_equal(bereave("process 4711 on host a is gone", &error_ms), 0);
	assert_true(error_ms > 30.9 && error_ms < 31.1);
	assert_int_equal(bereave("process 471 on host a is gone", &error_ms), 1);
	assert_int_equal(bereave("its socket is closed", &error_ms), 1);
}

static void errors_of_many_runs_have_no_slack(void **state)
{
	static const struct drill drill = {.name = "bereaved", .error_max_ms = 100};
	double ms[100];
	char said[200];

	(void)state;
	for (int i = 0; i < 100; i++)
		ms[i] = 31;
	assert_true(drill_judge_errors(&drill, ms, 30, said, sizeof(said)));
	assert_string_equal(said,
			    "30 errors: p50 31.0, p99 31.0 ms after the fault, at most 100: met");
	ms[7] = 101; /* one of 30 is more than one of 100 */
	assert_false(drill_judge_errors(&drill, ms, 30, said, sizeof(said)));
	assert_non_null(strstr(said, "p99 101.0 ms after the fault, at most 100: MISSED"));
	assert_true(drill_judge_errors(&drill, ms, 100, said, sizeof(said)));
	ms[0] = 102;
	assert_false(drill_judge_errors(&drill, ms, 100, said, sizeof(said)));
}

/* A replay whose job may die: that is told and judged elsewhere, but wrong data stays wrong. */
static void an_open_run_fails_by_wrong_data_only(void **state)
{
	static const struct drill open = {
	    .name = "open", .script = "1000 cut 0", .fate = DRILL_OPEN};

	(void)state;
	for (int status = 0; status <= 4; status++) {
		struct drill_run run;

		begin(&run, &open);
		run.status = status;
		drill_judge(&run);
		assert_int_equal(run.ncomplaints, status == 1);
		drill_run_free(&run);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_run_that_is_well_passes),
	    cmocka_unit_test(each_thing_that_is_not_shows),
	    cmocka_unit_test(an_error_must_be_clean_and_in_time),
	    cmocka_unit_test(a_peer_that_died_must_be_named),
	    cmocka_unit_test(errors_of_many_runs_have_no_slack),
	    cmocka_unit_test(an_open_run_fails_by_wrong_data_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
