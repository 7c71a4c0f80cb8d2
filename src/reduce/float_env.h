/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floating-point environment of the calling thread, which is the application's: a library that
 * was linked with -ffast-math has denormals flushed in every thread that is started afterwards, and
 * a debugger's friend has NaNs trap. Results must depend on neither.
 */
#ifndef HA_REDUCE_FLOAT_ENV_H
#define HA_REDUCE_FLOAT_ENV_H

#include <stdint.h>

#if defined(__x86_64__)

#define HA_FLOAT_DEFAULT                                                                           \
	0x1f80u /* MXCSR: nearest even, nothing flushed, every exception masked                    \
		 */
typedef uint32_t ha_float_env;

static inline void ha_float_restore(ha_float_env env)
{
	__asm__ volatile("ldmxcsr %0" : : "m"(env) : "memory");
}

static inline ha_float_env ha_float_enter(void)
{
	ha_float_env was;

	__asm__ volatile("stmxcsr %0" : "=m"(was) : : "memory");
	ha_float_restore(HA_FLOAT_DEFAULT);
	return was;
}

#elif defined(__aarch64__)

#define HA_FLOAT_DEFAULT 0u /* FPCR */
typedef uint64_t ha_float_env;

static inline void ha_float_restore(ha_float_env env)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(env) : "memory");
}

static inline ha_float_env ha_float_enter(void)
{
	ha_float_env was;

	__asm__ volatile("mrs %0, fpcr" : "=r"(was) : : "memory");
	ha_float_restore(HA_FLOAT_DEFAULT);
	return was;
}

#else /* The thread must be in the default environment: reduce.h says so. */

typedef int ha_float_env;

static inline void ha_float_restore(ha_float_env env)
{
	(void)env;
}

static inline ha_float_env ha_float_enter(void)
{
	return 0;
}

#endif
#endif
