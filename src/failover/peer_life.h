/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a peer whose bootstrap socket is no more still lives: what its host says of its process,
 * and whether anything answers over the paths.
 */
#ifndef HA_FAILOVER_PEER_LIFE_H
#define HA_FAILOVER_PEER_LIFE_H

#include <stdint.h>

struct ha_comm;

/* Asks it, and latches an error when it must be gone. In each visit; [T], progress thread. */
void ha_peer_life_check(struct ha_comm *comm, uint64_t now_ns);

#endif
