/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which Ethernet address a packet to an IP address goes to: what the kernel's routes and neighbour
 * tables say. Asking never waits; what the kernel does not know it is made to look for.
 */
#ifndef SV_ROCE_NEIGHBOURS_H
#define SV_ROCE_NEIGHBOURS_H

#include "simverbs/engine.h"

/* The address of `to` itself, or of the router on the way, over this interface. 0; -EAGAIN: the
 * kernel does not know it (yet); or another -errno: there is no way. */
int sv_roce_neighbour(unsigned ifindex, const union ibv_gid *to, uint8_t mac[6]);

#endif
