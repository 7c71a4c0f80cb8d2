/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop that everybody writes: the first source is copied to the result, the others are added to
 * it one after the other. naive.c is compiled for one element at a time, and for AVX2 with all that
 * the compiler makes of it.
 */
#ifndef HA_TESTS_REDUCE_NAIVE_H
#define HA_TESTS_REDUCE_NAIVE_H

#include <stddef.h>

typedef void naive_sum(void *dst, const void *const src[], unsigned int n, size_t count);

struct naive {
	naive_sum *int8, *int32, *fp32, *bf16;
};

extern const struct naive naive_plain;
extern const struct naive naive_avx2; /* on x86-64 */

#endif
