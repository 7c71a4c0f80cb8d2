/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the checker of traces refuses. Traces of real runs are accepted; each of them is altered in
 * one event, in every way there is, and every altered one must be refused, or be one of the few
 * that are allowed by what the table says: those are named here (`still_legal`), each with why.
 */
#include "run.h"
#include "trace_check.h"

#include "../unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 4000u

enum kind {
	DROPPED,
	REPEATED,
	SWAPPED,
	STATE,
	EPOCH,
	OCCASION,
	GENERATION,
	MARK,
	RESUMED,
	MESSAGE,
	SERIAL,
	KINDS
};

static const char *const names[KINDS] = {
    [DROPPED] = "an event is left out",
    [REPEATED] = "an event comes twice",
    [SWAPPED] = "two events change places",
    [STATE] = "a step ends in another state",
    [EPOCH] = "an epoch is one more or less",
    [OCCASION] = "a step has another occasion",
    [GENERATION] = "a generation is one more or less",
    [MARK] = "an order or a fence is one more or less",
    [RESUMED] = "an epoch is confirmed, or is not",
    [MESSAGE] = "a message is of another kind",
    [SERIAL] = "a message is another one",
};

static struct world world;
static unsigned altered[KINDS], refused[KINDS];

/* The trace that is altered, and the altered one. */
static const struct trace *origin;
static struct trace_event events[EVENTS_MAX + 1];
static struct trace copy;

/* ---- what is allowed all the same ----------------------------------------------------------- */

static bool is_message(const struct trace_event *event)
{
	return event->what == TRACE_HEARS || event->what == TRACE_SAYS ||
	       event->what == TRACE_THROUGH;
}

static bool is_view(const struct trace_event *event)
{
	return event->what == TRACE_STEP || event->what == TRACE_BEGINS;
}

static bool is_heard_later(unsigned i)
{
	const struct trace_event *said = &origin->events[i];

	for (unsigned k = i + 1; k < origin->n; k++)
		if (origin->events[k].what == TRACE_HEARS && origin->events[k].end != said->end &&
		    origin->events[k].serial == said->serial)
			return true;
	return false;
}

static bool is_last_step(unsigned i)
{
	for (unsigned k = i + 1; k < origin->n; k++)
		if (origin->events[k].what == TRACE_STEP &&
		    origin->events[k].end == origin->events[i].end)
			return false;
	return true;
}

/* What its end was before this event. */
static const struct step_view *view_before(unsigned i)
{
	for (unsigned k = i; k-- > 0;)
		if (is_view(&origin->events[k]) && origin->events[k].end == origin->events[i].end)
			return &origin->events[k].is;
	return NULL;
}

static bool is_true_of(const struct trace_event *said, const struct step_view *v)
{
	const char *why;

	if (step_is_over(v->state))
		return true;
	if (said->m.kind == STEP_ON_PING || said->m.kind == STEP_ON_PONG)
		return step_against_claims(said->end, v, &said->m) == NULL;
	if (said->m.kind == STEP_ON_ANSWER && !said->refuses &&
	    v->slots[said->m.path].up != said->m.gen)
		return false;
	return step_find_say(said->end, v, &said->m, &why) >= 0;
}

/* The next step of its end; NULL: there is none, or what it says before that is not true without
 * this one. */
static const struct trace_event *next_step(unsigned i)
{
	const struct trace_event *e = &origin->events[i];

	for (unsigned k = i + 1; k < origin->n; k++) {
		const struct trace_event *other = &origin->events[k];

		if (other->end != e->end)
			continue;
		if (other->what == TRACE_STEP)
			return other;
		if (other->what == TRACE_SAYS && !is_true_of(other, view_before(i)))
			return NULL;
	}
	return NULL;
}

/* What its end takes in when it takes this step; NULL: nothing. */
static const struct step_message *heard_at(unsigned i)
{
	for (unsigned k = i; k-- > 0;)
		if (origin->events[k].end == origin->events[i].end) {
			if (origin->events[k].what == TRACE_HEARS)
				return &origin->events[k].m;
			if (origin->events[k].what == TRACE_THROUGH)
				return NULL;
		}
	return NULL;
}

/* This step and the next one of its end are, together, what is a row on the occasion of the next:
 * an end that has not noticed by itself what it hears, a path that comes up and is given up. */
static bool is_one_with_next(unsigned i)
{
	const struct trace_event *next = next_step(i);
	struct step step = {.end = origin->events[i].end, .was = *view_before(i)};
	const char *why;

	if (!next)
		return false;
	step.on = next->on;
	step.is = next->is;
	step.m = heard_at((unsigned)(next - origin->events));
	return step_find(&step, &why) >= 0;
}

