/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors added (multiplied, ...) element by element, so that a result is a function of the sources
 * and their order alone, to the bit: docs/inc-reduction.md.
 *
 * - Sources 0 ... n-1 are the leaves of one fixed binary tree: a node over k > 1 leaves has the
 * largest power of two below k of them on its left. 5 are ((0+1)+(2+3))+4.
 * - Integers wrap. Of maximum and minimum a NaN loses against a number, and -0 is less than +0. A
 * NaN in a result is always the same quiet one.
 * - 16-bit floats are added and multiplied in a wider type, in which partial results travel, and
 * are rounded once, to nearest even: bf16, and products of fp16, in fp32; sums of fp16 in fp64,
 * where they are exact for up to 8192 of them.
 * - Rounding modes, flushing of denormals and traps that the calling thread has set change nothing,
 * on x86-64 and AArch64; elsewhere the thread must be in the default floating-point environment.
 *
 * Any thread, without locks; nothing here fails or allocates.
 */
#ifndef HA_REDUCE_REDUCE_H
#define HA_REDUCE_REDUCE_H

#include <stddef.h>

/* Values equal ncclDataType_t's and ncclRedOp_t's. 8-bit floats are not supported. */
enum ha_reduce_type {
	HA_REDUCE_INT8,
	HA_REDUCE_UINT8,
	HA_REDUCE_INT32,
	HA_REDUCE_UINT32,
	HA_REDUCE_INT64,
	HA_REDUCE_UINT64,
	HA_REDUCE_FP16,
	HA_REDUCE_FP32,
	HA_REDUCE_FP64,
	HA_REDUCE_BF16,
	HA_REDUCE_TYPES
};

enum ha_reduce_op { HA_REDUCE_SUM, HA_REDUCE_PROD, HA_REDUCE_MAX, HA_REDUCE_MIN, HA_REDUCE_OPS };

/* How a vector lies in memory: as the application has it, or as a partial result. */
enum ha_reduce_form { HA_REDUCE_WIRE, HA_REDUCE_WIDE, HA_REDUCE_FORMS };

/* Which instructions are used; results do not depend on it. */
enum ha_reduce_level {
	HA_REDUCE_BASELINE, /* of any CPU */
	HA_REDUCE_AVX2,	    /* and F16C */
	HA_REDUCE_AVX512,   /* F, BW, DQ and VL */
	HA_REDUCE_LEVELS
};

#define HA_REDUCE_MAX_BYTES    8 /* of an element in any form */
#define HA_REDUCE_MAX_WIDENING 4 /* so many times as large a partial result may be */

/* A type and an operation; static. */
struct ha_reduction;

/* By the best level that this CPU has. NULL: not supported, which numbers out of range are, too. */
const struct ha_reduction *ha_reduction_of(unsigned int type, unsigned int op);
/* By that level; NULL also if this CPU or this build does not have it. */
const struct ha_reduction *ha_reduction_at(enum ha_reduce_level level, unsigned int type,
					   unsigned int op);

/* Bytes of an element. */
size_t ha_reduce_bytes(const struct ha_reduction *reduction, enum ha_reduce_form form);

/*
 * Reduces `count` elements of each of n >= 1 sources, which are all in the form `from`, to `dst` in
 * the form `to`. No alignment is needed. `dst` may be one of the sources if an element has the same
 * size in both forms; otherwise it overlaps none.
 */
void ha_reduce(const struct ha_reduction *reduction, enum ha_reduce_form from,
	       enum ha_reduce_form to, void *dst, const void *const src[], unsigned int n,
	       size_t count);

#endif
