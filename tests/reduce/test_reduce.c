/* SPDX-License-Identifier: Apache-2.0 */
/* src/reduce against its oracle: every type, operation, number of sources, form and level of the
 * CPU. */
#include "../unit/cmocka_all.h"

#include "oracle.h"
#include "samples.h"

#include "reduce/kernels.h"
#include "reduce/level.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_SOURCES 33
#define MOST	     3001 /* elements: blocks, steps and a rest */
#define ROOM	     (MOST * HA_REDUCE_MAX_BYTES + 256)
#define CANARY	     0xa5

/* Vectors of 64 bytes made of the instructions that any CPU has: what AVX-512 is compiled from,
 * where the CPU does not have it. */
extern const struct ha_kernel_table ha_kernels_64_bytes;

static uint8_t memory[MOST_SOURCES][ROOM], got[ROOM], wanted[ROOM];

/* Every way to compute a reduction that can be run here; `name` says which. */
#define WAYS (HA_REDUCE_LEVELS + 1)

static const struct ha_reduction *way(unsigned int i, unsigned int type, unsigned int op,
				      const char **name)
{
	static const char *const names[WAYS] = {"baseline", "avx2", "avx512", "64-byte vectors"};

	*name = names[i];
	if (i == HA_REDUCE_LEVELS)
		return &ha_kernels_64_bytes.of[type][op];
	return ha_reduction_at((enum ha_reduce_level)i, type, op);
}

/* ---- a case --------------------------------------------------------------------------------- */

struct job {
	unsigned int type, op;
	enum ha_reduce_form from, to;
	unsigned int n;
	size_t count;
};

/* Sources of a job: what the oracle makes of other elements, where partial results are wanted. */
static void make_sources(const struct job *job, uint64_t seed)
{
	static uint8_t elements[ROOM];
	const void *one[] = {elements};

	for (unsigned int k = 0; k < job->n; k++) {
		sample_elements(job->type, elements, job->count, seed + 1000003 * k);
		oracle_reduce(job->type, job->op, HA_REDUCE_WIRE, job->from, memory[k], one, 1,
			      job->count);
		if (job->from == HA_REDUCE_WIRE) /* with its NaNs */
			memcpy(memory[k], elements,
			       job->count * oracle_bytes(job->type, job->op, HA_REDUCE_WIRE));
	}
}

static void complain(const struct job *job, const char *name, size_t i, const char *what)
{
	fail_msg("%s %s of %u sources, %zu elements, form %d to %d, %s: element %zu %s",
		 type_names[job->type], op_names[job->op], job->n, job->count, (int)job->from,
		 (int)job->to, name, i, what);
}

/* `at` is what was given as the destination; around it nothing may have been written. */
static void compare(const struct job *job, const char *name, const uint8_t *at)
{
	size_t bytes = oracle_bytes(job->type, job->op, job->to);

	for (size_t i = 0; i < job->count; i++)
		if (memcmp(at + i * bytes, wanted + i * bytes, bytes) != 0)
			complain(job, name, i, "is wrong");
	for (size_t i = 0; i < 64; i++)
		if (at[job->count * bytes + i] != CANARY)
			complain(job, name, job->count, "was written behind the end");
}

/* Sources and destination `shift` bytes off, each source by another one. */
static void run_shifted(const struct job *job, const struct ha_reduction *reduction,
			const char *name, size_t shift)
{
	static uint8_t moved[MOST_SOURCES][ROOM];
	size_t bytes = oracle_bytes(job->type, job->op, job->from);
	const void *src[MOST_SOURCES];

	for (unsigned int k = 0; k < job->n; k++) {
		uint8_t *at = moved[k] + (shift ? (shift + k) % 64 : 0);

		memcpy(at, memory[k], job->count * bytes);
		src[k] = at;
	}
	memset(got, CANARY, sizeof(got));
	ha_reduce(reduction, job->from, job->to, got + shift, src, job->n, job->count);
	for (size_t i = 0; i < shift; i++)
		if (got[i] != CANARY)
			complain(job, name, 0, "was written before the beginning");
	compare(job, name, got + shift);
}

static void run_everywhere(const struct job *job)
{
	const void *src[MOST_SOURCES];
	const char *name;

	make_sources(job, job->n * 7919 + job->count);
	for (unsigned int k = 0; k < job->n; k++)
		src[k] = memory[k];
	oracle_reduce(job->type, job->op, job->from, job->to, wanted, src, job->n, job->count);
	for (unsigned int i = 0; i < WAYS; i++) {
		const struct ha_reduction *reduction = way(i, job->type, job->op, &name);

		if (!reduction)
			continue;
		for (size_t shift = 0; shift < 8; shift = 3 * shift + 1) /* 0, 1, 4 */
			run_shifted(job, reduction, name, shift);
	}
}

