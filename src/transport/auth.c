/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/auth.h"

#include "base/bytes.h"
#include "base/random.h"

#include <string.h>

_Static_assert(HA_HELLO_CODE_OFFS + HA_HMAC_BYTES == HA_HELLO_BYTES, "the code is what comes last");
_Static_assert(HA_REJECT_CODE_OFFS + HA_HMAC_BYTES == HA_REJECT_BYTES, "here, too");

void ha_auth_draw_nonce(uint8_t nonce[HA_NONCE_BYTES])
{
	struct ha_writer w = {nonce};

	ha_put_uint(&w, ha_random(), 8);
	ha_put_uint(&w, ha_random(), 8);
}

/* ---- HELLO and REJECT ---------------------------------------------------------------------- */

/* Label by label no code can be taken for another. */
static const char hello_label[] = "nccl-ha hello 2", reject_label[] = "nccl-ha reject 2",
		  session_label[] = "nccl-ha session 2";

/* What a code is over, beside the connector's HELLO that is answered (NULL: none). */
struct said {
	const char *label;
	const uint8_t *bytes;
	size_t length;
};

static bool code_of(const struct ha_job_key *key, const uint8_t *asked, const struct said *said,
		    uint8_t code[HA_HMAC_BYTES])
{
	uint8_t speaker = asked ? HA_SPEAKER_RECEIVER : HA_SPEAKER_SENDER;
	struct ha_hmac mac;

	if (!ha_job_key_begin(key, &mac))
		return false;
	ha_hmac_add(&mac, said->label, strlen(said->label) + 1);
	ha_hmac_add(&mac, &speaker, 1);
	if (asked)
		ha_hmac_add(&mac, asked, HA_HELLO_BYTES);
	ha_hmac_add(&mac, said->bytes, said->length);
	ha_hmac_end(&mac, code, HA_HMAC_BYTES);
	return true;
}

/* The code lies right behind what it is over. */
static bool is_genuine(const struct ha_job_key *key, const uint8_t *asked, const struct said *said)
{
	uint8_t code[HA_HMAC_BYTES];

	return code_of(key, asked, said, code) &&
	       ha_same_secret(code, said->bytes + said->length, sizeof(code));
}

static struct said a_hello(const uint8_t hello[HA_HELLO_BYTES])
{
	return (struct said){hello_label, hello, HA_HELLO_CODE_OFFS};
}

static struct said a_reject(const uint8_t reject[HA_REJECT_BYTES])
{
	return (struct said){reject_label, reject, HA_REJECT_CODE_OFFS};
}

bool ha_auth_seal_hello(const struct ha_job_key *key, const uint8_t *asked,
			uint8_t hello[HA_HELLO_BYTES])
{
	const struct said said = a_hello(hello);

	return code_of(key, asked, &said, hello + HA_HELLO_CODE_OFFS);
}

bool ha_auth_hello_is_genuine(const struct ha_job_key *key, const uint8_t *asked,
			      const uint8_t hello[HA_HELLO_BYTES])
{
	const struct said said = a_hello(hello);

	return is_genuine(key, asked, &said);
}

bool ha_auth_seal_reject(const struct ha_job_key *key, const uint8_t asked[HA_HELLO_BYTES],
			 uint8_t reject[HA_REJECT_BYTES])
{
	const struct said said = a_reject(reject);

	return code_of(key, asked, &said, reject + HA_REJECT_CODE_OFFS);
}

bool ha_auth_reject_is_genuine(const struct ha_job_key *key, const uint8_t asked[HA_HELLO_BYTES],
			       const uint8_t reject[HA_REJECT_BYTES])
{
	const struct said said = a_reject(reject);

	return is_genuine(key, asked, &said);
}

/* ---- keys ---------------------------------------------------------------------------------- */

static void derive(const struct ha_hmac_key *from, const char *label, const uint8_t *a,
		   const uint8_t *b, struct ha_hmac_key *out)
{
	uint8_t bytes[HA_HMAC_BYTES];
	struct ha_hmac mac;

	ha_hmac_begin(&mac, from);
	ha_hmac_add(&mac, label, strlen(label) + 1);
	if (a)
		ha_hmac_add(&mac, a, HA_NONCE_BYTES);
	if (b)
		ha_hmac_add(&mac, b, HA_NONCE_BYTES);
	ha_hmac_end(&mac, bytes, sizeof(bytes));
	ha_hmac_set_key(out, bytes, sizeof(bytes));
	explicit_bzero(bytes, sizeof(bytes));
}

bool ha_auth_begin(struct ha_auth *auth, const struct ha_job_key *key,
		   const struct ha_hello *connector, const struct ha_hello *listener)
{
	uint8_t bytes[HA_HMAC_BYTES], ids[16];
	struct ha_writer w = {ids};
	struct ha_hmac mac;

	if (!ha_job_key_begin(key, &mac))
		return false;
	ha_put_uint(&w, connector->connection_id, 8);
	ha_put_uint(&w, listener->connection_id, 8);
	ha_hmac_add(&mac, session_label, sizeof(session_label));
	ha_hmac_add(&mac, connector->nonce, HA_NONCE_BYTES);
	ha_hmac_add(&mac, listener->nonce, HA_NONCE_BYTES);
	ha_hmac_add(&mac, ids, sizeof(ids));
	ha_hmac_end(&mac, bytes, sizeof(bytes));
	ha_hmac_set_key(&auth->session, bytes, sizeof(bytes));
	explicit_bzero(bytes, sizeof(bytes));
	derive(&auth->session, "path", NULL, NULL, &auth->path);
	auth->on = true;
	return true;
}

void ha_auth_forget(struct ha_auth *auth)
{
	ha_hmac_forget_key(&auth->session);
	ha_hmac_forget_key(&auth->path);
	auth->on = false;
}

void ha_auth_socket_key(const struct ha_auth *auth, const uint8_t *sender_nonce,
			const uint8_t *receiver_nonce, struct ha_hmac_key *out)
{
	derive(&auth->session, sender_nonce ? "rejoined socket" : "socket", sender_nonce,
	       receiver_nonce, out);
}
