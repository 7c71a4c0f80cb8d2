/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's life with failover, its socket, and what it says of itself. */
#include "failover/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "failover/fsm.h"
#include "failover/hear.h"
#include "failover/notes.h"
#include "failover/path_build.h"
#include "failover/path_select.h"
#include "failover/port_exchange.h"
#include "failover/preferred.h"
#include "failover/reconnect.h"
#include "failover/reconnect_server.h"
#include "failover/signaling.h"
#include "failover/standby.h"
#include "failover/standby_memory.h"
#include "failover/visit.h"
#include "transport/comm.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/path_close.h"
#include "transport/path_msg.h"
#include "transport/shared.h"

#include <stdlib.h>

/* ---- life ----------------------------------------------------------------------------------- */

static void reconnect_at(struct ha_instance *inst, bool is_send, struct ha_reconnect_at *out)
{
	if (ha_reconnect_server_open(inst, &out->addr) && !is_send)
		out->secrets = ha_secrets_new();
}

static ha_result_t open_failover(struct ha_comm *comm, const struct ha_hello *local,
				 const struct ha_hello *remote)
{
	struct ha_failover *fo = calloc(1, sizeof(*fo));

	if (!fo) {
		HA_WARN("out of memory for a connection's failover");
		return HA_ERR_SYSTEM;
	}
	comm->failover = fo;
	fo->resumed = true; /* the handshake did what RESUME and RESUMED do later */
	fo->epoch = 1;
	fo->sl = local->endpoint.sl;
	fo->traffic_class = local->endpoint.traffic_class;
	fo->nqps = local->endpoint.nqps;
	memcpy(fo->rail_nqps, (comm->is_send ? local : remote)->rail_nqps, sizeof(fo->rail_nqps));
	fo->reconnect_at = local->reconnect_at;
	fo->peer_reconnect_at = remote->reconnect_at;
	fo->peer_window.base = 1;
	fo->heard_ns = fo->tick_ns = fo->joined_ns = ha_now_ns();
	ha_slot_begin(&fo->slots[0], comm->paths[0]->generation);
	fo->look = true;
	comm->npaths = HA_MAX_PATHS;
	atomic_store_explicit(&comm->epoch, fo->epoch, memory_order_relaxed);
	return ha_standby_open(comm);
}

static void start(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	ha_port_exchange_open(comm);
	fo->ports_said = ha_signaling_ports_up(comm); /* before: what changes meanwhile is said */
	ha_port_exchange_say(comm);
	for (unsigned i = 0; i < fo->noffers; i++)
		if (ha_port_drained(fo->offers[i]))
			fo->say |= HA_SAY_STATE; /* PORTS says nothing of that */
}

static void free_failover(struct ha_comm *comm)
{
	if (!comm->failover)
		return; /* the handshake did not get so far */
	while (comm->failover->retired) {
		struct ha_path *path = comm->failover->retired;

		comm->failover->retired = path->next_retired;
		ha_path_close(path);
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		ha_path_close(comm->failover->slots[p].opening);
		ha_path_close(comm->failover->slots[p].yielded);
	}
	ha_reconnect_free(comm);
	ha_standby_free(comm);
	free(comm->failover);
	comm->failover = NULL;
}

