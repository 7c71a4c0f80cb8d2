/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/path_build.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "base/log.h"
#include "failover/engine.h"
#include "failover/port_pair.h"
#include "failover/shared.h"
#include "failover/standby.h"
#include "transport/comm.h"
#include "transport/comm_event.h"
#include "transport/path_connect.h"
#include "transport/path_open.h"
#include "transport/shared.h"

#include <string.h>

/* ---- heartbeats ---------------------------------------------------------------------------- */

/* All under the lock of the sessions, which a call does not mind. */
static void went_down(struct ha_live_link *live)
{
	struct ha_slot_link *link = ha_container_of(live, struct ha_slot_link, live);

	link->down = true;
	ha_progress_call(link->comm->inst->progress, &link->comm->poller);
}

static void came_up(struct ha_live_link *live)
{
	struct ha_slot_link *link = ha_container_of(live, struct ha_slot_link, live);

	link->up = true;
	ha_progress_call(link->comm->inst->progress, &link->comm->poller);
}

/* The session says by itself which: its state is looked at. */
static void suspected(struct ha_live_link *live)
{
	struct ha_slot_link *link = ha_container_of(live, struct ha_slot_link, live);

	ha_progress_call(link->comm->inst->progress, &link->comm->poller);
}

/* Heartbeats go one way of several, the path's queue pairs another: ask those. */
static void doomed(struct ha_live_link *live)
{
	struct ha_slot_link *link = ha_container_of(live, struct ha_slot_link, live);

	link->doomed = true;
	ha_progress_call(link->comm->inst->progress, &link->comm->poller);
}

/* Traffic that completes well on the active path is life, whatever became of the heartbeats. */
static bool is_alive(struct ha_live_link *live)
{
	struct ha_slot_link *link = ha_container_of(live, struct ha_slot_link, live);
	uint64_t life = atomic_load_explicit(&link->comm->life.seen, memory_order_relaxed);
	bool alive = (life & 0xff) == link->slot && life >> 8 != link->completions;

	link->completions = life >> 8;
	return alive;
}

void ha_path_build_unwatch(struct ha_comm *comm, unsigned p)
{
	ha_liveness_detach(comm->inst->liveness, &comm->failover->links[p].live);
	comm->failover->links[p].down = comm->failover->links[p].up = false;
	comm->failover->links[p].doomed = false;
	comm->failover->links[p].asked_ns = 0;
}

void ha_path_build_watch(struct ha_comm *comm, unsigned p)
{
	struct ha_failover *fo = comm->failover;
	const struct ha_slot *slot = &fo->slots[p];
	const struct ha_offer *offer = &fo->peer_ports.offers[slot->peer_port];
	struct ha_slot_link *link = &fo->links[p];
	struct ha_live_endpoint remote = {.id = offer->live_id,
					  .qpn = offer->live_qpn,
					  .link_layer = offer->link_layer,
					  .lid = offer->lid};

	ha_path_build_unwatch(comm, p);
	if (!(fo->heartbeats & 1u << slot->port))
		return;
	if (slot->peer_port >= fo->peer_ports.count || offer->live_qpn == 0 || offer->live_id == 0)
		return;
	memcpy(remote.gid, offer->gid, sizeof(remote.gid));
	if (comm->paths[p] && comm->paths[p]->remote.nqps != 0) {
		/* The address may have changed since PORTS was said. */
		memcpy(remote.gid, comm->paths[p]->remote.gid, sizeof(remote.gid));
		remote.lid = comm->paths[p]->remote.lid;
	}
	memset(&link->live, 0, sizeof(link->live));
	link->live.down = went_down;
	link->live.up = came_up;
	link->live.suspected = suspected;
	link->live.doomed = doomed;
	link->live.alive = is_alive;
	link->comm = comm;
	link->slot = (uint8_t)p;
	(void)ha_liveness_attach(comm->inst->liveness, fo->offers[slot->port], &remote, fo->sl,
				 fo->traffic_class, &link->live);
}

/* ---- one end of a path ----------------------------------------------------------------------- */

/* The peer's end, and what our side of it is told of a connection's packets. */
static struct ha_wire_endpoint seen_from_here(const struct ha_comm *comm,
					      const struct ha_wire_endpoint *remote)
{
	struct ha_wire_endpoint endpoint = *remote;

	endpoint.sl = comm->failover->sl;
	endpoint.traffic_class = comm->failover->traffic_class;
	return endpoint;
}

bool ha_path_build_open(struct ha_comm *comm, unsigned p, const struct ha_path_plan *plan)
{
	struct ha_failover *fo = comm->failover;
	struct ha_slot *slot = &fo->slots[p];
	struct ha_path_options options = {.port = fo->offers[plan->port],
					  .index = (uint8_t)p,
					  .generation = plan->generation,
					  .nqps = plan->nqps,
					  .remote = plan->remote};

	HA_INVARIANT(slot->state == HA_SLOT_EMPTY);
	HA_INVARIANT(!slot->opening && !slot->yielded && !comm->paths[p]);
	HA_INVARIANT(plan->generation > slot->want_gen && plan->generation >= slot->newest_gen);
	HA_INVARIANT(comm->is_send || slot->fenced_gen >= slot->want_gen);
	HA_INVARIANT(plan->port < fo->noffers);
	slot->newest_gen = plan->generation;
	slot->port = plan->port;
	slot->peer_port = plan->peer_port;
	ha_path_build_unwatch(comm, p);
	slot->opening = ha_path_start_opening(comm, &options);
	if (!slot->opening)
		return false;
	ha_slot_on(comm, p, HA_SLOT_ON_OPENS);
	return true;
}

