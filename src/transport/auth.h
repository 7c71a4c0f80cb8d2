/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has the job's key (base/job_key.h) proves it: each HELLO carries a code over all that was
 * said, and from then on every frame and every message over a path does. A code is HMAC-SHA256,
 * and covers who says it and a count, so that nothing that was recorded, altered, cut, turned
 * around or said in another order is believed.
 *
 * The keys of a connection are made of the job's key, of both HELLOs' random numbers and of both
 * connection ids; a socket that is dialled again has one of its own. Where the job has no key there
 * is none of all this.
 */
#ifndef HA_TRANSPORT_AUTH_H
#define HA_TRANSPORT_AUTH_H

#include "base/hmac.h"
#include "base/job_key.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stddef.h>
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

/* From the two HELLOs, which are genuine. */
bool ha_auth_begin(struct ha_auth *auth, const struct ha_job_key *key,
		   const struct ha_hello *connector, const struct ha_hello *listener) HA_MUST_CHECK;
void ha_auth_forget(struct ha_auth *auth);

/* The key of a socket; of one that is dialled again, from the random numbers of the two REJOINs. */
void ha_auth_socket_key(const struct ha_auth *auth, const uint8_t *sender_nonce,
			const uint8_t *receiver_nonce, struct ha_hmac_key *out);

/* ---- codes ---- */

#define HA_CODE_BYTES 16

/* Number `count` of what `speaker` says there: a head, then a body. */
struct ha_statement {
	enum ha_speaker speaker;
	uint8_t where; /* of paths: which one */
	uint64_t count;
	const void *head, *body;
	size_t head_length, body_length;
};

void ha_auth_code(const struct ha_hmac_key *key, const struct ha_statement *said,
		  uint8_t code[HA_CODE_BYTES]);
bool ha_auth_is_genuine(const struct ha_hmac_key *key, const struct ha_statement *said,
			const uint8_t code[HA_CODE_BYTES]) HA_MUST_CHECK;

#endif
