/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events, from the device to the connections they concern. */
#include "transport/async_event.h"

#include "transport/comm.h"
#include "transport/failover_ops.h"
#include "transport/path_error.h"
#include "transport/shared.h"

#include <string.h>

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
	comm->ops->port_changed(comm);
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
