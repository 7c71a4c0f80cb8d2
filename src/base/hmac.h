/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HMAC-SHA256 (RFC 2104): a code that only who has the key can make.
 *
 *	struct ha_hmac_key key;			once for each key
 *	ha_hmac_set_key(&key, bytes, n);
 *
 *	struct ha_hmac mac;			for each message
 *	ha_hmac_begin(&mac, &key);
 *	ha_hmac_add(&mac, header, sizeof(header));
 *	ha_hmac_end(&mac, code, sizeof(code));
 *
 * Time and memory touched depend on lengths only, never on keys or messages. Nothing here can fail.
 */
#ifndef HA_BASE_HMAC_H
#define HA_BASE_HMAC_H

#include "base/result.h"
#include "base/sha256.h"

#include <stdbool.h>

#define HA_HMAC_BYTES HA_SHA256_BYTES

/*
 * A key, half worked in: half the work for each message that follows. As secret as the key. Read
 * only once it is set, so that any thread may use it; erased by ha_hmac_forget_key.
 */
struct ha_hmac_key {
	struct ha_sha256 inner, outer;
};

/* A code in the making: one thread's. Erased by ha_hmac_end. */
struct ha_hmac {
	struct ha_sha256 inner, outer;
};

/* The caller still has the key's bytes, and erases them. */
void ha_hmac_set_key(struct ha_hmac_key *key, const void *bytes, size_t length);
void ha_hmac_forget_key(struct ha_hmac_key *key);

void ha_hmac_begin(struct ha_hmac *mac, const struct ha_hmac_key *key);
void ha_hmac_add(struct ha_hmac *mac, const void *data, size_t length);
/* The first `length` bytes of the code, HA_HMAC_BYTES at most: a shorter code is a truncated one.
 */
void ha_hmac_end(struct ha_hmac *mac, uint8_t *code, size_t length);

/* All of it at once, for a message in one piece. */
void ha_hmac(const struct ha_hmac_key *key, const void *data, size_t data_length, uint8_t *code,
	     size_t length);

/* Whether two codes, or secrets, are the same. Takes as long wherever they differ. */
bool ha_same_secret(const void *a, const void *b, size_t length) HA_MUST_CHECK;

#endif
