/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a switch's threads gain: lanes in memory, each with a thread and memory of its own as in
 * nccl-ha-switchd, against one lane, in turn; 8 children, units of 64 KiB of fp32, a window of 16.
 * There is no network: contributions are there, and results are gone as soon as they are sent.
 *
 * The ratio by processor time says what the lanes cost each other (memory, caches, locks) whatever
 * else the machine does. The one by the clock means something where each thread has a processor.
 * Of each the best round counts. Fails below MIN_SHARE of perfect: by processor time, and by the
 * clock where there are twice as many processors as lanes. `--json FILE` keeps the figures.
 */
#include "inc/lane.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHILDREN    8
#define WINDOW	    16
#define UNIT_BYTES  65536
#define UNITS	    400 /* of a lane, in a round */
#define ROUNDS	    10
#define MOST_ROUNDS 60 /* where something else may have had the processors at the wrong moments */
#define MOST	    64
#define MIN_SHARE   0.8

struct adder {
	pthread_t thread;
	pthread_barrier_t *start;
	struct ha_lane lane;
	char *memory, *landing;
	double began_s, ended_s, processor_s;
	bool is_right;
};

static double time_s(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool make_lane(struct adder *a)
{
	const struct ha_lane_shape shape = {CHILDREN, true, WINDOW, UNIT_BYTES};
	const size_t landing_bytes = (size_t)CHILDREN * WINDOW * UNIT_BYTES;

	a->memory = aligned_alloc(64, (ha_lane_bytes(&shape) + 63) & ~(size_t)63);
	a->landing = aligned_alloc(64, landing_bytes);
	if (!a->memory || !a->landing)
		return false;
	memset(a->landing, 0, landing_bytes);
	ha_lane_init(&a->lane, &shape, a->memory);
	return true;
}

static void add_unit(struct adder *a, unsigned int unit)
{
	struct ha_contribution c = {.reduction = ha_reduction_of(HA_REDUCE_FP32, HA_REDUCE_SUM),
				    .count = UNIT_BYTES / 4,
				    .form = HA_REDUCE_WIRE};
	struct ha_unit_send send;

	for (unsigned int i = 0; i < CHILDREN; i++) {
		c.at = a->landing + ((size_t)i * WINDOW + unit % WINDOW) * UNIT_BYTES;
		ha_lane_came(&a->lane, i, &c);
	}
	ha_lane_look(&a->lane);
	for (unsigned int i = 0; i < CHILDREN; i++) {
		if (!ha_lane_next_send(&a->lane, i, &send))
			return;
		ha_lane_posted(&a->lane, i);
		ha_lane_sent(&a->lane, i);
	}
}

/* Its memory is allocated and first touched here, as a tree's is by the thread that has it. */
static void *add(void *arg)
{
	struct adder *a = arg;
	const bool has_memory = make_lane(a);

	for (unsigned int i = 0; has_memory && i < WINDOW; i++)
		add_unit(a, i);
	pthread_barrier_wait(a->start);
	a->began_s = time_s(CLOCK_MONOTONIC);
	a->processor_s = time_s(CLOCK_THREAD_CPUTIME_ID);
	for (unsigned int i = 0; has_memory && i < UNITS; i++)
		add_unit(a, WINDOW + i);
	a->processor_s = time_s(CLOCK_THREAD_CPUTIME_ID) - a->processor_s;
	a->ended_s = time_s(CLOCK_MONOTONIC);
	a->is_right = has_memory && !a->lane.fault && a->lane.reduced == WINDOW + UNITS;
	free(a->memory);
	free(a->landing);
	return NULL;
}

struct rates {
	double clock_gbps, processor_gbps; /* of input, of all lanes */
};

static double more(double a, double b)
{
	return a > b ? a : b;
}

static struct rates rates_of(const struct adder *adders, unsigned int n)
{
	const double bytes = (double)UNITS * CHILDREN * UNIT_BYTES;
	double began_s = adders[0].began_s, ended_s = 0;
	struct rates rates = {0};

	for (unsigned int i = 0; i < n; i++) {
		began_s = adders[i].began_s < began_s ? adders[i].began_s : began_s;
		ended_s = more(ended_s, adders[i].ended_s);
		rates.processor_gbps += bytes / adders[i].processor_s / 1e9;
	}
	rates.clock_gbps = n * bytes / (ended_s - began_s) / 1e9;
	return rates;
}

/* False: something is wrong, and has been said. */
static bool add_round(unsigned int n, struct rates *best)
{
	static struct adder adders[MOST];
	pthread_barrier_t start;
	struct rates rates;
	bool right = true;

	pthread_barrier_init(&start, NULL, n);
	for (unsigned int i = 0; i < n; i++) {
		adders[i] = (struct adder){.start = &start};
		if (pthread_create(&adders[i].thread, NULL, add, &adders[i]) != 0) {
			fprintf(stderr, "bench_lanes: no thread\n");
			exit(2); /* those that have begun wait for it */
		}
	}
	for (unsigned int i = 0; i < n; i++) {
		pthread_join(adders[i].thread, NULL);
		right = right && adders[i].is_right;
	}
	pthread_barrier_destroy(&start);
	rates = rates_of(adders, n);
	best->clock_gbps = more(best->clock_gbps, rates.clock_gbps);
	best->processor_gbps = more(best->processor_gbps, rates.processor_gbps);
	if (!right)
		fprintf(stderr, "bench_lanes: a lane has not added all its units\n");
	return right;
}

static bool is_slow(const struct rates *one, const struct rates *all, long lanes)
{
	return all->processor_gbps < MIN_SHARE * (double)lanes * one->processor_gbps;
}

static int processors(void)
{
	cpu_set_t may;

	return sched_getaffinity(0, sizeof(may), &may) == 0 ? CPU_COUNT(&may) : 1;
}

static bool holds(const char *by, double ratio, unsigned int lanes, bool has_mark)
{
	const bool good = !has_mark || ratio >= MIN_SHARE * lanes;

	printf("  %u lanes over one, by %-15s %6.2f", lanes, by, ratio);
	if (has_mark)
		printf("  at least %.2f  %s", MIN_SHARE * lanes, good ? "holds" : "MISSED");
	printf("\n");
	return good;
}

static bool keep(const char *path, unsigned int lanes, const struct rates *one,
		 const struct rates *all)
{
	FILE *file = fopen(path, "w");

	if (!file)
		return false;
	fprintf(file,
		"{\n  \"lanes\": %u,\n  \"processors\": %d,\n  \"one_lane_gbps\": %.3f,\n"
		"  \"lanes_gbps\": %.3f,\n  \"lanes_processor_time_gbps\": %.3f,\n"
		"  \"clock_ratio\": %.3f,\n  \"processor_time_ratio\": %.3f\n}\n",
		lanes, processors(), one->processor_gbps, all->clock_gbps, all->processor_gbps,
		all->clock_gbps / one->clock_gbps, all->processor_gbps / one->processor_gbps);
	return fclose(file) == 0;
}

int main(int argc, char **argv)
{
	const bool has_json = argc > 2 && strcmp(argv[argc - 2], "--json") == 0;
	const int words = has_json ? argc - 2 : argc;
	const long lanes = words == 2 ? strtol(argv[1], NULL, 10) : 4;
	struct rates one = {0}, all = {0};
	bool good = true;

	if (words > 2 || lanes < 2 || lanes > MOST) {
		fprintf(stderr, "usage: %s [LANES] [--json FILE], with 2 to %d lanes\n", argv[0],
			MOST);
		return 2;
	}
	for (int i = 0; good && (i < ROUNDS || (i < MOST_ROUNDS && is_slow(&one, &all, lanes)));
	     i++)
		good = add_round(1, &one) && add_round((unsigned int)lanes, &all);
	if (!good)
		return 1;
	printf("one lane adds %.1f GB/s of input; %ld lanes on %d processors %.1f by the clock\n",
	       one.processor_gbps, lanes, processors(), all.clock_gbps);
	good = holds("processor time", all.processor_gbps / one.processor_gbps, (unsigned int)lanes,
		     true);
	good = holds("the clock", all.clock_gbps / one.clock_gbps, (unsigned int)lanes,
		     processors() >= 2 * lanes) &&
	       good;
	if (has_json && !keep(argv[argc - 1], (unsigned int)lanes, &one, &all)) {
		perror(argv[argc - 1]);
		return 2;
	}
	return !good;
}
