/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GB of sources that one core reduces in a second, of 8 sources of 64 KiB that lie in its second
 * cache together with the result; beside it the loop that everybody writes, in turn, and odd data.
 * Of each the best round counts, whatever else the machine does. `--json FILE` keeps the figures.
 *
 * Fails where a CPU that has AVX2 misses one of the marks below. Products that get too small for a
 * normal number are slow in the hardware, and have no mark: flushing them would change results.
 */
#include "naive.h"
#include "samples.h"

#include "reduce/fold.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SOURCES	    8
#define UNIT_BYTES  65536
#define ROUNDS	    40
#define MOST_ROUNDS 400 /* where something else may have had the processor at the wrong moments */
#define IN_A_ROW    6	/* units that are measured as one */

#define MIN_FP32_GBPS	12.0
#define MIN_BF16_GBPS	8.0
#define MIN_INT8_GBPS	12.0
#define MIN_TIMES_NAIVE 4.0
#define MAX_ODD_RATIO	1.1 /* denormals, NaNs, and whatever old memory holds */

static _Alignas(64) uint8_t sources[SOURCES][UNIT_BYTES], result[UNIT_BYTES];
static uint8_t scratch[SOURCES / 2 * UNIT_BYTES * HA_REDUCE_MAX_BYTES / 2];
static FILE *json;
static const char *before = "{";
static bool missed;

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- what is measured ------------------------------------------------------------------------ */

enum data { ORDINARY, DENORMAL, NANS, OLD };

struct work {
	const struct ha_reduction *reduction;
	naive_sum *naive; /* if not NULL, instead */
	bool one_by_one;  /* sources come one after the other */
	size_t count;
};

static void fill(unsigned int type, enum data data)
{
	static const uint32_t fp32[] = {0x3f800000, 0x00012345, 0x7fc00000, 0x33333333};
	static const uint16_t bf16[] = {0x3f80, 0x0012, 0x7fc0, 0x3333};
	static const uint16_t fp16[] = {0x3c00, 0x0123, 0x7e00, 0x3333};

	for (int k = 0; k < SOURCES; k++)
		for (size_t i = 0; i < UNIT_BYTES; i += 4) {
			uint32_t x = fp32[data];

			if (type == HA_REDUCE_BF16 || type == HA_REDUCE_FP16) {
				uint16_t half = type == HA_REDUCE_BF16 ? bf16[data] : fp16[data];

				x = (uint32_t)half << 16 | half;
			} else if (type == HA_REDUCE_FP64 && data == DENORMAL && i % 8) {
				x &= 0xfffff;
			}
			memcpy(&sources[k][i], &x, sizeof(x));
		}
}

static void do_fold(const struct work *work)
{
	struct ha_fold fold;

	ha_fold_begin(&fold, work->reduction, SOURCES, work->count, scratch);
	for (unsigned int k = 0; k < SOURCES; k++) {
		ha_fold_add(&fold, k, sources[k], HA_REDUCE_WIRE);
		ha_fold_advance(&fold);
	}
	ha_fold_finish(&fold, result, HA_REDUCE_WIRE);
}

static void do_once(const struct work *work)
{
	const void *src[SOURCES];

	for (int k = 0; k < SOURCES; k++)
		src[k] = sources[k];
	if (work->naive)
		work->naive(result, src, SOURCES, work->count);
	else if (work->one_by_one)
		do_fold(work);
	else
		ha_reduce(work->reduction, HA_REDUCE_WIRE, HA_REDUCE_WIRE, result, src, SOURCES,
			  work->count);
}

static double best(double so_far, const struct work *work)
{
	double began = now_s(), gbps;

	for (int i = 0; i < IN_A_ROW; i++)
		do_once(work);
	gbps = IN_A_ROW * (double)SOURCES * UNIT_BYTES / (now_s() - began) / 1e9;
	return gbps > so_far ? gbps : so_far;
}

/* Several ways in turn, so that what disturbs one disturbs all. */
static void measure(const struct work *work, double *gbps, size_t n)
{
	for (size_t i = 0; i < n; i++)
		gbps[i] = 0;
	for (int round = 0; round < ROUNDS; round++)
		for (size_t i = 0; i < n; i++)
			gbps[i] = best(gbps[i], &work[i]);
}

static struct work plain(enum ha_reduce_level level, unsigned int type, unsigned int op)
{
	struct work work = {.reduction = ha_reduction_at(level, type, op)};

	if (work.reduction)
		work.count = UNIT_BYTES / ha_reduce_bytes(work.reduction, HA_REDUCE_WIRE);
	return work;
}

static enum ha_reduce_level best_level(void)
{
	int level = HA_REDUCE_LEVELS - 1;

