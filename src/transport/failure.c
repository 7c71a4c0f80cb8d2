/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What says that a path has failed and is not a completion: verbs that fail, asynchronous events.
 *
 * With failover each is a trigger: the connection goes on elsewhere. Without, it is the end of the
 * connection, but for a port that goes down: it may come back within the hardware's retries.
 */
#include "transport/comm.h"

#include "base/log.h"
#include "failover/engine.h"
#include "transport/instance.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- reporting ----------------------------------------------------------------------------- */

void ha_comm_path_failed(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 ha_result_t code, const char *fmt, ...)
{
	char text[512];
	va_list args;

	if (ha_path_stopped(path))
		return; /* our own doing, or known */
	if (atomic_load_explicit(&comm->peer_bye, memory_order_acquire)) {
		if (path == ha_comm_path(comm))
			ha_comm_settle(comm); /* no failure, but nothing comes of it any more */
		return;
	}
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (ha_comm_has_failover(comm)) {
		ha_failover_trigger(comm, path, reason, "%s", text);
		return;
	}
	ha_comm_fail(comm, code, "%s", text);
	ha_path_fence(path);
}

void ha_comm_verb_failed(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *verb, int rc)
{
	ha_comm_path_failed(comm, path, reason, HA_ERR_SYSTEM, "%s failed on %s:%d: %s (error %d)",
			    verb, path->nic->name, path->port->port_num, strerror(rc), rc);
}

/* A device that died a moment ago, before its event was read. */
static bool device_answers(const struct ha_path *path)
{
	struct ibv_port_attr attr;

	return !atomic_load(&path->nic->fatal) &&
	       ibv_query_port(path->nic->ctx, path->port->port_num, &attr) == 0;
}

void ha_comm_registration_failed(struct ha_comm *comm, const struct ha_path *path, const char *what)
{
	if (ha_comm_has_failover(comm) && !device_answers(path)) {
		ha_comm_path_failed(
		    comm, comm->paths[path->index], HA_REASON_DEVICE_FATAL, HA_ERR_SYSTEM,
		    "%s cannot be registered on %s, which does not answer", what, path->nic->name);
		return;
	}
	ha_comm_fail(comm, HA_ERR_SYSTEM,
		     "%s cannot be registered on %s (its log line says why; locked memory, "
		     "ulimit -l, is the usual reason)",
		     what, path->nic->name);
}

/* ---- events of a queue ---------------------------------------------------------------------- */

/*
 * Destroying a queue waits until its events are acknowledged, and whoever destroys one holds the
 * token: waiting for the token before the acknowledgement would be a deadlock. So the event is left
 * at the path, which exists at least until then, and taken up at the next visit.
 */
static void leave_at_path(struct ha_path *path, const struct ibv_async_event *event, uint32_t qpn)
{
	path->event_qpn = qpn;
	atomic_store_explicit(&path->event, (int)event->event_type + 1, memory_order_release);
	atomic_store_explicit(&path->comm->queue_events, true, memory_order_release);
	ha_progress_call(path->comm->inst->progress, &path->comm->poller);
}

static void take_up(struct ha_comm *comm, struct ha_path *path)
{
	int event = atomic_exchange_explicit(&path->event, 0, memory_order_acquire) - 1;

	if (event < 0)
		return;
	if (event == IBV_EVENT_CQ_ERR)
		ha_comm_path_failed(comm, path, HA_REASON_CQ_ERROR, HA_ERR_SYSTEM,
				    "the completion queue on %s failed (async event: %s)",
				    path->nic->name, ibv_event_type_str(IBV_EVENT_CQ_ERR));
	else
		ha_comm_path_failed(comm, path, HA_REASON_QP_FATAL, HA_ERR_SYSTEM,
				    "QP %u on %s failed (async event: %s)", path->event_qpn,
				    path->nic->name,
				    ibv_event_type_str((enum ibv_event_type)event));
}

