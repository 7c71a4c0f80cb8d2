/* SPDX-License-Identifier: Apache-2.0 */
/* Figures worked out from verbs attributes: speed and resource budget (docs/devices.md). */
#ifndef HA_DEVICE_PROPERTIES_H
#define HA_DEVICE_PROPERTIES_H

#include "base/config.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* Mb/s as the port runs now, lanes counted; 0 when the port does not say. */
int ha_port_speed_mbps(const struct ibv_port_attr *attr);

enum ha_resource { HA_RES_QP, HA_RES_CQ, HA_RES_CQE, HA_RES_MR, HA_RESOURCES };

struct ha_budget {
	struct {
		int64_t available; /* on the device */
		int64_t per_comm;  /* what a connection takes of it, standby included */
		int allows;	   /* connections */
	} of[HA_RESOURCES];
	enum ha_resource scarcest;
	int max_comms; /* what that allows, 1 … 256 */
};

/*
 * How many connections to promise NCCL (maxComms), conservatively: each may exist once per
 * expected channel and has a standby; a sender completes up to max_recvs receives per request.
 * `flushes`: the device reaches GPU memory, so that receivers may need a queue pair to read it.
 */
void ha_budget(const struct ha_config *config, const struct ibv_device_attr *attr, bool flushes,
	       struct ha_budget *out);

/* "queue pairs"; and what verbs call the device's number of them: "max_qp". */
const char *ha_resource_name(enum ha_resource resource);
const char *ha_resource_attr(enum ha_resource resource);

#endif