#define EACH_REDUCTION(job)                                                                        \
	for ((job).type = 0; (job).type < HA_REDUCE_TYPES; (job).type++)                           \
		for ((job).op = 0; (job).op < HA_REDUCE_OPS; (job).op++)

/* ---- tests ---------------------------------------------------------------------------------- */

static void every_type_operation_and_number_of_sources_is_the_oracles(void **state)
{
	static const unsigned int numbers[] = {1, 2, 3, 4, 5, 7, 8, 11, 16, MOST_SOURCES};
	static const size_t counts[] = {0, 1, 7, 64, 1023};
	struct job job = {.from = HA_REDUCE_WIRE, .to = HA_REDUCE_WIRE};

	(void)state;
	EACH_REDUCTION(job)
	{
		for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
			job.n = numbers[n];
			for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
				job.count = counts[c];
				run_everywhere(&job);
			}
		}
		job.n = 5;
		job.count = MOST;
		run_everywhere(&job);
	}
}

static void partial_results_are_the_oracles(void **state)
{
	struct job job = {.count = 259};

	(void)state;
	EACH_REDUCTION(job)
	{
		for (int forms = 0; forms < 4; forms++) {
			job.from = forms & 1 ? HA_REDUCE_WIDE : HA_REDUCE_WIRE;
			job.to = forms & 2 ? HA_REDUCE_WIDE : HA_REDUCE_WIRE;
			for (job.n = 1; job.n <= 9; job.n++)
				run_everywhere(&job);
		}
	}
}

/* Two switches of four members each below a third one give what one switch of eight gives. */
static void halves_of_the_tree_make_the_whole(void **state)
{
	static uint8_t half[2][ROOM];
	const void *src[8], *halves[2] = {half[0], half[1]};
	struct job job = {.n = 8, .count = 777};
	const char *name;

	(void)state;
	EACH_REDUCTION(job)
	{
		make_sources(&job, 1);
		for (unsigned int k = 0; k < 8; k++)
			src[k] = memory[k];
		for (unsigned int i = 0; i < WAYS; i++) {
			const struct ha_reduction *r = way(i, job.type, job.op, &name);

			if (!r)
				continue;
			ha_reduce(r, HA_REDUCE_WIRE, HA_REDUCE_WIRE, wanted, src, 8, job.count);
			ha_reduce(r, HA_REDUCE_WIRE, HA_REDUCE_WIDE, half[0], src, 4, job.count);
			ha_reduce(r, HA_REDUCE_WIRE, HA_REDUCE_WIDE, half[1], src + 4, 4,
				  job.count);
			memset(got, CANARY, sizeof(got));
			ha_reduce(r, HA_REDUCE_WIDE, HA_REDUCE_WIRE, got, halves, 2, job.count);
			compare(&job, name, got);
		}
	}
}

static void the_destination_may_be_any_source(void **state)
{
	static const unsigned int numbers[] = {1, 3, 6, 8, 13};
	const void *src[MOST_SOURCES];
	struct job job = {.count = 331};
	const char *name;

	(void)state;
	EACH_REDUCTION(job)
	{
		for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) * WAYS; i++) {
			const struct ha_reduction *r = way(i % WAYS, job.type, job.op, &name);

			job.n = numbers[i / WAYS];
			for (unsigned int k = 0; r && k < job.n; k++) {
				make_sources(&job, k);
				for (unsigned int s = 0; s < job.n; s++)
					src[s] = memory[s];
				ha_reduce(r, job.from, job.to, wanted, src, job.n, job.count);
				memset(memory[k] + job.count * ha_reduce_bytes(r, job.to), CANARY,
				       64);
				ha_reduce(r, job.from, job.to, memory[k], src, job.n, job.count);
				compare(&job, name, memory[k]);
			}
		}
	}
}

/* ---- rounding ------------------------------------------------------------------------------- */

/* The closest partial results on either side of x: of sums of fp16 multiples of 2^-24 (of the
 * smallest numbers there is none between), else the neighbours in fp32. */
static double beside(unsigned int type, unsigned int op, double x, double direction)
{
	if (type == HA_REDUCE_FP16 && op == HA_REDUCE_SUM)
		return x + copysign(ldexp(1, -24), direction);
	return (double)nextafterf((float)x, (float)direction);
}

