/* SPDX-License-Identifier: Apache-2.0 */
/* The QP state machine: every transition, every attribute mask, and posting in every state. */
#include "world.h"

#define RC_RTR                                                                                     \
	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                           \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RC_RTS                                                                                     \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |                    \
	 IBV_QP_MAX_QP_RD_ATOMIC)

/* Attributes that are valid for every transition that takes them. */
static struct ibv_qp_attr good_attr(const struct world *w, enum ibv_qp_state to)
{
	return (struct ibv_qp_attr){
	    .qp_state = to,
	    .path_mtu = IBV_MTU_1024,
	    .qkey = QKEY,
	    .dest_qp_num = w->b.qp->qp_num,
	    .qp_access_flags = all_access,
	    .ah_attr = address_of(&w->b),
	    .max_rd_atomic = 1,
	    .max_dest_rd_atomic = 1,
	    .min_rnr_timer = 12,
	    .port_num = 1,
	    .timeout = 10,
	    .retry_cnt = 1,
	    .rnr_retry = 1,
	};
}

static int modify(struct world *w, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = good_attr(w, to);

	return ibv_modify_qp(w->a.qp, &attr, mask | IBV_QP_STATE);
}

static void bring_to(struct world *w, enum ibv_qp_state state, const struct world_opts *opts)
{
	assert_int_equal(to_state(w->a.qp, IBV_QPS_RESET), 0);
	if (state == IBV_QPS_RESET)
		return;
	assert_int_equal(to_init(&w->a, opts), 0);
	if (state == IBV_QPS_ERR) {
		assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
		return;
	}
	if (state == IBV_QPS_INIT)
		return;
	assert_int_equal(to_rtr(&w->a, &w->b, opts), 0);
	if (state == IBV_QPS_RTR)
		return;
	assert_int_equal(to_rts(&w->a, opts), 0);
	if (state == IBV_QPS_SQD)
		assert_int_equal(to_state(w->a.qp, IBV_QPS_SQD), 0);
}

/* From, to, and what must be given; other transitions are refused whatever is given. */
struct step {
	enum ibv_qp_state from, to;
	int required;
};

static const struct step rc_steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR},
    {IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0},
};

static const struct step ud_steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0},
};

static const enum ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
					   IBV_QPS_RTS,	  IBV_QPS_SQD,	IBV_QPS_ERR};
#define NUM_STATES (sizeof(states) / sizeof(states[0]))
#define NUM_STEPS  (sizeof(rc_steps) / sizeof(rc_steps[0]))

static const struct step *find_step(const struct step *steps, enum ibv_qp_state from,
				    enum ibv_qp_state to)
{
	for (size_t i = 0; i < NUM_STEPS; i++)
		if (steps[i].from == from && steps[i].to == to)
			return &steps[i];
	return NULL;
}

static void walk_transitions(const struct step *steps, const struct world_opts *opts)
{
	struct world w;

	world_open(&w, opts);
	for (size_t f = 0; f < NUM_STATES; f++) {
		for (size_t t = 0; t < NUM_STATES; t++) {
			const struct step *step = find_step(steps, states[f], states[t]);
			/* There is nothing in RESET that could be in error. */
			bool always = states[t] == IBV_QPS_RESET ||
				      (states[t] == IBV_QPS_ERR && states[f] != IBV_QPS_RESET);

			bring_to(&w, states[f], opts);
			if (always) {
				assert_int_equal(modify(&w, states[t], 0), 0);
				assert_int_equal(state_of(w.a.qp), states[t]);
				continue;
			}
			if (!step) {
				assert_int_equal(modify(&w, states[t], 0), EINVAL);
				assert_int_equal(modify(&w, states[t], RC_RTR), EINVAL);
				assert_int_equal(modify(&w, states[t], RC_RTS), EINVAL);
				assert_int_equal(state_of(w.a.qp), states[f]);
				continue;
			}
			assert_int_equal(modify(&w, states[t], step->required), 0);
			assert_int_equal(state_of(w.a.qp), states[t]);
		}
	}
	world_close(&w);
}

