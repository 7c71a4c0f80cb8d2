/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled for AVX-512 F, BW, DQ and VL: called only where the CPU has them. */
#define HA_VECTOR_BYTES 64
#define HA_KERNEL_TABLE ha_kernels_avx512
#include "reduce/kernels_impl.h"
