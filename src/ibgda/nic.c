/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/nic.h"

#include <errno.h>

int ha_ibgda_nic_open(struct ha_ibgda_nic *nic)
{
	int why;

	nic->pd = ibv_alloc_pd(nic->context);
	if (!nic->pd)
		return -errno;
	nic->receives = ibv_create_cq(nic->context, 1, NULL, NULL, 0);
	if (nic->receives)
		return 0;
	why = errno;
	(void)ibv_dealloc_pd(nic->pd);
	return -why;
}

int ha_ibgda_nic_close(struct ha_ibgda_nic *nic)
{
	const int of_cq = ibv_destroy_cq(nic->receives), of_pd = ibv_dealloc_pd(nic->pd);

	return of_cq ? -of_cq : -of_pd;
}

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