static void test_only_the_known_transitions(void **state)
{
	(void)state;
	walk_transitions(rc_steps, &(struct world_opts){.unconnected = true});
	walk_transitions(ud_steps, &(struct world_opts){.unconnected = true, .type = IBV_QPT_UD});
}

/* Each required attribute left out, and each that does not belong added. */
static void walk_masks(const struct step *steps, const struct world_opts *opts, int foreign)
{
	struct world w;

	world_open(&w, opts);
	for (size_t i = 0; i < NUM_STEPS; i++) {
		for (int bit = 0; bit < 21; bit++) {
			int mask = 1 << bit;

			bring_to(&w, steps[i].from, opts);
			if (steps[i].required & mask)
				assert_int_equal(modify(&w, steps[i].to, steps[i].required & ~mask),
						 EINVAL);
			else if (foreign & mask && steps[i].from != IBV_QPS_SQD)
				assert_int_equal(modify(&w, steps[i].to, steps[i].required | mask),
						 EINVAL);
			else
				continue;
			assert_int_equal(state_of(w.a.qp), steps[i].from);
		}
	}
	world_close(&w);
}

static void test_masks(void **state)
{
	(void)state;
	/* CAP is never modifiable here; QKEY is UD's. PSNs, MTU and DEST_QPN belong to one step. */
	walk_masks(rc_steps, &(struct world_opts){.unconnected = true}, IBV_QP_QKEY | IBV_QP_CAP);
	walk_masks(ud_steps, &(struct world_opts){.unconnected = true, .type = IBV_QPT_UD},
		   IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		       IBV_QP_RQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_CAP);
}

static void expect_bad_value(struct world *w, enum ibv_qp_state from, enum ibv_qp_state to,
			     int mask, const struct ibv_qp_attr *attr)
{
	struct ibv_qp_attr copy = *attr;

	bring_to(w, from, NULL);
	copy.qp_state = to;
	assert_int_equal(ibv_modify_qp(w->a.qp, &copy, mask | IBV_QP_STATE), EINVAL);
}

static void test_values(void **state)
{
	const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_attr attr;
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.unconnected = true});
#define BAD(from, to, mask, change)                                                                \
	do {                                                                                       \
		attr = good_attr(&w, to);                                                          \
		change;                                                                            \
		expect_bad_value(&w, from, to, mask, &attr);                                       \
	} while (0)
	BAD(IBV_QPS_RESET, IBV_QPS_INIT, init, attr.port_num = 2);
	BAD(IBV_QPS_RESET, IBV_QPS_INIT, init, attr.pkey_index = 1);
	BAD(IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, attr.path_mtu = 6);
	BAD(IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, attr.path_mtu = 0);
	BAD(IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, attr.dest_qp_num = 1 << 24);
	BAD(IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, attr.max_dest_rd_atomic = 17);
	BAD(IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, attr.min_rnr_timer = 32);
	BAD(IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, attr.ah_attr.is_global = 0);
	BAD(IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, attr.ah_attr.port_num = 0);
	BAD(IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, attr.ah_attr.grh.sgid_index = 16);
	BAD(IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS, attr.timeout = 32);
	BAD(IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS, attr.retry_cnt = 8);
	BAD(IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS, attr.rnr_retry = 8);
	BAD(IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS, attr.max_rd_atomic = 17);
	BAD(IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS | IBV_QP_CUR_STATE, attr.cur_qp_state = IBV_QPS_RTS);
#undef BAD
	/* An address nobody has. */
	bring_to(&w, IBV_QPS_INIT, NULL);
	attr = good_attr(&w, IBV_QPS_RTR);
	attr.ah_attr.grh.dgid.raw[15] = 99;
	assert_int_equal(ibv_modify_qp(w.a.qp, &attr, RC_RTR | IBV_QP_STATE), ETIMEDOUT);
	assert_int_equal(state_of(w.a.qp), IBV_QPS_INIT);
	world_close(&w);
}

