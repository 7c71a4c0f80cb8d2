/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns and their checks.
 *
 * A check generates the expected data a block at a time and compares with memcmp: the common case,
 * all right, runs at memory speed; only a block that differs is looked at element by element.
 */
#include "tools/nccl-net-perf/pattern.h"

#include <string.h>

#define BLOCK 4096u

static uint64_t mix64(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	return x;
}

static uint64_t seed_of(int rank, uint32_t iteration)
{
	return mix64((uint64_t)(unsigned)rank << 32 | iteration) * 0x9e3779b97f4a7c15ull + 1;
}

/* ---- plain bytes ------------------------------------------------------------------------- */

/* 8-byte words [first, first + n) of the pattern. */
static void make_words(uint64_t *words, size_t n, uint64_t seed, uint64_t first)
{
	for (size_t i = 0; i < n; i++)
		words[i] = mix64(seed + (first + i) * 0x9e3779b97f4a7c15ull);
}

/*
 * Expected bytes from `pos` to the end of its block or len, whichever comes first: *bytes of them,
 * at the pointer returned, which lies in words.
 */
static const uint8_t *expected_block(uint64_t words[BLOCK / 8], uint64_t seed, uint64_t pos,
				     size_t len, size_t *bytes)
{
	size_t skip = pos % 8;
	size_t n = BLOCK - skip < len ? BLOCK - skip : len;

	make_words(words, (skip + n + 7) / 8, seed, pos / 8);
	*bytes = n;
	return (const uint8_t *)words + skip;
}

void np_pattern_fill(void *buf, size_t len, int rank, uint32_t iteration, uint64_t pos)
{
	uint64_t words[BLOCK / 8], seed = seed_of(rank, iteration);
	uint8_t *to = buf;
	size_t n;

	for (; len; to += n, pos += n, len -= n) {
		const uint8_t *from = expected_block(words, seed, pos, len, &n);

		memcpy(to, from, n);
	}
}

uint64_t np_pattern_check(const void *buf, size_t len, int rank, uint32_t iteration, uint64_t pos)
{
	uint64_t words[BLOCK / 8], seed = seed_of(rank, iteration), wrong = 0;
	const uint8_t *got = buf;
	size_t n;

	for (; len; got += n, pos += n, len -= n) {
		const uint8_t *want = expected_block(words, seed, pos, len, &n);

		if (memcmp(got, want, n) == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			wrong += got[i] != want[i];
	}
	return wrong;
}

/* ---- elements to sum ---------------------------------------------------------------------- */

/*
 * Rank r contributes a + r * b at position i, with a and b drawn from i and the iteration. For
 * float both are small enough that the sum over up to NP_MAX_RANKS ranks is an exact integer:
 * 1024 ranks * 1023 + 15 * 1024 * 1023 / 2 < 2^24.
 */
static uint32_t draw(uint32_t iteration, size_t i)
{
	uint32_t x = (uint32_t)i * 0x9e3779b1u + iteration * 0x85ebca77u + (uint32_t)(i >> 32);

	x ^= x >> 15;
	x *= 0xc2b2ae3du;
	x ^= x >> 13;
	return x;
}

static uint32_t int_term(uint32_t x, uint32_t ranks, uint32_t rank_sum)
{
	return x * ranks + (x >> 7 | 1) * rank_sum;
}

static float float_term(uint32_t x, uint32_t ranks, uint32_t rank_sum)
{
	return (float)((x & 1023) * ranks + (x >> 10 & 15) * rank_sum);
}

/* Elements [first, first + n) of the sum over ranks whose number and sum of numbers are given. */
static void make_terms(void *buf, size_t first, size_t n, enum np_type type, uint32_t ranks,
		       uint32_t rank_sum, uint32_t iteration)
{
	uint8_t *bytes = buf;
	uint32_t *ints = buf;
	float *floats = buf;

	switch (type) {
	case NP_INT8:
		for (size_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)int_term(draw(iteration, first + i), ranks, rank_sum);
		break;
	case NP_INT32:
		for (size_t i = 0; i < n; i++)
			ints[i] = int_term(draw(iteration, first + i), ranks, rank_sum);
		break;
	default:
		for (size_t i = 0; i < n; i++)
			floats[i] = float_term(draw(iteration, first + i), ranks, rank_sum);
		break;
	}
}

void np_summand_fill(void *buf, size_t count, enum np_type type, int rank, uint32_t iteration)
{
	make_terms(buf, 0, count, type, 1, (uint32_t)rank, iteration);
}

void np_sum(void *out, const void *a, const void *b, size_t count, enum np_type type)
{
	const uint8_t *a8 = a, *b8 = b;
	const uint32_t *a32 = a, *b32 = b;
	const float *af = a, *bf = b;
	uint8_t *out8 = out;
	uint32_t *out32 = out;
	float *outf = out;

	switch (type) {
	case NP_INT8:
		for (size_t i = 0; i < count; i++)
			out8[i] = (uint8_t)(a8[i] + b8[i]);
		break;
	case NP_INT32:
		for (size_t i = 0; i < count; i++)
			out32[i] = a32[i] + b32[i];
		break;
	default:
		for (size_t i = 0; i < count; i++)
			outf[i] = af[i] + bf[i];
		break;
	}
}

uint64_t np_sum_check(const void *buf, size_t count, enum np_type type, int nranks,
		      uint32_t iteration)
{
	uint64_t want[BLOCK / 8], wrong = 0;
	size_t size = np_type_sizes[type], per_block = BLOCK / size, n;
	uint32_t ranks = (uint32_t)nranks, rank_sum = ranks * (ranks - 1) / 2;
	const uint8_t *got = buf;

	for (size_t first = 0; first < count; first += n, got += n * size) {
		n = count - first < per_block ? count - first : per_block;
		make_terms(want, first, n, type, ranks, rank_sum, iteration);
		if (memcmp(got, want, n * size) == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			wrong +=
			    memcmp(got + i * size, (const uint8_t *)want + i * size, size) != 0;
	}
	return wrong;
}
