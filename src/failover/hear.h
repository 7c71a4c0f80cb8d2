/* SPDX-License-Identifier: Apache-2.0 */
/* What the peer says becomes a step of the state machine. Progress thread, [T]. */
#ifndef HA_FAILOVER_HEAR_H
#define HA_FAILOVER_HEAR_H

#include <stdint.h>

struct ha_comm;
struct ha_frame_header;
struct ha_message;

/* A message, from any channel. */
void ha_failover_hear(struct ha_comm *comm, const struct ha_message *m);

/* A frame from the control socket: its header, and the `length` bytes that this names. */
void ha_failover_frame(struct ha_comm *comm, const struct ha_frame_header *header,
		       const uint8_t *payload);

#endif
