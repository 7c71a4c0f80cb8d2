/* SPDX-License-Identifier: Apache-2.0 */
/* What a switch has before it talks to anybody: key, device, addresses. */
#ifndef NS_EQUIPMENT_H
#define NS_EQUIPMENT_H

#include "base/job_key.h"
#include "base/net.h"
#include "device/device.h"
#include "tools/nccl-ha-switchd/groups.h"
#include "tools/nccl-ha-switchd/server.h"

struct ns_equipment {
	struct ha_config config;
	struct ha_job_key *site;
	struct ha_device_set *set;
	struct ha_port *port;
	union ha_sockaddr controller, listen; /* listen: AF_UNSPEC: not said */
	int processor[NS_THREADS_MOST];	      /* of each thread; -1: any */
};

/* False, after a line on stderr. Either way ns_equipment_end is to be called. */
bool ns_equipment_begin(struct ns_equipment *equipment, const struct ns_settings *settings);
void ns_equipment_end(struct ns_equipment *equipment);

/* A line on stderr; returns false. */
bool ns_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
