/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the table of steps says of the model's ends. It is linked with spin's verifier, whose state
 * it reads, and compiled with the same words, in the folder of its pan.h. What it keeps is of one
 * step and never of the state that is searched.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No more paths than the model has: each look goes over all of them. */
#define STEP_PATHS PATHS
#include "steps_model.h"

#include "pan.h"

extern State now;

extern void (*uerror)(char *); /* the verifier's: ends the search */

static struct step_view model_was[2];
static unsigned char model_took[STEP_ROW_COUNT], model_said[STEP_SAY_COUNT];

/* What a search took, when it is over: read by tests/model/run. */
static void model_report(void)
{
	for (unsigned i = 0; i < STEP_ROW_COUNT; i++)
		printf("%s row %u: %s %s, %s to %s\n", model_took[i] ? "TOOK" : "LEFT", i,
		       step_end_name(step_rows[i].end), step_on_name(step_rows[i].on),
		       step_state_name(step_rows[i].before), step_state_name(step_rows[i].after));
	for (unsigned i = 0; i < STEP_SAY_COUNT; i++)
		printf("%s message %u: %s says %s in %s\n", model_said[i] ? "TOOK" : "LEFT", i,
		       step_end_name(step_says[i].end), step_on_name(step_says[i].kind),
		       step_state_name(step_says[i].state));
}

static unsigned model_state(unsigned state)
{
	return state == model_ACTIVE	  ? STEP_IN_ACTIVE
	       : state == model_SUSPECTED ? STEP_IN_SUSPECTED
	       : state == model_FENCED	  ? STEP_IN_FENCED
	       : state == model_FENCING	  ? STEP_IN_FENCING
	       : state == model_LATCHED	  ? STEP_IN_LATCHED
					  : STEP_IN_CLOSED;
}

static unsigned model_newest(unsigned set)
{
	return set & 4 ? 3 : set & 2 ? 2 : set & 1;
}

static void model_sender(struct step_view *v)
{
	v->state = model_state(now.s_state);
	v->epoch = now.s_epoch;
	v->path = now.s_path;
	v->gen = now.s_gen;
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		struct step_slot *s = &v->slots[p];

		s->want = now.s_order[p];
		s->fenced = now.s_fenced_gen[p];
		s->up = model_newest(now.s_qp[p] & ~((1 << s->want) - 1));
#ifdef SICK
		s->without = now.s_yielded_gen[p];
#endif
	}
	step_normal(STEP_SENDER, v);
}

static void model_receiver(struct step_view *v)
{
	v->state = model_state(now.r_state);
	v->epoch = now.r_epoch;
	v->path = now.r_path;
	v->gen = now.r_gen;
	v->resumed = now.r_resumed;
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		struct step_slot *s = &v->slots[p];

		s->want = now.r_order[p];
		s->fenced = now.r_fenced_gen[p];
		s->newest = model_newest(now.r_qp[p]);
		s->up = now.r_healthy[p];
		s->peer_fenced = now.r_peer_fenced[p];
#ifdef SICK
		s->without = now.r_settled_gen[p];
		s->peer_without = now.r_peer_yielded[p];
#endif
	}
	step_normal(STEP_RECEIVER, v);
}

static void model_look(unsigned end, struct step_view *v)
{
	memset(v, 0, sizeof(*v));
	if (end == STEP_SENDER)
		model_sender(v);
	else
		model_receiver(v);
}

/* In front of a step. */
void model_before(unsigned end)
{
	static bool registered;

	if (!registered)
		atexit(model_report);
	registered = true;
	model_look(end, &model_was[end]);
}

static unsigned model_kind(unsigned kind)
{
	return kind == model_SUSPECT   ? STEP_ON_SUSPECT
	       : kind == model_FENCE   ? STEP_ON_FENCE
	       : kind == model_FENCED  ? STEP_ON_SAYS_FENCED
	       : kind == model_RESUME  ? STEP_ON_RESUME
	       : kind == model_RESUMED ? STEP_ON_RESUMED
	       : kind == model_REBUILD ? STEP_ON_REBUILD
	       : kind == model_ANSWER  ? STEP_ON_ANSWER
	       : kind == model_STATE   ? STEP_ON_STATE
	       : kind == model_BYE     ? STEP_ON_BYE
				       : STEP_ON_ABORT;
}

static struct step_message model_message(bool of_sender)
{
	struct step_message m = {
	    .kind = model_kind(m_kind), .path = m_path, .gen = m_gen, .epoch = m_epoch};

