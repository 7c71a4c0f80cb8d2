/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled for AVX2 and F16C: called only where the CPU has them. */
#define HA_VECTOR_BYTES 32
#define HA_KERNEL_TABLE ha_kernels_avx2
#include "reduce/kernels_impl.h"
