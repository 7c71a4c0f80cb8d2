/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nobody to testify: traffic stands still, and the peer answers over none of the ports that are in
 * use. It has no processor, or one failure took the path in reserve along: as where the paths are
 * crossed between two switches, of which one has died.
 *
 * Either end then asks the peer whether it runs, which begins an inquiry there, too: at the
 * receiver nothing may be outstanding. When the peer says over its bootstrap socket that it does,
 * and goes on not answering elsewhere, the receiver builds paths over ports that are not in use.
 * Their heartbeats are what a verdict needs; nothing is left without them.
 */
#ifndef HA_FAILOVER_WITNESS_H
#define HA_FAILOVER_WITNESS_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;

/* [T] */
struct ha_witness {
	uint64_t asked_ns; /* when the peer was asked last whether it runs; 0: never */
};

/* Asks the peer, once in an inquiry. In each visit, on ha_now_ns's clock; [T], progress thread. */
void ha_witness_visit(struct ha_comm *comm, uint64_t now_ns);

/* Whether paths over ports that are not in use are to be built now. Receiver; [T]. */
bool ha_witness_is_wanted(const struct ha_comm *comm, uint64_t now_ns);

#endif
