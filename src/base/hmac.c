/* SPDX-License-Identifier: Apache-2.0 */
/* HMAC-SHA256: hash(key ^ opad, hash(key ^ ipad, message)). */
#include "base/hmac.h"

#include <string.h>

#define IPAD 0x36
#define OPAD 0x5c

/* *hash has read the block `key`, each byte of it combined with pad. */
static void begin_padded(struct ha_sha256 *hash, const uint8_t key[HA_SHA256_BLOCK_BYTES],
			 uint8_t pad)
{
	uint8_t block[HA_SHA256_BLOCK_BYTES];

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = key[i] ^ pad;
	ha_sha256_begin(hash);
	ha_sha256_add(hash, block, sizeof(block));
	explicit_bzero(block, sizeof(block));
}

void ha_hmac_set_key(struct ha_hmac_key *key, const void *bytes, size_t length)
{
	uint8_t block[HA_SHA256_BLOCK_BYTES] = {0};

	if (length > sizeof(block))
		ha_sha256(bytes, length, block);
	else if (length > 0)
		memcpy(block, bytes, length);
	begin_padded(&key->inner, block, IPAD);
	begin_padded(&key->outer, block, OPAD);
	explicit_bzero(block, sizeof(block));
}

void ha_hmac_forget_key(struct ha_hmac_key *key)
{
	explicit_bzero(key, sizeof(*key));
}

void ha_hmac_begin(struct ha_hmac *mac, const struct ha_hmac_key *key)
{
	mac->inner = key->inner;
	mac->outer = key->outer;
}

void ha_hmac_add(struct ha_hmac *mac, const void *data, size_t length)
{
	ha_sha256_add(&mac->inner, data, length);
}

void ha_hmac_end(struct ha_hmac *mac, uint8_t *code, size_t length)
{
	uint8_t digest[HA_HMAC_BYTES];

	ha_sha256_end(&mac->inner, digest);
	ha_sha256_add(&mac->outer, digest, sizeof(digest));
	ha_sha256_end(&mac->outer, digest);
	memcpy(code, digest, length < sizeof(digest) ? length : sizeof(digest));
	explicit_bzero(digest, sizeof(digest));
}

void ha_hmac(const struct ha_hmac_key *key, const void *data, size_t data_length, uint8_t *code,
	     size_t length)
{
	struct ha_hmac mac;

	ha_hmac_begin(&mac, key);
	ha_hmac_add(&mac, data, data_length);
	ha_hmac_end(&mac, code, length);
}

bool ha_same_secret(const void *a, const void *b, size_t length)
{
	const volatile uint8_t *x = a, *y = b;
	unsigned different = 0;

	for (size_t i = 0; i < length; i++)
		different |= (unsigned)(x[i] ^ y[i]);
	return different == 0;
}
