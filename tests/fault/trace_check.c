/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct end_state {
	bool begun, ended;
	bool aborted; /* it has heard ABORT */
	struct step_view view;
	const struct trace_event *hearing; /* what it is not through with; NULL: nothing */
	uint32_t serial;		   /* of what it said last */
};

struct checking {
	const struct trace *trace;
	const struct trace_event *event;
	struct end_state ends[2];
	struct trace_verdict *out;
};

static void refuse(struct checking *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Only the first is of use. */
static void refuse(struct checking *c, const char *fmt, ...)
{
	struct trace_verdict *out = c->out;
	const struct step_view *was = &c->ends[c->event->end].view;
	char text[512];
	va_list args;
	int n;

	if (!out->accepted)
		return;
	out->accepted = false;
	out->at = (unsigned)(c->event - c->trace->events);
	n = snprintf(out->why, sizeof(out->why),
		     "the model does not allow step %u: %s, which was %s in epoch %u: ", out->at,
		     trace_text(c->event, text, sizeof(text)), step_state_name(was->state),
		     was->epoch);
	va_start(args, fmt);
	if (n > 0 && (size_t)n < sizeof(out->why))
		vsnprintf(out->why + n, sizeof(out->why) - (size_t)n, fmt, args);
	va_end(args);
}

/* ---- what was said -------------------------------------------------------------------------- */

static bool same_message(const struct trace_event *a, const struct trace_event *b)
{
	for (unsigned p = 0; p < STEP_PATHS; p++)
		if (a->m.fenced[p] != b->m.fenced[p] || a->m.without[p] != b->m.without[p])
			return false;
	return a->serial == b->serial && a->refuses == b->refuses && a->m.kind == b->m.kind &&
	       a->m.path == b->m.path && a->m.gen == b->m.gen && a->m.epoch == b->m.epoch;
}

/* The newest before this event that fits; NULL: there is none. Most are near. */
static const struct trace_event *
before(const struct checking *c, enum trace_what what, unsigned end,
       bool (*fits)(const struct trace_event *event, const struct trace_event *as),
       const struct trace_event *as)
{
	for (const struct trace_event *e = c->event; e-- > c->trace->events;)
		if (e->what == what && e->end == end && fits(e, as))
			return e;
	return NULL;
}

static bool same_name(const struct trace_event *event, const struct trace_event *as)
{
	return event->m.kind == as->m.kind && event->m.path == as->m.path &&
	       event->m.gen == as->m.gen && event->refuses == as->refuses &&
	       (as->m.epoch == 0 || event->m.epoch == as->m.epoch);
}

/* Whether this end has heard such a message about this generation. */
static bool was_told(const struct checking *c, unsigned kind, unsigned p, uint32_t gen,
		     uint32_t epoch)
{
	const struct trace_event as = {
	    .m = {.kind = (uint8_t)kind, .path = (uint8_t)p, .gen = gen, .epoch = epoch}};

	return before(c, TRACE_HEARS, c->event->end, same_name, &as) != NULL;
}

/* ---- one event after the other -------------------------------------------------------------- */

static void begins(struct checking *c)
{
	struct end_state *end = &c->ends[c->event->end];
	const struct step_view *v = &c->event->is;
	const struct step_view first = {
	    .state = STEP_IN_ACTIVE,
	    .path = 0,
	    .gen = 1,
	    .epoch = 1,
	    .resumed = c->event->end == STEP_RECEIVER,
	    .slots = {{.newest = c->event->end == STEP_RECEIVER, .up = 1}},
	};

	if (end->begun)
		refuse(c, "it has begun before");
	else if (!step_same(v, &first))
		refuse(c, "no connection begins so");
	end->begun = true;
	end->view = *v;
}

static bool is_heard(unsigned on)
{
	return on >= STEP_ON_SUSPECT;
}

/* Its own occasions that come up while it takes in a message: it goes on, or what the answer was
 * about fails. */
static bool may_be_within(const struct checking *c, const struct trace_event *hearing)
{
	if (c->event->on == STEP_ON_STANDBY_FAILED)
		return hearing->m.kind == STEP_ON_ANSWER;
	return c->event->on == STEP_ON_RESUMES &&
	       (c->event->end == STEP_RECEIVER || hearing->m.kind == STEP_ON_RESUME);
}

static const char *against_occasion(const struct checking *c)
{
	const struct trace_event *hearing = c->ends[c->event->end].hearing;
	unsigned on = c->event->on;

	if (c->ends[c->event->end].aborted && on != STEP_ON_GIVES_UP)
		return "the peer has given up, and so does it";
	if (is_heard(on) && (!hearing || hearing->m.kind != on))
		return "it has heard no such message";
	if (!is_heard(on) && hearing && !may_be_within(c, hearing))
		return "it is not through with what it hears";
	return NULL;
}

/* A path that comes up was offered by the one end and made by the other. */
static const char *against_offers(const struct checking *c, const struct step_view *was)
{
	const struct step_view *is = &c->event->is;

	for (unsigned p = 0; p < STEP_PATHS; p++) {
		uint32_t up = is->slots[p].up;

		if (up == 0 || up == was->slots[p].up)
			continue;
		if (!was_told(c, c->event->end == STEP_SENDER ? STEP_ON_REBUILD : STEP_ON_ANSWER, p,
			      up, 0))
			return "the peer has not said that there is such a path";
	}
	if (c->event->end == STEP_SENDER && c->event->on == STEP_ON_RESUMES &&
	    !was_told(c, STEP_ON_RESUME, is->path, is->gen, is->epoch))
		return "the receiver has not said that it goes on so";
	return NULL;
}

/* The receiver gives epochs out. */
static const char *against_peer(const struct checking *c)
{
	const struct end_state *s = &c->ends[STEP_SENDER], *r = &c->ends[STEP_RECEIVER];

	if (s->begun && r->begun && s->view.epoch > r->view.epoch)
		return "the sender is in an epoch that the receiver has not begun";
	return NULL;
}

static void steps(struct checking *c)
{
	struct end_state *end = &c->ends[c->event->end];
	struct step step = {.end = c->event->end,
			    .on = c->event->on,
			    .m = end->hearing ? &end->hearing->m : NULL,
			    .was = end->view,
			    .is = c->event->is};
	const char *why = against_occasion(c);

	if (!why && step_is_over(step.was.state))
		why = "it is over";
	if (!why && step_same(&step.was, &step.is))
		why = "nothing has changed";
	if (!why && step_find(&step, &why) >= 0)
		why = against_offers(c, &step.was);
	if (why)
		refuse(c, "%s", why);
	end->view = c->event->is;
	c->out->steps++;
	why = against_peer(c);
	if (why)
		refuse(c, "%s", why);
}

static void hears(struct checking *c)
{
	struct end_state *end = &c->ends[c->event->end];

	if (end->hearing)
		refuse(c, "it is not through with what it heard before");
	else if (!before(c, TRACE_SAYS, 1u - c->event->end, same_message, c->event))
		refuse(c, "the peer has not said that");
	end->hearing = c->event;
	end->aborted |= c->event->m.kind == STEP_ON_ABORT;
}

static void is_through(struct checking *c)
{
	struct end_state *end = &c->ends[c->event->end];
	const char *owed;

	if (!end->hearing || !same_message(end->hearing, c->event)) {
		refuse(c, "it has not heard that");
		return;
	}
	owed = step_owes(c->event->end, &end->view, &end->hearing->m);
	if (owed)
		refuse(c, "it owes %s", owed);
	end->hearing = NULL;
}

/* One that has given up says nothing that goes on. What is said to a peer that has closed nobody
 * hears: the model's end goes on with that until it has closed, too. */
static bool may_be_said_when_over(const struct step_view *v, unsigned kind)
{
	return v->state == STEP_IN_CLOSED ||
	       (kind != STEP_ON_FENCE && kind != STEP_ON_RESUME && kind != STEP_ON_RESUMED &&
		kind != STEP_ON_SAYS_FENCED && kind != STEP_ON_SUSPECT && kind != STEP_ON_REBUILD);
}

/* The model's sender says that it has made a path as long as that is there; ours says so of one
 * that it has not given up. */
static bool answers_wrongly(const struct trace_event *event, const struct step_view *v)
{
	const struct step_message *m = &event->m;

	return m->kind == STEP_ON_ANSWER && !event->refuses && v->slots[m->path].up != m->gen;
}

static void says(struct checking *c)
{
	struct end_state *end = &c->ends[c->event->end];
	const struct step_message *m = &c->event->m;
	const char *why = NULL;

	if (end->hearing)
		why = "it is not through with what it hears";
	else if (c->event->serial <= end->serial)
		why = "it has said more before";
	else if (step_is_over(end->view.state))
		why = may_be_said_when_over(&end->view, m->kind) ? NULL : "it is over";
	else if (m->kind == STEP_ON_PING || m->kind == STEP_ON_PONG)
		why = step_against_claims(c->event->end, &end->view, m);
	else if (answers_wrongly(c->event, &end->view))
		why = "it has no such path";
	else
		(void)step_find_say(c->event->end, &end->view, m, &why);
	if (why)
		refuse(c, "%s", why);
	end->serial = c->event->serial;
}

static void ends(struct checking *c)
{
	if (c->ends[c->event->end].hearing)
		refuse(c, "it is not through with what it hears");
	c->ends[c->event->end].ended = true;
}

static void check_event(struct checking *c)
{
	const struct end_state *end = &c->ends[c->event->end];

	if (c->event->what != TRACE_BEGINS && (!end->begun || end->ended)) {
		refuse(c, "there is no such end now");
		return;
	}
	switch (c->event->what) {
	case TRACE_BEGINS:
		begins(c);
		break;
	case TRACE_STEP:
		steps(c);
		break;
	case TRACE_HEARS:
		hears(c);
		break;
	case TRACE_THROUGH:
		is_through(c);
		break;
	case TRACE_SAYS:
		says(c);
		break;
	default:
		ends(c);
	}
}

void trace_check(const struct trace *trace, struct trace_verdict *out)
{
	struct checking c = {.trace = trace, .out = out};

	*out = (struct trace_verdict){.accepted = true};
	for (unsigned i = 0; i < trace->n && out->accepted; i++) {
		c.event = &trace->events[i];
		check_event(&c);
	}
	for (unsigned end = 0; end < 2 && out->accepted && trace->n != 0 && !trace->cut; end++)
		if (c.ends[end].begun && !c.ends[end].ended)
			refuse(&c, "the %s has no end", step_end_name(end));
}