/* What lies between a number and the next: its value, the middle, both sides of the middle. */
static size_t between(unsigned int type, unsigned int op, unsigned int bits, double x[4])
{
	unsigned int infinity = type == HA_REDUCE_FP16 ? 0x7c00 : 0x7f80;
	double low = oracle_value(type, bits);
	double high = bits + 1 < infinity ? oracle_value(type, bits + 1)
					  : 2 * low - oracle_value(type, bits - 1);
	double middle = low + (high - low) / 2;

	x[0] = low;
	if (type == HA_REDUCE_FP16 && op == HA_REDUCE_SUM && high - low == ldexp(1, -24))
		return 1;
	x[1] = middle;
	x[2] = beside(type, op, middle, -(double)INFINITY);
	x[3] = beside(type, op, middle, (double)INFINITY);
	return 4;
}

static void compare_rounding(struct job *job)
{
	const void *src[1] = {memory[0]};
	const char *name;

	oracle_reduce(job->type, job->op, job->from, job->to, wanted, src, 1, job->count);
	for (unsigned int i = 0; i < WAYS; i++) {
		const struct ha_reduction *r = way(i, job->type, job->op, &name);

		if (!r)
			continue;
		memset(got, CANARY, sizeof(got));
		ha_reduce(r, job->from, job->to, got, src, 1, job->count);
		compare(job, name, got);
	}
	job->count = 0;
}

/* Partial results on their way to a 16-bit type, around every number that it has. */
static void rounding_case(unsigned int type, unsigned int op, double sign)
{
	struct job job = {type, op, HA_REDUCE_WIDE, HA_REDUCE_WIRE, 1, 0};
	unsigned int infinity = type == HA_REDUCE_FP16 ? 0x7c00 : 0x7f80;
	size_t bytes = oracle_bytes(type, op, HA_REDUCE_WIDE);

	for (unsigned int bits = 0; bits < infinity; bits++) {
		double x[4];
		size_t n = between(type, op, bits, x);

		for (size_t i = 0; i < n; i++, job.count++) {
			double real = sign * x[i];
			float single = (float)real;

			memcpy(memory[0] + job.count * bytes,
			       bytes == sizeof(single) ? (void *)&single : (void *)&real, bytes);
		}
		if (job.count + 4 > MOST)
			compare_rounding(&job);
	}
	compare_rounding(&job);
}

static void sixteen_bit_floats_are_rounded_to_nearest_even(void **state)
{
	(void)state;
	for (double sign = -1; sign <= 1; sign += 2) {
		rounding_case(HA_REDUCE_FP16, HA_REDUCE_SUM, sign);
		rounding_case(HA_REDUCE_FP16, HA_REDUCE_PROD, sign);
		rounding_case(HA_REDUCE_BF16, HA_REDUCE_SUM, sign);
		rounding_case(HA_REDUCE_BF16, HA_REDUCE_PROD, sign);
	}
}

static void expect_16(unsigned int type, unsigned int op, const uint16_t *from, unsigned int n,
		      uint16_t result)
{
	const void *src[MOST_SOURCES];
	const char *name;
	uint16_t x;

	for (unsigned int k = 0; k < n; k++)
		src[k] = &from[k];
	for (unsigned int i = 0; i < WAYS; i++) {
		const struct ha_reduction *r = way(i, type, op, &name);

		if (!r)
			continue;
		ha_reduce(r, HA_REDUCE_WIRE, HA_REDUCE_WIRE, &x, src, n, 1);
		if (x != result)
			fail_msg("%s %s, %s: %04x, not %04x", type_names[type], op_names[op], name,
				 x, result);
	}
}

/* Each addition alone would be a tie that goes down to 2048 (fp16) or 256 (bf16). */
static void sums_are_rounded_once(void **state)
{
	static const uint16_t fp16[] = {0x6800, 0x3c00, 0x3c00, 0x3c00}; /* 2048, 1, 1, 1 */
	static const uint16_t bf16[] = {0x4380, 0x3f80, 0x3f80, 0x3f80}; /* 256, 1, 1, 1 */

	(void)state;
	expect_16(HA_REDUCE_FP16, HA_REDUCE_SUM, fp16, 3, 0x6801); /* 2050 */
	expect_16(HA_REDUCE_FP16, HA_REDUCE_SUM, fp16, 4, 0x6802); /* 2051: a tie, to 2052 */
	expect_16(HA_REDUCE_BF16, HA_REDUCE_SUM, bf16, 3, 0x4381); /* 258 */
	expect_16(HA_REDUCE_BF16, HA_REDUCE_SUM, bf16, 4, 0x4382); /* 259: a tie, to 260 */
}

