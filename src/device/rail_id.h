/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rail and plane of the fabric a port is on, as numbers that NCCL compares (its interface of
 * version 12): with NCCL_CROSS_NIC=0 a ring stays on one rail, and it never leaves a plane.
 */
#ifndef HA_DEVICE_RAIL_ID_H
#define HA_DEVICE_RAIL_ID_H

#define HA_FABRIC_ID_UNKNOWN (-1)

struct ha_device_set;
struct ha_name_filter;

/*
 * Numbers the set's ports, at the end of discovery. What NCCL_IB_HCA says of any port
 * (NAME:PORT:RAIL:PLANE) is all there is. If it says nothing, ports in different subnets are on
 * different rails, numbered in the order of the subnets, so that hosts agree; where all ports are
 * in one subnet, or an address tells no subnet, nothing is said. Only NCCL_IB_HCA knows of planes.
 */
void ha_rail_ids_choose(struct ha_device_set *set, const struct ha_name_filter *ib_hca);

#endif
