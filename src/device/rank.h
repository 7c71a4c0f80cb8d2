/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which other port takes over when one fails: a ranking that every process works out alike from
 * what is known at start. Whether a candidate can reach the peer is not known here; that is
 * proved by probing, in this order.
 */
#ifndef HA_DEVICE_RANK_H
#define HA_DEVICE_RANK_H

#include "device/device.h"

#include <stdint.h>

/* How far two devices of a host are from each other. */
enum ha_distance {
	HA_DISTANCE_DEVICE, /* one PCI function */
	HA_DISTANCE_SWITCH, /* below one PCI switch */
	HA_DISTANCE_ROOT,   /* below one root port: cascaded switches, functions of one card */
	HA_DISTANCE_NUMA,   /* on one NUMA node, or below one host bridge */
	HA_DISTANCE_FAR,    /* neither, or nothing is known */
};

/*
 * Paths are resolved sysfs paths of PCI devices, "/sys/devices/pci0000:17/0000:17:01.0/…"; an
 * empty one stands for a device that is not on PCI. NUMA nodes: -1 unknown.
 */
enum ha_distance ha_pci_distance(const char *path_a, int numa_a, const char *path_b, int numa_b);

/*
 * The local ports that a connection may use, best first, at most `max` of them; returns how many.
 * out[0] is the primary itself: a flap or a rebuild may bring it back. Of the others, those of
 * another link layer or partition are left out, for no packet gets from one to the other. The rest
 * is sorted by these criteria, of which an earlier one outweighs all later ones:
 *
 *   0. the other rails of its bundle, in their order, before all ports that are not in it: the user
 *      named them.
 *   1. fast enough: at least half the primary's speed. Moving a job's traffic to a management port
 *      of a sixteenth of the speed is better than an error and worse than anything else.
 *   2. another chip before the second port of the primary's chip, which dies with it.
 *   3. near the primary (enum ha_distance): it is near the GPUs that use it, and traffic to a far
 *      one crosses the link between the sockets.
 *   4. as fast as the primary, before faster ones, before slower ones.
 *   5. `spread`: those that are equal so far are rotated by a hash of it, so that connections
 *      with different numbers, which had one NIC in common, land on several survivors.
 *
 * Ports that are down are ranked like others: they may come up. Any thread.
 */
int ha_standby_rank(struct ha_device_set *set, struct ha_port *primary, uint64_t spread,
		    struct ha_port *out[], int max);

enum ha_fabric {
	HA_FABRIC_NEVER = -1,	/* no packet gets from one to the other */
	HA_FABRIC_SAME = 0,	/* one subnet */
	HA_FABRIC_POSSIBLE = 1, /* through routers, or nothing can be said */
};

/*
 * Whether a local port may reach a remote one, by their addresses alone. InfiniBand: the subnet is
 * numbered in the prefix of the GID. RoCE: an IPv4 and an IPv6 address never reach each other;
 * otherwise the IP subnet is a preference and not a condition, since fabrics are routed. A GID does
 * not tell its subnet's size: 24 bits are compared of IPv4 and 64 of IPv6; link-local addresses are
 * alike everywhere and say nothing.
 */
enum ha_fabric ha_fabric_between(const struct ha_port_addr *local, uint8_t remote_link_layer,
				 const union ibv_gid *remote);

#endif
