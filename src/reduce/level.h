/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the kernels' levels a CPU has. */
#ifndef HA_REDUCE_LEVEL_H
#define HA_REDUCE_LEVEL_H

#include "reduce/reduce.h"

#include <stdint.h>

/* What an x86-64 CPU says of itself, as far as it matters; what it does not have is 0. */
struct ha_cpuid {
	uint32_t leaf1_ecx;
	uint32_t leaf7_ebx;
	uint64_t xcr0; /* which registers the operating system saves; 0 without OSXSAVE */
};

/* The best level: instructions that are there, on registers that are saved. */
enum ha_reduce_level ha_level_of(const struct ha_cpuid *cpu);

/* Of this CPU, and of what this build has. Asked once. */
enum ha_reduce_level ha_level_here(void);

#endif
