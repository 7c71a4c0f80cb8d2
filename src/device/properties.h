/* SPDX-License-Identifier: Apache-2.0 */
/* Figures worked out from verbs attributes: speed and resource budget. */
#ifndef HA_DEVICE_PROPERTIES_H
#define HA_DEVICE_PROPERTIES_H

#include "base/config.h"

#include <infiniband/verbs.h>

/* Mb/s as the port runs now, lanes counted; 0 when the port does not say. */
int ha_port_speed_mbps(const struct ibv_port_attr *attr);

struct ha_budget {
	int qps_per_comm, cqes_per_comm; /* standby included */
	int qp_limit, cqe_limit;	 /* connections each resource allows for */
	int max_comms;			 /* the smaller, 1 … 256 */
};

/*
 * How many connections to promise NCCL (maxComms), conservatively: each may exist once per
 * expected channel and has a standby; a sender completes up to max_recvs receives per request.
 */
void ha_budget(const struct ha_config *config, const struct ibv_device_attr *attr,
	       struct ha_budget *out);

#endif