/* Whatever the order: 65504 - 65504 + 2^-24 has no bit in common with its parts. */
static void sums_of_fp16_are_exact_in_any_order(void **state)
{
	static const uint16_t orders[][4] = {{0x7bff, 0xfbff, 0x0001, 0x8000},
					     {0x7bff, 0x0001, 0xfbff, 0x8000},
					     {0x0001, 0x7bff, 0x8000, 0xfbff}};

	(void)state;
	for (size_t i = 0; i < 3; i++)
		expect_16(HA_REDUCE_FP16, HA_REDUCE_SUM, orders[i], 4, 0x0001);
}

/* ---- numbers that are not ------------------------------------------------------------------- */

static void expect_fp32(unsigned int op, uint32_t a, uint32_t b, uint32_t result)
{
	const void *src[] = {&a, &b};
	const char *name;
	uint32_t x;

	for (unsigned int i = 0; i < WAYS; i++) {
		const struct ha_reduction *r = way(i, HA_REDUCE_FP32, op, &name);

		if (!r)
			continue;
		ha_reduce(r, HA_REDUCE_WIRE, HA_REDUCE_WIRE, &x, src, 2, 1);
		if (x != result)
			fail_msg("%s of %08x and %08x, %s: %08x, not %08x", op_names[op], a, b,
				 name, x, result);
	}
}

static void nan_loses_and_minus_zero_is_less(void **state)
{
	static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0xffffffff};
	static const uint32_t numbers[] = {0, 0x80000000, 1, 0x80000001, 0x7f800000, 0xff800000};

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		for (size_t k = 0; k < 6; k++) {
			for (unsigned int op = HA_REDUCE_MAX; op <= HA_REDUCE_MIN; op++) {
				expect_fp32(op, nans[i], numbers[k], numbers[k]);
				expect_fp32(op, numbers[k], nans[i], numbers[k]);
			}
			expect_fp32(HA_REDUCE_SUM, nans[i], numbers[k], 0x7fc00000);
			expect_fp32(HA_REDUCE_PROD, numbers[k], nans[i], 0x7fc00000);
		}
		for (unsigned int op = 0; op < HA_REDUCE_OPS; op++)
			expect_fp32(op, nans[i], nans[4 - i], 0x7fc00000);
	}
	expect_fp32(HA_REDUCE_SUM, 0x7f800000, 0xff800000, 0x7fc00000);
	for (unsigned int swap = 0; swap < 2; swap++) {
		uint32_t zero = swap ? 0x80000000 : 0;

		expect_fp32(HA_REDUCE_MAX, zero, zero ^ 0x80000000, 0);
		expect_fp32(HA_REDUCE_MIN, zero, zero ^ 0x80000000, 0x80000000);
		expect_fp32(HA_REDUCE_SUM, zero, zero ^ 0x80000000, 0);
	}
}

static void integers_wrap(void **state)
{
	int64_t a = INT64_MAX, b = 1, sum, prod;
	int8_t c = -128, d = -1, small;
	const void *large_src[] = {&a, &b}, *squares[] = {&a, &a}, *small_src[] = {&c, &d};
	const char *name;

	(void)state;
	for (unsigned int i = 0; i < WAYS; i++) {
		if (!way(i, 0, 0, &name))
			continue;
		ha_reduce(way(i, HA_REDUCE_INT64, HA_REDUCE_SUM, &name), 0, 0, &sum, large_src, 2,
			  1);
		ha_reduce(way(i, HA_REDUCE_INT64, HA_REDUCE_PROD, &name), 0, 0, &prod, squares, 2,
			  1);
		assert_true(sum == INT64_MIN && prod == 1);
		ha_reduce(way(i, HA_REDUCE_INT8, HA_REDUCE_SUM, &name), 0, 0, &small, small_src, 2,
			  1);
		assert_int_equal(small, 127);
		ha_reduce(way(i, HA_REDUCE_INT8, HA_REDUCE_PROD, &name), 0, 0, &small, small_src, 2,
			  1);
		assert_int_equal(small, -128);
	}
}

/* ---- where it runs -------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define HOSTILE (0x8040 | 0x4000) /* denormals flushed, rounding up, every exception a trap */

static uint64_t swap_float_mode(uint64_t to)
{
	uint32_t was, mxcsr = (uint32_t)to;

	__asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=&m"(was) : "m"(mxcsr) : "memory");
	return was;
}
#elif defined(__aarch64__)
#define HOSTILE (1 << 24 | 1 << 22) /* denormals flushed, rounding up */

static uint64_t swap_float_mode(uint64_t to)
{
	uint64_t was;

	__asm__ volatile("mrs %0, fpcr\n\tmsr fpcr, %1" : "=&r"(was) : "r"(to) : "memory");
	return was;
}
#endif