/* Closing may take a while, and a peer that has closed answers no heartbeats. */
static void goodbye(struct ha_comm *comm)
{
	if (ha_comm_error(comm) == HA_OK) {
		ha_signaling_goodbye(comm);
	} else if (comm->failover->state == HA_FO_LATCHED) {
		(void)ha_slots_drain(comm, ha_now_ns());
		comm->failover->say = HA_SAY_ABORT;
		ha_signaling_send(comm, ha_now_ns());
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		ha_path_build_unwatch(comm, p);
}

/* ---- its socket ----------------------------------------------------------------------------- */

/* So many sockets in a row that garbled what was said, each soon: it is the peer that is broken. */
#define GARBLED_MAX 8
#define SOON_NS	    (10 * HA_NS_PER_S)

/* False: it is, and another socket would not help. */
static bool may_be_the_socket(struct ha_failover *fo, const struct ha_frame_sock *frames)
{
	if (!ha_frame_sock_is_bad(frames))
		return true;
	if (ha_now_ns() - fo->joined_ns > SOON_NS)
		fo->garbled = 0;
	return ++fo->garbled <= GARBLED_MAX;
}

static bool socket_broken(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	if (fo->state == HA_FO_LATCHED)
		return false;
	if (!may_be_the_socket(fo, &comm->ctrl_sock->frames))
		return false;
	fo->socket_broken = true;
	fo->socket_end = (uint8_t)ha_frame_sock_end(&comm->ctrl_sock->frames);
	fo->broken_ns = ha_now_ns();
	fo->silence = (struct ha_silence){.asked_ns = 0};
	if (!ha_reconnect_begin(comm, fo->broken_ns) && !ha_signaling_has_ctrl_sock(comm))
		return false;
	HA_INFO(HA_SUBSYS_NET,
		"connection %s: the bootstrap socket is broken (%s); asking the peer over its "
		"paths, %s",
		comm->name, ha_frame_sock_why(&comm->ctrl_sock->frames),
		comm->is_send ? "and dialling again" : "it may dial again");
	ha_say(comm, HA_SAY_PING);
	return true;
}

bool ha_failover_reconnected(struct ha_comm *comm, struct ha_frame_sock *sock)
{
	struct ha_failover *fo = comm->failover;

	if (!ha_ctrl_sock_replace(comm->ctrl_sock, sock))
		return false;
	HA_INFO(HA_SUBSYS_NET, "connection %s: the bootstrap socket was dialled again and works",
		comm->name);
	fo->socket_broken = false;
	fo->unproven = true;
	fo->reconnected++;
	fo->heard_ns = fo->joined_ns = ha_now_ns();
	ha_port_exchange_say(comm);
	ha_signaling_new_statement(comm);
	ha_say(comm, HA_SAY_STATEMENT | HA_SAY_STATE |
			 (ha_comm_error(comm) != HA_OK ? HA_SAY_ABORT : 0u));
	return true;
}

/* ---- what is noted -------------------------------------------------------------------------- */

static void path_failed(struct ha_comm *comm, struct ha_path *path,
			const struct ha_path_failure *failure)
{
	ha_failover_trigger(comm, path, failure->reason, "%s", failure->text);
}

static void stalled(struct ha_comm *comm)
{
	comm->failover->stalled = true;
	ha_progress_call(comm->inst->progress, &comm->poller);
}

static bool memory_refused(struct ha_comm *comm, const struct ha_nic *nic)
{
	bool left = ha_standby_memory_refused(comm, nic);

	ha_progress_call(comm->inst->progress, &comm->poller);
	return left;
}

/* ---- what it says of itself ----------------------------------------------------------------- */

bool ha_failover_is_moving(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return fo && ((fo->state != HA_FO_ACTIVE && fo->state != HA_FO_CLOSED) ||
		      fo->leave != HA_REASON_NONE);
}

bool ha_failover_is_over(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return fo && (fo->state == HA_FO_CLOSED || fo->state == HA_FO_LATCHED);
}

static enum nccl_ha_path_health health_of(const struct ha_comm *comm, unsigned p)
{
	static const enum nccl_ha_path_health healths[HA_SLOT_COUNT] = {
	    [HA_SLOT_EMPTY] = NCCL_HA_PATH_FAILED,
	    [HA_SLOT_OPENING] = NCCL_HA_PATH_FAILED,
	    [HA_SLOT_REBUILDING] = NCCL_HA_PATH_FAILED,
	    [HA_SLOT_CONNECTING] = NCCL_HA_PATH_FAILED,
	    [HA_SLOT_PROBING] = NCCL_HA_PATH_RECOVERING,
	    [HA_SLOT_GOOD] = NCCL_HA_PATH_GOOD,
	    [HA_SLOT_SUSPECTED] = NCCL_HA_PATH_SUSPECTED,
	};

	if (!ha_path_ready(comm->paths[p]))
		return NCCL_HA_PATH_FAILED;
	/* Proved, but the heartbeats of its ports are not back: it is not relied on yet. */
	if (p != comm->active && ha_path_select_is_silent(comm, p))
		return NCCL_HA_PATH_RECOVERING;
	return healths[comm->failover->slots[p].state];
}

static struct ha_path *left(const struct ha_comm *comm, unsigned p)
{
	return comm->failover->slots[p].yielded;
}

static void describe(const struct ha_comm *comm, struct ha_failover_view *out)
{
	out->moving = ha_failover_is_moving(comm);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		out->health[p] = health_of(comm, p);
	ha_preferred_describe(comm, out);
}

const struct ha_failover_ops ha_failover_engine = {
    .features = HA_FEATURE_FAILOVER,
    .reconnect_at = reconnect_at,
    .open = open_failover,
    .start = start,
    .free = free_failover,
    .path_failed = path_failed,
    .memory_refused = memory_refused,
    .probe_done = ha_failover_probe_done,
    .msg = ha_failover_msg_came,
    .frame = ha_failover_frame,
    .socket_broken = socket_broken,
    .ports_changed = ha_port_exchange_changed,
    .stalled = stalled,
    .visit = ha_failover_visit,
    .left = left,
    .goodbye = goodbye,
    .describe = describe,
};
