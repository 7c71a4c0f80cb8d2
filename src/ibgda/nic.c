/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/nic.h"

static bool is_failure(const struct ha_ibgda_nic *nic, const struct ibv_async_event *event)
{
	return event->event_type == IBV_EVENT_DEVICE_FATAL ||
	       (event->event_type == IBV_EVENT_PORT_ERR &&
		event->element.port_num == nic->port_num);
}

bool ha_ibgda_nic_has_failed(const struct ha_ibgda_nic *nic)
{
	struct ibv_async_event event;
	bool has_failed = false;

	while (ibv_get_async_event(nic->context, &event) == 0) {
		has_failed |= is_failure(nic, &event);
		ibv_ack_async_event(&event);
	}
	return has_failed;
}
