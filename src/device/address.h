/* SPDX-License-Identifier: Apache-2.0 */
/* How a queue pair or a datagram on one of our ports reaches a remote one. */
#ifndef HA_DEVICE_ADDRESS_H
#define HA_DEVICE_ADDRESS_H

#include "device/device.h"

#include <infiniband/verbs.h>
#include <stdint.h>

/* A remote port, and what the traffic to it is marked with. */
struct ha_remote_addr {
	uint8_t gid[16];
	uint16_t lid;
	uint8_t sl, traffic_class;
	uint32_t flow_label; /* 20 bits, in a GRH; 0: none */
};

/*
 * What ibv_modify_qp (to RTR) and ibv_create_ah take. There is a GRH on RoCE, to another InfiniBand
 * subnet, and where our port requires one. To another subnet a packet goes to the LID of the way
 * there, the FLID in the remote port's GID, if it has one. Pure. Any thread.
 */
void ha_address_fill(const struct ha_port_addr *own, uint8_t port_num,
		     const struct ha_remote_addr *to, struct ibv_ah_attr *out);

#endif