	while (!ha_reduction_at((enum ha_reduce_level)level, 0, 0))
		level--;
	return (enum ha_reduce_level)level;
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void keep(const char *name, double value)
{
	if (!json)
		return;
	fprintf(json, "%s\n  \"%s\": %.3f", before, name, value);
	before = ",";
}

static void mark(const char *name, double value, double limit, bool at_most)
{
	bool holds = at_most ? value <= limit : value >= limit;

	if (best_level() == HA_REDUCE_BASELINE) { /* the marks are of AVX2 */
		printf("  %-34s %6.2f\n", name, value);
		return;
	}
	printf("  %-34s %6.2f  %s %.2f  %s\n", name, value, at_most ? "at most " : "at least",
	       limit, holds ? "holds" : "MISSED");
	missed = missed || !holds;
}

static void every_kernel(void)
{
	static const char *const level_names[HA_REDUCE_LEVELS] = {"baseline", "avx2", "avx512"};

	printf("GB/s of input, one core, 8 sources of 64 KiB\n%-14s", "");
	for (int level = 0; level <= (int)best_level(); level++)
		printf("%10s", level_names[level]);
	printf("%12s\n", "one by one");
	for (unsigned int type = 0; type < HA_REDUCE_TYPES; type++)
		for (unsigned int op = 0; op < HA_REDUCE_OPS; op++) {
			struct work work[HA_REDUCE_LEVELS + 1];
			double gbps[HA_REDUCE_LEVELS + 1];
			size_t n = (size_t)best_level() + 1;
			char name[64];

			for (size_t i = 0; i < n; i++)
				work[i] = plain((enum ha_reduce_level)i, type, op);
			work[n] = work[n - 1];
			work[n].one_by_one = true;
			fill(type, ORDINARY);
			measure(work, gbps, n + 1);
			printf("%-7s %-6s", type_names[type], op_names[op]);
			for (size_t i = 0; i < n; i++) {
				snprintf(name, sizeof(name), "%s_%s_%s_gbps", type_names[type],
					 op_names[op], level_names[i]);
				keep(name, gbps[i]);
				printf("%10.1f", gbps[i]);
			}
			snprintf(name, sizeof(name), "%s_%s_one_by_one_gbps", type_names[type],
				 op_names[op]);
			keep(name, gbps[n]);
			printf("%12.1f\n", gbps[n]);
		}
}

static void against_naive(unsigned int type, naive_sum *scalar, naive_sum *vector, double min_gbps)
{
	struct work work[3] = {plain(best_level(), type, HA_REDUCE_SUM)};
	size_t n = vector && best_level() >= HA_REDUCE_AVX2 ? 3 : 2;
	double gbps[3];
	char name[64];

	work[1] = work[2] = work[0];
	work[1].naive = scalar;
	work[2].naive = vector;
	fill(type, ORDINARY);
	measure(work, gbps, n);
	printf("%-7s %8.1f GB/s, the naive loop %.2f", type_names[type], gbps[0], gbps[1]);
	if (n == 3)
		printf(", the same compiled for AVX2 %.2f (ratio %.2f)", gbps[2],
		       gbps[0] / gbps[2]);
	printf("\n");
	snprintf(name, sizeof(name), "%s_naive_gbps", type_names[type]);
	keep(name, gbps[1]);
	if (n == 3) {
		snprintf(name, sizeof(name), "%s_naive_avx2_gbps", type_names[type]);
		keep(name, gbps[2]);
	}
	snprintf(name, sizeof(name), "%s_times_naive", type_names[type]);
	keep(name, gbps[0] / gbps[1]);
	if (min_gbps > 0)
		mark("GB/s", gbps[0], min_gbps, false);
	mark("times the naive loop", gbps[0] / gbps[1], MIN_TIMES_NAIVE, false);
}

static bool odd_data_hold(const double gbps[])
{
	for (enum data data = DENORMAL; data <= OLD; data++)
		if (gbps[0] / gbps[data] > MAX_ODD_RATIO)
			return false;
	return true;
}

/* How much longer odd data take. */
static void odd_data(unsigned int type, unsigned int op)
{
	static const char *const names[] = {"", "denormals", "NaNs", "0x33..."};
	static const char *const keys[] = {"", "denormal", "nan", "old"};
	struct work work = plain(best_level(), type, op);
	double gbps[4] = {0};

	for (int round = 0; round < ROUNDS / 3 ||
			    (op != HA_REDUCE_PROD && round < MOST_ROUNDS && !odd_data_hold(gbps));
	     round++)
		for (enum data data = ORDINARY; data <= OLD; data++) {
			fill(type, data);
			for (int i = 0; i < 3; i++)
				gbps[data] = best(gbps[data], &work);
		}
	for (enum data data = DENORMAL; data <= OLD; data++) {
		char name[64];

		snprintf(name, sizeof(name), "%s_%s_%s_ratio", type_names[type], op_names[op],
			 keys[data]);
		keep(name, gbps[0] / gbps[data]);
		snprintf(name, sizeof(name), "%s %s of %s", type_names[type], op_names[op],
			 names[data]);
		if (op == HA_REDUCE_PROD)
			printf("  %-34s %6.2f\n", name, gbps[0] / gbps[data]);
		else
			mark(name, gbps[0] / gbps[data], MAX_ODD_RATIO, true);
	}
}

int main(int argc, char **argv)
{
	static const unsigned int floats[] = {HA_REDUCE_FP16, HA_REDUCE_BF16, HA_REDUCE_FP32,
					      HA_REDUCE_FP64};
	const struct naive *vector = NULL;

	if (argc == 3 && strcmp(argv[1], "--json") == 0)
		json = fopen(argv[2], "w");
	if (argc != 1 && !json) {
		fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
		return 2;
	}
#ifdef __x86_64__
	vector = &naive_avx2;
#endif
	every_kernel();
	printf("\nsums against the loop that adds one source after the other\n");
	against_naive(HA_REDUCE_FP32, naive_plain.fp32, vector ? vector->fp32 : NULL,
		      MIN_FP32_GBPS);
	against_naive(HA_REDUCE_BF16, naive_plain.bf16, vector ? vector->bf16 : NULL,
		      MIN_BF16_GBPS);
	against_naive(HA_REDUCE_INT8, naive_plain.int8, vector ? vector->int8 : NULL,
		      MIN_INT8_GBPS);
	against_naive(HA_REDUCE_INT32, naive_plain.int32, vector ? vector->int32 : NULL, 0);
	printf("\ntime for odd data, as multiple of that for ordinary numbers\n");
	for (size_t i = 0; i < 4; i++)
		for (unsigned int op = 0; op < HA_REDUCE_OPS; op++)
			odd_data(floats[i], op);
	if (json) {
		fprintf(json, "\n}\n");
		fclose(json);
	}
	return missed;
}
