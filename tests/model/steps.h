/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps that an end of a connection takes: one table, for the model and for what the code did.
 * The model asserts that each of its steps is a row (tests/model/run), a search says which rows it
 * took, and the checker of traces (tests/fault/trace_check.c) accepts a step of the code only if it
 * is a row. So a row that is missing stops the model, one that is too much is taken by no search,
 * and what the code does is what the model does.
 *
 * It is plain C and stands alone, as spin's verifier is C, too.
 */
#ifndef HA_TESTS_MODEL_STEPS_H
#define HA_TESTS_MODEL_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef STEP_PATHS /* the model has fewer */
#define STEP_PATHS 4
#endif

enum step_end { STEP_SENDER, STEP_RECEIVER };

#define STEP_STATES(X) X(ACTIVE) X(SUSPECTED) X(FENCED) X(FENCING) X(LATCHED) X(CLOSED)

enum step_state {
#define STEP_ENUM(name) STEP_IN_##name,
	STEP_STATES(STEP_ENUM)
#undef STEP_ENUM
	    STEP_IN_END
};

/* What brings a step about: something of the end's own, or a message, by kind. Only said: ABORT,
 * and PING and PONG, which change nothing. */
#define STEP_OCCASIONS(X)                                                                          \
	X(NOTHING)	  /* none that is known: never in the table */                             \
	X(FAILED)	  /* the path in use: its failure, an alarm, the operator */               \
	X(STANDBY_FAILED) /* another one, also one that is given back or cannot be made */         \
	X(CONFIRMED)	  /* the NIC says that it has stopped */                                   \
	X(WITHOUT)	  /* it does not: the sender yields, the receiver settles */               \
	X(BUILDS)	  /* receiver: a new generation of a path */                               \
	X(UP)		  /* sender: its end of it is connected; receiver: it works */             \
	X(RESUMES)	  /* traffic goes on */                                                    \
	X(GIVES_UP)	  /* an error was latched */                                               \
	X(SUSPECT)                                                                                 \
	X(FENCE)                                                                                   \
	X(SAYS_FENCED)                                                                             \
	X(RESUME)                                                                                  \
	X(RESUMED)                                                                                 \
	X(REBUILD)                                                                                 \
	X(ANSWER) /* REBUILT or REFUSED */                                                         \
	X(STATE)                                                                                   \
	X(BYE)                                                                                     \
	X(ABORT)                                                                                   \
	X(PING)                                                                                    \
	X(PONG)

enum step_on {
#define STEP_ENUM(name) STEP_ON_##name,
	STEP_OCCASIONS(STEP_ENUM)
#undef STEP_ENUM
	    STEP_ON_END
};

/* ---- what an end is, and what it hears ------------------------------------------------------ */

struct step_slot {
	uint32_t newest;  /* receiver: the generation that was given out last */
	uint32_t want;	  /* up to this one all are to be fenced, */
	uint32_t fenced;  /* and are, */
	uint32_t without; /* or are left without the NIC's word: yielded, settled. 0: none beyond
			     those */
	uint32_t peer_fenced;  /* receiver: what the sender said of its own */
	uint32_t peer_without; /* 0: none beyond those */
	uint32_t up;	       /* this one can be gone on with; 0: none */
};

/* An end as the table sees it. */
struct step_view {
	uint8_t state;
	uint8_t path; /* ACTIVE: traffic runs on path.gen; else 0.0 */
	bool resumed; /* receiver, ACTIVE: the sender has confirmed this epoch */
	uint32_t gen;
	uint32_t epoch;
	struct step_slot slots[STEP_PATHS];
};

struct step_message {
	uint8_t kind; /* enum step_on */
	uint8_t path; /* with gen */
	uint32_t gen; /* 0: it names none */
	uint32_t epoch;
	uint32_t fenced[STEP_PATHS];  /* of the sender a fact, of the receiver an order */
	uint32_t without[STEP_PATHS]; /* of the sender: what it has yielded */
};

struct step {
	uint8_t end; /* enum step_end */
	uint8_t on;  /* enum step_on */
	const struct step_message *m;
	struct step_view was, is;
};

