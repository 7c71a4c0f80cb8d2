/* SPDX-License-Identifier: Apache-2.0 */
/* Sources that come in any order give what they give all at once: the oracle's result. */
#include "../unit/cmocka_all.h"

#include "../seeded_random.h"
#include "oracle.h"
#include "samples.h"

#include "base/sha256.h"
#include "reduce/fold.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define COUNT  67 /* a step of the kernels, and a rest */
#define BYTES  (COUNT * HA_REDUCE_MAX_BYTES)
#define CANARY 0x5a

struct job {
	unsigned int type, op, n;
	enum ha_reduce_form to;
	uint32_t wide; /* bitmap of the sources that are partial results */
};

static uint8_t elements[HA_FOLD_SOURCES][BYTES]; /* as the application has them */
static uint8_t landed[HA_FOLD_SOURCES][BYTES];	 /* as they come */
static uint8_t scratch[HA_FOLD_SOURCES * BYTES], got[BYTES + 1], wanted[BYTES];

static const struct ha_reduction *reduction_of(const struct job *job)
{
	return ha_reduction_of(job->type, job->op);
}

static enum ha_reduce_form form_of(const struct job *job, unsigned int i)
{
	return job->wide >> i & 1 ? HA_REDUCE_WIDE : HA_REDUCE_WIRE;
}

static void sample(const struct job *job, uint64_t seed)
{
	const void *src[HA_FOLD_SOURCES];

	for (unsigned int i = 0; i < job->n; i++) {
		sample_elements(job->type, elements[i], COUNT, mix(seed) + i * 4099);
		src[i] = elements[i];
	}
	oracle_reduce(job->type, job->op, HA_REDUCE_WIRE, job->to, wanted, src, job->n, COUNT);
}

/* A source comes: its own buffer, as a message lands. */
static void come(struct ha_fold *fold, const struct job *job, unsigned int i)
{
	const void *one[] = {elements[i]};

	if (form_of(job, i) == HA_REDUCE_WIDE)
		ha_reduce(fold->reduction, HA_REDUCE_WIRE, HA_REDUCE_WIDE, landed[i], one, 1,
			  COUNT);
	else
		memcpy(landed[i], elements[i], BYTES);
	ha_fold_add(fold, i, landed[i], form_of(job, i));
}

static void shuffle(unsigned int *order, unsigned int n, uint64_t seed)
{
	for (unsigned int i = 0; i < n; i++)
		order[i] = i;
	for (unsigned int i = n - 1; i > 0; i--) {
		unsigned int other = (unsigned int)(mix(seed + i) % (i + 1)), kept = order[i];

		order[i] = order[other];
		order[other] = kept;
	}
}

/* One fold: sources in an order by chance, and between them, by chance, a look at what can be
 * computed. */
static void run(const struct job *job, uint64_t seed)
{
	const struct ha_reduction *reduction = reduction_of(job);
	size_t need = ha_fold_scratch_bytes(reduction, job->n, COUNT);
	size_t result = COUNT * ha_reduce_bytes(reduction, job->to);
	unsigned int order[HA_FOLD_SOURCES];
	struct ha_fold fold;

	assert_true(need < sizeof(scratch));
	memset(scratch, CANARY, sizeof(scratch));
	memset(got, CANARY, sizeof(got));
	shuffle(order, job->n, seed);
	ha_fold_begin(&fold, reduction, job->n, COUNT, scratch);
	for (unsigned int i = 0; i < job->n; i++) {
		assert_false(ha_fold_is_complete(&fold));
		come(&fold, job, order[i]);
		if (mix(seed ^ i) % 3 != 0)
			ha_fold_advance(&fold);
	}
	assert_true(ha_fold_is_complete(&fold));
	ha_fold_finish(&fold, got, job->to);
	if (memcmp(got, wanted, result) != 0 || got[result] != CANARY || scratch[need] != CANARY)
		fail_msg("%s %s of %u sources, partial ones %x, seed %llu: wrong",
			 type_names[job->type], op_names[job->op], job->n, job->wide,
			 (unsigned long long)seed);
}

#define EACH_REDUCTION(job)                                                                        \
	for ((job).type = 0; (job).type < HA_REDUCE_TYPES; (job).type++)                           \
		for ((job).op = 0; (job).op < HA_REDUCE_OPS; (job).op++)

static void any_order_gives_the_oracles_result(void **state)
{
	struct job job = {0};

	(void)state;
	EACH_REDUCTION(job)
	{
		for (job.n = 1; job.n <= HA_FOLD_SOURCES; job.n += job.n < 9 ? 1 : 23) {
			for (uint64_t seed = 0; seed < 8; seed++) {
				job.to = seed & 1 ? HA_REDUCE_WIDE : HA_REDUCE_WIRE;
				sample(&job, seed);
				run(&job, seed);
			}
		}
	}
}

/* Hosts and other switches below one switch. */
static void sources_may_be_elements_and_partial_results(void **state)
{
	struct job job = {0};

	(void)state;
	EACH_REDUCTION(job)
	{
		for (job.n = 2; job.n <= 9; job.n++) {
			sample(&job, job.n);
			for (uint64_t seed = 0; seed < 32; seed++) {
				job.wide = (uint32_t)mix(seed) & ((1u << job.n) - 1);
				run(&job, seed);
			}
		}
	}
}

/* Additions of fp32, which none but one tree gives: a thousand orders, one digest. */
static void a_thousand_orders_have_one_digest(void **state)
{
	struct job job = {HA_REDUCE_FP32, HA_REDUCE_SUM, 13, HA_REDUCE_WIRE, 0};
	uint8_t first[HA_SHA256_BYTES], digest[HA_SHA256_BYTES];

	(void)state;
	sample(&job, 99);
	for (uint64_t seed = 0; seed < 1000; seed++) {
		run(&job, seed);
		ha_sha256(got, COUNT * sizeof(float), seed ? digest : first);
		if (seed)
			assert_memory_equal(digest, first, sizeof(first));
	}
}

/* The sums of neighbours are there before the last source comes, in the place of the left one: what
 * is left is one addition per level of the tree. */
static void a_node_is_computed_as_soon_as_both_halves_are_there(void **state)
{
	struct job job = {HA_REDUCE_FP32, HA_REDUCE_SUM, 8, HA_REDUCE_WIRE, 0};
	struct ha_fold fold;
	float sums[8][COUNT];

	(void)state;
	sample(&job, 7);
	for (unsigned int i = 0; i < 8; i++)
		for (unsigned int k = 0; k < COUNT; k++)
			((float *)(void *)elements[i])[k] = (float)(1u << i);
	ha_fold_begin(&fold, reduction_of(&job), 8, COUNT, scratch);
	for (unsigned int i = 0; i < 7; i++) {
		come(&fold, &job, i);
		ha_fold_advance(&fold);
	}
	memcpy(sums[0], landed[0], sizeof(sums[0]));
	memcpy(sums[4], landed[4], sizeof(sums[4]));
	memcpy(sums[6], landed[6], sizeof(sums[6]));
	for (unsigned int k = 0; k < COUNT; k++) {
		assert_true(sums[0][k] == 15);
		assert_true(sums[4][k] == 48);
		assert_true(sums[6][k] == 64);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(any_order_gives_the_oracles_result),
	    cmocka_unit_test(sources_may_be_elements_and_partial_results),
	    cmocka_unit_test(a_thousand_orders_have_one_digest),
	    cmocka_unit_test(a_node_is_computed_as_soon_as_both_halves_are_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
