/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The partition that a port's traffic is in.
 *
 * NCCL_IB_PKEY is an index, and at one index two ports may have two partitions. So it names a
 * partition on the first port that is used, and all other ports are to be in the same one, at
 * whatever index: what may have to go on over another port, and the heartbeats that watch it,
 * must reach the same peers. A port that is not in it cannot stand in for one that is.
 */
#ifndef HA_DEVICE_PARTITION_H
#define HA_DEVICE_PARTITION_H

#include "device/device.h"

/*
 * Discovery, with the port's attributes as they were read: where it finds the set's partition, or,
 * as the first port, which that is. Says so where it is not what NCCL_IB_PKEY asks for.
 */
void ha_partition_choose(struct ha_device_set *set, struct ha_port *port, struct ibv_context *ctx,
			 const struct ibv_port_attr *attr);

/*
 * The table may be another one: looks the port's partition up again. What is made from now on uses
 * the new index. While it is not there the port is of no use. A table that cannot be read changes
 * nothing. Commands to the device. Any thread, one at a time.
 */
void ha_partition_refresh(struct ha_port *port, struct ibv_context *ctx,
			  const struct ibv_port_attr *attr);

/* Whether traffic of one could go on over the other. Any thread. */
bool ha_partition_same(const struct ha_port *a, const struct ha_port *b);

#endif