static bool comes_at_any_time(const struct trace_event *event)
{
	return event->what == TRACE_STEP &&
	       (event->on == STEP_ON_RESUMES || event->on == STEP_ON_STANDBY_FAILED);
}

static bool may_swap(unsigned i)
{
	const struct trace_event *a = &origin->events[i], *b = a + 1;

	/* What two ends do has an order only where one hears what the other has said. */
	if (a->end != b->end)
		return !(a->what == TRACE_SAYS && b->what == TRACE_HEARS && a->serial == b->serial);
	/* What it says is true before the step and after it. */
	if (a->what == TRACE_SAYS && b->what == TRACE_STEP)
		return is_true_of(a, &b->is);
	if (a->what == TRACE_STEP && b->what == TRACE_SAYS)
		return is_true_of(b, view_before(i));
	/* An end goes on, or gives a path up, within what it hears or right after. */
	return (comes_at_any_time(a) && (b->what == TRACE_HEARS || b->what == TRACE_THROUGH)) ||
	       (comes_at_any_time(b) && (a->what == TRACE_HEARS || a->what == TRACE_THROUGH));
}

/* The altered event `i` is one that may be, for what the table says. */
static bool still_legal(enum kind kind, unsigned i)
{
	const struct trace_event *was = &origin->events[i], *is = &events[i];

	if (kind == SWAPPED)
		return may_swap(i);
	if (kind == REPEATED)
		return false;
	/* Said and never heard: it was lost, or another thing that was true was said and lost. */
	if (was->what == TRACE_SAYS && !is_heard_later(i))
		return kind == DROPPED || kind == SERIAL || step_is_over(view_before(i)->state) ||
		       is_true_of(is, view_before(i));
	/* A life that ends a step sooner. */
	if (kind == DROPPED)
		return was->what == TRACE_STEP && (is_last_step(i) || is_one_with_next(i));
	/* Of an end that gives up, or whose peer has closed, the table says nothing but that. */
	return kind != STATE && kind != OCCASION && was->what == TRACE_STEP &&
	       step_is_over(was->is.state);
}

/* ---- altering ------------------------------------------------------------------------------- */

static void restore(void)
{
	memcpy(events, origin->events, origin->n * sizeof(*events));
	copy = (struct trace){.events = events, .n = origin->n};
}

static void judge(enum kind kind, unsigned i)
{
	struct trace_verdict verdict;
	char was[512], is[512];

	trace_check(&copy, &verdict);
	altered[kind]++;
	refused[kind] += !verdict.accepted;
	if (verdict.accepted && !still_legal(kind, i))
		fail_msg("%s, and it is accepted: event %u of %u, %s; altered: %s", names[kind], i,
			 origin->n, trace_text(&origin->events[i], was, sizeof(was)),
			 trace_text(&events[i], is, sizeof(is)));
	restore();
}

static void leave_out(unsigned i)
{
	memmove(&events[i], &events[i + 1], (copy.n - i - 1) * sizeof(*events));
	copy.n--;
	judge(DROPPED, i);
}

static void repeat(unsigned i)
{
	memmove(&events[i + 1], &events[i], (copy.n - i) * sizeof(*events));
	copy.n++;
	judge(REPEATED, i);
}

static void swap(unsigned i)
{
	struct trace_event event = events[i];

	if (i + 1 == copy.n)
		return;
	events[i] = events[i + 1];
	events[i + 1] = event;
	judge(SWAPPED, i);
}

/* One more, and one less where there is less. */
static void shift(enum kind kind, unsigned i, uint32_t *number)
{
	const uint32_t was = *number;

	*number = was + 1;
	judge(kind, i);
	if (was == 0)
		return;
	*number = was - 1;
	judge(kind, i);
}

static void alter_step(unsigned i)
{
	struct trace_event *e = &events[i];

	for (unsigned state = 0; state <= STEP_IN_CLOSED; state++)
		if (state != origin->events[i].is.state) {
			e->is.state = (uint8_t)state;
			judge(STATE, i);
		}
	for (unsigned on = 0; on < STEP_ON_END; on++)
		if (on != origin->events[i].on) {
			e->on = (uint8_t)on;
			judge(OCCASION, i);
		}
	shift(EPOCH, i, &e->is.epoch);
	shift(GENERATION, i, &e->is.gen);
	e->is.resumed = !e->is.resumed;
	judge(RESUMED, i);
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		struct step_slot *slot = &e->is.slots[p];

		shift(GENERATION, i, &slot->up);
		shift(GENERATION, i, &slot->newest);
		shift(MARK, i, &slot->want);
		shift(MARK, i, &slot->fenced);
		shift(MARK, i, &slot->without);
		shift(MARK, i, &slot->peer_fenced);
		shift(MARK, i, &slot->peer_without);
	}
}

