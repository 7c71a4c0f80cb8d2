/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include "../seeded_random.h"

#include <string.h>

const char *const type_names[HA_REDUCE_TYPES] = {"int8",   "uint8", "int32", "uint32", "int64",
						 "uint64", "fp16",  "fp32",  "fp64",   "bf16"};
const char *const op_names[HA_REDUCE_OPS] = {"sum", "prod", "max", "min"};

/* How a float's bits are divided; 0: an integer. */
struct layout {
	unsigned int bits, fraction_bits;
};

static const struct layout layouts[HA_REDUCE_TYPES] = {
    {8, 0}, {8, 0}, {32, 0}, {32, 0}, {64, 0}, {64, 0}, {16, 10}, {32, 23}, {64, 52}, {16, 7},
};

static uint64_t float_of(const struct layout *l, uint64_t sign, int exponent, uint64_t fraction)
{
	unsigned int exponent_bits = l->bits - 1 - l->fraction_bits;
	uint64_t biased = (uint64_t)(exponent + (1 << (exponent_bits - 1)) - 1);

	return sign << (l->bits - 1) | biased << l->fraction_bits |
	       (fraction & ((1ull << l->fraction_bits) - 1));
}

static uint64_t special(const struct layout *l, uint64_t chance)
{
	uint64_t sign = (chance & 1) << (l->bits - 1);
	uint64_t infinity = (((uint64_t)1 << (l->bits - 1 - l->fraction_bits)) - 1)
			    << l->fraction_bits;

	if (!l->fraction_bits)
		return sign - (chance >> 1 & 1); /* 0, -1, the smallest, the largest */
	switch (chance >> 1 & 7) {
	case 0:
		return sign | infinity;
	case 1:
		return sign | (infinity - 1); /* the largest number */
	case 2:
		return sign | 1ull << l->fraction_bits; /* the smallest normal one */
	case 3:
	case 4:
		return sign | (chance >> 8 & ((1ull << l->fraction_bits) - 1)); /* denormal */
	default:
		return sign;
	}
}

static uint64_t element(const struct layout *l, uint64_t kind, uint64_t chance)
{
	uint64_t sign = chance >> 2 & 1;
	int exponent = (int)(chance >> 3 & 31);

	switch (kind) {
	case 0:
		return chance >> 5;
	case 1: /* few bits, far apart: their sum ends in the middle between two numbers */
		return l->fraction_bits ? float_of(l, sign, exponent % (int)(l->fraction_bits + 3),
						   chance >> 8 & 1)
					: chance >> 3 & 1;
	case 2:
		return l->fraction_bits ? float_of(l, sign, exponent % 3 - 1, chance >> 8)
					: chance >> 3 & 7;
	default:
		return special(l, chance >> 3);
	}
}

void sample_elements(unsigned int type, void *at, size_t count, uint64_t seed)
{
	const struct layout *l = &layouts[type];
	size_t bytes = l->bits / 8;

	for (size_t i = 0; i < count; i++) {
		uint64_t chance = mix(seed + i);
		/* At every other place all sources are finite. */
		uint64_t x = element(l, i % 2 ? 1 + i / 2 % 2 : chance & 3, chance);

		for (size_t b = 0; b < bytes; b++)
			((uint8_t *)at)[i * bytes + b] = (uint8_t)(x >> 8 * b);
	}
}