ha_result_t ha_path_build_connect(struct ha_comm *comm, unsigned p,
				  const struct ha_wire_endpoint *remote)
{
	struct ha_path *path = comm->paths[p];
	struct ha_wire_endpoint endpoint = seen_from_here(comm, remote);

	if (!ha_path_fits(path, remote)) {
		HA_WARN("connection %s: the peer's end of path %u.%u does not fit ours", comm->name,
			p, path->generation);
		return HA_ERR_INTERNAL;
	}
	ha_slot_on(comm, p, HA_SLOT_ON_CONNECTS);
	ha_path_start_connecting(path, &endpoint);
	return HA_OK;
}

static void connected(struct ha_comm *comm, unsigned p)
{
	struct ha_event event = ha_event_init(HA_EVENT_REBUILD, HA_REASON_NONE);

	event.again = true;
	ha_path_build_watch(comm, p);
	ha_slot_on(comm, p, HA_SLOT_ON_CONNECTED);
	event.to = ha_event_path(comm->paths[p]);
	ha_event_report(comm, &event);
	if (comm->is_send)
		comm->failover->say |= ha_say_of(HA_SAY_REBUILT, p);
	else
		ha_standby_connected(comm, p);
}

static void not_connected(struct ha_comm *comm, unsigned p)
{
	if (comm->is_send) {
		ha_slot_fence(comm, p, comm->paths[p]->generation);
		comm->failover->say |= ha_say_of(HA_SAY_REFUSED, p);
	} else {
		ha_standby_not_connected(comm, p);
	}
}

/* Our end is there: the connection's from now on. */
static void opened(struct ha_comm *comm, unsigned p)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	struct ha_path *path = slot->opening;

	HA_INVARIANT(path->generation == slot->newest_gen);
	HA_INVARIANT(!comm->paths[p]);
	slot->opening = NULL;
	comm->paths[p] = path;
	if (!comm->is_send)
		ha_standby_opened(comm, p);
	else if (path->connects) /* by the same command, which is back */
		ha_slot_on(comm, p, HA_SLOT_ON_CONNECTS);
	else if (ha_path_build_connect(comm, p, &path->remote) != HA_OK)
		not_connected(comm, p);
}

static void not_opened(struct ha_comm *comm, unsigned p)
{
	ha_slot_fence(comm, p, comm->failover->slots[p].newest_gen); /* and has the peer told */
	if (comm->is_send)
		comm->failover->say |= ha_say_of(HA_SAY_REFUSED, p);
	else
		ha_standby_failed(comm, p);
}

static bool is_open(const struct ha_slot *slot)
{
	return slot->state == HA_SLOT_OPENING && !ha_path_away(slot->opening);
}

static bool is_connected(const struct ha_comm *comm, unsigned p)
{
	return comm->failover->slots[p].state == HA_SLOT_CONNECTING &&
	       !ha_path_away(comm->paths[p]);
}

bool ha_path_build_due(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (is_open(&comm->failover->slots[p]) || is_connected(comm, p))
			return true;
	return false;
}

void ha_path_build_visit(struct ha_comm *comm)
{
	ha_result_t result;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot *slot = &comm->failover->slots[p];

		if (is_open(slot))
			(slot->opening->outcome == HA_OK ? opened : not_opened)(comm, p);
		if (is_connected(comm, p) && !ha_path_connecting(comm->paths[p], &result))
			(result == HA_OK ? connected : not_connected)(comm, p);
	}
}

/* ---- the sender's answer -------------------------------------------------------------------- */

static void refuse(struct ha_comm *comm, unsigned p)
{
	comm->failover->say |= ha_say_of(HA_SAY_REFUSED, p);
}

static void make(struct ha_comm *comm, const struct ha_message *m)
{
	const struct ha_wire_endpoint remote = seen_from_here(comm, &m->endpoint);
	const struct ha_path_plan plan = {.generation = m->generation,
					  .nqps = m->endpoint.nqps,
					  .port = m->port,
					  .peer_port = m->peer_port,
					  .remote = &remote};

	if (m->port < comm->failover->noffers && ha_offer_usable(comm, m->port) &&
	    ha_path_build_open(comm, m->path, &plan))
		return;
	comm->failover->slots[m->path].newest_gen = m->generation;
	refuse(comm, m->path);
}

void ha_path_build_answer(struct ha_comm *comm, const struct ha_message *m)
{
	struct ha_slot *slot = &comm->failover->slots[m->path];

	if (m->generation <= slot->want_gen || m->generation < slot->newest_gen)
		return; /* of the past: fenced since, or overtaken */
	if (slot->opening && slot->opening->generation == m->generation)
		return; /* on its way */
	if (comm->paths[m->path] && comm->paths[m->path]->generation == m->generation) {
		if (slot->state >= HA_SLOT_PROBING) /* it has not heard */
			comm->failover->say |= ha_say_of(HA_SAY_REBUILT, m->path);
		return;
	}
	ha_slot_fence(comm, m->path, m->generation - 1);
	if (comm->paths[m->path] || slot->yielded)
		return; /* not fenced yet: it is said again soon */
	make(comm, m);
}
