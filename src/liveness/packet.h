/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The datagram of liveness sessions: who says it, to whom, and which ping it is or answers. There
 * is no time in it: who pinged remembers when, and need not believe what comes back.
 */
#ifndef HA_LIVENESS_PACKET_H
#define HA_LIVENESS_PACKET_H

#include "base/job_key.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_HEARTBEAT_BYTES 36

enum ha_heartbeat_kind { HA_HEARTBEAT_PING = 1, HA_HEARTBEAT_PONG = 2 };

struct ha_heartbeat {
	uint8_t kind;  /* enum ha_heartbeat_kind */
	uint64_t from; /* ids of endpoints */
	uint64_t to;
	uint64_t seq; /* of the ping; of the ping that is answered */
};

void ha_heartbeat_encode(const struct ha_heartbeat *in, uint8_t out[HA_HEARTBEAT_BYTES]);

/* In a job with a key: a code over all that comes behind it. False: the key cannot be used here. */
#define HA_HEARTBEAT_SEALED (HA_HEARTBEAT_BYTES + 16)
bool ha_heartbeat_seal(const struct ha_job_key *key,
		       uint8_t packet[HA_HEARTBEAT_SEALED]) HA_MUST_CHECK;
bool ha_heartbeat_is_genuine(const struct ha_job_key *key, const uint8_t *packet,
			     size_t len) HA_MUST_CHECK;

/* False: not a heartbeat of this version, or damaged. */
bool ha_heartbeat_decode(const uint8_t *in, size_t len, struct ha_heartbeat *out);

#endif
