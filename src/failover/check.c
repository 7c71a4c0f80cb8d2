/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/check.h"

#include "base/invariant.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "transport/check.h"
#include "transport/comm.h"
#include "transport/recv.h"
#include "transport/send.h"

/* ---- a slot --------------------------------------------------------------------------------- */

static void check_growth(struct ha_slot *slot)
{
	struct ha_slot_seen *seen = &slot->seen;

	HA_INVARIANT_GROWS(seen->newest_gen, slot->newest_gen);
	HA_INVARIANT_GROWS(seen->want_gen, slot->want_gen);
	HA_INVARIANT_GROWS(seen->fenced_gen, slot->fenced_gen);
	HA_INVARIANT_GROWS(seen->yielded_gen, slot->yielded_gen);
	HA_INVARIANT_GROWS(seen->settled_gen, slot->settled_gen);
	HA_INVARIANT_GROWS(seen->peer_fenced_gen, slot->peer_fenced_gen);
	HA_INVARIANT_GROWS(seen->peer_yielded_gen, slot->peer_yielded_gen);
}

/* Nothing is known to be fenced that was not to be, or that never was. */
static void check_watermarks(const struct ha_comm *comm, const struct ha_slot *slot)
{
	HA_INVARIANT(slot->want_gen <= slot->newest_gen);
	HA_INVARIANT(slot->fenced_gen <= slot->want_gen);
	HA_INVARIANT(slot->yielded_gen <= slot->want_gen);
	HA_INVARIANT(slot->settled_gen <= slot->want_gen);
	HA_INVARIANT(!comm->is_send || slot->settled_gen == 0);
	HA_INVARIANT(comm->is_send || slot->yielded_gen == 0);
	HA_INVARIANT(comm->is_send || !slot->yielded);
	HA_INVARIANT(comm->is_send || slot->peer_fenced_gen <= slot->newest_gen);
	HA_INVARIANT(comm->is_send || slot->peer_yielded_gen <= slot->newest_gen);
	HA_INVARIANT(!comm->is_send || slot->lone_fence_ns == 0);
	HA_INVARIANT(slot->lone_gen <= slot->want_gen);
	HA_INVARIANT(slot->notes.failed_gen <= slot->newest_gen);
	HA_INVARIANT(slot->memory_gen <= slot->newest_gen);
}

/* Its paths may be fenced without the machine: there is nothing to go on with. */
static bool is_ending(const struct ha_comm *comm)
{
	return comm->settling || ha_comm_error(comm) != HA_OK ||
	       comm->failover->state == HA_FO_CLOSED;
}

/* What an end has of a path is what its state says. */
static void check_objects(const struct ha_comm *comm, const struct ha_slot *slot, unsigned p)
{
	const struct ha_path *path = comm->paths[p];

	HA_INVARIANT(slot->state < HA_SLOT_COUNT);
	HA_INVARIANT(!comm->is_send || slot->state != HA_SLOT_REBUILDING);
	HA_INVARIANT((slot->state == HA_SLOT_OPENING) == (slot->opening != NULL));
	HA_INVARIANT(!slot->opening || !path);
	HA_INVARIANT(!slot->opening || !slot->yielded);
	HA_INVARIANT(!slot->yielded || slot->yielded != path);
	HA_INVARIANT(!slot->yielded || ha_path_stopped(slot->yielded));
	HA_INVARIANT(!slot->yielded || slot->yielded->generation <= slot->yielded_gen);
	HA_INVARIANT(!slot->yielded || slot->yielded->unheard);
	if (slot->opening) {
		HA_INVARIANT(slot->opening->generation == slot->newest_gen);
		HA_INVARIANT(slot->opening->generation > slot->want_gen);
		HA_INVARIANT(atomic_load(&slot->opening->state) == HA_PATH_INIT);
		ha_path_check(comm, slot->opening, p);
	}
	if (slot->yielded)
		ha_path_check(comm, slot->yielded, p);
	if (is_ending(comm))
		return;
	switch (slot->state) {
	case HA_SLOT_EMPTY:
		HA_INVARIANT(!path || ha_path_stopped(path));
		HA_INVARIANT(!path || path->generation <= slot->want_gen);
		break;
	case HA_SLOT_OPENING:
		break;
	case HA_SLOT_REBUILDING:
	case HA_SLOT_CONNECTING:
		HA_INVARIANT(path);
		HA_INVARIANT(path->generation == slot->newest_gen);
		HA_INVARIANT(path->generation > slot->want_gen);
		HA_INVARIANT(!ha_path_ready(path));
		break;
	default:
		HA_INVARIANT(path);
		HA_INVARIANT(path->generation == slot->newest_gen);
		HA_INVARIANT(path->generation > slot->want_gen);
		HA_INVARIANT(atomic_load(&path->state) <= HA_PATH_STOPPED);
		HA_INVARIANT(!ha_path_stopped(path) || slot->notes.failed_gen == path->generation);
		break;
	}
}

