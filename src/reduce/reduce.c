/* SPDX-License-Identifier: Apache-2.0 */
/* Any number of sources and elements, by kernels that take a few sources and whole steps. */
#include "reduce/reduce.h"

#include "reduce/float_env.h"
#include "reduce/kernels.h"
#include "reduce/level.h"

#include <stdbool.h>
#include <string.h>

#define BLOCK		 256 /* elements whose partial results stay in the innermost cache */
#define CACHE_LINE_BYTES 64

const struct ha_reduction *ha_reduction_at(enum ha_reduce_level level, unsigned int type,
					   unsigned int op)
{
	static const struct ha_kernel_table *const tables[HA_REDUCE_LEVELS] = {
	    [HA_REDUCE_BASELINE] = &ha_kernels_baseline,
#ifdef HA_REDUCE_X86
	    [HA_REDUCE_AVX2] = &ha_kernels_avx2,
	    [HA_REDUCE_AVX512] = &ha_kernels_avx512,
#endif
	};

	if (level > ha_level_here() || type >= HA_REDUCE_TYPES || op >= HA_REDUCE_OPS)
		return NULL;
	return &tables[level]->of[type][op];
}

const struct ha_reduction *ha_reduction_of(unsigned int type, unsigned int op)
{
	return ha_reduction_at(ha_level_here(), type, op);
}

size_t ha_reduce_bytes(const struct ha_reduction *reduction, enum ha_reduce_form form)
{
	return reduction->bytes[form];
}

/* What is done to a piece: forms and the sizes of their elements. */
struct step {
	const struct ha_reduction *reduction;
	enum ha_reduce_form from, to;
};

static ha_kernel kernel_of(const struct step *step, unsigned int n)
{
	return step->reduction->kernels[step->from][step->to].fused[__builtin_ctz(n)];
}

/* Fewer elements than a step, by way of memory that has room for one. */
static void odd_rest(const struct step *step, char *dst, const void *const src[], unsigned int n,
		     size_t count)
{
	_Alignas(CACHE_LINE_BYTES) char in[HA_KERNEL_SOURCES][HA_KERNEL_STEP * HA_REDUCE_MAX_BYTES];
	_Alignas(CACHE_LINE_BYTES) char out[HA_KERNEL_STEP * HA_REDUCE_MAX_BYTES];
	const void *padded[HA_KERNEL_SOURCES];
	size_t size = step->reduction->bytes[step->from];

	for (unsigned int k = 0; k < n; k++) {
		memcpy(in[k], src[k], count * size);
		memset(in[k] + count * size, 0, (HA_KERNEL_STEP - count) * size);
		padded[k] = in[k];
	}
	kernel_of(step, n)(out, padded, HA_KERNEL_STEP);
	memcpy(dst, out, count * step->reduction->bytes[step->to]);
}

/* Of 1, 2, 4 or 8 sources, from element `at` on; `dst` is where the result of that one goes. */
static void fused(const struct step *step, char *dst, const void *const src[], unsigned int n,
		  size_t at, size_t count)
{
	const void *s[HA_KERNEL_SOURCES] = {NULL};
	size_t in = step->reduction->bytes[step->from];
	size_t whole = count / HA_KERNEL_STEP * HA_KERNEL_STEP;

	for (unsigned int k = 0; k < n; k++)
		s[k] = (const char *)src[k] + at * in;
	kernel_of(step, n)(dst, s, whole);
	if (whole == count)
		return;
	for (unsigned int k = 0; k < n; k++)
		s[k] = (const char *)s[k] + whole * in;
	odd_rest(step, dst + whole * step->reduction->bytes[step->to], s, n, count - whole);
}

static bool is_fused(unsigned int n)
{
	return n <= HA_KERNEL_SOURCES && (n & (n - 1)) == 0;
}

/* The largest power of two below n: what a node over n > 1 leaves has on its left. */
static unsigned int left_of(unsigned int n)
{
	return 1u << (31 - __builtin_clz(n - 1));
}

static void node(const struct step *step, char *dst, const void *const src[], unsigned int n,
		 size_t at, size_t count);

/* The partial result of a node for one block of elements: in `room`, unless it lies somewhere
 * already. */
static const void *half_of(const struct step *step, char *room, const void *const src[],
			   unsigned int n, size_t at, size_t count)
{
	const struct step below = {step->reduction, step->from, HA_REDUCE_WIDE};
	size_t in = step->reduction->bytes[step->from];

	if (n == 1 && in == step->reduction->bytes[HA_REDUCE_WIDE])
		return (const char *)src[0] + at * in;
	node(&below, room, src, n, at, count);
	return room;
}

/* A node of the tree for one block of elements, or for all if it takes no room of its own. */
static void node(const struct step *step, char *dst, const void *const src[], unsigned int n,
		 size_t at, size_t count)
{
	_Alignas(CACHE_LINE_BYTES) char room[2][BLOCK * HA_REDUCE_MAX_BYTES];
	const struct step above = {step->reduction, HA_REDUCE_WIDE, step->to};
	const void *half[2];
	unsigned int left;

	if (is_fused(n)) {
		fused(step, dst, src, n, at, count);
		return;
	}
	left = left_of(n);
	half[0] = half_of(step, room[0], src, left, at, count);
	half[1] = half_of(step, room[1], src + left, n - left, at, count);
	fused(&above, dst, half, 2, 0, count);
}

void ha_reduce(const struct ha_reduction *reduction, enum ha_reduce_form from,
	       enum ha_reduce_form to, void *dst, const void *const src[], unsigned int n,
	       size_t count)
{
	const struct step step = {reduction, from, to};
	size_t piece = is_fused(n) ? count : BLOCK;
	ha_float_env env = ha_float_enter();

	for (size_t at = 0; at < count; at += piece) {
		size_t rest = count - at;

		node(&step, (char *)dst + at * reduction->bytes[to], src, n, at,
		     rest < piece ? rest : piece);
	}
	ha_float_restore(env);
}
