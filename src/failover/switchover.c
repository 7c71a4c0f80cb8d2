/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/switchover.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/usdt.h"
#include "failover/engine.h"
#include "failover/port_pair.h"
#include "failover/shared.h"
#include "liveness/liveness.h"
#include "liveness/session_report.h"
#include "transport/comm.h"
#include "transport/comm_event.h"
#include "transport/replay.h"
#include "transport/shared.h"
#include "transport/visit.h"

/*
 * Of the active path: a completion, or an answered heartbeat; a receiver whose sender has nothing
 * to say completes nothing for as long as that lasts. Without heartbeats nothing was wrong while
 * nothing was asked for.
 */
static uint64_t last_life_ns(struct ha_comm *comm)
{
	const struct ha_session *session = comm->failover->links[comm->active].live.session;
	uint64_t other_ns = session ? ha_session_heard_ns(session) : comm->life.idle_ns;

	ha_comm_note_life(comm);
	return other_ns > comm->life.alive_ns ? other_ns : comm->life.alive_ns;
}

void ha_switchover_begin(struct ha_comm *comm, enum ha_reason reason)
{
	struct ha_switchover *now = &comm->failover->now;

	if (now->pending)
		return;
	now->pending = true;
	now->reason = (uint8_t)reason;
	now->from = comm->failover->turn.pending ? comm->failover->turn.from
						 : ha_event_path(ha_comm_path(comm));
	now->trigger_ns = ha_now_ns();
	ha_hold_off_moving(&comm->inst->failover_shared->hold_off, now->trigger_ns);
	now->alive_ns = last_life_ns(comm);
	if (now->alive_ns > now->trigger_ns || now->alive_ns == 0)
		now->alive_ns = now->trigger_ns;
	HA_USDT5(failover_begin, ha_comm_number(comm), (int)comm->is_send, ha_reason_text(reason),
		 (int)comm->active, now->from.generation);
}

/* The last resort. */
static void warn_drained(const struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);

	if (ha_pair_drained(comm, ha_pair_of(&comm->failover->slots[comm->active])) == 0)
		return;
	if (ha_port_drained(path->port))
		HA_WARN("connection %s: %s:%d is drained and used all the same: there is no other "
			"healthy path",
			comm->name, path->nic->name, path->port->port_num);
	else
		HA_WARN("connection %s: the peer's port %s:%d is drained and used all the same: "
			"there is no other healthy path",
			comm->name, path->remote.device, path->remote.port_num);
}

void ha_switchover_end(struct ha_comm *comm, const struct ha_replay *replay)
{
	struct ha_switchover *now = &comm->failover->now;
	struct ha_event event = ha_event_init(HA_EVENT_SWITCH, (enum ha_reason)now->reason);
	uint64_t ended_ns;

	if (!now->pending)
		return;
	ended_ns = ha_now_ns();
	now->pending = false;
	event.from = now->from;
	event.to = ha_event_path(ha_comm_path(comm));
	event.epoch = comm->failover->epoch;
	event.detection_ns = now->trigger_ns - now->alive_ns;
	event.blackout_ns = ended_ns - now->alive_ns;
	ha_hold_off_moving(&comm->inst->failover_shared->hold_off, ended_ns);
	event.completed_without_resend = replay->known;
	event.replayed_messages = replay->messages;
	event.replayed_bytes = replay->bytes;
	ha_event_report(comm, &event);
	HA_USDT6(failover_end, ha_comm_number(comm), (int)comm->is_send,
		 ha_reason_text(event.reason), event.detection_ns, event.blackout_ns,
		 event.replayed_messages);
	warn_drained(comm);
	now->reason = HA_REASON_NONE;
}

void ha_switchover_outage(struct ha_comm *comm)
{
	const struct ha_switchover *now = &comm->failover->now;
	struct ha_event event = ha_event_init(HA_EVENT_OUTAGE, (enum ha_reason)now->reason);

	event.from = now->from;
	event.epoch = comm->failover->epoch;
	event.detection_ns = now->trigger_ns - now->alive_ns;
	ha_event_report(comm, &event);
	HA_USDT3(outage, ha_comm_number(comm), (int)comm->is_send, ha_reason_text(event.reason));
}