	for (unsigned p = 0; p < STEP_PATHS; p++) {
		m.fenced[p] = m_fenced_gen[p];
#ifdef SICK
		if (of_sender && m_yielded_gen[p] > m_fenced_gen[p])
			m.without[p] = m_yielded_gen[p];
#endif
	}
	return m;
}

static void model_wrong(unsigned end, unsigned on, const struct step_view *was,
			const struct step_view *is, const char *why)
{
	printf("NO STEP: %s, %s, %s to %s: %s\n", step_end_name(end), step_on_name(on),
	       step_state_name(was->state), step_state_name(is->state), why);
	for (unsigned i = 0; i < 2; i++) {
		const struct step_view *v = i ? is : was;

		printf("  %s epoch %u on %u.%u%s\n", i ? "is" : "was", v->epoch, v->path, v->gen,
		       v->resumed ? ", resumed" : "");
		for (unsigned p = 0; p < STEP_PATHS; p++)
			printf("    %u: newest %u, want %u, fenced %u, without %u, up %u, peer %u, "
			       "%u\n",
			       p, v->slots[p].newest, v->slots[p].want, v->slots[p].fenced,
			       v->slots[p].without, v->slots[p].up, v->slots[p].peer_fenced,
			       v->slots[p].peer_without);
	}
	printf("  message: %s, epoch %u, %u.%u, fenced %u %u\n", step_on_name(model_kind(m_kind)),
	       m_epoch, m_path, m_gen, m_fenced_gen[0], m_fenced_gen[1]);
	uerror("a step that is not in the table");
}

/* After a step. */
static void model_after(unsigned end, unsigned on, const struct step_message *m)
{
	struct step s = {.end = end, .on = on, .m = m, .was = model_was[end]};
	const char *why;
	int row;

	model_look(end, &s.is);
	model_was[end] = s.is;
	if (step_is_over(s.was.state) || step_same(&s.was, &s.is))
		return;
	row = step_find(&s, &why);
	if (row >= 0)
		model_took[row] = 1;
	else
		model_wrong(end, on, &s.was, &s.is, why);
}

/* Of an end's own. */
void model_does(unsigned end, unsigned on)
{
	model_after(end, on, NULL);
}

/* With the message in m_*. */
void model_hears(unsigned end)
{
	struct step_message m = model_message(end == STEP_RECEIVER);

	if (m.kind != STEP_ON_BYE)
		model_after(end, m.kind, &m);
}

void model_through(unsigned end)
{
	struct step_message m = model_message(end == STEP_RECEIVER);
	const char *owed;
	struct step_view v;

	model_look(end, &v);
	owed = m.kind == STEP_ON_BYE ? NULL : step_owes(end, &v, &m);
	if (owed)
		model_wrong(end, m.kind, &model_was[end], &v, owed);
}

/* What is in m_* is what this end says. */
void model_says(unsigned end)
{
	struct step_message m = model_message(end == STEP_SENDER);
	struct step_view v;
	const char *why;
	int row;

	model_look(end, &v);
	row = step_find_say(end, &v, &m, &why);
	if (row >= 0)
		model_said[row] = 1;
	else
		model_wrong(end, m.kind, &v, &v, why);
}

/* The model's end goes on until it has closed by itself; to the table it is over. */
void model_peer_closed(unsigned end)
{
	struct step s = {.end = end, .on = STEP_ON_BYE};
	const char *why;
	int row;

	model_look(end, &s.was);
	s.is = s.was;
	s.is.state = STEP_IN_CLOSED;
	row = step_is_over(s.was.state) ? -1 : step_find(&s, &why);
	if (row >= 0)
		model_took[row] = 1;
}

/* It closes in the state that it is in: what it says then. */
void model_goodbye(unsigned end)
{
	struct step_message m = {.kind = STEP_ON_BYE};
	struct step_view v;
	const char *why;

	model_look(end, &v);
	m.epoch = v.epoch;
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		m.fenced[p] = end == STEP_SENDER ? v.slots[p].fenced : v.slots[p].want;
		m.without[p] = end == STEP_SENDER ? v.slots[p].without : 0;
	}
	for (unsigned i = 0; i < STEP_SAY_COUNT; i++)
		if (step_find_say(end, &v, &m, &why) == (int)i)
			model_said[i] = 1;
}

void model_gave_up(unsigned end)
{
	struct step_message m = {.kind = STEP_ON_ABORT};
	struct step_view v;
	const char *why;
	int row;

	model_look(end, &v);
	row = step_find_say(end, &v, &m, &why);
	if (row >= 0)
		model_said[row] = 1;
}
