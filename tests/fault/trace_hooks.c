/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a trace comes from. The linker has calls from one file of the plugin to another one come
 * here first (--wrap), so nothing is in the plugin for this. An end is looked at before and after
 * each of them that may be a step: what has changed is a step on that occasion, and what has
 * changed between two of them is one on no occasion at all, which the table does not have. So a way
 * to change an end that is not seen here is found, and not missed.
 */
#include "trace.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/message.h"
#include "failover/notes.h"
#include "failover/path_build.h"
#include "failover/path_slot.h"
#include "failover/signaling.h"
#include "failover/standby.h"
#include "failover/visit.h"
#include "simverbs/simverbs.h"
#include "transport/comm.h"

#include <stddef.h>
#include <string.h>

#define ENDS_MAX (2 * TRACE_MAX)

/* All that a view is made of, as it lies in memory: most looks find that nothing has changed. */
#define MARKS_BYTES (offsetof(struct ha_slot, lone_fence_ns) - offsetof(struct ha_slot, newest_gen))

struct glance {
	uint8_t state, active;
	bool resumed;
	uint32_t epoch;
	uint8_t slot_states[STEP_PATHS];
	const struct ha_path *paths[STEP_PATHS];
	uint8_t marks[STEP_PATHS][MARKS_BYTES];
};

/* An end whose steps are noted. */
struct watched {
	const struct ha_comm *comm; /* NULL: it has ended */
	struct trace *trace;
	unsigned on;  /* enum step_on: what is going on; NOTHING: between steps */
	bool aborted; /* it has heard ABORT and gives up next, with what that said */
	struct step_view seen;
	struct glance glance;
};

static struct watched ends[ENDS_MAX];
static unsigned nends;
static const struct ha_comm *speaking;

static struct watched *find(const struct ha_comm *comm)
{
	for (unsigned i = 0; i < nends; i++)
		if (ends[i].comm == comm)
			return &ends[i];
	return NULL;
}

static unsigned end_of(const struct ha_comm *comm)
{
	return comm->is_send ? STEP_SENDER : STEP_RECEIVER;
}

/* ---- an end as the table sees it ------------------------------------------------------------ */

static uint32_t up_of(const struct ha_comm *comm, unsigned p)
{
	const struct ha_slot *slot = &comm->failover->slots[p];
	bool up = comm->is_send ? slot->state >= HA_SLOT_PROBING : ha_slot_is_up(slot);

	return up && comm->paths[p] ? comm->paths[p]->generation : 0;
}

static void look_at_slot(const struct ha_comm *comm, unsigned p, struct step_slot *out)
{
	const struct ha_slot *slot = &comm->failover->slots[p];

	*out = (struct step_slot){
	    .newest = slot->newest_gen,
	    .want = slot->want_gen,
	    .fenced = slot->fenced_gen,
	    .without = comm->is_send ? slot->yielded_gen : slot->settled_gen,
	    .peer_fenced = slot->peer_fenced_gen,
	    .peer_without = slot->peer_yielded_gen,
	    .up = up_of(comm, p),
	};
}

static void look_at(const struct ha_comm *comm, struct step_view *out)
{
	static const uint8_t states[HA_FO_STATES] = {
	    [HA_FO_ACTIVE] = STEP_IN_ACTIVE,   [HA_FO_SUSPECTED] = STEP_IN_SUSPECTED,
	    [HA_FO_FENCED] = STEP_IN_FENCED,   [HA_FO_FENCING] = STEP_IN_FENCING,
	    [HA_FO_LATCHED] = STEP_IN_LATCHED, [HA_FO_CLOSED] = STEP_IN_CLOSED,
	};
	const struct ha_failover *fo = comm->failover;

	out->state = states[fo->state];
	out->epoch = fo->epoch;
	out->resumed = fo->resumed;
	out->path = comm->active;
	out->gen = ha_active_generation(comm);
	for (unsigned p = 0; p < STEP_PATHS; p++)
		look_at_slot(comm, p, &out->slots[p]);
	step_normal(end_of(comm), out);
}