/* ---- the table ------------------------------------------------------------------------------ */

/*
 * X(end, occasion, state before, after, epoch, path in use, orders, besides)
 *   epoch    SAME, NEXT: one more, HEARD: the message's, a newer one, ANY
 *   path     SAME, LEFT: given up, TAKEN: one that is up, ANY
 *   orders   SAME, LEFT: the path that is left, ONE: another path, HEARD: as the message says,
 * NAMED: and what it names, OLDER: what is older than what it names, ANY besides  NONE, CONFIRMS: a
 * fence, WITHOUT: one is done without, BUILDS: a generation more, UP: one is up, MERGES: what the
 * peer says of its fences; ANY
 */
#define STEP_SENDER_IN(X, in)                                                                      \
	X(SENDER, STANDBY_FAILED, in, in, SAME, SAME, ONE, NONE)                                   \
	X(SENDER, CONFIRMED, in, in, SAME, SAME, SAME, CONFIRMS)                                   \
	X(SENDER, WITHOUT, in, in, SAME, SAME, SAME, WITHOUT)                                      \
	X(SENDER, UP, in, in, SAME, SAME, SAME, UP)                                                \
	X(SENDER, REBUILD, in, in, SAME, SAME, OLDER, NONE)                                        \
	X(SENDER, GIVES_UP, in, LATCHED, ANY, ANY, ANY, ANY)                                       \
	X(SENDER, BYE, in, CLOSED, ANY, ANY, ANY, ANY)

#define STEP_RECEIVER_IN(X, in)                                                                    \
	X(RECEIVER, STANDBY_FAILED, in, in, SAME, SAME, ONE, NONE)                                 \
	X(RECEIVER, CONFIRMED, in, in, SAME, SAME, SAME, CONFIRMS)                                 \
	X(RECEIVER, WITHOUT, in, in, SAME, SAME, SAME, WITHOUT)                                    \
	X(RECEIVER, BUILDS, in, in, SAME, SAME, SAME, BUILDS)                                      \
	X(RECEIVER, UP, in, in, SAME, SAME, SAME, UP)                                              \
	X(RECEIVER, SUSPECT, in, in, SAME, SAME, NAMED, MERGES)                                    \
	X(RECEIVER, SAYS_FENCED, in, in, SAME, SAME, HEARD, MERGES)                                \
	X(RECEIVER, RESUMED, in, in, SAME, SAME, HEARD, MERGES)                                    \
	X(RECEIVER, ANSWER, in, in, SAME, SAME, HEARD, MERGES)                                     \
	X(RECEIVER, STATE, in, in, SAME, SAME, SAME, MERGES)                                       \
	X(RECEIVER, GIVES_UP, in, LATCHED, ANY, ANY, ANY, ANY)                                     \
	X(RECEIVER, BYE, in, CLOSED, ANY, ANY, ANY, ANY)

