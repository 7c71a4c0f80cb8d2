/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events, from the device to the connections they concern. */
#include "transport/async_event.h"

#include "device/events.h"
#include "transport/comm.h"
#include "transport/comm_stats.h"
#include "transport/failover_ops.h"
#include "transport/path_error.h"
#include "transport/shared.h"

#include <pthread.h>
#include <string.h>

/* ---- events of a queue ---------------------------------------------------------------------- */

/* The contexts of queue pairs and completion queues: they name their path, which may go before them
 * where the kernel does not let them be destroyed. */
static pthread_mutex_t contexts = PTHREAD_MUTEX_INITIALIZER;

static void forget(void **context)
{
	pthread_mutex_lock(&contexts);
	*context = NULL;
	pthread_mutex_unlock(&contexts);
}

void ha_events_forget_qp(struct ibv_qp *qp)
{
	if (qp)
		forget(&qp->qp_context);
}

void ha_events_forget_cq(struct ibv_cq *cq)
{
	if (cq)
		forget(&cq->cq_context);
}

/*
 * Destroying a queue waits until its events are acknowledged, and whoever destroys one holds the
 * token: waiting for the token before the acknowledgement would be a deadlock. So the event is left
 * at the path, which exists at least until then, and taken up at the next visit.
 */
static void leave(struct ha_path *path, const struct ibv_async_event *event, uint32_t qpn)
{
	path->event_qpn = qpn;
	atomic_store_explicit(&path->event, (int)event->event_type + 1, memory_order_release);
	atomic_store_explicit(&path->comm->queue_events, true, memory_order_release);
	ha_progress_call(path->comm->inst->progress, &path->comm->poller);
}

/* NULL in *context: it is no path's, or no more. */
static void leave_at_path(void *const *context, const struct ibv_async_event *event, uint32_t qpn)
{
	struct ha_path *path;

	pthread_mutex_lock(&contexts);
	path = *context;
	if (path)
		leave(path, event, qpn);
	pthread_mutex_unlock(&contexts);
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
	return ibv_query_gid(path->on->ctx, path->port->port_num, path->addr.gid_index, &gid) !=
		   0 ||
	       memcmp(&gid, &path->addr.gid, sizeof(gid)) != 0;
}

/* What has become of the path's port and device since the path was made. */
static void look_at_path(struct ha_comm *comm, struct ha_path *path)
{
	uint32_t errors = atomic_load(&path->port->errors) - path->port_errors;
	const char *name = path->nic->name;
	int port = path->port->port_num;

	path->port_errors += errors;
	atomic_fetch_add_explicit(&comm->port_errors, errors, memory_order_relaxed);
	if (ha_path_device_died(path))
		ha_comm_path_failed(comm, path, HA_REASON_DEVICE_FATAL, HA_ERR_SYSTEM,
				    "device %s failed (async event: %s)", name,
				    ibv_event_type_str(IBV_EVENT_DEVICE_FATAL));
	else if (errors != 0)
		ha_comm_path_failed(comm, path, HA_REASON_PORT_DOWN, HA_ERR_SYSTEM,
				    "%s:%d (async event: %s)", name, port,
				    ibv_event_type_str(IBV_EVENT_PORT_ERR));
	else if (atomic_load(&path->nic->sick))
		ha_comm_path_failed(comm, path, HA_REASON_SICK, HA_ERR_SYSTEM,
				    "commands to %s do not come back", name);
	else if (address_is_gone(path))
		ha_comm_path_failed(comm, path, HA_REASON_ADDRESS_CHANGE, HA_ERR_SYSTEM,
				    "%s:%d (async event: %s)", name, port,
				    ibv_event_type_str(IBV_EVENT_GID_CHANGE));
}

/* Active or standby: a connection must not choose a path on a port that is gone. */
static void look_at_ports(struct ha_comm *comm, uint64_t ports)
{
	for (unsigned i = 0; i < comm->npaths; i++)
		if (comm->paths[i] && ports & ha_port_bit(comm->paths[i]->port))
			look_at_path(comm, comm->paths[i]);
	comm->ops->ports_changed(comm, ports);
}

void ha_comm_take_events(struct ha_comm *comm)
{
	bool of_queues = atomic_exchange_explicit(&comm->queue_events, false, memory_order_acquire);
	uint64_t ports = atomic_exchange_explicit(&comm->port_events, 0, memory_order_acquire);

	for (unsigned i = 0; i < comm->npaths && of_queues; i++)
		if (comm->paths[i])
			take_up(comm, comm->paths[i]);
	if (ports != 0)
		look_at_ports(comm, ports);
}

void ha_comms_ports_changed(struct ha_instance *inst, uint64_t ports)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &inst->comms) {
		struct ha_comm *comm = ha_container_of(pos, struct ha_comm, in_instance);

		if (!(comm->ports & ports))
			continue;
		atomic_fetch_or_explicit(&comm->port_events, comm->ports & ports,
					 memory_order_release);
		ha_progress_call(inst->progress, &comm->poller);
	}
}

/* Under the instance's lock, before the event is acknowledged. */
static void leave_at_comms(struct ha_instance *inst, const struct ha_nic *nic,
			   const struct ibv_async_event *event)
{
	const struct ha_port *port;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		/* Reliable connections are the paths' only, and name them. */
		if (event->element.qp->qp_type == IBV_QPT_RC)
			leave_at_path(&event->element.qp->qp_context, event,
				      event->element.qp->qp_num);
		return;
	case IBV_EVENT_CQ_ERR: /* queues that are no path's have no context */
		leave_at_path(&event->element.cq->cq_context, event, 0);
		return;
	case IBV_EVENT_DEVICE_FATAL:
		ha_comms_ports_changed(inst, ha_ports_of_nic(inst->devices, nic));
		return;
	case IBV_EVENT_PORT_ERR:
		port = ha_port_of_event(inst->devices, nic, event);
		if (port)
			ha_comms_ports_changed(inst, ha_port_bit(port));
		return;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
		return; /* the port is read again, and what differs is told then */
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_CLIENT_REREGISTER:
	default: /* nothing that a path depends on */
		return;
	}
}

void ha_instance_event(void *instance, const struct ibv_async_event *event, struct ha_nic *nic)
{
	struct ha_instance *inst = instance;

	pthread_mutex_lock(&inst->lock);
	ha_port_stats_event(inst, nic, event);
	leave_at_comms(inst, nic, event);
	pthread_mutex_unlock(&inst->lock);
}
