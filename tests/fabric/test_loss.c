/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabrics that lose, duplicate, delay and reorder packets: every message arrives once, in order and
 * whole, and each rule really fired.
 */
#include "pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define SLOT_BYTES (1u << 18)
#define SLOTS	   16
#define ROUNDS	   300

static const struct end_options opt = {
    .len = 2 * SLOTS * SLOT_BYTES, .timeout = 16, .retry_cnt = 7};

static uint32_t size_of(uint32_t n)
{
	/* From empty to many packets, with odd ends. */
	static const uint32_t sizes[] = {1, 0, 4096, 4097, 100000, 17, 65536, 12289, 200003};

	return sizes[n % (sizeof(sizes) / sizeof(sizes[0]))];
}

/*
 * Both ends do this at once: write message n with an immediate into the peer's slot, check what
 * arrived in one's own, and read every tenth message back.
 */
static int exchanges(int peer_fd, int test_fd, void *arg)
{
	uint32_t sent = 0, acked = 0, got = 0, n;
	double limit = now_s() + 60;
	struct ibv_wc wc;
	struct end end;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &opt);
	for (n = 0; n < SLOTS; n++)
		NEED(!end_post_recv(&end, 0, 0));
	meet(peer_fd);
	while (acked < ROUNDS || got < ROUNDS) {
		/* Source in the lower half, arrivals in the upper. */
		while (sent < ROUNDS && sent < got + SLOTS / 2 && sent < acked + SLOTS) {
			uint32_t slot = sent % SLOTS, len = size_of(sent), i;
			uint8_t *from = end.buf + (size_t)slot * SLOT_BYTES;

			for (i = 0; i < len; i++)
				from[i] = pattern(sent, i);
			end.peer_addr += (uint64_t)SLOTS * SLOT_BYTES;
			NEED(!end_post_write_imm(&end, (size_t)slot * SLOT_BYTES, len, sent));
			end.peer_addr -= (uint64_t)SLOTS * SLOT_BYTES;
			sent++;
		}
		while (ibv_poll_cq(end.cq, 1, &wc) == 1) {
			NEED(wc.status == IBV_WC_SUCCESS);
			if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
				NEED(wc.wr_id == acked);
				acked++;
				continue;
			}
			NEED(be32toh(wc.imm_data) == got);
			NEED(wc.byte_len == size_of(got));
			for (n = 0; n < wc.byte_len; n++)
				NEED(end.buf[(size_t)(SLOTS + got % SLOTS) * SLOT_BYTES + n] ==
				     pattern(got, n));
			got++;
			NEED(!end_post_recv(&end, 0, 0));
		}
		NEED(now_s() < limit);
	}
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void exchange_under(const char *const *rules)
{
	struct pair pair;
	json_t *status;
	unsigned i;

	fabric_up("--hosts 2 --rails 1 --seed 7");
	for (i = 0; rules[i]; i++)
		assert_int_equal(fabric_tool("fault %s '%s' >/dev/null", fabric_name(), rules[i]),
				 0);
	pair_start(&pair, exchanges, exchanges, NULL);
	assert_int_equal(pair_join(&pair, 0, 90), 0);
	assert_int_equal(pair_join(&pair, 1, 90), 0);
	status = fabric_status();
	assert_non_null(status);
	for (i = 0; rules[i]; i++) {
		print_message("%-40s fired %lld times\n", rules[i], status_fired(status, i));
		assert_true(status_fired(status, i) > 0);
	}
	json_decref(status);
	fabric_down();
}

static void no_faults_at_all(void **state)
{
	static const char *const rules[] = {NULL};

	(void)state;
	exchange_under(rules);
}

static void one_percent_lost(void **state)
{
	static const char *const rules[] = {"drop prob=0.01", NULL};

	(void)state;
	exchange_under(rules);
}

static void one_percent_duplicated(void **state)
{
	static const char *const rules[] = {"dup prob=0.01", NULL};

	(void)state;
	exchange_under(rules);
}

static void one_percent_delayed(void **state)
{
	static const char *const rules[] = {"delay=2ms prob=0.01", NULL};

	(void)state;
	exchange_under(rules);
}

static void one_percent_reordered(void **state)
{
	static const char *const rules[] = {"reorder=3 prob=0.01", NULL};

	(void)state;
	exchange_under(rules);
}

static void all_at_once_at_either_end(void **state)
{
	static const char *const rules[] = {"drop prob=0.01 dir=rx",
					    "dup=2 prob=0.01 dir=rx",
					    "delay=500us prob=0.01",
					    "reorder=2 prob=0.01",
					    "delay=1ms prob=0.01 dir=rx",
					    "drop op=ack prob=0.02",
					    NULL};

	(void)state;
	exchange_under(rules);
}

static void placed_in_any_order(void **state)
{
	static const char *const rules[] = {
	    "unordered=200us host=0", "unordered=50us prob=0.5 host=1", "drop prob=0.01", NULL};

	(void)state;
	exchange_under(rules);
}

/* Two words to one place, again and again: how often the older one stayed. */
static int write_twice(int peer_fd, int test_fd, void *arg)
{
	int rounds = *(int *)arg;
	struct ibv_wc wc;
	struct end end;

	(void)test_fd;
	end_open(&end, peer_fd, &opt);
	for (int round = 0; round < rounds; round++) {
		uint64_t words[2] = {2 * (uint64_t)round, 2 * (uint64_t)round + 1};

		memcpy(end.buf, words, sizeof(words));
		NEED(!end_post_write(&end, 0, 8, 1));
		/* From the second word to the same place. */
		end.peer_addr -= 8;
		NEED(!end_post_write(&end, 8, 8, 2));
		end.peer_addr += 8;
		for (int i = 0; i < 2; i++)
			NEED(end_wait(&end, &wc, 10) == IBV_WC_SUCCESS);
		meet(peer_fd); /* both are there: look */
		meet(peer_fd);
	}
	end_close(&end);
	return 0;
}

/* 0: each was there once. */
static int look_twice(int peer_fd, int test_fd, void *arg)
{
	int rounds = *(int *)arg, older = 0;
	struct end end;

	(void)test_fd;
	end_open(&end, peer_fd, &opt);
	for (int round = 0; round < rounds; round++) {
		uint64_t word;

		meet(peer_fd);
		memcpy(&word, end.buf, sizeof(word));
		NEED(word / 2 == (uint64_t)round);
		older += word % 2 == 0;
		meet(peer_fd);
	}
	printf("the older word stayed in %d of %d rounds\n", older, rounds);
	end_close(&end);
	return older > 0 && older < rounds ? 0 : 1;
}

static void of_two_writes_the_older_one_may_stay(void **state)
{
	struct pair pair;
	json_t *status;
	int rounds = 200;

	(void)state;
	fabric_up("--hosts 2 --rails 1 --seed 7");
	assert_int_equal(fabric_tool("fault %s 'unordered=100us' >/dev/null", fabric_name()), 0);
	pair_start(&pair, write_twice, look_twice, &rounds);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	status = fabric_status();
	assert_non_null(status);
	assert_true(status_fired(status, 0) >= 2 * rounds);
	json_decref(status);
	fabric_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_faults_at_all),
	    cmocka_unit_test(one_percent_lost),
	    cmocka_unit_test(one_percent_duplicated),
	    cmocka_unit_test(one_percent_delayed),
	    cmocka_unit_test(one_percent_reordered),
	    cmocka_unit_test(all_at_once_at_either_end),
	    cmocka_unit_test(placed_in_any_order),
	    cmocka_unit_test(of_two_writes_the_older_one_may_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
