/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels, in vectors of HA_VECTOR_BYTES that the compiler makes instructions of. Included once
 * by each kernels_*.c, which names its table by HA_KERNEL_TABLE.
 *
 * A kernel is three functions: load (a vector of elements becomes what is reckoned with), an
 * operation between two of those, store. Loads of all sources come before the store, step by step,
 * so the destination may be a source.
 */
#include "reduce/kernels.h"

#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef uint8_t u8v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef uint16_t u16v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef uint32_t u32v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef uint64_t u64v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef int8_t i8v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef int16_t i16v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef int32_t i32v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef int64_t i64v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef float f32v __attribute__((vector_size(HA_VECTOR_BYTES)));
typedef double f64v __attribute__((vector_size(HA_VECTOR_BYTES)));
/* As many 16-bit elements as an f32v has, as many fp32 as an f64v. */
typedef uint16_t u16h __attribute__((vector_size(HA_VECTOR_BYTES / 2)));
typedef int16_t i16h __attribute__((vector_size(HA_VECTOR_BYTES / 2)));
typedef float f32h __attribute__((vector_size(HA_VECTOR_BYTES / 2)));

#define LANES(vector, element) (sizeof(vector) / sizeof(element))

/* Vectors of no particular alignment. */
#define MEMORY(vector)                                                                             \
	INLINE vector load_##vector(const char *at)                                                \
	{                                                                                          \
		vector x;                                                                          \
		memcpy(&x, at, sizeof(x));                                                         \
		return x;                                                                          \
	}                                                                                          \
	INLINE void store_##vector(char *at, vector x)                                             \
	{                                                                                          \
		memcpy(at, &x, sizeof(x));                                                         \
	}

MEMORY(u8v)
MEMORY(u32v)
MEMORY(u64v)
MEMORY(i8v)
MEMORY(i16v)
MEMORY(i32v)
MEMORY(i64v)
MEMORY(f32v)
MEMORY(f64v)
MEMORY(u16h)

/* ---- operations ----------------------------------------------------------------------------- */

/* Of unsigned vectors for signed integers, too: the same bits, and they wrap. */
#define ARITHMETIC(vector)                                                                         \
	INLINE vector sum_##vector(vector a, vector b)                                             \
	{                                                                                          \
		return a + b;                                                                      \
	}                                                                                          \
	INLINE vector prod_##vector(vector a, vector b)                                            \
	{                                                                                          \
		return a * b;                                                                      \
	}

#define ORDER(vector)                                                                              \
	INLINE vector max_##vector(vector a, vector b)                                             \
	{                                                                                          \
		vector first = (vector)(a > b);                                                    \
		return (a & first) | (b & ~first);                                                 \
	}                                                                                          \
	INLINE vector min_##vector(vector a, vector b)                                             \
	{                                                                                          \
		vector first = (vector)(a < b);                                                    \
		return (a & first) | (b & ~first);                                                 \
	}

ARITHMETIC(u8v)
ARITHMETIC(u32v)
ARITHMETIC(u64v)
ARITHMETIC(f32v)
ARITHMETIC(f64v)
ORDER(u8v)
ORDER(u32v)
ORDER(u64v)
ORDER(i8v)
ORDER(i16v)
ORDER(i32v)
ORDER(i64v)

/* ---- NaN ------------------------------------------------------------------------------------ */

/* Which of two NaNs an addition gives is left to the compiler, so a result has one for all. */
#define ONE_NAN(name, vector, integers, nan)                                                       \
	INLINE void store_##name(char *at, vector x)                                               \
	{                                                                                          \
		integers is_nan = x != x;                                                          \
		store_##integers(at, ((integers)x & ~is_nan) | ((nan)&is_nan));                    \
	}

ONE_NAN(fp32, f32v, i32v, 0x7fc00000)
ONE_NAN(fp64, f64v, i64v, 0x7ff8000000000000)

/* ---- the order of floats -------------------------------------------------------------------- */