static void check_path_of_slot(const struct ha_comm *comm, const struct ha_slot *slot,
			       const struct ha_path *path)
{
	HA_INVARIANT(path->generation <= slot->newest_gen);
	HA_INVARIANT(path->generation > slot->fenced_gen);
	HA_INVARIANT(path->generation > slot->want_gen || ha_path_stopped(path));
	HA_INVARIANT(path->generation <= slot->want_gen ||
		     atomic_load(&path->state) < HA_PATH_FENCING || is_ending(comm));
}

/* What is lost is ordered to be fenced, and nothing else is in its place before it is mended. */
static void check_rail(const struct ha_comm *comm, const struct ha_slot *slot, unsigned p)
{
	const struct ha_rail *rail = &comm->failover->rails[p];

	HA_INVARIANT(rail->state < HA_RAIL_COUNT);
	HA_INVARIANT(rail->generation <= slot->want_gen);
	HA_INVARIANT(rail->mended_gen <= rail->generation);
	HA_INVARIANT(comm->is_send || (rail->mended_gen == 0 && !rail->stated));
	if (rail->state == HA_RAIL_WHOLE)
		return;
	HA_INVARIANT(comm->features & HA_FEATURE_SHED);
	HA_INVARIANT(comm->failover->state == HA_FO_ACTIVE || is_ending(comm));
	HA_INVARIANT(p != comm->active || comm->failover->turn.pending);
	/* A receiver may order a sender to fence more than there was: its own affair. */
	HA_INVARIANT(comm->is_send ? rail->generation <= slot->newest_gen
				   : rail->generation == slot->newest_gen);
	HA_INVARIANT(slot->state == HA_SLOT_EMPTY && !slot->opening);
	HA_INVARIANT(rail->mended_gen < rail->generation);
	HA_INVARIANT(rail->state != HA_RAIL_SHED || !ha_slot_waits(comm, p));
	HA_INVARIANT(comm->is_send || !(comm->recv->members >> p & 1));
}

static void check_slot(struct ha_comm *comm, unsigned p)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_slot *slot = &comm->failover->slots[p];
	const struct ha_slot_link *link = &fo->links[p];

	check_growth(slot);
	check_watermarks(comm, slot);
	check_objects(comm, slot, p);
	check_rail(comm, slot, p);
	if (comm->paths[p])
		check_path_of_slot(comm, slot, comm->paths[p]);
	HA_INVARIANT(slot->port < HA_MAX_OFFERS);
	HA_INVARIANT(slot->peer_port < HA_MAX_OFFERS);
	HA_INVARIANT(!comm->is_send || slot->deadline_ns == 0);
	HA_INVARIANT(!link->live.session || link->comm == comm);
	HA_INVARIANT(!link->live.session || link->slot == p);
	HA_INVARIANT(link->asked_ns == 0 || is_ending(comm) || ha_path_ready(comm->paths[p]) ||
		     slot->state == HA_SLOT_EMPTY || slot->notes.failed_gen != 0);
}

/* ---- what is out of use ---------------------------------------------------------------------- */

static void check_retired(const struct ha_comm *comm)
{
	unsigned n = 0;

	for (const struct ha_path *path = comm->failover->retired; path;
	     path = path->next_retired) {
		const struct ha_slot *slot = &comm->failover->slots[path->index];

		HA_INVARIANT(++n < 1000); /* a ring would have no end */
		HA_INVARIANT(path->comm == comm);
		HA_INVARIANT(path->index < HA_MAX_PATHS);
		HA_INVARIANT(path->generation <= slot->want_gen || is_ending(comm));
		HA_INVARIANT(ha_path_stopped(path));
		HA_INVARIANT(comm->paths[path->index] != path);
		HA_INVARIANT(slot->opening != path && slot->yielded != path);
		HA_INVARIANT(comm->clear != path);
	}
}

/* ---- the machine ---------------------------------------------------------------------------- */

static bool in_transition(uint8_t state)
{
	return state == HA_FO_SUSPECTED || state == HA_FO_FENCED || state == HA_FO_FENCING;
}

/* Traffic may run: on a path that nothing speaks against, or whose failure is noted. */
static void check_active(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	const struct ha_slot *slot = &fo->slots[comm->active];
	const struct ha_path *path = ha_comm_path(comm);

	HA_INVARIANT(ha_comm_traffic_epoch(comm) == fo->epoch);
	HA_INVARIANT(!fo->turn.pending || ha_rails_is_lost(comm, comm->active));
	if (fo->turn.pending)
		return;
	HA_INVARIANT(path);
	HA_INVARIANT(path->generation > slot->want_gen);
	HA_INVARIANT(ha_slot_is_up(slot) || slot->state == HA_SLOT_PROBING);
	HA_INVARIANT(comm->is_send || ha_slot_is_up(slot));
	HA_INVARIANT(!slot->opening && !slot->yielded);
}

