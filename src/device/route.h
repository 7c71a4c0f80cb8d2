/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the kernel has a way from a RoCE port to a remote address. Rails need not reach each
 * other, and where they do not, trying costs a second or more until nobody has answered; the
 * kernel's routes say so at once.
 */
#ifndef HA_DEVICE_ROUTE_H
#define HA_DEVICE_ROUTE_H

#include "device/device.h"

#include <stddef.h>
#include <stdint.h>

enum ha_route {
	HA_ROUTE_UNKNOWN, /* the kernel's routes say nothing of these addresses, or nothing in time
			   */
	HA_ROUTE_FOUND,	  /* on the link, or by a router */
	HA_ROUTE_NONE,
};

/*
 * From the port's address over its own interface. UNKNOWN on InfiniBand, for link-local addresses,
 * and where the address is not one of the kernel's interface that the GID table names: as that of a
 * simulated device, or in another network namespace. Waits for the kernel up to half a second, so
 * not on the threads that may not wait.
 */
enum ha_route ha_route_ask(const struct ha_port_addr *own, const uint8_t remote_gid[16]);

/* What an answer to RTM_GETROUTE with this sequence number says; for tests of it. Pure. */
enum ha_route ha_route_parse(const void *answer, size_t length, uint32_t seq, uint32_t ifindex);

#endif
