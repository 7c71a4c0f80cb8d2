/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256. Names of FIPS 180-4, sections 4.1.2, 4.2.2, 5.1.1, 5.3.3 and 6.2.2. */
#include "base/sha256.h"

#include <string.h>

#define ROUNDS	     64
#define LENGTH_BYTES 8 /* of the message's length in bits, at the end of the last block */

/* The first 32 bits of the fractional parts of the square roots of the first 8 primes, */
static const uint32_t initial_state[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

/* and of the cube roots of the first 64. */
static const uint32_t round_constant[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static uint32_t big_endian(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_big_endian(uint8_t *at, uint64_t value, int bytes)
{
	for (int i = bytes - 1; i >= 0; i--, value >>= 8)
		at[i] = (uint8_t)value;
}

/* The message schedule: W. */
static void schedule(uint32_t w[ROUNDS], const uint8_t *block)
{
	for (int t = 0; t < 16; t++)
		w[t] = big_endian(block + 4 * t);
	for (int t = 16; t < ROUNDS; t++) {
		uint32_t sigma0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
		uint32_t sigma1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;

		w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
	}
}

/* One block into the state. Erases what it had of a block, which may be a key. */
static void compress(uint32_t state[8], const uint8_t *block)
{
	uint32_t w[ROUNDS];
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
	uint32_t e = state[4], f = state[5], g = state[6], h = state[7];

	schedule(w, block);
	for (int t = 0; t < ROUNDS; t++) {
		uint32_t sum1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
		uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + round_constant[t] + w[t];
		uint32_t sum0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
		uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));

		h = g, g = f, f = e, e = d + t1;
		d = c, c = b, b = a, a = t1 + t2;
	}
	state[0] += a, state[1] += b, state[2] += c, state[3] += d;
	state[4] += e, state[5] += f, state[6] += g, state[7] += h;
	explicit_bzero(w, sizeof(w));
}

void ha_sha256_begin(struct ha_sha256 *hash)
{
	memcpy(hash->state, initial_state, sizeof(hash->state));
	hash->length = 0;
}

void ha_sha256_add(struct ha_sha256 *hash, const void *data, size_t length)
{
	size_t used = (size_t)(hash->length % HA_SHA256_BLOCK_BYTES);
	const uint8_t *at = data;

	hash->length += length;
	if (used + length < HA_SHA256_BLOCK_BYTES) {
		if (length > 0)
			memcpy(hash->block + used, at, length);
		return;
	}
	if (used > 0) {
		size_t rest = HA_SHA256_BLOCK_BYTES - used;

		memcpy(hash->block + used, at, rest);
		compress(hash->state, hash->block);
		at += rest;
		length -= rest;
	}
	for (; length >= HA_SHA256_BLOCK_BYTES; length -= HA_SHA256_BLOCK_BYTES) {
		compress(hash->state, at);
		at += HA_SHA256_BLOCK_BYTES;
	}
	memcpy(hash->block, at, length);
}

void ha_sha256_end(struct ha_sha256 *hash, uint8_t digest[HA_SHA256_BYTES])
{
	/* A one bit, zeros up to the place of the length, the length: one block, or two. */
	uint8_t padding[HA_SHA256_BLOCK_BYTES + LENGTH_BYTES] = {0x80};
	size_t used = (size_t)(hash->length % HA_SHA256_BLOCK_BYTES);
	size_t zeros_end = HA_SHA256_BLOCK_BYTES - LENGTH_BYTES - used;

	if (used >= HA_SHA256_BLOCK_BYTES - LENGTH_BYTES)
		zeros_end += HA_SHA256_BLOCK_BYTES;
	put_big_endian(padding + zeros_end, hash->length * 8, LENGTH_BYTES);
	ha_sha256_add(hash, padding, zeros_end + LENGTH_BYTES);
	for (int i = 0; i < 8; i++)
		put_big_endian(digest + 4 * i, hash->state[i], 4);
	explicit_bzero(hash, sizeof(*hash));
}

void ha_sha256(const void *data, size_t length, uint8_t digest[HA_SHA256_BYTES])
{
	struct ha_sha256 hash;

	ha_sha256_begin(&hash);
	ha_sha256_add(&hash, data, length);
	ha_sha256_end(&hash, digest);
}
