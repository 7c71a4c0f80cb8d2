/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has the job's key (base/job_key.h) proves it: each HELLO carries a code over all that was
 * said, and from then on every frame and every message over a path does (base/statement.h).
 *
 * The keys of a connection are made of the job's key, of both HELLOs' random numbers and of both
 * connection ids; a socket that is dialled again has one of its own. Where the job has no key there
 * is none of all this.
 */
#ifndef HA_TRANSPORT_AUTH_H
#define HA_TRANSPORT_AUTH_H

#include "base/hmac.h"
#include "base/job_key.h"
#include "base/statement.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* Who says something. */
enum ha_speaker { HA_SPEAKER_SENDER = 1, HA_SPEAKER_RECEIVER = 2 };

static inline enum ha_speaker ha_other_speaker(enum ha_speaker speaker)
{
	return speaker == HA_SPEAKER_SENDER ? HA_SPEAKER_RECEIVER : HA_SPEAKER_SENDER;
}

/* Of the handshake: a connection's keys. Erased by ha_auth_forget. */
struct ha_auth {
	bool on;
	struct ha_hmac_key session, path;
};

void ha_auth_draw_nonce(uint8_t nonce[HA_NONCE_BYTES]);

/*
 * Puts the code into an encoded HELLO. asked: the connector's, to which this one is the answer;
 * NULL: this is the connector's. False: the key cannot be used in this process.
 */
bool ha_auth_seal_hello(const struct ha_job_key *key, const uint8_t *asked,
			uint8_t hello[HA_HELLO_BYTES]) HA_MUST_CHECK;
bool ha_auth_hello_is_genuine(const struct ha_job_key *key, const uint8_t *asked,
			      const uint8_t hello[HA_HELLO_BYTES]) HA_MUST_CHECK;

/* The same for a REJECT, which answers the connector's HELLO. */
bool ha_auth_seal_reject(const struct ha_job_key *key, const uint8_t asked[HA_HELLO_BYTES],
			 uint8_t reject[HA_REJECT_BYTES]) HA_MUST_CHECK;
bool ha_auth_reject_is_genuine(const struct ha_job_key *key, const uint8_t asked[HA_HELLO_BYTES],
			       const uint8_t reject[HA_REJECT_BYTES]) HA_MUST_CHECK;

/* From the two HELLOs, which are genuine. */
bool ha_auth_begin(struct ha_auth *auth, const struct ha_job_key *key,
		   const struct ha_hello *connector, const struct ha_hello *listener) HA_MUST_CHECK;
void ha_auth_forget(struct ha_auth *auth);

/* The key of a socket; of one that is dialled again, from the random numbers of the two REJOINs. */
void ha_auth_socket_key(const struct ha_auth *auth, const uint8_t *sender_nonce,
			const uint8_t *receiver_nonce, struct ha_hmac_key *out);

#endif