static bool is_as_before(const struct watched *w)
{
	const struct ha_failover *fo = w->comm->failover;
	const struct glance *g = &w->glance;

	for (unsigned p = 0; p < STEP_PATHS; p++)
		if (fo->slots[p].state != g->slot_states[p] || w->comm->paths[p] != g->paths[p] ||
		    memcmp(&fo->slots[p].newest_gen, g->marks[p], MARKS_BYTES) != 0)
			return false;
	return fo->state == g->state && fo->epoch == g->epoch && fo->resumed == g->resumed &&
	       w->comm->active == g->active;
}

static void take_glance(struct watched *w)
{
	const struct ha_failover *fo = w->comm->failover;
	struct glance *g = &w->glance;

	for (unsigned p = 0; p < STEP_PATHS; p++) {
		g->slot_states[p] = fo->slots[p].state;
		g->paths[p] = w->comm->paths[p];
		memcpy(g->marks[p], &fo->slots[p].newest_gen, MARKS_BYTES);
	}
	g->state = fo->state;
	g->epoch = fo->epoch;
	g->resumed = fo->resumed;
	g->active = w->comm->active;
}

static struct step_message message_of(const struct ha_comm *comm, const struct ha_message *m,
				      bool said)
{
	static const uint8_t kinds[HA_MSG_END] = {
	    [HA_MSG_SUSPECT] = STEP_ON_SUSPECT,
	    [HA_MSG_FENCE] = STEP_ON_FENCE,
	    [HA_MSG_FENCED] = STEP_ON_SAYS_FENCED,
	    [HA_MSG_RESUME] = STEP_ON_RESUME,
	    [HA_MSG_RESUMED] = STEP_ON_RESUMED,
	    [HA_MSG_REBUILD] = STEP_ON_REBUILD,
	    [HA_MSG_REBUILT] = STEP_ON_ANSWER,
	    [HA_MSG_REFUSED] = STEP_ON_ANSWER,
	    [HA_MSG_STATE] = STEP_ON_STATE,
	    [HA_MSG_ABORT] = STEP_ON_ABORT,
	    [HA_MSG_BYE] = STEP_ON_BYE,
	    [HA_MSG_PING] = STEP_ON_PING,
	    [HA_MSG_PONG] = STEP_ON_PONG,
	};
	struct step_message out = {
	    .kind = kinds[m->kind], .epoch = m->epoch, .path = m->path, .gen = m->generation};
	bool of_sender = comm->is_send == said;

	for (unsigned p = 0; p < STEP_PATHS; p++) {
		out.fenced[p] = m->fenced_gen[p];
		if (of_sender && m->yielded_gen[p] > m->fenced_gen[p])
			out.without[p] = m->yielded_gen[p];
	}
	return out;
}

/* ---- noting --------------------------------------------------------------------------------- */

static struct trace_event *note(struct watched *w, enum trace_what what)
{
	struct trace_event *event = trace_note(w->trace, what, end_of(w->comm));

	if (event)
		event->ns = sv_stepped_now(); /* also where the hosts' clocks are apart */
	return event;
}

static void look(struct watched *w, unsigned on)
{
	struct trace_event *event;
	struct step_view is;

	if (!w || step_is_over(w->seen.state) || is_as_before(w))
		return;
	take_glance(w);
	look_at(w->comm, &is);
	if (step_same(&is, &w->seen) || (w->aborted && !step_is_over(is.state)))
		return;
	/* It goes on within whatever step finds that it can. */
	if (is.state == STEP_IN_ACTIVE && w->seen.state != STEP_IN_ACTIVE)
		on = STEP_ON_RESUMES;
	w->seen = is;
	event = note(w, TRACE_STEP);
	if (!event)
		return;
	event->on = (uint8_t)on;
	event->is = is;
	trace_noted(event);
}

