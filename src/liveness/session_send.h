/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats that a session sends. All under the lock of the ha_liveness. */
#ifndef HA_LIVENESS_SESSION_SEND_H
#define HA_LIVENESS_SESSION_SEND_H

#include "liveness/packet.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_session;

/* Sends one, or has it wait for the peer's address. One that cannot be sent is a missing one. */
void ha_session_say(struct ha_session *session, enum ha_heartbeat_kind kind, uint64_t seq,
		    uint64_t now_ns);

/* Sends what waited for the address; where it is not to be had, that is lost. */
void ha_session_say_held(struct ha_session *session, uint64_t now_ns);

/* Its ping is due, or somebody's is and this one's nearly; and the queue is not full of others. */
bool ha_session_wants_to_ping(const struct ha_session *session, uint64_t now_ns);

void ha_session_ping(struct ha_session *session, uint64_t now_ns);

#endif