void ha_comm_queue_events(struct ha_comm *comm)
{
	if (!atomic_exchange_explicit(&comm->queue_events, false, memory_order_acquire))
		return;
	ha_token_acquire(comm);
	for (unsigned i = 0; i < comm->npaths; i++)
		if (comm->paths[i])
			take_up(comm, comm->paths[i]);
	ha_token_release(comm);
}

/* ---- events of a port or device ------------------------------------------------------------- */

/* Whether the port has lost the address the peer sends to. */
static bool address_is_gone(const struct ha_path *path)
{
	struct ha_port_addr now;
	union ibv_gid gid;

	ha_port_addr(path->port, &now);
	if (path->addr.link_layer != IBV_LINK_LAYER_ETHERNET)
		return now.lid != path->addr.lid;
	if (memcmp(&now.gid, &path->addr.gid, sizeof(now.gid)) == 0)
		return false; /* there, if at another place in the table */
	return ibv_query_gid(path->nic->ctx, path->port->port_num, path->addr.gid_index, &gid) !=
		   0 ||
	       memcmp(&gid, &path->addr.gid, sizeof(gid)) != 0;
}

static void port_event(struct ha_comm *comm, struct ha_path *path,
		       const struct ibv_async_event *event)
{
	bool down = event->event_type == IBV_EVENT_PORT_ERR;
	const char *text = ibv_event_type_str(event->event_type);

	if (event->element.port_num != path->port->port_num)
		return;
	if (down)
		atomic_fetch_add_explicit(&comm->port_errors, 1, memory_order_relaxed);
	if (!ha_comm_has_failover(comm))
		return;
	if (down)
		ha_comm_path_failed(comm, path, HA_REASON_PORT_DOWN, HA_ERR_SYSTEM,
				    "%s:%d (async event: %s)", path->nic->name,
				    path->port->port_num, text);
	else if (address_is_gone(path))
		ha_comm_path_failed(comm, path, HA_REASON_ADDRESS_CHANGE, HA_ERR_SYSTEM,
				    "%s:%d (async event: %s)", path->nic->name,
				    path->port->port_num, text);
}

static void event_for_path(struct ha_comm *comm, struct ha_path *path,
			   const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		ha_comm_path_failed(comm, path, HA_REASON_DEVICE_FATAL, HA_ERR_SYSTEM,
				    "device %s failed (async event: %s)", path->nic->name,
				    ibv_event_type_str(event->event_type));
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
		port_event(comm, path, event);
		break;
	default:
		break;
	}
}

/* Active or standby: a connection must not choose a path on a port that is gone. */
static void event_for_comm(struct ha_comm *comm, const struct ibv_async_event *event,
			   const struct ha_nic *nic)
{
	ha_token_acquire(comm);
	for (unsigned i = 0; i < comm->npaths; i++)
		if (comm->paths[i] && comm->paths[i]->nic == nic)
			event_for_path(comm, comm->paths[i], event);
	ha_failover_port_changed(comm);
	ha_token_release(comm);
	ha_progress_call(comm->inst->progress, &comm->poller);
}

/* Progress thread, under the instance's lock, before the event is acknowledged. */
void ha_comms_event(struct ha_instance *inst, const struct ibv_async_event *event,
		    const struct ha_nic *nic)
{
	struct ha_list *pos;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		/* Reliable connections are the paths' only, and name them. */
		if (event->element.qp->qp_type == IBV_QPT_RC && event->element.qp->qp_context)
			leave_at_path(event->element.qp->qp_context, event,
				      event->element.qp->qp_num);
		return;
	case IBV_EVENT_CQ_ERR: /* queues that are no path's have no context */
		if (event->element.cq->cq_context)
			leave_at_path(event->element.cq->cq_context, event, 0);
		return;
	default:
		break;
	}
	ha_list_for_each (pos, &inst->comms)
		event_for_comm(ha_container_of(pos, struct ha_comm, in_instance), event, nic);
}
