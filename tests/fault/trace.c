/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct trace traces[TRACE_MAX];
static unsigned ntraces;
static bool noting, printing;

void trace_begin(bool print)
{
	for (unsigned i = 0; i < ntraces; i++) {
		traces[i].n = 0; /* its memory is kept for the next run */
		traces[i].unjudged = traces[i].cut = false;
	}
	ntraces = 0;
	noting = true;
	printing = print;
}

void trace_stop(void)
{
	noting = false;
}

unsigned trace_count(void)
{
	return ntraces;
}

const struct trace *trace_of(unsigned index)
{
	return &traces[index];
}

struct trace *trace_find(uint64_t number)
{
	if (!noting)
		return NULL;
	for (unsigned i = 0; i < ntraces; i++)
		if (traces[i].number == number)
			return &traces[i];
	if (ntraces == TRACE_MAX)
		return NULL;
	traces[ntraces].number = number;
	return &traces[ntraces++];
}

static bool make_room(struct trace *trace)
{
	unsigned room = trace->room ? 2 * trace->room : 256;
	struct trace_event *events;

	if (trace->n < trace->room)
		return true;
	events =
	    trace->n < TRACE_EVENTS_MAX ? realloc(trace->events, room * sizeof(*events)) : NULL;
	if (!events) {
		trace->cut = true;
		return false;
	}
	trace->events = events;
	trace->room = room;
	return true;
}

struct trace_event *trace_note(struct trace *trace, enum trace_what what, unsigned end)
{
	struct trace_event *event;

	if (!noting || trace->cut || !make_room(trace))
		return NULL;
	event = &trace->events[trace->n++];
	event->what = (uint8_t)what;
	event->end = (uint8_t)end;
	event->on = STEP_ON_NOTHING;
	event->refuses = 0;
	event->serial = 0;
	return event;
}

void trace_noted(const struct trace_event *event)
{
	char text[512];

	if (printing)
		fprintf(stderr, "%12.3f us  step  %s\n", (double)event->ns / 1e3,
			trace_text(event, text, sizeof(text)));
}

/* ---- as text -------------------------------------------------------------------------------- */

static size_t add_view(char *out, size_t size, const struct step_view *v)
{
	size_t n = (size_t)snprintf(out, size, "%s, epoch %u", step_state_name(v->state), v->epoch);

	if (v->gen != 0)
		n += (size_t)snprintf(out + n, size - n, " on %u.%u%s", v->path, v->gen,
				      v->resumed ? "" : ", not confirmed");
	for (unsigned p = 0; p < STEP_PATHS && n < size; p++) {
		const struct step_slot *s = &v->slots[p];

		if (s->newest == 0 && s->want == 0 && s->up == 0)
			continue;
		n += (size_t)snprintf(out + n, size - n,
				      "; path %u: up %u, newest %u, to fence %u, "
				      "fenced %u, without %u, the peer's %u, %u",
				      p, s->up, s->newest, s->want, s->fenced, s->without,
				      s->peer_fenced, s->peer_without);
	}
	return n;
}

static void add_message(char *out, size_t size, const struct trace_event *event)
{
	const struct step_message *m = &event->m;
	size_t n = (size_t)snprintf(out, size, "%s, epoch %u", step_on_name(m->kind), m->epoch);

	if (m->gen != 0 && n < size)
		n += (size_t)snprintf(out + n, size - n, ", path %u.%u", m->path, m->gen);
	if (n < size)
		snprintf(out + n, size - n, ", fenced %u %u %u %u, without %u %u %u %u, number %u",
			 m->fenced[0], m->fenced[1], m->fenced[2], m->fenced[3], m->without[0],
			 m->without[1], m->without[2], m->without[3], event->serial);
}

const char *trace_text(const struct trace_event *event, char *out, size_t size)
{
	static const char *const words[] = {"begins",	       "step", "hears",
					    "is through with", "says", "ends"};
	size_t n =
	    (size_t)snprintf(out, size, "%s %s ", step_end_name(event->end), words[event->what]);

	switch (event->what) {
	case TRACE_STEP:
		n += (size_t)snprintf(out + n, size - n, "%s: ", step_on_name(event->on));
		add_view(out + n, size - n, &event->is);
		break;
	case TRACE_BEGINS:
		add_view(out + n, size - n, &event->is);
		break;
	case TRACE_ENDS:
		break;
	default:
		add_message(out + n, size - n, event);
	}
	return out;
}
