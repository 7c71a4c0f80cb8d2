/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels in vectors as long as AVX-512's, compiled for any CPU. */
#define HA_VECTOR_BYTES 64
#define HA_KERNEL_TABLE ha_kernels_64_bytes
#include "reduce/kernels_impl.h"