#define STEP_ROWS(X)                                                                               \
	STEP_SENDER_IN(X, ACTIVE)                                                                  \
	STEP_SENDER_IN(X, SUSPECTED)                                                               \
	STEP_SENDER_IN(X, FENCED)                                                                  \
	X(SENDER, FAILED, ACTIVE, SUSPECTED, SAME, LEFT, LEFT, NONE)                               \
	X(SENDER, FENCE, ACTIVE, FENCED, HEARD, LEFT, HEARD, NONE)                                 \
	X(SENDER, FENCE, SUSPECTED, FENCED, HEARD, SAME, HEARD, NONE)                              \
	X(SENDER, FENCE, FENCED, FENCED, HEARD, SAME, HEARD, NONE)                                 \
	X(SENDER, FENCE, FENCED, FENCED, SAME, SAME, HEARD, NONE)                                  \
	X(SENDER, RESUME, SUSPECTED, FENCED, HEARD, SAME, HEARD, NONE)                             \
	X(SENDER, RESUME, FENCED, FENCED, HEARD, SAME, HEARD, NONE)                                \
	X(SENDER, RESUME, FENCED, FENCED, SAME, SAME, HEARD, NONE)                                 \
	X(SENDER, RESUME, SUSPECTED, SUSPECTED, SAME, SAME, HEARD, NONE)                           \
	X(SENDER, RESUME, ACTIVE, ACTIVE, SAME, SAME, HEARD, NONE)                                 \
	X(SENDER, RESUMES, FENCED, ACTIVE, SAME, TAKEN, SAME, NONE)                                \
	X(SENDER, STATE, ACTIVE, ACTIVE, SAME, SAME, HEARD, NONE)                                  \
	STEP_RECEIVER_IN(X, ACTIVE)                                                                \
	STEP_RECEIVER_IN(X, FENCING)                                                               \
	X(RECEIVER, FAILED, ACTIVE, FENCING, NEXT, LEFT, LEFT, NONE)                               \
	X(RECEIVER, SUSPECT, ACTIVE, FENCING, NEXT, LEFT, LEFT, MERGES)                            \
	X(RECEIVER, SAYS_FENCED, ACTIVE, FENCING, NEXT, LEFT, LEFT, MERGES)                        \
	X(RECEIVER, RESUMED, ACTIVE, FENCING, NEXT, LEFT, LEFT, MERGES)                            \
	X(RECEIVER, ANSWER, ACTIVE, FENCING, NEXT, LEFT, LEFT, MERGES)                             \
	X(RECEIVER, RESUMES, FENCING, ACTIVE, SAME, TAKEN, SAME, NONE)

/*
 * X(end, message, state, what it names): what an end may say, and in which state.
 *   NONE, LEFT: a generation that it has given up, UP: one that is up, NEWEST: the one given out
 * last, ACTIVE: the path in use, ANY
 */
#define STEP_SENDER_SAYS(X, in)                                                                    \
	X(SENDER, SUSPECT, in, LEFT)                                                               \
	X(SENDER, ANSWER, in, ANY)                                                                 \
	X(SENDER, STATE, in, NONE)                                                                 \
	X(SENDER, BYE, in, NONE)

#define STEP_SAYS(X)                                                                               \
	STEP_SENDER_SAYS(X, ACTIVE)                                                                \
	STEP_SENDER_SAYS(X, SUSPECTED)                                                             \
	STEP_SENDER_SAYS(X, FENCED)                                                                \
	X(SENDER, SAYS_FENCED, FENCED, NONE)                                                       \
	X(SENDER, RESUMED, ACTIVE, NONE)                                                           \
	X(SENDER, ABORT, LATCHED, NONE)                                                            \
	X(RECEIVER, FENCE, FENCING, NONE)                                                          \
	X(RECEIVER, RESUME, ACTIVE, ACTIVE)                                                        \
	X(RECEIVER, REBUILD, ACTIVE, NEWEST)                                                       \
	X(RECEIVER, REBUILD, FENCING, NEWEST)                                                      \
	X(RECEIVER, STATE, ACTIVE, NONE)                                                           \
	X(RECEIVER, STATE, FENCING, NONE)                                                          \
	X(RECEIVER, BYE, ACTIVE, NONE)                                                             \
	X(RECEIVER, BYE, FENCING, NONE)                                                            \
	X(RECEIVER, ABORT, LATCHED, NONE)

enum step_epoch { STEP_EPOCH_SAME, STEP_EPOCH_NEXT, STEP_EPOCH_HEARD, STEP_EPOCH_ANY };
enum step_path { STEP_PATH_SAME, STEP_PATH_LEFT, STEP_PATH_TAKEN, STEP_PATH_ANY };
enum step_want {
	STEP_WANT_SAME,
	STEP_WANT_LEFT,
	STEP_WANT_ONE,
	STEP_WANT_HEARD,
	STEP_WANT_NAMED,
	STEP_WANT_OLDER,
	STEP_WANT_ANY
};
enum step_besides {
	STEP_BESIDES_NONE,
	STEP_BESIDES_CONFIRMS,
	STEP_BESIDES_WITHOUT,
	STEP_BESIDES_BUILDS,
	STEP_BESIDES_UP,
	STEP_BESIDES_MERGES,
	STEP_BESIDES_ANY
};
enum step_names {
	STEP_NAMES_NONE,
	STEP_NAMES_LEFT,
	STEP_NAMES_NEWEST,
	STEP_NAMES_ACTIVE,
	STEP_NAMES_ANY
};