#ifdef HOSTILE
static void what_the_thread_has_set_changes_nothing(void **state)
{
	const void *src[MOST_SOURCES];
	struct job job = {.n = 5, .count = 500};
	const char *name;

	(void)state;
	EACH_REDUCTION(job)
	{
		make_sources(&job, 5);
		for (unsigned int k = 0; k < job.n; k++)
			src[k] = memory[k];
		oracle_reduce(job.type, job.op, job.from, job.to, wanted, src, job.n, job.count);
		for (unsigned int i = 0; i < WAYS; i++) {
			const struct ha_reduction *r = way(i, job.type, job.op, &name);
			uint64_t was, after;

			if (!r)
				continue;
			memset(got, CANARY, sizeof(got));
			was = swap_float_mode(HOSTILE);
			ha_reduce(r, job.from, job.to, got, src, job.n, job.count);
			after = swap_float_mode(was);
			compare(&job, name, got);
			assert_int_equal(after, HOSTILE);
		}
	}
}
#endif

static void a_level_needs_its_instructions_and_its_registers(void **state)
{
	const uint32_t avx_f16c = 3u << 28, avx2 = 1u << 5;
	const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
	const uint64_t saved_16 = 3, saved_32 = 7, saved_64 = 0xe7; /* bytes of each register */
	const struct {
		struct ha_cpuid cpu;
		enum ha_reduce_level level;
	} cases[] = {
	    {{0, 0, 0}, HA_REDUCE_BASELINE},
	    {{avx_f16c, avx2, saved_32}, HA_REDUCE_AVX2},
	    {{avx_f16c, avx2, saved_16}, HA_REDUCE_BASELINE},
	    {{1u << 28, avx2, saved_32}, HA_REDUCE_BASELINE}, /* no F16C */
	    {{1u << 29, avx2, saved_32}, HA_REDUCE_BASELINE}, /* no AVX */
	    {{avx_f16c, 0, saved_32}, HA_REDUCE_BASELINE},
	    {{avx_f16c, avx2 | avx512, saved_64}, HA_REDUCE_AVX512},
	    {{avx_f16c, avx2 | avx512, saved_32}, HA_REDUCE_AVX2},
	    {{avx_f16c, avx2 | avx512, 0x67}, HA_REDUCE_AVX2}, /* the lower half of them */
	    {{avx_f16c, avx2 | (avx512 & ~(1u << 30)), saved_64}, HA_REDUCE_AVX2}, /* no BW */
	    {{avx_f16c, avx2 | (avx512 & ~(1u << 31)), saved_64}, HA_REDUCE_AVX2}, /* no VL */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(ha_level_of(&cases[i].cpu), cases[i].level);
}

static void what_is_not_supported_is_null(void **state)
{
	(void)state;
	for (unsigned int op = 0; op < HA_REDUCE_OPS; op++) {
		assert_non_null(ha_reduction_of(HA_REDUCE_BF16, op));
		assert_null(ha_reduction_of(10, op)); /* NCCL's fp8, e4m3 and e5m2 */
		assert_null(ha_reduction_of(11, op));
	}
	assert_null(ha_reduction_of(HA_REDUCE_INT8, 4)); /* NCCL's average */
	assert_non_null(ha_reduction_at(HA_REDUCE_BASELINE, 0, 0));
	for (int level = HA_REDUCE_BASELINE; level < HA_REDUCE_LEVELS; level++)
		assert_int_equal(!ha_reduction_at((enum ha_reduce_level)level, 0, 0),
				 level > (int)ha_level_here());
	printf("levels of this CPU: 0 to %d\n", (int)ha_level_here());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_type_operation_and_number_of_sources_is_the_oracles),
	    cmocka_unit_test(partial_results_are_the_oracles),
	    cmocka_unit_test(halves_of_the_tree_make_the_whole),
	    cmocka_unit_test(the_destination_may_be_any_source),
	    cmocka_unit_test(sixteen_bit_floats_are_rounded_to_nearest_even),
	    cmocka_unit_test(sums_are_rounded_once),
	    cmocka_unit_test(sums_of_fp16_are_exact_in_any_order),
	    cmocka_unit_test(nan_loses_and_minus_zero_is_less),
	    cmocka_unit_test(integers_wrap),
#ifdef HOSTILE
	    cmocka_unit_test(what_the_thread_has_set_changes_nothing),
#endif
	    cmocka_unit_test(a_level_needs_its_instructions_and_its_registers),
	    cmocka_unit_test(what_is_not_supported_is_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
