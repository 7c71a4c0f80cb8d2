/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle of a session's remote address. It is made and destroyed by commands of the NIC: either
 * may take seconds. All under the lock of the ha_liveness.
 */
#ifndef HA_LIVENESS_SESSION_ADDRESS_H
#define HA_LIVENESS_SESSION_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

struct ha_session;

/* Whether there is one for our port's present address; it is asked for if not. */
bool ha_session_has_address(struct ha_session *session, uint64_t now_ns);

/* Takes what came of asking, a handle or none. False: nothing has come. */
bool ha_session_take_address(struct ha_session *session, uint64_t now_ns);

/* Lets go of it, and of one that was asked for. Never waits for the device. */
void ha_session_drop_address(struct ha_session *session);

#endif