struct step_row {
	uint8_t end, on, before, after, epoch, path, want, besides;
};

static const struct step_row step_rows[] = {
#define STEP_ROW(end, on, before, after, epoch, path, want, besides)                               \
	{STEP_##end,	     STEP_ON_##on,     STEP_IN_##before, STEP_IN_##after,                  \
	 STEP_EPOCH_##epoch, STEP_PATH_##path, STEP_WANT_##want, STEP_BESIDES_##besides},
    STEP_ROWS(STEP_ROW)
#undef STEP_ROW
};
#define STEP_ROW_COUNT (sizeof(step_rows) / sizeof(step_rows[0]))

struct step_say {
	uint8_t end, kind, state, names;
};

static const struct step_say step_says[] = {
#define STEP_SAY(end, kind, state, names)                                                          \
	{STEP_##end, STEP_ON_##kind, STEP_IN_##state, STEP_NAMES_##names},
    STEP_SAYS(STEP_SAY)
#undef STEP_SAY
};
#define STEP_SAY_COUNT (sizeof(step_says) / sizeof(step_says[0]))

static inline const char *step_end_name(unsigned end)
{
	return end == STEP_SENDER ? "sender" : "receiver";
}

static inline const char *step_state_name(unsigned state)
{
	static const char *const names[] = {
#define STEP_NAME(name) #name,
	    STEP_STATES(STEP_NAME)
#undef STEP_NAME
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

static inline const char *step_on_name(unsigned on)
{
	static const char *const names[] = {
#define STEP_NAME(name) #name,
	    STEP_OCCASIONS(STEP_NAME)
#undef STEP_NAME
	};

	return on < STEP_ON_END ? names[on] : "?";
}

/* ---- what the words of the table mean ------------------------------------------------------- */

static inline uint32_t step_max(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* An end has given up for good, or was told that the other one has closed: nothing is a step any
 * more. */
static inline bool step_is_over(unsigned state)
{
	return state == STEP_IN_LATCHED || state == STEP_IN_CLOSED;
}

/* One end may forget what the other keeps: what is said twice counts once. */
static inline void step_normal(unsigned end, struct step_view *v)
{
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		struct step_slot *s = &v->slots[p];

		if (s->without <= s->fenced && (end == STEP_SENDER || s->without <= s->peer_fenced))
			s->without = 0;
		if (s->peer_without <= s->peer_fenced)
			s->peer_without = 0;
		if (s->up <= s->want)
			s->up = 0;
		if (s->newest < s->want)
			s->newest = s->want;
		if (end == STEP_SENDER)
			s->newest = s->peer_fenced = s->peer_without = 0;
	}
	if (v->state != STEP_IN_ACTIVE) {
		v->path = 0;
		v->gen = 0;
	}
	/* The first epoch needs no confirmation. */
	v->resumed =
	    end == STEP_RECEIVER && v->state == STEP_IN_ACTIVE && (v->resumed || v->epoch == 1);
}

static inline bool step_slot_same(const struct step_slot *a, const struct step_slot *b)
{
	return a->newest == b->newest && a->want == b->want && a->fenced == b->fenced &&
	       a->without == b->without && a->peer_fenced == b->peer_fenced &&
	       a->peer_without == b->peer_without && a->up == b->up;
}

static inline bool step_same(const struct step_view *a, const struct step_view *b)
{
	for (unsigned p = 0; p < STEP_PATHS; p++)
		if (!step_slot_same(&a->slots[p], &b->slots[p]))
			return false;
	return a->state == b->state && a->path == b->path && a->gen == b->gen &&
	       a->epoch == b->epoch && a->resumed == b->resumed;
}

static inline bool step_epoch_fits(const struct step *s, unsigned rule)
{
	switch (rule) {
	case STEP_EPOCH_SAME:
		return s->is.epoch == s->was.epoch;
	case STEP_EPOCH_NEXT:
		return s->is.epoch == s->was.epoch + 1;
	case STEP_EPOCH_HEARD:
		return s->m && s->is.epoch == s->m->epoch && s->is.epoch > s->was.epoch;
	default:
		return true;
	}
}

/* Nothing can arrive any more on what this end has given up, at either end. */
static inline bool step_agreed(const struct step_view *v)
{
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		const struct step_slot *s = &v->slots[p];
		bool both = s->fenced >= s->want && s->peer_fenced >= s->want;

		if (step_max(s->peer_fenced, s->peer_without) < s->want ||
		    (!both && s->without < s->want))
			return false;
	}
	return true;
}

/* The sender: all that is to be fenced is, or is left. */
static inline bool step_stopped(const struct step_view *v)
{
	for (unsigned p = 0; p < STEP_PATHS; p++)
		if (step_max(v->slots[p].fenced, v->slots[p].without) < v->slots[p].want)
			return false;
	return true;
}

static inline bool step_may_take(const struct step *s)
{
	const struct step_slot *slot = &s->was.slots[s->is.path % STEP_PATHS];

	if (s->is.path >= STEP_PATHS || s->is.gen == 0 || s->is.gen != slot->up)
		return false;
	return s->end == STEP_SENDER || step_agreed(&s->was);
}

static inline bool step_path_fits(const struct step *s, unsigned rule)
{
	switch (rule) {
	case STEP_PATH_SAME:
		return s->is.path == s->was.path && s->is.gen == s->was.gen;
	case STEP_PATH_LEFT:
		return s->was.gen != 0 && s->is.gen == 0 &&
		       s->is.slots[s->was.path].want >= s->was.gen;
	case STEP_PATH_TAKEN:
		return s->was.gen == 0 && step_may_take(s);
	default:
		return true;
	}
}

/* The order that a step may give about path p, besides none: up to which generation. */
static inline bool step_order_fits(const struct step *s, unsigned p, unsigned rule)
{
	const struct step_slot *was = &s->was.slots[p];
	const uint32_t want = s->is.slots[p].want;
	const bool carries = s->was.gen != 0 && s->was.path == p;
	const bool left = carries && s->is.gen == 0;

	if (want < was->want)
		return false;
	switch (rule) {
	case STEP_WANT_LEFT:
		return left && want == s->was.gen;
	case STEP_WANT_ONE:
		if (carries)
			return false;
		return s->end == STEP_RECEIVER ? want == was->newest
					       : was->up == 0 || want == was->up;
	case STEP_WANT_NAMED:
		if (s->m->path == p && want == s->m->gen)
			return true;
		return want == s->m->fenced[p] || want == s->m->without[p];
	case STEP_WANT_HEARD:
		return want == s->m->fenced[p] || want == s->m->without[p] ||
		       (left && want == s->was.gen);
	case STEP_WANT_OLDER:
		return s->m->path == p && want == s->m->gen - 1 && !carries;
	default:
		return false;
	}
}

static inline bool step_want_fits(const struct step *s, unsigned rule)
{
	unsigned n = 0;

	if (rule == STEP_WANT_ANY)
		return true;
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		if (s->is.slots[p].want == s->was.slots[p].want)
			continue;
		if (!step_order_fits(s, p, rule))
			return false;
		n++;
	}
	return rule != STEP_WANT_ONE || n == 1;
}

static inline bool step_fence_fits(const struct step *s, unsigned p, unsigned rule)
{
	const struct step_slot *was = &s->was.slots[p], *is = &s->is.slots[p];
	bool covered = was->without <= is->fenced &&
		       (s->end == STEP_SENDER || was->without <= is->peer_fenced);

	/* Where there is nothing to stop, an order is its own confirmation. */
	if (is->fenced != was->fenced && (is->fenced != is->want || is->fenced < was->fenced ||
					  (rule != STEP_BESIDES_CONFIRMS && is->want == was->want)))
		return false;
	if (is->without == (covered ? 0 : was->without))
		return true;
	return rule == STEP_BESIDES_WITHOUT && is->without == is->want;
}

static inline bool step_build_fits(const struct step *s, unsigned p, unsigned rule)
{
	const struct step_slot *was = &s->was.slots[p], *is = &s->is.slots[p];
	bool newest = is->newest == step_max(was->newest, s->end == STEP_SENDER ? 0 : is->want);
	bool up = is->up == (was->up > is->want ? was->up : 0);

	if (rule == STEP_BESIDES_BUILDS && is->newest == was->newest + 1)
		newest = was->up == 0 && was->fenced == was->want;
	if (rule == STEP_BESIDES_UP && was->up == 0 && is->up > is->want)
		up = s->end == STEP_SENDER || is->up == is->newest;
	return newest && up;
}

static inline bool step_peer_fits(const struct step *s, unsigned p, unsigned rule)
{
	const struct step_slot *was = &s->was.slots[p], *is = &s->is.slots[p];
	uint32_t fenced = was->peer_fenced, without = was->peer_without;

	if (rule == STEP_BESIDES_MERGES) {
		fenced = step_max(fenced, s->m->fenced[p]);
		without = step_max(without, s->m->without[p]);
	}
	return is->peer_fenced == fenced && is->peer_without == (without > fenced ? without : 0);
}

static inline bool step_resumed_fits(const struct step *s)
{
	if (s->is.state != STEP_IN_ACTIVE || s->was.state != STEP_IN_ACTIVE)
		return s->is.resumed == (s->is.state == STEP_IN_ACTIVE && s->end == STEP_RECEIVER &&
					 s->is.epoch == 1);
	if (s->is.resumed == s->was.resumed)
		return true;
	return s->is.resumed && s->on == STEP_ON_RESUMED && s->m && s->m->epoch == s->is.epoch;
}

static inline bool step_besides_fits(const struct step *s, unsigned rule)
{
	if (rule == STEP_BESIDES_ANY)
		return true;
	for (unsigned p = 0; p < STEP_PATHS; p++)
		if (!step_fence_fits(s, p, rule) || !step_build_fits(s, p, rule) ||
		    !step_peer_fits(s, p, rule))
			return false;
	return step_resumed_fits(s);
}

static inline bool step_needs_message(const struct step_row *row)
{
	return row->want == STEP_WANT_HEARD || row->want == STEP_WANT_NAMED ||
	       row->want == STEP_WANT_OLDER || row->besides == STEP_BESIDES_MERGES;
}

/* NULL: it is this row; else the column that forbids it. */
static inline const char *step_against(const struct step *s, const struct step_row *row)
{
	if (step_needs_message(row) && !s->m)
		return "message";
	if (!step_epoch_fits(s, row->epoch))
		return "epoch";
	if (!step_path_fits(s, row->path))
		return "path";
	if (!step_want_fits(s, row->want))
		return "orders";
	if (!step_besides_fits(s, row->besides))
		return "besides";
	return NULL;
}

static inline bool step_is_about(const struct step *s, const struct step_row *row)
{
	return row->end == s->end && row->on == s->on && row->before == s->was.state &&
	       row->after == s->is.state;
}

/* The first row about end, occasion and states, so that a search does not go over all of them at
 * each step; STEP_ROW_COUNT: there is none. */
static inline unsigned step_first(const struct step *s)
{
	static uint8_t first[2][STEP_ON_END][STEP_IN_END][STEP_IN_END];
	static bool known;

	if (!known) {
		memset(first, STEP_ROW_COUNT, sizeof(first));
		for (unsigned i = STEP_ROW_COUNT; i-- > 0;)
			first[step_rows[i].end][step_rows[i].on][step_rows[i].before]
			     [step_rows[i].after] = (uint8_t)i;
		known = true;
	}
	return first[s->end][s->on][s->was.state][s->is.state];
}

/* The row that a step is; -1: none, and *why names the column that forbids it, or says that there
 * is no row. */
static inline int step_find(const struct step *s, const char **why)
{
	*why = "no such row";
	for (unsigned i = step_first(s); i < STEP_ROW_COUNT; i++) {
		if (!step_is_about(s, &step_rows[i]))
			continue;
		*why = step_against(s, &step_rows[i]);
		if (!*why)
			return (int)i;
	}
	return -1;
}

/* ---- what is owed when a message was heard -------------------------------------------------- */

static inline bool step_owes_order(const struct step_view *v, const struct step_message *m,
				   unsigned p)
{
	return v->slots[p].want < step_max(m->fenced[p], m->without[p]);
}

static inline const char *step_sender_owes(const struct step_view *v, const struct step_message *m)
{
	const bool state = m->kind == STEP_ON_STATE;

	if (m->kind != STEP_ON_FENCE && m->kind != STEP_ON_RESUME &&
	    !(state && v->state == STEP_IN_ACTIVE))
		return NULL;
	if (!state && v->epoch < m->epoch)
		return "the epoch";
	for (unsigned p = 0; p < STEP_PATHS; p++)
		if (v->slots[p].want < m->fenced[p] && !(state && v->path == p))
			return "an order";
	return NULL;
}

static inline const char *step_receiver_owes(const struct step_view *v,
					     const struct step_message *m)
{
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		const struct step_slot *s = &v->slots[p];

		if (s->peer_fenced < m->fenced[p] ||
		    step_max(s->peer_fenced, s->peer_without) < m->without[p])
			return "what the peer has fenced";
		if (m->kind != STEP_ON_STATE && step_owes_order(v, m, p))
			return "an order";
	}
	if (m->kind == STEP_ON_SUSPECT && v->slots[m->path].want < m->gen)
		return "an order about what it names";
	if (m->kind == STEP_ON_RESUMED && v->state == STEP_IN_ACTIVE && m->epoch == v->epoch &&
	    !v->resumed)
		return "that the epoch is confirmed";
	return NULL;
}

/* What an end must have done when it is through with a message and has not; NULL: nothing. */
static inline const char *step_owes(unsigned end, const struct step_view *v,
				    const struct step_message *m)
{
	if (m->kind == STEP_ON_BYE)
		return v->state == STEP_IN_CLOSED || v->state == STEP_IN_LATCHED ? NULL : "its end";
	if (step_is_over(v->state) || m->kind == STEP_ON_ABORT || m->kind == STEP_ON_PING ||
	    m->kind == STEP_ON_PONG)
		return NULL;
	return end == STEP_SENDER ? step_sender_owes(v, m) : step_receiver_owes(v, m);
}

/* ---- what is said --------------------------------------------------------------------------- */

static inline bool step_names_fit(const struct step_view *v, const struct step_message *m,
				  unsigned rule)
{
	const struct step_slot *slot = &v->slots[m->path % STEP_PATHS];

	switch (rule) {
	case STEP_NAMES_NONE:
		return m->gen == 0;
	case STEP_NAMES_LEFT:
		return slot->want >= m->gen;
	case STEP_NAMES_NEWEST:
		return m->gen == slot->newest && m->gen > slot->want;
	case STEP_NAMES_ACTIVE:
		return m->gen != 0 && m->gen == v->gen && m->path == v->path;
	default:
		return m->gen != 0;
	}
}

/* It says of itself what it is. */
static inline const char *step_against_claims(unsigned end, const struct step_view *v,
					      const struct step_message *m)
{
	if (m->epoch != v->epoch)
		return "epoch";
	for (unsigned p = 0; p < STEP_PATHS; p++) {
		const struct step_slot *s = &v->slots[p];

		if (m->fenced[p] != (end == STEP_SENDER ? s->fenced : s->want))
			return "fences";
		if (end == STEP_SENDER && m->without[p] != s->without)
			return "what it yields";
	}
	return NULL;
}

/* The row of what is said; -1: none, and why. */
static inline int step_find_say(unsigned end, const struct step_view *v,
				const struct step_message *m, const char **why)
{
	*why = "no such row";
	for (unsigned i = 0; i < STEP_SAY_COUNT; i++) {
		const struct step_say *say = &step_says[i];

		if (say->end != end || say->kind != m->kind || say->state != v->state)
			continue;
		*why = "what it names";
		if (!step_names_fit(v, m, say->names))
			continue;
		*why = step_is_over(v->state) ? NULL : step_against_claims(end, v, m);
		return *why ? -1 : (int)i;
	}
	return -1;
}

#endif