static void note_message(struct watched *w, enum trace_what what, const struct ha_message *m)
{
	struct trace_event *event = note(w, what);

	if (!event)
		return;
	event->m = message_of(w->comm, m, what == TRACE_SAYS);
	event->refuses = m->kind == HA_MSG_REFUSED;
	event->serial = m->serial;
	trace_noted(event);
}

/* Before something that may be a step on this occasion, or a part of the one that is under way. */
static struct watched *enter(struct ha_comm *comm, unsigned on, unsigned *before)
{
	struct watched *w = find(comm);

	if (!w)
		return NULL;
	look(w, w->on);
	*before = w->on;
	w->on = on;
	return w;
}

static void leave(struct watched *w, unsigned before)
{
	if (!w)
		return;
	look(w, w->on);
	w->on = before;
}

/* ---- a connection's life -------------------------------------------------------------------- */

static void watch(struct ha_comm *comm)
{
	struct trace *trace = trace_find(ha_comm_number(comm));
	struct watched *w = find(comm); /* of a world that a test has left behind */
	struct trace_event *event;

	if (!w)
		w = find(NULL);
	if (!trace) {
		if (w)
			w->comm = NULL;
		return;
	}
	if (!w) {
		if (nends == ENDS_MAX)
			return;
		w = &ends[nends++];
	}
	*w = (struct watched){.comm = comm, .trace = trace};
	trace->unjudged |= (comm->features & HA_FEATURE_RAILS) != 0;
	look_at(comm, &w->seen);
	event = note(w, TRACE_BEGINS);
	if (!event)
		return;
	event->is = w->seen;
	trace_noted(event);
}

ha_result_t __real_ha_standby_open(struct ha_comm *comm);
ha_result_t __wrap_ha_standby_open(struct ha_comm *comm);
ha_result_t __wrap_ha_standby_open(struct ha_comm *comm)
{
	ha_result_t result = __real_ha_standby_open(comm);

	if (result == HA_OK)
		watch(comm);
	return result;
}

