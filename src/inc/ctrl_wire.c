/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/ctrl_wire.h"

#include "base/bytes.h"
#include "base/random.h"

#include <string.h>

#define MAGIC	    0x4341484eu /* "NHAC" */
#define BEFORE_CODE 40
#define AT_SECRET   8
#define LABEL	    "nccl-ha controller 1"
#define MASK_LABEL  "nccl-ha mask"

/* ---- hello ----------------------------------------------------------------------------------- */

void ha_ctrl_nonce(uint8_t nonce[HA_CTRL_NONCE_BYTES])
{
	struct ha_writer w = {nonce};

	for (int i = 0; i < HA_CTRL_NONCE_BYTES / 8; i++)
		ha_put_uint(&w, ha_random(), 8);
}

void ha_ctrl_hello_encode(const uint8_t nonce[HA_CTRL_NONCE_BYTES],
			  uint8_t out[HA_CTRL_HELLO_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, MAGIC, 4);
	ha_put_uint(&w, HA_CTRL_VERSION, 4);
	ha_put_bytes(&w, nonce, HA_CTRL_NONCE_BYTES);
}

uint32_t ha_ctrl_hello_decode(const uint8_t in[HA_CTRL_HELLO_BYTES],
			      uint8_t nonce[HA_CTRL_NONCE_BYTES])
{
	struct ha_reader r = {in};
	uint32_t magic = (uint32_t)ha_get_uint(&r, 4), version = (uint32_t)ha_get_uint(&r, 4);

	ha_get_bytes(&r, nonce, HA_CTRL_NONCE_BYTES);
	return magic == MAGIC ? version : 0;
}

/* ---- frames ---------------------------------------------------------------------------------- */

bool ha_ctrl_session_begin(struct ha_ctrl_session *session, const struct ha_job_key *site,
			   enum ha_ctrl_side side, const uint8_t host[HA_CTRL_NONCE_BYTES],
			   const uint8_t controller[HA_CTRL_NONCE_BYTES])
{
	uint8_t key[HA_HMAC_BYTES];
	struct ha_hmac mac;

	*session = (struct ha_ctrl_session){.side = side};
	if (!ha_job_key_begin(site, &mac))
		return false;
	ha_hmac_add(&mac, LABEL, sizeof(LABEL));
	ha_hmac_add(&mac, host, HA_CTRL_NONCE_BYTES);
	ha_hmac_add(&mac, controller, HA_CTRL_NONCE_BYTES);
	ha_hmac_end(&mac, key, sizeof(key));
	ha_hmac_set_key(&session->key, key, sizeof(key));
	explicit_bzero(key, sizeof(key));
	return true;
}

void ha_ctrl_session_end(struct ha_ctrl_session *session)
{
	explicit_bzero(session, sizeof(*session));
}

/* A mask is used once: no two frames of a session have the same speaker and number. */
static void mask(const struct ha_ctrl_session *session, enum ha_ctrl_side speaker, uint64_t count,
		 const uint8_t *in, uint8_t *out)
{
	uint8_t pad[HA_HMAC_BYTES], who[9];
	struct ha_writer w = {who};
	struct ha_hmac mac;

	ha_put_uint(&w, speaker, 1);
	ha_put_uint(&w, count, 8);
	ha_hmac_begin(&mac, &session->key);
	ha_hmac_add(&mac, MASK_LABEL, sizeof(MASK_LABEL));
	ha_hmac_add(&mac, who, sizeof(who));
	ha_hmac_end(&mac, pad, sizeof(pad));
	for (int i = 0; i < HA_CTRL_SECRET_BYTES; i++)
		out[i] = in[i] ^ pad[i];
	explicit_bzero(pad, sizeof(pad));
}

static struct ha_statement statement(enum ha_ctrl_side speaker, uint64_t count, const void *head,
				     const void *digest)
{
	return (struct ha_statement){.speaker = (uint8_t)speaker,
				     .count = count,
				     .head = head,
				     .head_length = BEFORE_CODE,
				     .body = digest,
				     .body_length = HA_SHA256_BYTES};
}

void ha_ctrl_say(struct ha_ctrl_session *session, enum ha_ctrl_kind kind, const uint8_t *secret,
		 uint32_t length, const uint8_t digest[HA_SHA256_BYTES],
		 uint8_t out[HA_CTRL_HEAD_BYTES])
{
	const struct ha_statement said = statement(session->side, session->said, out, digest);
	struct ha_writer w = {out};

	ha_put_uint(&w, length, 4);
	ha_put_uint(&w, kind, 1);
	ha_put_zeros(&w, 3 + HA_CTRL_SECRET_BYTES);
	if (secret)
		mask(session, session->side, session->said, secret, out + AT_SECRET);
	ha_statement_code(&session->key, &said, out + BEFORE_CODE);
	session->said++;
}

bool ha_ctrl_head_decode(const uint8_t in[HA_CTRL_HEAD_BYTES], uint32_t most,
			 enum ha_ctrl_kind *kind, uint32_t *length)
{
	struct ha_reader r = {in};

	*length = (uint32_t)ha_get_uint(&r, 4);
	*kind = (enum ha_ctrl_kind)ha_get_uint(&r, 1);
	return *length <= most && ha_get_uint(&r, 3) == 0;
}

bool ha_ctrl_hear(struct ha_ctrl_session *session, const uint8_t head[HA_CTRL_HEAD_BYTES],
		  const void *text, uint32_t length, uint8_t *secret)
{
	const enum ha_ctrl_side speaker =
	    session->side == HA_CTRL_HOST ? HA_CTRL_CONTROLLER : HA_CTRL_HOST;
	uint8_t digest[HA_SHA256_BYTES];
	struct ha_statement said;

	ha_sha256(text, length, digest);
	said = statement(speaker, session->heard, head, digest);
	if (!ha_statement_is_genuine(&session->key, &said, head + BEFORE_CODE))
		return false;
	if (secret)
		mask(session, speaker, session->heard, head + AT_SECRET, secret);
	session->heard++;
	return true;
}
