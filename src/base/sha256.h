/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4) of a message that comes in pieces of any length, or in one.
 *
 * Which branches are taken and which memory is touched depends on lengths only, never on the bytes.
 * A hash that is begun may be copied: both copies go on from there. Nothing here can fail.
 */
#ifndef HA_BASE_SHA256_H
#define HA_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define HA_SHA256_BYTES	      32
#define HA_SHA256_BLOCK_BYTES 64

struct ha_sha256 {
	uint32_t state[8];
	uint64_t length;		      /* bytes of the message so far */
	uint8_t block[HA_SHA256_BLOCK_BYTES]; /* its last length % HA_SHA256_BLOCK_BYTES bytes */
};

void ha_sha256_begin(struct ha_sha256 *hash);
/* data may be NULL where length is 0. */
void ha_sha256_add(struct ha_sha256 *hash, const void *data, size_t length);
/* Erases *hash, which must be begun again before it is used again. */
void ha_sha256_end(struct ha_sha256 *hash, uint8_t digest[HA_SHA256_BYTES]);

/* All three at once. */
void ha_sha256(const void *data, size_t length, uint8_t digest[HA_SHA256_BYTES]);

#endif
