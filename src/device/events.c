/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous events of a device: state words first, then the owner's callback, then the
 * acknowledgement, without which destroying the QP or CQ an event names would wait for ever.
 */
#include "device/events.h"

#include "base/log.h"
#include "device/device.h"

#include <errno.h>
#include <string.h>

/* Per call, so that a storm on one device does not starve the caller's other work. */
#define MAX_EVENTS_PER_CALL 64

uint64_t ha_ports_of_nic(const struct ha_device_set *set, const struct ha_nic *nic)
{
	uint64_t ports = 0;

	for (int i = 0; i < set->nports_all; i++)
		if (set->ports[i].nic == nic)
			ports |= ha_port_bit(&set->ports[i]);
	return ports;
}

struct ha_port *ha_port_of_event(struct ha_device_set *set, const struct ha_nic *nic,
				 const struct ibv_async_event *event)
{
	for (int i = 0; i < set->nports_all; i++)
		if (set->ports[i].nic == nic && set->ports[i].port_num == event->element.port_num)
			return &set->ports[i];
	return NULL;
}

static void port_event(struct ha_device_set *set, struct ha_nic *nic,
		       const struct ibv_async_event *event)
{
	struct ha_port *port = ha_port_of_event(set, nic, event);
	const char *what = ibv_event_type_str(event->event_type);

	if (!port) /* filtered out */
		return;
	switch (event->event_type) {
	case IBV_EVENT_PORT_ERR:
		ha_port_is_down(port);
		HA_WARN("%s:%d: %s", nic->name, port->port_num, what);
		return;
	case IBV_EVENT_CLIENT_REREGISTER:
		break; /* nothing of ours is registered with the subnet manager */
	default:
		atomic_store(&port->refresh_due,
			     true); /* what became of it is told if it differs */
	}
	HA_INFO(HA_SUBSYS_NET, "%s:%d: %s", nic->name, port->port_num, what);
}

static void update_state(struct ha_device_set *set, struct ha_nic *nic,
			 const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		(void)ha_incarnation_died(nic->now);
		HA_WARN("%s: %s", nic->name, ibv_event_type_str(event->event_type));
		return;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		port_event(set, nic, event);
		return;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_SRQ_ERR:
		HA_WARN("%s: %s", nic->name, ibv_event_type_str(event->event_type));
		return;
	default: /* COMM_EST, SQ_DRAINED, LAST_WQE_REACHED and the like: only for the owner */
		return;
	}
}

int ha_nic_read_events(struct ha_device_set *set, struct ha_nic *nic)
{
	struct ibv_async_event event;
	int n = 0;

	while (n < MAX_EVENTS_PER_CALL) {
		errno = 0;
		if (ibv_get_async_event(nic->now->ctx, &event) != 0) {
			/* A device that was unbound leaves a descriptor that only fails. */
			if (errno != EAGAIN && errno != EINTR && ha_incarnation_died(nic->now))
				HA_WARN("%s: reading events failed (%s): the device is gone",
					nic->name, strerror(errno));
			break;
		}
		update_state(set, nic, &event);
		if (set->on_event)
			set->on_event(set->on_event_arg, &event, nic);
		ibv_ack_async_event(&event);
		n++;
	}
	return n;
}
