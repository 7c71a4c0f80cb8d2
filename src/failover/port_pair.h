/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which two ports a path should connect: every pair of one of ours and one of the peer's, with a
 * cost. Pure arithmetic over what both ends have said of their ports. [T]
 */
#ifndef HA_FAILOVER_PORT_PAIR_H
#define HA_FAILOVER_PORT_PAIR_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_slot;

struct ha_pair {
	uint8_t port, peer_port;
};

#define HA_PAIR_NEVER UINT32_MAX

/* More than any pair costs by itself: a shared port is a shared fate. */
#define HA_PAIR_SHARED_COST 1000u

/*
 * More than anything else that speaks against a path: what the operator wants left alone is the
 * last resort, but it is one.
 */
#define HA_PAIR_DRAINED_COST 10000000u

/* The pair that a slot's path connects, or connected last. */
struct ha_pair ha_pair_of(const struct ha_slot *slot);

/* The one that NCCL asked for. */
static const struct ha_pair ha_pair_preferred = {0, 0};

/* Whether a port of ours is of use to this connection: it works, and its NIC takes the connection's
 * memory. */
bool ha_offer_usable(const struct ha_comm *comm, unsigned offer);

/*
 * What it costs to use a pair: 0 for the two primaries. The ranks of both ports add up; rail i of
 * one bundle with another rail of the peer's comes after rail i with rail i; a pair that may not be
 * on one subnet comes after all that are, and one with a drained port after those. NEVER: one is
 * down, or no packet gets there.
 */
uint32_t ha_pair_cost(const struct ha_comm *comm, struct ha_pair pair);

/* Whether both are rails of their ends' bundles, of different numbers. */
bool ha_pair_crosses_rails(const struct ha_comm *comm, struct ha_pair pair);

/* Of the two ports, how many an operator wants left alone. */
unsigned ha_pair_drained(const struct ha_comm *comm, struct ha_pair pair);

/* Ports that two pairs have in common: 0, 1 or 2. What they share fails together. */
unsigned ha_pair_shared(struct ha_pair a, struct ha_pair b);

#endif
