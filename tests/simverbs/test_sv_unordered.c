/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule unordered: plain WRITEs of a queue pair get into memory in any order before they are
 * acknowledged; an immediate, a SEND and a READ come after all before them.
 */
#include "world.h"

#define WORDS  16u
#define LANDED 4096u

static uint64_t word_at(const struct end *e, uint32_t offset)
{
	uint64_t word;

	memcpy(&word, e->buf + offset, sizeof(word));
	return word;
}

/* Words 1, 2, … at the beginning of a's buffer. */
static void number_words(struct end *e)
{
	for (uint64_t i = 0; i < WORDS; i++) {
		uint64_t word = i + 1;

		memcpy(e->buf + i * 8, &word, 8);
	}
}

/* Word i, which is i + 1, to b's LANDED. */
static void write_word(struct world *w, uint32_t i)
{
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, i, i * 8, 8, &w->b, LANDED), 0);
}

static void two_writes_to_one_word_end_with_either_value(void **state)
{
	unsigned older = 0, newer = 0;

	(void)state;
	for (unsigned seed = 1; seed <= 64; seed++) {
		struct world_opts opts = {.fabric = {.seed = seed}};
		struct world w;
		int id;

		world_open(&w, &opts);
		id = add_rule("unordered host=1 rail=0");
		number_words(&w.a);
		write_word(&w, 0);
		write_word(&w, 1);
		settle();
		expect_wc(&w.a, 0, IBV_WC_SUCCESS);
		expect_wc(&w.a, 1, IBV_WC_SUCCESS);
		assert_int_equal(fired(id), 2);
		assert_in_range(word_at(&w.b, LANDED), 1, 2);
		if (word_at(&w.b, LANDED) == 1)
			older++;
		else
			newer++;
		world_close(&w);
	}
	print_message("older %u, newer %u\n", older, newer);
	assert_true(older >= 16 && newer >= 16);
}

/* Whatever order they come in: when one is complete, it and all before it are there. */
static void what_is_acknowledged_is_there(void **state)
{
	struct world *w = *state;
	int id = add_rule("unordered=50us");
	uint32_t complete = 0, out_of_order = 0;
	struct ibv_wc wc;

	number_words(&w->a);
	for (uint32_t i = 0; i < WORDS; i++)
		assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, i, i * 8, 8, &w->b, LANDED + i * 8),
				 0);
	while (complete < WORDS) {
		assert_true(sv_stepped_step());
		for (uint32_t i = 1; i < WORDS; i++)
			out_of_order += word_at(&w->b, LANDED + i * 8) != 0 &&
					word_at(&w->b, LANDED + (i - 1) * 8) == 0;
		while (ibv_poll_cq(w->a.cq, 1, &wc) == 1) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, complete);
			assert_int_equal(word_at(&w->b, LANDED + complete * 8), complete + 1);
			complete++;
		}
	}
	assert_int_equal(fired(id), WORDS);
	assert_true(out_of_order > 0);
}

/* Packets of one message too, with a burst of one packet. */
static void what_needs_order_comes_last(void **state)
{
	struct world *w = *state;
	int id = add_rule("unordered=100us");
	struct ibv_wc wc;

	fill(w->a.buf, 8000, 3);
	for (unsigned round = 0; round < 3; round++) {
		memset(w->b.buf + LANDED, 0, 9000);
		assert_int_equal(post_recv(&w->b, round, 0, 64), 0);
		assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 5000, &w->b, LANDED), 0);
		if (round == 0) /* of its four packets three may be late */
			assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 5000, 3000,
					      &w->b, LANDED + 5000),
					 0);
		else if (round == 1)
			assert_int_equal(post(&w->a, IBV_WR_SEND, 2, 0, 64, NULL, 0), 0);
		else
			assert_int_equal(
			    post(&w->a, IBV_WR_RDMA_READ, 2, 16384, 5000, &w->b, LANDED), 0);
		if (round < 2) {
			while (ibv_poll_cq(w->b.cq, 1, &wc) == 0)
				assert_true(sv_stepped_step());
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_memory_equal(w->b.buf + LANDED, w->a.buf, round == 0 ? 8000 : 5000);
		}
		settle();
		expect_wc(&w->a, 1, IBV_WC_SUCCESS);
		expect_wc(&w->a, 2, IBV_WC_SUCCESS);
	}
	assert_memory_equal(w->a.buf + 16384, w->a.buf, 5000);
	assert_true(fired(id) >= 3 * 5 + 2);
}

