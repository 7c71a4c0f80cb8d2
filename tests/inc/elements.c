/* SPDX-License-Identifier: Apache-2.0 */
#include "elements.h"

#include "../reduce/oracle.h"
#include "../seeded_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t elements_size(const struct elements *elements)
{
	return oracle_bytes(elements->type, elements->operation, HA_REDUCE_WIRE);
}

/* ---- what goes in --------------------------------------------------------------------------- */

static bool is_float(unsigned type)
{
	return type == HA_REDUCE_FP16 || type >= HA_REDUCE_FP32;
}

/* A small number whose sums and products are exact in every order. */
static double exact(unsigned operation, uint64_t random)
{
	static const double factors[] = {1, -1, 2, 0.5};

	return operation == HA_REDUCE_PROD ? factors[random % 4] : (double)(random % 9) - 4;
}

static uint16_t to_fp16(float number)
{
	uint32_t bits;

	memcpy(&bits, &number, sizeof(bits));
	if (number == 0)
		return 0;
	return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 127 + 15) << 10) |
			  (bits >> 13 & 0x3ff));
}

static void put_exact(unsigned type, double number, uint8_t *at)
{
	const float single = (float)number;
	const uint16_t half = to_fp16(single);

	switch (type) {
	case HA_REDUCE_FP64:
		memcpy(at, &number, sizeof(number));
		break;
	case HA_REDUCE_FP32:
		memcpy(at, &single, sizeof(single));
		break;
	case HA_REDUCE_FP16:
		memcpy(at, &half, sizeof(half));
		break;
	default: /* bf16: the upper half, little-endian */
		memcpy(at, (const uint8_t *)&single + 2, 2);
	}
}

static bool is_ordered(const struct elements *elements)
{
	return is_float(elements->type) && elements->operation <= HA_REDUCE_PROD;
}

void elements_contribute(const struct elements *elements, unsigned rank, uint8_t *at)
{
	const size_t size = elements_size(elements);
	const bool is_exact = is_ordered(elements) && !elements->is_wild;

	for (size_t i = 0; i < elements->count; i++, at += size) {
		const uint64_t random = mix(mix((uint64_t)elements->op << 32 | rank) + i);

		if (is_exact)
			put_exact(elements->type, exact(elements->operation, random >> 7), at);
		else
			memcpy(at, &random, size);
	}
}

/* ---- what comes out ------------------------------------------------------------------------- */

uint64_t elements_digest(const struct elements *elements, const uint8_t *result)
{
	const size_t bytes = elements->count * elements_size(elements);
	uint64_t sum = bytes;

	for (size_t i = 0; i < bytes; i++)
		sum = (sum ^ result[i]) * 0x100000001b3ull;
	return mix(sum);
}

bool elements_result(const struct elements *elements, unsigned ranks, uint8_t *result)
{
	const size_t bytes = elements->count * elements_size(elements);
	uint8_t *all = malloc(ranks * bytes + 1);
	const void *src[ELEMENTS_RANKS];

	if (!all)
		return false;
	for (unsigned rank = 0; rank < ranks; rank++) {
		src[rank] = all + rank * bytes;
		elements_contribute(elements, rank, all + rank * bytes);
	}
	oracle_reduce(elements->type, elements->operation, HA_REDUCE_WIRE, HA_REDUCE_WIRE, result,
		      src, ranks, elements->count);
	free(all);
	return true;
}

bool elements_are_right(const struct elements *elements, unsigned ranks, const uint8_t *result)
{
	const size_t bytes = elements->count * elements_size(elements);
	uint8_t *wanted;
	bool is_equal;

	if (elements->is_wild && !elements->is_in_order && is_ordered(elements))
		return true;
	wanted = malloc(bytes + 1);
	is_equal = wanted && elements_result(elements, ranks, wanted) &&
		   memcmp(wanted, result, bytes) == 0;
	free(wanted);
	if (!is_equal)
		fprintf(stderr, "operation %u: type %d, operation %d of %zu is wrong\n",
			elements->op, elements->type, elements->operation, elements->count);
	return is_equal;
}