/*
 * Maximum and minimum of floats are those of integers that have the same order: the bits, of
 * negative ones all but the sign turned over. A NaN becomes the integer that loses against all,
 * which turned back is a NaN. Nothing is rounded, and there is nothing slow about denormals.
 */
#define ORDERED(name, integers, magnitude, infinity, nan)                                          \
	INLINE integers turn_##name(integers bits)                                                 \
	{                                                                                          \
		return bits ^ ((bits < 0) & (magnitude));                                          \
	}                                                                                          \
	INLINE integers load_max_##name(const char *at)                                            \
	{                                                                                          \
		integers bits = load_##integers(at);                                               \
		integers is_nan = (bits & (magnitude)) > (infinity);                               \
		return (turn_##name(bits) & ~is_nan) | (~(magnitude)&is_nan);                      \
	}                                                                                          \
	INLINE integers load_min_##name(const char *at)                                            \
	{                                                                                          \
		integers bits = load_##integers(at);                                               \
		integers is_nan = (bits & (magnitude)) > (infinity);                               \
		return (turn_##name(bits) & ~is_nan) | ((magnitude)&is_nan);                       \
	}                                                                                          \
	INLINE void store_order_##name(char *at, integers key)                                     \
	{                                                                                          \
		integers bits = turn_##name(key);                                                  \
		integers is_nan = (bits & (magnitude)) > (infinity);                               \
		store_##integers(at, (bits & ~is_nan) | ((nan)&is_nan));                           \
	}

ORDERED(fp16, i16v, (int16_t)0x7fff, (int16_t)0x7c00, (int16_t)0x7e00)
ORDERED(bf16, i16v, (int16_t)0x7fff, (int16_t)0x7f80, (int16_t)0x7fc0)
ORDERED(fp32, i32v, 0x7fffffff, 0x7f800000, 0x7fc00000)
ORDERED(fp64, i64v, 0x7fffffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000)

/* ---- between widths ------------------------------------------------------------------------- */

/* What compilers make two instructions of, or many, where the CPU has one; all round to nearest
 * even. */
#if defined(__AVX512F__) && HA_VECTOR_BYTES == 64

INLINE u32v widen_u16(u16h x)
{
	return (u32v)_mm512_cvtepu16_epi32((__m256i)x);
}

INLINE f64v widen_f32(f32h x)
{
	return (f64v)_mm512_cvtps_pd((__m256)x);
}

INLINE f32v from_fp16(u16h x)
{
	return (f32v)_mm512_cvtph_ps((__m256i)x);
}

INLINE u16h to_fp16(f32v x)
{
	return (u16h)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
}

#elif defined(__AVX2__) && defined(__F16C__) && HA_VECTOR_BYTES == 32

INLINE u32v widen_u16(u16h x)
{
	return (u32v)_mm256_cvtepu16_epi32((__m128i)x);
}

INLINE f64v widen_f32(f32h x)
{
	return (f64v)_mm256_cvtps_pd((__m128)x);
}

INLINE f32v from_fp16(u16h x)
{
	return (f32v)_mm256_cvtph_ps((__m128i)x);
}

INLINE u16h to_fp16(f32v x)
{
	return (u16h)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
}

#else

#define FP32_POWER(e) ((uint32_t)(127 + (e)) << 23) /* the bits of 2^e */

INLINE u32v widen_u16(u16h x)
{
	return __builtin_convertvector(x, u32v);
}

INLINE f64v widen_f32(f32h x)
{
	return __builtin_convertvector(x, f64v);
}

/* The exponent is rebiased; that of infinity and NaN is the largest; denormals become normal
 * numbers. */
INLINE f32v from_fp16(u16h half)
{
	u32v x = widen_u16(half);
	u32v bits = (x & 0x7fff) << 13;
	u32v is_small = (u32v)(bits < (0x0400u << 13));
	u32v is_special = (u32v)(bits >= (0x7c00u << 13));
	u32v hidden = (bits & 0) + FP32_POWER(-14);
	u32v small = (u32v)((f32v)(bits + hidden) - (f32v)hidden);

	bits += (uint32_t)(127 - 15) << 23;
	bits += is_special & ((uint32_t)(128 - 16) << 23);
	bits = (bits & ~is_small) | (small & is_small);
	return (f32v)(bits | (x & 0x8000) << 16);
}

/* What is below the smallest normal number is rounded by adding a number whose last bit is fp16's
 * last one there. */
INLINE u16h to_fp16(f32v x)
{
	u32v sign = (u32v)x & 0x80000000u;
	u32v bits = (u32v)x ^ sign;
	u32v is_nan = (u32v)(bits > FP32_POWER(128));
	u32v is_large = (u32v)(bits >= FP32_POWER(16));
	u32v is_small = (u32v)(bits < FP32_POWER(-14));
	u32v last = (bits & 0) + FP32_POWER(-24 + 23);
	u32v small = (u32v)((f32v)bits + (f32v)last) - last;
	u32v normal = (bits - ((uint32_t)(127 - 15) << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
	u32v large = 0x7c00 | (is_nan & 0x0200);

	normal = (normal & ~is_small) | (small & is_small);
	normal = (normal & ~is_large) | (large & is_large);
	return __builtin_convertvector(normal | sign >> 16, u16h);
}

#endif

/* ---- 16-bit floats -------------------------------------------------------------------------- */

INLINE f32v load_bf16(const char *at)
{
	return (f32v)(widen_u16(load_u16h(at)) << 16);
}

/* To nearest even; a carry out of the fraction is a larger exponent, at last infinity. */
INLINE void store_bf16(char *at, f32v x)
{
	u32v bits = (u32v)x;
	u32v is_nan = (u32v)(x != x);
	u32v rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;

	store_u16h(at, __builtin_convertvector((rounded & ~is_nan) | (0x7fc0 & is_nan), u16h));
}

INLINE void store_one_nan_u16h(char *at, u16h x)
{
	u16h is_nan = (u16h)((x & 0x7fff) > 0x7c00);

	store_u16h(at, (x & ~is_nan) | (0x7e00 & is_nan));
}

INLINE f32v load_fp16(const char *at)
{
	return from_fp16(load_u16h(at));
}

INLINE void store_fp16(char *at, f32v x)
{
	store_one_nan_u16h(at, to_fp16(x));
}

/* Sums of fp16: as many fp64 as an f32v has elements. */
struct pair {
	f64v low, high;
};

INLINE struct pair load_pair_fp16(const char *at)
{
	f32v x = load_fp16(at);
	f32h half[2];

	memcpy(half, &x, sizeof(x));
	return (struct pair){widen_f32(half[0]), widen_f32(half[1])};
}

INLINE struct pair load_pair_fp64(const char *at)
{
	return (struct pair){load_f64v(at), load_f64v(at + sizeof(f64v))};
}

INLINE struct pair sum_pair(struct pair a, struct pair b)
{
	return (struct pair){a.low + b.low, a.high + b.high};
}

INLINE void store_pair_fp64(char *at, struct pair x)
{
	store_fp64(at, x.low);
	store_fp64(at + sizeof(f64v), x.high);
}

/*
 * To fp32 by cutting off, with the last bit set if anything was (rounding to odd): 24 bits are more
 * than two above the 11 of fp16, so rounding that to nearest gives what rounding at once would.
 */
INLINE f32h to_odd(f64v x)
{
	u64v bits = (u64v)x;
	u64v cut = (u64v)((bits & 0x1fffffff) != 0) & 0x20000000;

	return __builtin_convertvector((f64v)((bits & ~(uint64_t)0x1fffffff) | cut), f32h);
}

INLINE void store_pair_fp16(char *at, struct pair x)
{
	f32h half[2] = {to_odd(x.low), to_odd(x.high)};
	f32v both;

	memcpy(&both, half, sizeof(both));
	store_fp16(at, both);
}

/* ---- kernels -------------------------------------------------------------------------------- */

/* The fixed tree over sources k, k + 1, ... */
#define TREE_1(load, op, k) load(s[k] + in)
#define TREE_2(load, op, k) op(TREE_1(load, op, k), TREE_1(load, op, (k) + 1))
#define TREE_4(load, op, k) op(TREE_2(load, op, k), TREE_2(load, op, (k) + 2))
#define TREE_8(load, op, k) op(TREE_4(load, op, k), TREE_4(load, op, (k) + 4))

#define KERNEL(name, n, lanes, load, from_bytes, op, store, to_bytes)                              \
	static void name##_##n(void *dst, const void *const src[], size_t count)                   \
	{                                                                                          \
		const char *s[n];                                                                  \
		char *to = dst;                                                                    \
                                                                                                   \
		for (int k = 0; k < (n); k++)                                                      \
			s[k] = src[k];                                                             \
		for (size_t i = 0; i < count; i += (lanes)) {                                      \
			size_t in = i * (from_bytes);                                              \
                                                                                                   \
			store(to + i * (to_bytes), TREE_##n(load, op, 0));                         \
		}                                                                                  \
	}

#define KERNELS(name, lanes, load, from_bytes, op, store, to_bytes)                                \
	KERNEL(name, 1, lanes, load, from_bytes, op, store, to_bytes)                              \
	KERNEL(name, 2, lanes, load, from_bytes, op, store, to_bytes)                              \
	KERNEL(name, 4, lanes, load, from_bytes, op, store, to_bytes)                              \
	KERNEL(name, 8, lanes, load, from_bytes, op, store, to_bytes)

/* Where an element has one form. */
#define PLAIN(name, vector, element, op)                                                           \
	KERNELS(name, LANES(vector, element), load_##vector, sizeof(element), op, store_##vector,  \
		sizeof(element))
#define FLOAT(name, vector, element, op, store)                                                    \
	KERNELS(name, LANES(vector, element), load_##vector, sizeof(element), op, store,           \
		sizeof(element))
#define MAX_MIN(type, vector, element)                                                             \
	KERNELS(type##_max, LANES(vector, element), load_max_##type, sizeof(element),              \
		max_##vector, store_order_##type, sizeof(element))                                 \
	KERNELS(type##_min, LANES(vector, element), load_min_##type, sizeof(element),              \
		min_##vector, store_order_##type, sizeof(element))
/* From 16 bits to 16 bits, to a partial result, and from partial results. */
#define NARROW(name, lanes, load, load_wide, op, store, store_wide, wide)                          \
	KERNELS(name, lanes, load, sizeof(uint16_t), op, store, sizeof(uint16_t))                  \
	KERNELS(name##_widen, lanes, load, sizeof(uint16_t), op, store_wide, sizeof(wide))         \
	KERNELS(name##_narrow, lanes, load_wide, sizeof(wide), op, store, sizeof(uint16_t))

PLAIN(int8_sum, u8v, uint8_t, sum_u8v)
PLAIN(int8_prod, u8v, uint8_t, prod_u8v)
PLAIN(int8_max, i8v, int8_t, max_i8v)
PLAIN(int8_min, i8v, int8_t, min_i8v)
PLAIN(uint8_max, u8v, uint8_t, max_u8v)
PLAIN(uint8_min, u8v, uint8_t, min_u8v)
PLAIN(int32_sum, u32v, uint32_t, sum_u32v)
PLAIN(int32_prod, u32v, uint32_t, prod_u32v)
PLAIN(int32_max, i32v, int32_t, max_i32v)
PLAIN(int32_min, i32v, int32_t, min_i32v)
PLAIN(uint32_max, u32v, uint32_t, max_u32v)
PLAIN(uint32_min, u32v, uint32_t, min_u32v)
PLAIN(int64_sum, u64v, uint64_t, sum_u64v)
PLAIN(int64_prod, u64v, uint64_t, prod_u64v)
PLAIN(int64_max, i64v, int64_t, max_i64v)
PLAIN(int64_min, i64v, int64_t, min_i64v)
PLAIN(uint64_max, u64v, uint64_t, max_u64v)
PLAIN(uint64_min, u64v, uint64_t, min_u64v)
FLOAT(fp32_sum, f32v, float, sum_f32v, store_fp32)
FLOAT(fp32_prod, f32v, float, prod_f32v, store_fp32)
FLOAT(fp64_sum, f64v, double, sum_f64v, store_fp64)
FLOAT(fp64_prod, f64v, double, prod_f64v, store_fp64)
MAX_MIN(fp16, i16v, int16_t)
MAX_MIN(bf16, i16v, int16_t)
MAX_MIN(fp32, i32v, int32_t)
MAX_MIN(fp64, i64v, int64_t)
NARROW(bf16_sum, LANES(f32v, float), load_bf16, load_f32v, sum_f32v, store_bf16, store_fp32, float)
NARROW(bf16_prod, LANES(f32v, float), load_bf16, load_f32v, prod_f32v, store_bf16, store_fp32,
       float)
NARROW(fp16_prod, LANES(f32v, float), load_fp16, load_f32v, prod_f32v, store_fp16, store_fp32,
       float)
NARROW(fp16_sum, LANES(f32v, float), load_pair_fp16, load_pair_fp64, sum_pair, store_pair_fp16,
       store_pair_fp64, double)

/* ---- the table ------------------------------------------------------------------------------ */

/* clang-format off */
#define FUSED(name) {{name##_1, name##_2, name##_4, name##_8}}
#define SAME(name, size) \
	{{size, size}, {{FUSED(name), FUSED(name)}, {FUSED(name), FUSED(name)}}}
#define WIDER(name, size, wide, wide_size) \
	{{size, wide_size}, {{FUSED(name), FUSED(name##_widen)}, {FUSED(name##_narrow), FUSED(wide)}}}

const struct ha_kernel_table HA_KERNEL_TABLE = {{
	[HA_REDUCE_INT8] = {SAME(int8_sum, 1), SAME(int8_prod, 1),
			    SAME(int8_max, 1), SAME(int8_min, 1)},
	[HA_REDUCE_UINT8] = {SAME(int8_sum, 1), SAME(int8_prod, 1),
			     SAME(uint8_max, 1), SAME(uint8_min, 1)},
	[HA_REDUCE_INT32] = {SAME(int32_sum, 4), SAME(int32_prod, 4),
			     SAME(int32_max, 4), SAME(int32_min, 4)},
	[HA_REDUCE_UINT32] = {SAME(int32_sum, 4), SAME(int32_prod, 4),
			      SAME(uint32_max, 4), SAME(uint32_min, 4)},
	[HA_REDUCE_INT64] = {SAME(int64_sum, 8), SAME(int64_prod, 8),
			     SAME(int64_max, 8), SAME(int64_min, 8)},
	[HA_REDUCE_UINT64] = {SAME(int64_sum, 8), SAME(int64_prod, 8),
			      SAME(uint64_max, 8), SAME(uint64_min, 8)},
	[HA_REDUCE_FP16] = {WIDER(fp16_sum, 2, fp64_sum, 8), WIDER(fp16_prod, 2, fp32_prod, 4),
			    SAME(fp16_max, 2), SAME(fp16_min, 2)},
	[HA_REDUCE_FP32] = {SAME(fp32_sum, 4), SAME(fp32_prod, 4),
			    SAME(fp32_max, 4), SAME(fp32_min, 4)},
	[HA_REDUCE_FP64] = {SAME(fp64_sum, 8), SAME(fp64_prod, 8),
			    SAME(fp64_max, 8), SAME(fp64_min, 8)},
	[HA_REDUCE_BF16] = {WIDER(bf16_sum, 2, fp32_sum, 4), WIDER(bf16_prod, 2, fp32_prod, 4),
			    SAME(bf16_max, 2), SAME(bf16_min, 2)},
}};
/* clang-format on */
