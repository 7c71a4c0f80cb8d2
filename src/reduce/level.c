/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/level.h"

#include <stdatomic.h>
#include <stdbool.h>

#ifdef HA_REDUCE_X86
#include <cpuid.h>
#endif

/* Bits of CPUID and XCR0 (Intel SDM volume 2A, CPUID; volume 1, 13.3). */
#define LEAF1_OSXSAVE	(1u << 27)
#define LEAF1_AVX	(1u << 28)
#define LEAF1_F16C	(1u << 29)
#define LEAF7_AVX2	(1u << 5)
#define LEAF7_AVX512F	(1u << 16)
#define LEAF7_AVX512DQ	(1u << 17)
#define LEAF7_AVX512BW	(1u << 30)
#define LEAF7_AVX512VL	(1u << 31)
#define XCR0_SSE_AVX	(3u << 1)
#define XCR0_SSE_AVX512 (3u << 1 | 7u << 5)

static bool has(uint64_t bits, uint64_t wanted)
{
	return (bits & wanted) == wanted;
}

enum ha_reduce_level ha_level_of(const struct ha_cpuid *cpu)
{
	if (!has(cpu->leaf1_ecx, LEAF1_AVX | LEAF1_F16C) || !has(cpu->leaf7_ebx, LEAF7_AVX2) ||
	    !has(cpu->xcr0, XCR0_SSE_AVX))
		return HA_REDUCE_BASELINE;
	if (has(cpu->leaf7_ebx, LEAF7_AVX512F | LEAF7_AVX512DQ | LEAF7_AVX512BW | LEAF7_AVX512VL) &&
	    has(cpu->xcr0, XCR0_SSE_AVX512))
		return HA_REDUCE_AVX512;
	return HA_REDUCE_AVX2;
}

#ifdef HA_REDUCE_X86

static uint64_t saved_registers(void)
{
	uint32_t low, high;

	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

static enum ha_reduce_level ask(void)
{
	struct ha_cpuid cpu = {0};
	uint32_t eax, ebx, ecx, edx;

	if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
		cpu.leaf1_ecx = ecx;
	if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
		cpu.leaf7_ebx = ebx;
	if (has(cpu.leaf1_ecx, LEAF1_OSXSAVE))
		cpu.xcr0 = saved_registers();
	return ha_level_of(&cpu);
}

#else

static enum ha_reduce_level ask(void)
{
	return HA_REDUCE_BASELINE;
}

#endif

/* Threads that ask at the same time get the same answer. */
enum ha_reduce_level ha_level_here(void)
{
	static atomic_int known = -1;
	int level = atomic_load_explicit(&known, memory_order_relaxed);

	if (level < 0) {
		level = (int)ask();
		atomic_store_explicit(&known, level, memory_order_relaxed);
	}
	return (enum ha_reduce_level)level;
}