static void a_rule_says_which_queue_pair(void **state)
{
	struct world *w = *state;
	char rule[64];
	int other, this;

	other = add_rule("unordered host=0");
	snprintf(rule, sizeof(rule), "unordered qpn=%u", w->b.qp->qp_num);
	this = add_rule(rule);
	write_word(w, 0);
	settle();
	expect_wc(&w->a, 0, IBV_WC_SUCCESS);
	assert_int_equal(fired(other), 0);
	assert_int_equal(fired(this), 1);
}

/* A fence: what was not acknowledged may be there or not, and nothing changes any more. */
static void nothing_is_placed_after_err(void **state)
{
	struct world *w = *state;
	uint8_t before[WORDS * 8];
	uint32_t placed = 0;
	struct ibv_wc wc;

	add_rule("unordered=1ms");
	number_words(&w->a);
	for (uint32_t i = 0; i < WORDS; i++)
		assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, i, i * 8, 8, &w->b, LANDED + i * 8),
				 0);
	sv_stepped_run(sv_stepped_now() + 400000);
	memcpy(before, w->b.buf + LANDED, sizeof(before));
	assert_int_equal(to_state(w->b.qp, IBV_QPS_ERR), 0);
	settle();
	assert_memory_equal(w->b.buf + LANDED, before, sizeof(before));
	/* Some were there and some were not, or this proves nothing. */
	for (uint32_t i = 0; i < WORDS; i++)
		placed += word_at(&w->b, LANDED + i * 8) != 0;
	assert_in_range(placed, 1, WORDS - 1);
	/* Those that are complete are there. */
	for (uint32_t i = 0; ibv_poll_cq(w->a.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS; i++)
		assert_int_equal(word_at(&w->b, LANDED + i * 8), i + 1);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
}

static void memory_that_went_meanwhile_is_an_error(void **state)
{
	struct world *w = *state;
	struct ibv_mr *mr = ibv_reg_mr(w->b.pd, w->b.buf, 4096, all_access);
	struct ibv_sge sge = {.addr = (uintptr_t)w->a.buf, .length = 8, .lkey = w->a.mr->lkey};
	struct ibv_send_wr wr = wr_of(IBV_WR_RDMA_WRITE, 7, &sge), *bad;

	assert_non_null(mr);
	add_rule("unordered=1ms");
	wr.wr.rdma.remote_addr = (uintptr_t)w->b.buf;
	wr.wr.rdma.rkey = mr->rkey;
	assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
	sv_stepped_run(sv_stepped_now() + 5000); /* arrived */
	assert_int_equal(ibv_dereg_mr(mr), 0);
	settle();
	expect_wc(&w->a, 7, IBV_WC_REM_ACCESS_ERR);
	expect_event(w->b.ctx, IBV_EVENT_QP_ACCESS_ERR);
}

/* Lost and repeated packets beside it: still every byte, and every completion in order. */
static void losses_do_not_matter(void **state)
{
	struct world *w = *state;
	int late = add_rule("unordered=20us prob=0.7 seed=5");
	int lost = add_rule("drop prob=0.05 seed=9");

	fill(w->a.buf, 60000, 11);
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, i, i * 2000, 2000, &w->b, i * 2000),
				 0);
	settle();
	for (uint32_t i = 0; i < 30; i++)
		expect_wc(&w->a, i, IBV_WC_SUCCESS);
	assert_memory_equal(w->b.buf, w->a.buf, 60000);
	assert_true(fired(late) > 20 && fired(lost) > 0);
}

static uint64_t one_run(uint64_t seed)
{
	struct world_opts opts = {.fabric = {.seed = seed}};
	struct world w;
	uint64_t seen = 0;

	world_open(&w, &opts);
	add_rule("unordered");
	number_words(&w.a);
	for (uint32_t i = 0; i < WORDS; i++)
		write_word(&w, i);
	while (sv_stepped_step())
		seen = seen * 31 + word_at(&w.b, LANDED);
	world_close(&w);
	return seen;
}

static void a_run_is_a_function_of_its_seed(void **state)
{
	(void)state;
	assert_true(one_run(3) == one_run(3));
	assert_true(one_run(3) != one_run(4));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(two_writes_to_one_word_end_with_either_value),
	    WORLD_TEST(what_is_acknowledged_is_there, .timeout = 14),
	    WORLD_TEST(what_needs_order_comes_last, .timeout = 14),
	    WORLD_TEST(a_rule_says_which_queue_pair, .timeout = 14),
	    WORLD_TEST(nothing_is_placed_after_err, .timeout = 14),
	    WORLD_TEST(memory_that_went_meanwhile_is_an_error, .timeout = 14),
	    WORLD_TEST(losses_do_not_matter, .retry_cnt = 7),
	    cmocka_unit_test(a_run_is_a_function_of_its_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
