/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run on the stepped engine costs, in processor time: fault exploration makes a fabric, a
 * connection and some hundred steps for each of 100,000 faults. Prints the figures; the limits are
 * ten times what a slow machine needs without sanitizers, to catch something that got quadratic.
 */
#include "world.h"

#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 20
#else
#define SLOWER 1
#endif

static double cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void expect_below(const char *what, double us, double limit_us)
{
	print_message("  %-44s %8.3f us\n", what, us);
	if (us > limit_us * SLOWER)
		fail_msg("%s took %.3f us, more than %.0f", what, us, limit_us * SLOWER);
}

static void test_opening(void **state)
{
	struct sv_stepped_opts opts = {.hosts = 2, .rails = 2};
	const int rounds = 2000;
	double start = cpu_us();

	(void)state;
	for (int i = 0; i < rounds; i++) {
		assert_int_equal(sv_stepped_open(&opts), 0);
		assert_int_equal(sv_stepped_close(), 0);
	}
	expect_below("open and close a 2x2 fabric", (cpu_us() - start) / rounds, 200);
}

static void test_connecting(void **state)
{
	const int rounds = 500;
	struct world w;
	double start;

	(void)state;
	start = cpu_us();
	for (int i = 0; i < rounds; i++) {
		world_open(&w, NULL);
		world_close(&w);
	}
	expect_below("fabric, two devices, a connection", (cpu_us() - start) / rounds, 1000);
}

static void test_stepping(void **state)
{
	const uint32_t rounds = 2000, batch = 16;
	double start, steps;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	start = cpu_us();
	for (uint32_t i = 0; i < rounds; i++) {
		struct ibv_wc wc[16];

		for (uint32_t k = 0; k < batch; k++)
			assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, k, 0, 512, &w.b, 0), 0);
		settle();
		assert_int_equal(ibv_poll_cq(w.a.cq, 16, wc), 16);
	}
	steps = (double)sv_stepped_index();
	expect_below("a step, posting and polling included", (cpu_us() - start) / steps, 10);
	world_close(&w);
}

/* Many queue pairs of a port cost a packet no more than one does. */
static void test_many_queue_pairs(void **state)
{
	enum { PAIRS = 500 };
	static struct end a[PAIRS], b[PAIRS];
	struct world_opts opts = {.cqe = 16, .wrs = 4};
	double start;
	uint64_t steps;

	(void)state;
	assert_int_equal(sv_stepped_open(NULL), 0);
	for (int i = 0; i < PAIRS; i++) {
		end_open(&a[i], 0, 0, &opts);
		end_open(&b[i], 1, 0, &opts);
		connect_ends(&a[i], &b[i], &opts);
	}
	start = cpu_us();
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < PAIRS; i++)
			assert_int_equal(post(&a[i], IBV_WR_RDMA_WRITE, 1, 0, 64, &b[i], 0), 0);
		settle();
		for (int i = 0; i < PAIRS; i++)
			expect_wc(&a[i], 1, IBV_WC_SUCCESS);
	}
	steps = sv_stepped_index();
	assert_int_equal(steps, 20 * PAIRS * 2);
	expect_below("a step with 500 connections", (cpu_us() - start) / (double)steps, 20);
	for (int i = 0; i < PAIRS; i++) {
		end_close(&a[i]);
		end_close(&b[i]);
	}
	assert_int_equal(sv_stepped_close(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_opening),
	    cmocka_unit_test(test_connecting),
	    cmocka_unit_test(test_stepping),
	    cmocka_unit_test(test_many_queue_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
