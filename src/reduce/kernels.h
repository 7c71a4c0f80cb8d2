/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a level of the CPU offers: a table of kernels, which are kernels_impl.h compiled for it.
 */
#ifndef HA_REDUCE_KERNELS_H
#define HA_REDUCE_KERNELS_H

#include "reduce/reduce.h"

#include <stdint.h>

#define HA_KERNEL_STEP	  64 /* elements: a kernel's count is a multiple of it */
#define HA_KERNEL_SOURCES 8  /* at most, at once */

typedef void (*ha_kernel)(void *dst, const void *const src[], size_t count);

/* Of 1, 2, 4 and 8 sources: by the logarithm. */
struct ha_kernels {
	ha_kernel fused[4];
};

struct ha_reduction {
	uint8_t bytes[HA_REDUCE_FORMS];				     /* of an element */
	struct ha_kernels kernels[HA_REDUCE_FORMS][HA_REDUCE_FORMS]; /* [from][to] */
};

struct ha_kernel_table {
	struct ha_reduction of[HA_REDUCE_TYPES][HA_REDUCE_OPS];
};

extern const struct ha_kernel_table ha_kernels_baseline;
#ifdef HA_REDUCE_X86 /* the build has these, too */
extern const struct ha_kernel_table ha_kernels_avx2;
extern const struct ha_kernel_table ha_kernels_avx512;
#endif

#endif
