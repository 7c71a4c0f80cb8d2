/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory as threads of a GPU, its host and a NIC share it: what the code for GPUs asks of a
 * compiler. nvcc, or C11 and C++17 for threads of the host. Words are of 4 or 8 bytes and aligned;
 * pointers are of memory that the thread may touch, the host's mapped memory too.
 *
 * Unless said otherwise: loads acquire, stores release, and everybody on the machine sees them.
 */
#ifndef NCCL_HA_IBGDA_MEMORY_H
#define NCCL_HA_IBGDA_MEMORY_H

#include <stdint.h>

/* HA_DEV_SLOW: what a thread comes to when something has failed, or there is no room. Of the host
 * it is a function of its own, so that the way there takes no registers of who passes by. A GPU has
 * enough; a call would put what is posted into memory. */
#ifdef __CUDACC__
#define HA_DEV static __host__ __device__ __forceinline__
#ifndef HA_DEV_SLOW
#define HA_DEV_SLOW HA_DEV
#endif
#else
#define HA_DEV	    static inline __attribute__((always_inline))
#define HA_DEV_SLOW static __attribute__((noinline, cold, unused))
#endif

HA_DEV uint32_t ha_dev_swap32(uint32_t value)
{
	return value >> 24 | (value >> 8 & 0xff00u) | (value << 8 & 0xff0000u) | value << 24;
}

HA_DEV uint64_t ha_dev_swap64(uint64_t value)
{
	return (uint64_t)ha_dev_swap32((uint32_t)value) << 32 |
	       ha_dev_swap32((uint32_t)(value >> 32));
}

#ifdef __CUDA_ARCH__

HA_DEV uint8_t ha_dev_load8(const volatile uint8_t *from)
{
	uint32_t value;

	asm volatile("ld.acquire.sys.u8 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
	return (uint8_t)value;
}

HA_DEV uint32_t ha_dev_load32(const volatile uint8_t *from)
{
	uint32_t value;

	asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
	return value;
}

HA_DEV uint64_t ha_dev_load(const uint64_t *from)
{
	uint64_t value;

	asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
	return value;
}

/* After all that this thread has added, or stored before a fence. */
HA_DEV uint64_t ha_dev_load_in_order(const uint64_t *from)
{
	asm volatile("fence.sc.sys;" ::: "memory");
	return ha_dev_load(from);
}

/* With the word before it, aligned to 16 bytes: which one first is not said. */
HA_DEV uint64_t ha_dev_load_beside(const uint64_t *from, uint64_t *before)
{
	uint64_t value;

	asm volatile("ld.acquire.sys.v2.u64 {%0, %1}, [%2];"
		     : "=l"(*before), "=l"(value)
		     : "l"(from - 1)
		     : "memory");
	return value;
}

HA_DEV uint64_t ha_dev_load_in_order_beside(const uint64_t *from, uint64_t *before)
{
	asm volatile("fence.sc.sys;" ::: "memory");
	return ha_dev_load_beside(from, before);
}

/* Nothing comes after it that is not ordered by something else. */
HA_DEV uint64_t ha_dev_load_relaxed(const uint64_t *from)
{
	uint64_t value;

	asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
	return value;
}

HA_DEV void ha_dev_store(uint64_t *to, uint64_t value)
{
	asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

HA_DEV void ha_dev_store32(volatile uint32_t *to, uint32_t value)
{
	asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

HA_DEV void ha_dev_store_doorbell(volatile uint64_t *to, uint64_t value)
{
	asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

HA_DEV uint64_t ha_dev_add(uint64_t *word, uint64_t addend)
{
	uint64_t before;

	asm volatile("atom.acq_rel.sys.add.u64 %0, [%1], %2;"
		     : "=l"(before)
		     : "l"(word), "l"(addend)
		     : "memory");
	return before;
}

HA_DEV void ha_dev_raise(uint64_t *word, uint64_t least)
{
	asm volatile("red.release.sys.max.u64 [%0], %1;" ::"l"(word), "l"(least) : "memory");
}

/* Returns what was there. */
HA_DEV uint64_t ha_dev_swap_if(uint64_t *word, uint64_t expected, uint64_t wanted)
{
	uint64_t before;

	asm volatile("atom.acq_rel.sys.cas.b64 %0, [%1], %2, %3;"
		     : "=l"(before)
		     : "l"(word), "l"(expected), "l"(wanted)
		     : "memory");
	return before;
}

/* What was stored before is visible before anything behind it is loaded. */
HA_DEV void ha_dev_fence(void)
{
	asm volatile("fence.sc.sys;" ::: "memory");
}

HA_DEV void ha_dev_pause(void)
{
	__nanosleep(100);
}

#else

HA_DEV uint8_t ha_dev_load8(const volatile uint8_t *from)
{
	return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

HA_DEV uint32_t ha_dev_load32(const volatile uint8_t *from)
{
	return __atomic_load_n((const volatile uint32_t *)(uintptr_t)from, __ATOMIC_ACQUIRE);
}

HA_DEV uint64_t ha_dev_load(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

HA_DEV uint64_t ha_dev_load_in_order(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}

HA_DEV uint64_t ha_dev_load_beside(const uint64_t *from, uint64_t *before)
{
	const uint64_t value = ha_dev_load(from);

	*before = ha_dev_load(from - 1);
	return value;
}

HA_DEV uint64_t ha_dev_load_in_order_beside(const uint64_t *from, uint64_t *before)
{
	const uint64_t value = ha_dev_load_in_order(from);

	*before = ha_dev_load(from - 1);
	return value;
}

HA_DEV uint64_t ha_dev_load_relaxed(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

HA_DEV void ha_dev_store(uint64_t *to, uint64_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
}

HA_DEV void ha_dev_store32(volatile uint32_t *to, uint32_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
}

HA_DEV void ha_dev_store_doorbell(volatile uint64_t *to, uint64_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
}

HA_DEV uint64_t ha_dev_add(uint64_t *word, uint64_t addend)
{
	return __atomic_fetch_add(word, addend, __ATOMIC_SEQ_CST);
}

HA_DEV uint64_t ha_dev_swap_if(uint64_t *word, uint64_t expected, uint64_t wanted)
{
	__atomic_compare_exchange_n(word, &expected, wanted, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return expected;
}

HA_DEV void ha_dev_raise(uint64_t *word, uint64_t least)
{
	uint64_t now = ha_dev_load(word);

	while (now < least) {
		const uint64_t before = ha_dev_swap_if(word, now, least);

		if (before == now)
			return;
		now = before;
	}
}

/* What was stored before is visible before anything behind it is loaded. */
HA_DEV void ha_dev_fence(void)
{
#ifdef __SANITIZE_THREAD__ /* which knows no fences; to the processor it is one */
	int word = 0;

	(void)__atomic_exchange_n(&word, 1, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* A program that runs these threads itself, one step at a time, has one of its own. */
#ifndef HA_DEV_PAUSE
#define HA_DEV_PAUSE() ((void)0)
#endif
HA_DEV void ha_dev_pause(void)
{
	HA_DEV_PAUSE();
}

#endif

/* Between any two stores or loads of a thread that others may see apart: nothing, but for a test
 * that lets others act there. */
#ifndef HA_DEV_STEP
#define HA_DEV_STEP(where) ((void)0)
#endif

#endif
