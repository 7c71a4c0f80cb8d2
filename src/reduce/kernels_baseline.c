/* SPDX-License-Identifier: Apache-2.0 */
/* The instructions that any CPU of its kind has; on others than x86-64 the only level. */
#define HA_VECTOR_BYTES 16
#define HA_KERNEL_TABLE ha_kernels_baseline
#include "reduce/kernels_impl.h"