static void alter_message(unsigned i)
{
	struct trace_event *e = &events[i];

	for (unsigned kind = STEP_ON_SUSPECT; kind < STEP_ON_END; kind++)
		if (kind != origin->events[i].m.kind) {
			e->m.kind = (uint8_t)kind;
			judge(MESSAGE, i);
		}
	shift(EPOCH, i, &e->m.epoch);
	shift(GENERATION, i, &e->m.gen);
	shift(SERIAL, i, &e->serial);
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		shift(MARK, i, &e->m.fenced[p]);
		shift(MARK, i, &e->m.without[p]);
	}
}

static void alter_all(const struct trace *trace)
{
	assert_true(trace->n < EVENTS_MAX);
	origin = trace;
	restore();
	for (unsigned i = 0; i < trace->n; i++) {
		leave_out(i);
		repeat(i);
		swap(i);
		if (trace->events[i].what == TRACE_STEP)
			alter_step(i);
		if (is_message(&trace->events[i]))
			alter_message(i);
	}
}

/* ---- runs ----------------------------------------------------------------------------------- */

static const struct {
	const char *scenario, *faults[3];
	uint64_t at[3];
	bool e2e;
} runs[] = {
    {"one", {"link-s"}, {3}, false},
    {"one", {"link-r"}, {5}, true},
    {"groups", {"kill-packet-s", "link-r"}, {4, 9}, false},
    {"window", {"cut", "standby-s"}, {4, 20}, true},
    {"four", {"removed-slowly-s", "late-far-s"}, {9, 3}, true},
    {"four", {"wc-INV_EECN_ERR-r", "cut-brief", "event-PORT_ERR-s"}, {10, 6, 49}, true},
    {"connect", {"socket-s", "wc-FATAL_ERR-s"}, {6, 0}, false},
    {"single", {"link-s"}, {7}, false},
    {"slow", {"wedge-s"}, {7}, false},
    {"close", {"link-s"}, {4}, true},
    {"one", {"wc-LOC_RDD_VIOL_ERR-r"}, {1}, true},
    {"both", {"wc-WR_FLUSH_ERR-unsent-r", "wc-GENERAL_ERR-r"}, {1, 1}, true},
    {"split", {"wc-REM_INV_REQ_ERR-s", "wc-LOC_QP_OP_ERR-s"}, {0, 0}, false},
    {"groups", {"wc-REM_INV_RD_REQ_ERR-r", "wc-RNR_RETRY_EXC_ERR-unsent-s"}, {5, 1}, true},
};

static void play(unsigned i)
{
	struct run_spec spec = {
	    .world = {.scenario = scenario_find(runs[i].scenario), .e2e = runs[i].e2e}};
	struct run_result result;

	for (unsigned f = 0; f < 3 && runs[i].faults[f]; f++) {
		spec.faults[f].fault = fault_find(runs[i].faults[f]);
		spec.faults[f].at = runs[i].at[f];
		assert_non_null(spec.faults[f].fault);
		spec.nfaults++;
	}
	run(&world, &spec, &result);
	if (result.wrong[0] != '\0')
		fail_msg("%s", result.wrong);
	assert_true(result.traces > 0);
	assert_int_equal(result.unjudged, 0);
}

static void what_runs_do_is_what_the_model_does(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		play(i);
}

static void a_trace_that_is_altered_in_one_event_is_refused(void **state)
{
	unsigned traces = 0, sum = 0, sum_refused = 0;

	(void)state;
	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		play(i);
		for (unsigned k = 0; k < trace_count(); k++, traces++)
			alter_all(trace_of(k));
	}
	printf("%u traces\n", traces);
	for (unsigned kind = 0; kind < KINDS; kind++) {
		printf("%-40s %6u altered %6u refused\n", names[kind], altered[kind],
		       refused[kind]);
		assert_true(refused[kind] > 0);
		sum += altered[kind];
		sum_refused += refused[kind];
	}
	printf("%-40s %6u altered %6u refused\n", "all", sum, sum_refused);
	assert_true(sum_refused * 100ull >= sum * 95ull);
}

static void what_a_bundle_does_is_not_judged_and_is_counted(void **state)
{
	struct run_spec spec = {.world = {.scenario = scenario_find("bundle")}};
	struct run_result result;

	(void)state;
	run(&world, &spec, &result);
	assert_int_equal(result.end, RUN_DELIVERED);
	assert_int_equal(result.traces, 0);
	assert_int_equal(result.unjudged, 1);
}

static int free_world(void **state)
{
	(void)state;
	world_free(&world);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_runs_do_is_what_the_model_does),
	    cmocka_unit_test(a_trace_that_is_altered_in_one_event_is_refused),
	    cmocka_unit_test(what_a_bundle_does_is_not_judged_and_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, free_world);
}
