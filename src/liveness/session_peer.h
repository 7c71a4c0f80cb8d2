/* SPDX-License-Identifier: Apache-2.0 */
/* What the sessions with the same peer over other ports say. All under the lock of the ha_liveness.
 */
#ifndef HA_LIVENESS_SESSION_PEER_H
#define HA_LIVENESS_SESSION_PEER_H

#include <stdbool.h>
#include <stdint.h>

struct ha_session;

/* Has the peer answered over other ports while it did not over these? */
bool ha_session_has_witness(struct ha_session *session, uint64_t now_ns);

/* What the peer answered over other ports during the session's inquiry counts for it. */
void ha_session_hear_others(struct ha_session *session, uint64_t now_ns);

/* Has the peer asked over its other ports as well. */
void ha_session_ask_others(struct ha_session *session, uint64_t now_ns);

#endif
