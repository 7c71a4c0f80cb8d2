/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hosts and the controller of all-reduces in the network hear before they know who says it.
 * Byte 0: 0: a hello; 1: a frame by somebody without the site's key; 2: one that was said, and then
 * changed.
 */
#include "fuzz.h"

#include "../made_key.h"
#include "inc/ctrl_wire.h"

#include <string.h>

static const char text[] = "{\"group\":\"g\",\"rank\":0}";
#define LENGTH ((uint32_t)sizeof(text) - 1)
#define FRAME  (HA_CTRL_HEAD_BYTES + LENGTH)

static uint8_t hello[1 + HA_CTRL_HELLO_BYTES], frame[1 + HA_CTRL_HEAD_BYTES + sizeof(text)];

const struct fuzz_seed fuzz_seeds[] = {
    {hello, sizeof(hello)},
    {frame, sizeof(frame) - 1},
    FUZZ_TEXT("\2\0\1\44\200\70\1"),
    {NULL, 0},
};

/* Both ends of a session, as they are at its beginning. Of one that there has not been: a fuzzer
 * remembers what it has seen compared, and that a frame of another input is one of this session
 * would be right. */
static void begin(struct ha_ctrl_session *host, struct ha_ctrl_session *controller)
{
	static uint8_t nonce[HA_CTRL_NONCE_BYTES], other[HA_CTRL_NONCE_BYTES];
	static struct ha_job_key *key;
	static uint64_t sessions;

	if (!key)
		key = made_key(3);
	sessions++;
	memcpy(nonce, &sessions, sizeof(sessions));
	FUZZ_CHECK(ha_ctrl_session_begin(host, key, HA_CTRL_HOST, nonce, other) &&
		   ha_ctrl_session_begin(controller, key, HA_CTRL_CONTROLLER, nonce, other));
}

static void say(struct ha_ctrl_session *who, uint8_t out[FRAME])
{
	uint8_t digest[HA_SHA256_BYTES];

	ha_sha256(text, LENGTH, digest);
	ha_ctrl_say(who, HA_CTRL_ASK, NULL, LENGTH, digest, out);
	memcpy(out + HA_CTRL_HEAD_BYTES, text, LENGTH);
}

__attribute__((constructor)) static void make_seeds(void)
{
	static const uint8_t nonce[HA_CTRL_NONCE_BYTES] = {1};
	uint8_t digest[HA_SHA256_BYTES] = {0};
	struct ha_ctrl_session nobody = {.side = HA_CTRL_HOST};

	ha_ctrl_hello_encode(nonce, hello + 1);
	frame[0] = 1;
	ha_hmac_set_key(&nobody.key, nonce, sizeof(nonce));
	ha_ctrl_say(&nobody, HA_CTRL_ASK, NULL, LENGTH, digest, frame + 1);
	memcpy(frame + 1 + HA_CTRL_HEAD_BYTES, text, LENGTH);
}

/* Every byte of one counts. */
static void as_a_hello(uint8_t *data, size_t size)
{
	uint8_t nonce[HA_CTRL_NONCE_BYTES], again[HA_CTRL_HELLO_BYTES];

	if (size < HA_CTRL_HELLO_BYTES || ha_ctrl_hello_decode(data, nonce) != HA_CTRL_VERSION)
		return;
	ha_ctrl_hello_encode(nonce, again);
	FUZZ_CHECK(!memcmp(again, data, sizeof(again)));
}

/* As whoever reads a stream does: the head, then as much text as that says, and no more than there
 * is. */
static bool is_heard(struct ha_ctrl_session *who, uint8_t *data, size_t size)
{
	enum ha_ctrl_kind kind;
	uint8_t *body;
	uint32_t length;
	bool heard;

	if (size < HA_CTRL_HEAD_BYTES ||
	    !ha_ctrl_head_decode(data, HA_CTRL_ASK_MAX, &kind, &length))
		return false;
	FUZZ_CHECK(length <= HA_CTRL_ASK_MAX);
	if (length > size - HA_CTRL_HEAD_BYTES)
		return false;
	body = malloc(length ? length : 1); /* for the sanitizers: one byte too far */
	FUZZ_CHECK(body != NULL);
	memcpy(body, data + HA_CTRL_HEAD_BYTES, length);
	heard = ha_ctrl_hear(who, data, body, length, NULL);
	free(body);
	return heard;
}

static void by_somebody_without_the_key(uint8_t *data, size_t size)
{
	struct ha_ctrl_session host, controller;

	begin(&host, &controller);
	FUZZ_CHECK(!is_heard(&controller, data, size));
	FUZZ_CHECK(!is_heard(&host, data, size));
	FUZZ_CHECK(host.heard == 0 && controller.heard == 0);
}

/* Pairs of a place and what is changed there. It is believed if nothing is, by the other end, once.
 */
static void changed(uint8_t *data, size_t size)
{
	struct ha_ctrl_session host, controller;
	uint8_t said[FRAME], original[FRAME];
	bool is_same;

	begin(&host, &controller);
	say(&host, said);
	memcpy(original, said, sizeof(said));
	for (size_t i = 0; i + 1 < size; i += 2)
		said[data[i] % FRAME] ^= data[i + 1];
	is_same = !memcmp(original, said, sizeof(said));
	FUZZ_CHECK(is_heard(&controller, said, sizeof(said)) == is_same);
	FUZZ_CHECK(!is_heard(&controller, said, sizeof(said)));
	FUZZ_CHECK(!is_heard(&host, said, sizeof(said)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[] = {as_a_hello, by_somebody_without_the_key, changed};

	fuzz_one_of(decoders, 3, data, size);
	return 0;
}
