/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flow label of a session's heartbeats: which of several ways through the network they go. It
 * is changed while the ports reach each other and heartbeats do not. All under the lock of the
 * ha_liveness.
 */
#ifndef HA_LIVENESS_SESSION_LABEL_H
#define HA_LIVENESS_SESSION_LABEL_H

#include <stdbool.h>
#include <stdint.h>

struct ha_session;

/* 20 bits, not 0. */
uint32_t ha_session_new_label(void);

/* A ping of the peer's came: the way it goes is good. */
void ha_session_note_ping(struct ha_session *session, uint64_t now_ns);

/* A probe came back over its ports. */
void ha_session_note_life(struct ha_session *session, uint64_t now_ns);

#endif
