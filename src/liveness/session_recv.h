/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats that come. Under the lock of the ha_liveness. */
#ifndef HA_LIVENESS_SESSION_RECV_H
#define HA_LIVENESS_SESSION_RECV_H

struct ha_datagram;

/* A datagram that came to a port (struct ha_live_port), for whichever of its sessions. */
void ha_session_received(void *live_port, const struct ha_datagram *datagram);

#endif