void __real_ha_standby_free(struct ha_comm *comm);
void __wrap_ha_standby_free(struct ha_comm *comm);
void __wrap_ha_standby_free(struct ha_comm *comm)
{
	struct watched *w = find(comm);

	if (w) {
		(void)note(w, TRACE_ENDS);
		w->comm = NULL;
	}
	__real_ha_standby_free(comm);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static unsigned occasion_of(enum ha_on on)
{
	static const uint8_t occasions[HA_ON_END] = {
	    [HA_ON_FAILED] = STEP_ON_FAILED,
	    [HA_ON_STANDBY_FAILED] = STEP_ON_STANDBY_FAILED,
	    [HA_ON_SUSPECT] = STEP_ON_SUSPECT,
	    [HA_ON_FENCE] = STEP_ON_FENCE,
	    [HA_ON_FENCED] = STEP_ON_SAYS_FENCED,
	    [HA_ON_RESUME] = STEP_ON_RESUME,
	    [HA_ON_RESUMED] = STEP_ON_RESUMED,
	    [HA_ON_REBUILD] = STEP_ON_REBUILD,
	    [HA_ON_REBUILT] = STEP_ON_ANSWER,
	    [HA_ON_REFUSED] = STEP_ON_ANSWER,
	    [HA_ON_STATE] = STEP_ON_STATE,
	    [HA_ON_ABORT] = STEP_ON_ABORT,
	    [HA_ON_BYE] = STEP_ON_BYE,
	    [HA_ON_DRAINED] = STEP_ON_CONFIRMED,
	    [HA_ON_PROVED] = STEP_ON_UP,
	    [HA_ON_GIVE_UP] = STEP_ON_GIVES_UP,
	};

	return occasions[on];
}

void __real_ha_fsm_step(struct ha_comm *comm, const struct ha_fsm_event *o);
void __wrap_ha_fsm_step(struct ha_comm *comm, const struct ha_fsm_event *o);
void __wrap_ha_fsm_step(struct ha_comm *comm, const struct ha_fsm_event *o)
{
	unsigned before;
	struct watched *w = enter(comm, occasion_of(o->on), &before);
	bool hears = w && o->m && !step_is_over(w->seen.state);

	if (hears) {
		note_message(w, TRACE_HEARS, o->m);
		w->aborted |= o->on == HA_ON_ABORT;
	}
	__real_ha_fsm_step(comm, o);
	leave(w, before);
	if (hears)
		note_message(w, TRACE_THROUGH, o->m);
}

/* Called where an end enters a state: a step may have two of them. */
void __real_ha_signaling_new_statement(struct ha_comm *comm);
void __wrap_ha_signaling_new_statement(struct ha_comm *comm);
void __wrap_ha_signaling_new_statement(struct ha_comm *comm)
{
	struct watched *w = find(comm);

	if (w)
		look(w, w->on);
	__real_ha_signaling_new_statement(comm);
}

/* Asked when all that was heard has been taken in, right before an end goes on. */
bool __real_ha_slots_agreed(const struct ha_comm *comm);
bool __wrap_ha_slots_agreed(const struct ha_comm *comm);
bool __wrap_ha_slots_agreed(const struct ha_comm *comm)
{
	struct watched *w = find(comm);

	if (w && comm->failover->stepping)
		look(w, w->on);
	return __real_ha_slots_agreed(comm);
}

bool __real_ha_slots_stopped(const struct ha_comm *comm);
bool __wrap_ha_slots_stopped(const struct ha_comm *comm);
bool __wrap_ha_slots_stopped(const struct ha_comm *comm)
{
	struct watched *w = find(comm);

	if (w && comm->failover->stepping)
		look(w, w->on);
	return __real_ha_slots_stopped(comm);
}

bool __real_ha_slots_drain(struct ha_comm *comm, uint64_t now_ns);
bool __wrap_ha_slots_drain(struct ha_comm *comm, uint64_t now_ns);
bool __wrap_ha_slots_drain(struct ha_comm *comm, uint64_t now_ns)
{
	unsigned before;
	struct watched *w = enter(comm, STEP_ON_CONFIRMED, &before);
	bool confirmed = __real_ha_slots_drain(comm, now_ns);

	leave(w, before);
	return confirmed;
}

bool __real_ha_slots_go_without(struct ha_comm *comm, uint64_t now_ns);
bool __wrap_ha_slots_go_without(struct ha_comm *comm, uint64_t now_ns);
bool __wrap_ha_slots_go_without(struct ha_comm *comm, uint64_t now_ns)
{
	unsigned before;
	struct watched *w = enter(comm, STEP_ON_WITHOUT, &before);
	bool changed = __real_ha_slots_go_without(comm, now_ns);

	leave(w, before);
	return changed;
}

void __real_ha_failover_take_proofs(struct ha_comm *comm);
void __wrap_ha_failover_take_proofs(struct ha_comm *comm);
void __wrap_ha_failover_take_proofs(struct ha_comm *comm)
{
	unsigned before;
	struct watched *w = enter(comm, STEP_ON_UP, &before);

	__real_ha_failover_take_proofs(comm);
	leave(w, before);
}

void __real_ha_path_build_visit(struct ha_comm *comm);
void __wrap_ha_path_build_visit(struct ha_comm *comm);
void __wrap_ha_path_build_visit(struct ha_comm *comm)
{
	unsigned before;
	struct watched *w = enter(comm, STEP_ON_UP, &before);

	__real_ha_path_build_visit(comm);
	leave(w, before);
}

bool __real_ha_path_build_open(struct ha_comm *comm, unsigned p, const struct ha_path_plan *plan);
bool __wrap_ha_path_build_open(struct ha_comm *comm, unsigned p, const struct ha_path_plan *plan);
bool __wrap_ha_path_build_open(struct ha_comm *comm, unsigned p, const struct ha_path_plan *plan)
{
	unsigned before;
	struct watched *w = enter(comm, STEP_ON_BUILDS, &before);
	bool opened = __real_ha_path_build_open(comm, p, plan);

	leave(w, before);
	return opened;
}

/* An order that no step of the machine has given: of a path that is given back, or cannot be made.
 */
void __real_ha_slot_fence(struct ha_comm *comm, unsigned p, uint32_t generation);
void __wrap_ha_slot_fence(struct ha_comm *comm, unsigned p, uint32_t generation);
void __wrap_ha_slot_fence(struct ha_comm *comm, unsigned p, uint32_t generation)
{
	unsigned before;
	struct watched *w;

	if (comm->failover->stepping) {
		__real_ha_slot_fence(comm, p, generation);
		return;
	}
	w = enter(comm, STEP_ON_STANDBY_FAILED, &before);
	__real_ha_slot_fence(comm, p, generation);
	leave(w, before);
}

/* What the answer to REBUILD says of the path that it is about. */
void __real_ha_standby_rebuilt(struct ha_comm *comm, const struct ha_message *m);
void __wrap_ha_standby_rebuilt(struct ha_comm *comm, const struct ha_message *m);
void __wrap_ha_standby_rebuilt(struct ha_comm *comm, const struct ha_message *m)
{
	unsigned before;
	struct watched *w = enter(comm, STEP_ON_STANDBY_FAILED, &before);

	__real_ha_standby_rebuilt(comm, m);
	leave(w, before);
}

void __real_ha_standby_refused(struct ha_comm *comm, const struct ha_message *m);
void __wrap_ha_standby_refused(struct ha_comm *comm, const struct ha_message *m);
void __wrap_ha_standby_refused(struct ha_comm *comm, const struct ha_message *m)
{
	unsigned before;
	struct watched *w = enter(comm, STEP_ON_STANDBY_FAILED, &before);

	__real_ha_standby_refused(comm, m);
	leave(w, before);
}

/* Between two visits nothing happens, nor between the steps of one. */
uint64_t __real_ha_failover_visit(struct ha_comm *comm);
uint64_t __wrap_ha_failover_visit(struct ha_comm *comm);
uint64_t __wrap_ha_failover_visit(struct ha_comm *comm)
{
	unsigned before;
	struct watched *w = enter(comm, STEP_ON_NOTHING, &before);
	uint64_t due_ns = __real_ha_failover_visit(comm);

	leave(w, before);
	return due_ns;
}

/* ---- what is said --------------------------------------------------------------------------- */

void __real_ha_signaling_send(struct ha_comm *comm, uint64_t now_ns);
void __wrap_ha_signaling_send(struct ha_comm *comm, uint64_t now_ns);
void __wrap_ha_signaling_send(struct ha_comm *comm, uint64_t now_ns)
{
	speaking = comm;
	__real_ha_signaling_send(comm, now_ns);
	speaking = NULL;
}

void __real_ha_signaling_goodbye(struct ha_comm *comm);
void __wrap_ha_signaling_goodbye(struct ha_comm *comm);
void __wrap_ha_signaling_goodbye(struct ha_comm *comm)
{
	speaking = comm;
	__real_ha_signaling_goodbye(comm);
	speaking = NULL;
}

size_t __real_ha_message_encode(const struct ha_message *in, uint8_t out[HA_MESSAGE_MAX_BYTES]);
size_t __wrap_ha_message_encode(const struct ha_message *in, uint8_t out[HA_MESSAGE_MAX_BYTES]);
size_t __wrap_ha_message_encode(const struct ha_message *in, uint8_t out[HA_MESSAGE_MAX_BYTES])
{
	struct watched *w = speaking ? find(speaking) : NULL;

	if (w) {
		look(w, w->on);
		note_message(w, TRACE_SAYS, in);
	}
	return __real_ha_message_encode(in, out);
}