static void check_state(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	HA_INVARIANT(fo->state < HA_FO_STATES);
	HA_INVARIANT(!fo->stepping);
	HA_INVARIANT(!comm->is_send || fo->state != HA_FO_FENCING);
	HA_INVARIANT(comm->is_send || fo->state != HA_FO_SUSPECTED);
	HA_INVARIANT(comm->is_send || fo->state != HA_FO_FENCED);
	HA_INVARIANT(fo->epoch >= ha_comm_traffic_epoch(comm));
	HA_INVARIANT(!fo->turn.pending || comm->features & HA_FEATURE_TURN);
	HA_INVARIANT(!fo->turn.pending || fo->state == HA_FO_ACTIVE);
	HA_INVARIANT(fo->epoch < UINT32_MAX / 2);
	if (fo->state == HA_FO_ACTIVE && !is_ending(comm))
		check_active(comm);
	if (in_transition(fo->state)) {
		HA_INVARIANT(comm->epoch_changing);
		HA_INVARIANT(!comm->clear);
		HA_INVARIANT(fo->now.pending);
	}
	HA_INVARIANT(fo->state != HA_FO_LATCHED || ha_comm_error(comm) != HA_OK);
	HA_INVARIANT(fo->state != HA_FO_LATCHED || comm->epoch_changing);
	HA_INVARIANT(fo->state != HA_FO_FENCING || fo->epoch > ha_comm_traffic_epoch(comm));
	HA_INVARIANT(fo->state != HA_FO_FENCING || !fo->resumed);
	HA_INVARIANT(fo->state != HA_FO_FENCED || fo->epoch > ha_comm_traffic_epoch(comm));
	HA_INVARIANT(fo->state != HA_FO_SUSPECTED || fo->epoch == ha_comm_traffic_epoch(comm));
	HA_INVARIANT(fo->state != HA_FO_SUSPECTED || fo->suspect_gen != 0);
	HA_INVARIANT(fo->suspect_path < HA_MAX_PATHS);
	HA_INVARIANT(fo->suspect_gen <= fo->slots[fo->suspect_path].want_gen);
	HA_INVARIANT(fo->resume.epoch <= fo->epoch);
	HA_INVARIANT(fo->resume.path < HA_MAX_PATHS);
	HA_INVARIANT(!comm->is_send || !fo->standby);
	HA_INVARIANT(comm->is_send || fo->standby);
	HA_INVARIANT(comm->is_send || fo->resume.epoch == 0);
}

/* ---- what is said --------------------------------------------------------------------------- */

static void check_talk(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	const uint32_t receivers = 0xfu * HA_SAY_REBUILD;
	const uint32_t senders = 0xfu * HA_SAY_REBUILT | 0xfu * HA_SAY_REFUSED |
				 0xfu * HA_SAY_SUSPECT | HA_SAY_RESUMED | HA_SAY_MENDED;

	HA_INVARIANT(!(fo->say & (comm->is_send ? receivers : senders)));
	HA_INVARIANT(!(fo->repeat & (comm->is_send ? receivers : senders)));
	HA_INVARIANT(fo->noffers >= 1 && fo->noffers <= HA_MAX_OFFERS);
	HA_INVARIANT(fo->peer_ports.count <= HA_MAX_OFFERS);
	HA_INVARIANT((fo->heartbeats >> fo->noffers) == 0);
	HA_INVARIANT((fo->ports_said >> fo->noffers) == 0);
	for (unsigned i = 0; i < fo->noffers; i++)
		HA_INVARIANT(fo->offers[i]);
	HA_INVARIANT(fo->nqps >= 1 && fo->nqps <= HA_MAX_QPS);
}

/* No end knows of more than the other can have. */
static void check_windows(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	const struct ha_window *own = comm->is_send ? &comm->send->completed : &comm->recv->done;

	HA_INVARIANT(!(fo->peer_window.bits & 1));
	if (comm->is_send)
		HA_INVARIANT(ha_window_below(&fo->peer_window, ha_send_posted_end(comm->send)));
	else
		HA_INVARIANT(ha_window_below(&fo->peer_window, comm->recv->next_seq));
	HA_INVARIANT_GROWS(fo->seen.done, own->base);
	HA_INVARIANT_GROWS(fo->seen.peer_done, fo->peer_window.base);
	HA_INVARIANT_GROWS(fo->seen.epoch, fo->epoch);
	HA_INVARIANT_GROWS(fo->seen.traffic_epoch, ha_comm_traffic_epoch(comm));
	HA_INVARIANT_GROWS(fo->seen.reconnected, fo->reconnected);
}

void ha_failover_check(struct ha_comm *comm)
{
	HA_INVARIANT(comm->failover);
	check_state(comm);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		check_slot(comm, p);
	check_retired(comm);
	check_talk(comm);
	check_windows(comm);
}
