/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets are delivered soon however an application waits: by looking at memory with a poll of the
 * completion queue now and then, by not looking at all, or by waiting for an event.
 */
#include "pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 1000

/* A packet that nobody picks up is sent again after 4.096 us << 21: 8.6 seconds. Nobody may wait
 * for nearly as long, not even on a machine with other work. */
static const struct end_options patient = {.len = 4096, .timeout = 21};
#define SOON_S 3

static void pause_us(unsigned us)
{
	double end = now_s() + us / 1e6;

	while (now_s() < end)
		;
}

/* Each round: a write of the round's number, after an odd while. */
static int writes_now_and_then(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;
	uint32_t i;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &patient);
	for (i = 1; i <= ROUNDS; i++) {
		pause_us((unsigned)rand() % 300);
		*(volatile uint32_t *)end.buf = i;
		NEED(!end_post_write(&end, 0, 4, i));
		NEED(end_wait(&end, &wc, 10) == IBV_WC_SUCCESS);
		meet(peer_fd);
	}
	end_close(&end);
	return 0;
}

static int looks_at_memory(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;
	uint32_t i;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &patient);
	for (i = 1; i <= ROUNDS; i++) {
		double start = now_s(), poll_at = start + (rand() % 300) / 1e6;

		while (*(volatile uint32_t *)end.buf != i) {
			double now = now_s();

			NEED(now - start < SOON_S);
			if (now > poll_at) {
				NEED(ibv_poll_cq(end.cq, 1, &wc) == 0);
				poll_at = now + 10; /* once: nothing may depend on another */
			}
		}
		meet(peer_fd);
	}
	end_close(&end);
	return 0;
}

static int does_not_look(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	uint32_t i;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &patient);
	for (i = 1; i <= ROUNDS; i++) {
		double start = now_s();

		meet(peer_fd); /* after the writer's completion, which needs our acknowledgement */
		NEED(now_s() - start < SOON_S);
		/* The next may be there already. */
		NEED(*(volatile uint32_t *)end.buf - i <= 1);
	}
	end_close(&end);
	return 0;
}

static void run(pair_body writer, pair_body reader)
{
	struct pair pair;

	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, writer, reader, NULL);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	fabric_down();
}

static void a_write_lands_soon_under_one_who_polled_just_before(void **state)
{
	(void)state;
	run(writes_now_and_then, looks_at_memory);
}

static void a_write_lands_soon_under_one_who_does_not_look(void **state)
{
	(void)state;
	run(writes_now_and_then, does_not_look);
}

static int opens_and_closes(int peer_fd, int test_fd, void *arg)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	(void)peer_fd;
	(void)test_fd;
	(void)arg;
	NEED(list && list[0]);
	for (i = 0; i < ROUNDS; i++) {
		struct ibv_context *ctx = ibv_open_device(list[0]);

		NEED(ctx);
		if (i % 2)
			pause_us((unsigned)rand() % 100);
		NEED(!ibv_close_device(ctx));
	}
	ibv_free_device_list(list);
	return 0;
}

static void an_engine_ends_whenever_it_is_told_to(void **state)
{
	(void)state;
	run(opens_and_closes, opens_and_closes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_write_lands_soon_under_one_who_polled_just_before),
	    cmocka_unit_test(a_write_lands_soon_under_one_who_does_not_look),
	    cmocka_unit_test(an_engine_ends_whenever_it_is_told_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