static void test_isolated_rails(void **state)
{
	struct world_opts opts = {.fabric = {.rails = 2, .isolated_rails = true},
				  .unconnected = true};
	struct end other;
	struct world w;

	(void)state;
	world_open(&w, &opts);
	end_open(&other, 1, 1, &opts);
	assert_int_equal(to_init(&w.a, &opts), 0);
	assert_int_equal(to_rtr(&w.a, &other, &opts), ENETUNREACH);
	assert_int_equal(to_rtr(&w.a, &w.b, &opts), 0);
	end_close(&other);
	world_close(&w);
}

static void test_query_tells_what_modify_set(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	assert_int_equal(ibv_query_qp(w.a.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(w.a.qp->state, IBV_QPS_RTS);
	assert_int_equal(attr.dest_qp_num, w.b.qp->qp_num);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	assert_int_equal(attr.timeout, 10);
	assert_int_equal(attr.retry_cnt, 3);
	assert_int_equal(attr.rnr_retry, 3);
	assert_int_equal(attr.max_rd_atomic, 4);
	assert_int_equal(attr.rq_psn, w.b.psn);
	assert_int_equal(attr.sq_psn, w.a.psn);
	assert_int_equal(attr.cap.max_send_wr, 64);
	assert_ptr_equal(init.send_cq, w.a.cq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	world_close(&w);
}

/* Sends are refused before RTS, receives before INIT; in ERR both are flushed. */
static void test_posting_by_state(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.unconnected = true});
	for (size_t i = 0; i < NUM_STATES; i++) {
		bool may_send = states[i] == IBV_QPS_RTS || states[i] == IBV_QPS_SQD ||
				states[i] == IBV_QPS_ERR;

		bring_to(&w, states[i], NULL);
		assert_int_equal(post_recv(&w.a, 1, 0, 10),
				 states[i] == IBV_QPS_RESET ? EINVAL : 0);
		assert_int_equal(post(&w.a, IBV_WR_SEND, 2, 0, 10, NULL, 0), may_send ? 0 : EINVAL);
	}
	/* The loop ended in ERR. */
	expect_wc(&w.a, 1, IBV_WC_WR_FLUSH_ERR);
	expect_wc(&w.a, 2, IBV_WC_WR_FLUSH_ERR);
	world_close(&w);
}

/* SQD finishes what was begun, holds back the rest, says when it is quiet, and goes on in RTS. */
static void test_send_queue_drain(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.fabric = {.window_packets = 4}});
	fill(w.a.buf, BUF_SIZE, 1);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 16384, &w.b, 0), 0); /* begun */
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 2, 16384, 100, &w.b, 16384), 0);
	assert_int_equal(ibv_modify_qp(w.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
			 0);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 3, 16484, 100, &w.b, 16484), 0);
	expect_no_event(w.a.ctx);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	expect_no_wc(&w.a);
	expect_event(w.a.ctx, IBV_EVENT_SQ_DRAINED);
	assert_int_equal(w.b.buf[16384], 0);
	assert_int_equal(to_state(w.a.qp, IBV_QPS_RTS), 0);
	settle();
	expect_wc(&w.a, 2, IBV_WC_SUCCESS);
	expect_wc(&w.a, 3, IBV_WC_SUCCESS);
	assert_memory_equal(w.a.buf, w.b.buf, 16584);
	world_close(&w);
}

/* RESET forgets everything, completions included; the QP can be connected anew. */
static void test_reset_forgets(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 10, &w.b, 0), 0);
	settle();
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 2, 0, 10, &w.b, 0), 0);
	assert_int_equal(to_state(w.a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(to_state(w.b.qp, IBV_QPS_RESET), 0);
	settle();
	expect_no_wc(&w.a);
	connect_ends(&w.a, &w.b, NULL);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 3, 0, 10, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 3, IBV_WC_SUCCESS);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_only_the_known_transitions),
	    cmocka_unit_test(test_masks),
	    cmocka_unit_test(test_values),
	    cmocka_unit_test(test_isolated_rails),
	    cmocka_unit_test(test_query_tells_what_modify_set),
	    cmocka_unit_test(test_posting_by_state),
	    cmocka_unit_test(test_send_queue_drain),
	    cmocka_unit_test(test_reset_forgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
