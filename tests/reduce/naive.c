/* SPDX-License-Identifier: Apache-2.0 */
#include "naive.h"

#include <stdint.h>
#include <string.h>

static int8_t add_int8(int8_t a, int8_t b)
{
	return (int8_t)((uint8_t)a + (uint8_t)b);
}

static int32_t add_int32(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a + (uint32_t)b);
}

static float add_fp32(float a, float b)
{
	return a + b;
}

/* Rounded at each addition; it is not told what a NaN is. */
static uint16_t add_bf16(uint16_t a, uint16_t b)
{
	uint32_t x = (uint32_t)a << 16, y = (uint32_t)b << 16;
	float f, g;

	memcpy(&f, &x, sizeof(f));
	memcpy(&g, &y, sizeof(g));
	f += g;
	memcpy(&x, &f, sizeof(x));
	return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

#define LOOP(name, element, add)                                                                   \
	static void add_to_##name(element *restrict dst, const element *restrict src,              \
				  size_t count)                                                    \
	{                                                                                          \
		for (size_t i = 0; i < count; i++)                                                 \
			dst[i] = add(dst[i], src[i]);                                              \
	}                                                                                          \
	static void sum_##name(void *dst, const void *const src[], unsigned int n, size_t count)   \
	{                                                                                          \
		memcpy(dst, src[0], count * sizeof(element));                                      \
		for (unsigned int k = 1; k < n; k++)                                               \
			add_to_##name(dst, src[k], count);                                         \
	}

LOOP(int8, int8_t, add_int8)
LOOP(int32, int32_t, add_int32)
LOOP(fp32, float, add_fp32)
LOOP(bf16, uint16_t, add_bf16)

const struct naive NAIVE = {sum_int8, sum_int32, sum_fp32, sum_bf16};
