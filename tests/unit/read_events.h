/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a NIC, and what they are about, at once: an instance has the NIC's commands read the
 * latter. */
#ifndef HA_TESTS_READ_EVENTS_H
#define HA_TESTS_READ_EVENTS_H

#include "device/device.h"
#include "device/events.h"

static inline int read_events(struct ha_device_set *set, struct ha_nic *nic)
{
	int n = ha_nic_read_events(set, nic);

	for (int i = 0; i < set->nports_all; i++)
		if (set->ports[i].nic == nic && atomic_exchange(&set->ports[i].refresh_due, false))
			(void)!ha_port_refresh(&set->ports[i]);
	return n;
}

#endif
