/* SPDX-License-Identifier: Apache-2.0 */
/* What happens is noted by whatever thread sees it, and taken in the connection's next visit. */
#include "failover/notes.h"

#include "base/clock.h"
#include "base/log.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/standby.h"
#include "transport/comm.h"
#include "transport/comm_event.h"
#include "transport/fence.h"
#include "transport/shared.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- noted --------------------------------------------------------------------------------- */

static bool is_current(const struct ha_comm *comm, const struct ha_path *path)
{
	return comm->paths[path->index] == path && !ha_path_stopped(path);
}

static void report_failure(struct ha_comm *comm, const struct ha_path *path, enum ha_reason reason,
			   const char *detail)
{
	struct ha_event event = ha_event_init(HA_EVENT_FAILURE, reason);

	/* Each one that traffic has to leave is told, however many fail at once. */
	event.again = !ha_carries(comm, path->index);
	event.from = ha_event_path(path);
	event.epoch = comm->failover->epoch;
	event.detail = detail;
	ha_event_report(comm, &event);
}

static void note_failure(struct ha_slot *slot, const struct ha_path *path, enum ha_reason reason)
{
	slot->notes.failed_gen = path->generation;
	slot->notes.reason = (uint8_t)reason;
}

void ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *fmt, ...)
{
	char text[256];
	bool deferred;
	va_list args;

	if (!is_current(comm, path) || ha_failover_is_over(comm))
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	/* Also where the application polls: the peer is to know first. */
	deferred = ha_log_defer(true);
	report_failure(comm, path, reason, text);
	ha_log_defer(deferred);
	ha_path_stop(path);
	note_failure(&comm->failover->slots[path->index], path, reason);
	ha_progress_call(comm->inst->progress, &comm->poller);
}

void ha_failover_leave(struct ha_comm *comm, enum ha_reason reason)
{
	comm->failover->leave = (uint8_t)reason;
	ha_progress_call(comm->inst->progress, &comm->poller);
}

void ha_failover_probe_done(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_slot *slot = &comm->failover->slots[path->index];
	struct ha_slot_link *link = &comm->failover->links[path->index];

	if (comm->paths[path->index] != path || ha_path_stopped(path))
		return;
	slot->notes.alive = link->asked_ns != 0;
	link->asked_ns = 0;
	comm->failover->answered_ns = ha_now_ns();
	if (!comm->is_send) {
		slot->notes.proved = true;
		slot->notes.proved_ns = ha_now_ns();
	}
	ha_progress_call(comm->inst->progress, &comm->poller);
}

void ha_failover_msg_came(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_slot *slot = &comm->failover->slots[path->index];

	/* Of a generation that is on its way out it would be taken for its successor's. */
	if (ha_path_stopped(path) || comm->paths[path->index] != path)
		return;
	slot->notes.msg = true;
	if (comm->is_send) {
		slot->notes.proved = true;
		slot->notes.proved_ns = ha_now_ns();
	}
	ha_progress_call(comm->inst->progress, &comm->poller);
}

/* ---- taken --------------------------------------------------------------------------------- */

static enum ha_on failure_of(const struct ha_comm *comm, unsigned p)
{
	if (!ha_carries(comm, p))
		return HA_ON_STANDBY_FAILED;
	return ha_rails_may_shed(comm, p) ? HA_ON_RAIL_FAILED : HA_ON_FAILED;
}

static void take_failure(struct ha_comm *comm, unsigned p)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	uint32_t failed_gen = slot->notes.failed_gen;
	struct ha_fsm_event o = {
	    .on = failure_of(comm, p),
	    .reason = (enum ha_reason)slot->notes.reason,
	    .path = (uint8_t)p,
	};

	slot->notes.failed_gen = 0;
	if (failed_gen > slot->want_gen) /* it was not fenced meanwhile */
		ha_fsm_step(comm, &o);
}

void ha_failover_take_failures(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	enum ha_reason leave = (enum ha_reason)fo->leave;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (fo->slots[p].notes.failed_gen != 0)
			take_failure(comm, p);
	fo->leave = HA_REASON_NONE;
	if (leave != HA_REASON_NONE && fo->state == HA_FO_ACTIVE)
		ha_fsm_step(comm, &(struct ha_fsm_event){
				      .on = HA_ON_FAILED, .reason = leave, .path = comm->active});
}

/* The receiver's probes; at the sender, messages of the receiver, which sends them over what it has
 * proved. */
void ha_failover_take_proofs(struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_slot *slot = &comm->failover->slots[p];

		if (slot->notes.alive)
			ha_liveness_note_life(comm->inst->liveness, &comm->failover->links[p].live);
		slot->notes.alive = false;
		if (!slot->notes.proved)
			continue;
		slot->notes.proved = false;
		if (!comm->is_send && slot->state != HA_SLOT_PROBING)
			continue;
		slot->proved_ns = slot->notes.proved_ns;
		slot->up_ns = 0;
		ha_liveness_note_life(comm->inst->liveness, &comm->failover->links[p].live);
		ha_slot_on(comm, p, HA_SLOT_ON_PROVED);
		if (!comm->is_send)
			ha_standby_proved(comm);
	}
}

bool ha_failover_has_notes(const struct ha_failover *fo)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot_notes *notes = &fo->slots[p].notes;

		if (notes->failed_gen != 0 || notes->proved || notes->alive || notes->msg)
			return true;
	}
	return fo->leave != HA_REASON_NONE || fo->stalled;
}
