/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes arrive whole and once, by every operation, at every size, over both kinds of link. */
#include "world.h"

#include <endian.h>

static const uint32_t sizes[] = {0, 1, 7, 8, 255, 256, 257, 1023, 1024, 1025, 4096, 5000, 65536};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* What is moved by one operation arrives, and the byte beyond stays as it was. */
static void move(struct world *w, enum ibv_wr_opcode op, uint32_t length)
{
	bool has_imm = op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool wants_recv = has_imm || op == IBV_WR_SEND;
	bool is_read = op == IBV_WR_RDMA_READ;
	struct end *from = is_read ? &w->b : &w->a, *to = is_read ? &w->a : &w->b;
	struct ibv_wc wc;

	fill(from->buf, length, length + 1);
	memset(to->buf, 0xee, length + 1);
	if (wants_recv)
		assert_int_equal(post_recv(&w->b, 7, 0, BUF_SIZE), 0);
	assert_int_equal(post(&w->a, op, 9, 0, length, &w->b, 0), 0);
	settle();
	expect_wc(&w->a, 9, IBV_WC_SUCCESS);
	expect_no_wc(&w->a);
	if (wants_recv) {
		wc = expect_wc(&w->b, 7, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, length);
		assert_int_equal(wc.opcode, op == IBV_WR_RDMA_WRITE_WITH_IMM
						? IBV_WC_RECV_RDMA_WITH_IMM
						: IBV_WC_RECV);
		assert_int_equal(!!(wc.wc_flags & IBV_WC_WITH_IMM), has_imm);
		if (has_imm)
			assert_int_equal(wc.imm_data, 9 ^ 0x5a5a5a5au);
	}
	expect_no_wc(&w->b);
	assert_memory_equal(from->buf, to->buf, length);
	assert_int_equal(to->buf[length], 0xee);
}

static void move_all(const struct world_opts *opts)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						 IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						 IBV_WR_RDMA_READ};
	struct world w;

	world_open(&w, opts);
	for (size_t op = 0; op < sizeof(ops) / sizeof(ops[0]); op++)
		for (size_t i = 0; i < NUM_SIZES; i++)
			move(&w, ops[op], sizes[i]);
	world_close(&w);
}

static void test_every_op_and_size(void **state)
{
	(void)state;
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
		move_all(&(struct world_opts){.mtu = mtu});
}

static void test_infiniband(void **state)
{
	(void)state;
	move_all(&(struct world_opts){.fabric = {.infiniband = true}});
}

static void test_loopback(void **state)
{
	(void)state;
	move_all(&(struct world_opts){.loopback = true});
}

/* It stays inside the device. */
static void test_loopback_needs_no_link(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.loopback = true});
	sv_stepped_link(0, 0, false);
	move(&w, IBV_WR_RDMA_READ, 5000);
	move(&w, IBV_WR_RDMA_WRITE_WITH_IMM, 5000);
	world_close(&w);
}

static void test_srq(void **state)
{
	(void)state;
	move_all(&(struct world_opts){.srq_wrs = 8});
}

/* A wire that takes only a few packets at a time stalls both halves of both ends. */
static void test_full_wire(void **state)
{
	(void)state;
	for (uint32_t room = 1; room < 5; room++)
		move_all(&(struct world_opts){.fabric = {.inbox_packets = room}});
}

static void test_small_window(void **state)
{
	(void)state;
	for (uint32_t window = 1; window < 10; window += 3)
		move_all(&(struct world_opts){.fabric = {.window_packets = window}});
}

/* Several packets of a message in one piece, of sizes that fit the MTU and that do not. */
static void test_bursts(void **state)
{
	static const uint32_t bursts[] = {1024, 3000, 8192, 65536};

	(void)state;
	for (size_t i = 0; i < sizeof(bursts) / sizeof(bursts[0]); i++)
		for (uint32_t window = 1; window < 4; window++)
			move_all(&(struct world_opts){
			    .fabric = {.burst_bytes = bursts[i], .window_packets = window}});
}

static void test_gather_and_scatter(void **state)
{
	struct ibv_sge from[4], to[3];
	struct ibv_send_wr wr = wr_of(IBV_WR_SEND, 1, from), *bad;
	struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = to, .num_sge = 3}, *bad_recv;
	uint8_t expected[6000];
	struct world w;
	size_t n = 0;

	(void)state;
	world_open(&w, NULL);
	fill(w.a.buf, BUF_SIZE, 3);
	for (uint32_t i = 0; i < 4; i++) {
		from[i] = (struct ibv_sge){.addr = (uintptr_t)w.a.buf + i * 10000,
					   .length = i == 1 ? 0 : 1000 + i * 250,
					   .lkey = w.a.mr->lkey};
		memcpy(expected + n, w.a.buf + i * 10000, from[i].length);
		n += from[i].length;
	}
	for (uint32_t i = 0; i < 3; i++)
		to[i] = (struct ibv_sge){
		    .addr = (uintptr_t)w.b.buf + i * 20000, .length = 1500, .lkey = w.b.mr->lkey};
	wr.num_sge = 4;
	assert_int_equal(ibv_post_recv(w.b.qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(w.a.qp, &wr, &bad), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(expect_wc(&w.b, 2, IBV_WC_SUCCESS).byte_len, n);
	assert_memory_equal(w.b.buf, expected, 1500);
	assert_memory_equal(w.b.buf + 20000, expected + 1500, 1500);
	assert_memory_equal(w.b.buf + 40000, expected + 3000, n - 3000);
	world_close(&w);
}

/* Inline data is taken at the call: what happens to the buffer later does not matter. */
static void test_inline_is_copied_at_post(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.max_inline = 128});
	fill(w.a.buf, 128, 1);
	assert_int_equal(post_flags(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 128, &w.b, 0,
				    IBV_SEND_SIGNALED | IBV_SEND_INLINE),
			 0);
	fill(w.a.buf, 128, 2);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	fill(w.a.buf, 128, 1);
	assert_memory_equal(w.a.buf, w.b.buf, 128);
	assert_int_equal(post_flags(&w.a, IBV_WR_RDMA_WRITE, 2, 0, 129, &w.b, 0,
				    IBV_SEND_SIGNALED | IBV_SEND_INLINE),
			 ENOMEM);
	world_close(&w);
}

static void test_atomics(void **state)
{
	uint64_t *target, *result;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	target = (uint64_t *)(void *)w.b.buf;
	result = (uint64_t *)(void *)w.a.buf;
	sge = (struct ibv_sge){.addr = (uintptr_t)result, .length = 8, .lkey = w.a.mr->lkey};
	*target = 40;
	wr = wr_of(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &sge);
	wr.wr.atomic.remote_addr = (uintptr_t)target;
	wr.wr.atomic.rkey = w.b.mr->rkey;
	wr.wr.atomic.compare_add = 2;
	assert_int_equal(ibv_post_send(w.a.qp, &wr, &bad), 0);
	settle();
	assert_int_equal(expect_wc(&w.a, 1, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(*result, 40);
	assert_int_equal(*target, 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	assert_int_equal(ibv_post_send(w.a.qp, &wr, &bad), 0);
	assert_int_equal(ibv_post_send(w.a.qp, &wr, &bad), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(*target, 7);
	assert_int_equal(*result, 7); /* the second found it changed */
	world_close(&w);
}

/* More READs than may be outstanding, with a fence behind them. */
static void test_reads_and_fence(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.rd_atomic = 2});
	fill(w.b.buf, 50000, 5);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(post(&w.a, IBV_WR_RDMA_READ, i, i * 5000, 5000, &w.b, i * 5000),
				 0);
	/* Sends what the last READ fetched: without the fence it would send zeros. */
	assert_int_equal(post_flags(&w.a, IBV_WR_RDMA_WRITE, 10, 45000, 5000, &w.b, 60000,
				    IBV_SEND_SIGNALED | IBV_SEND_FENCE),
			 0);
	settle();
	for (uint32_t i = 0; i < 11; i++)
		expect_wc(&w.a, i, IBV_WC_SUCCESS);
	assert_memory_equal(w.a.buf, w.b.buf, 50000);
	assert_memory_equal(w.b.buf + 60000, w.b.buf + 45000, 5000);
	world_close(&w);
}

static void test_only_signalled_wrs_complete(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	for (uint32_t i = 0; i < 9; i++)
		assert_int_equal(post_flags(&w.a, IBV_WR_RDMA_WRITE, i, 0, 10, &w.b, 0,
					    i % 3 == 2 ? IBV_SEND_SIGNALED : 0),
				 0);
	settle();
	expect_wc(&w.a, 2, IBV_WC_SUCCESS);
	expect_wc(&w.a, 5, IBV_WC_SUCCESS);
	expect_wc(&w.a, 8, IBV_WC_SUCCESS);
	expect_no_wc(&w.a);
	world_close(&w);
	world_open(&w, &(struct world_opts){.sig_all = true});
	assert_int_equal(post_flags(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 10, &w.b, 0, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	world_close(&w);
}

/* PSNs wrap after 2^24: the ends start just below. */
static void test_psn_wraps(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.mtu = IBV_MTU_256});
	for (uint32_t i = 0; i < 40; i++) {
		move(&w, IBV_WR_RDMA_WRITE_WITH_IMM, 700);
		move(&w, IBV_WR_RDMA_READ, 700);
	}
	world_close(&w);
}

static struct ibv_ah *ah_to(struct end *from, const struct end *to)
{
	struct ibv_ah_attr attr = address_of(to);
	struct ibv_ah *ah = ibv_create_ah(from->pd, &attr);

	assert_non_null(ah);
	return ah;
}

static int post_ud(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)e->buf, .length = length, .lkey = e->mr->lkey};
	struct ibv_send_wr wr = wr_of(IBV_WR_SEND, 1, &sge), *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(e->qp, &wr, &bad);
}

static void ud_round_trip(bool infiniband)
{
	struct ibv_ah *ah, *back;
	struct ibv_wc wc;
	struct world w;

	world_open(&w,
		   &(struct world_opts){.type = IBV_QPT_UD, .fabric = {.infiniband = infiniband}});
	ah = ah_to(&w.a, &w.b);
	fill(w.a.buf, 1000, 1);
	assert_int_equal(post_recv(&w.b, 2, 0, 2000), 0);
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num, QKEY, 1000), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	wc = expect_wc(&w.b, 2, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 1040);
	assert_int_equal(wc.src_qp, w.a.qp->qp_num);
	assert_int_equal(!!(wc.wc_flags & IBV_WC_GRH), !infiniband);
	assert_memory_equal(w.a.buf, w.b.buf + 40, 1000);
	/* The completion says how to answer. */
	back = ibv_create_ah_from_wc(w.b.pd, &wc, (struct ibv_grh *)(void *)w.b.buf, 1);
	assert_non_null(back);
	assert_int_equal(post_recv(&w.a, 3, 4096, 100), 0);
	assert_int_equal(post_ud(&w.b, back, wc.src_qp, QKEY, 60), 0);
	settle();
	expect_wc(&w.a, 3, IBV_WC_SUCCESS);
	assert_memory_equal(w.b.buf, w.a.buf + 4096 + 40, 60);
	ibv_destroy_ah(ah);
	ibv_destroy_ah(back);
	world_close(&w);
}

static void test_ud(void **state)
{
	(void)state;
	ud_round_trip(false);
	ud_round_trip(true);
}

/* Wrong Q_Key, no buffer, nobody there: gone without a trace at either end. */
static void test_ud_drops(void **state)
{
	struct ibv_ah *ah;
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.type = IBV_QPT_UD});
	ah = ah_to(&w.a, &w.b);
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num, QKEY, 10), 0); /* no buffer */
	settle();
	assert_int_equal(post_recv(&w.b, 2, 0, 100), 0);
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num, QKEY + 1, 10), 0);
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num + 1, QKEY, 10), 0);
	settle();
	for (int i = 0; i < 3; i++)
		expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	expect_no_wc(&w.b);
	/* The top bit stands for the QP's own key. */
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num, 0x80000000u, 10), 0);
	settle();
	expect_wc(&w.b, 2, IBV_WC_SUCCESS);
	ibv_destroy_ah(ah);
	world_close(&w);
}

/* A failed UD send stops the send queue only, and RTS brings it back. */
static void test_ud_send_error(void **state)
{
	struct ibv_ah *ah;
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.type = IBV_QPT_UD});
	ah = ah_to(&w.a, &w.b);
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num, QKEY, 4097), 0);
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num, QKEY, 10), 0);
	expect_wc(&w.a, 1, IBV_WC_LOC_LEN_ERR);
	expect_wc(&w.a, 1, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(w.a.qp), IBV_QPS_SQE);
	assert_int_equal(to_state(w.a.qp, IBV_QPS_RTS), 0);
	assert_int_equal(post_recv(&w.b, 2, 0, 100), 0);
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num, QKEY, 10), 0);
	settle();
	expect_wc(&w.b, 2, IBV_WC_SUCCESS);
	/* A buffer that is too small fails the receive and the QP. */
	assert_int_equal(post_recv(&w.b, 3, 0, 49), 0);
	assert_int_equal(post_ud(&w.a, ah, w.b.qp->qp_num, QKEY, 10), 0);
	settle();
	expect_wc(&w.b, 3, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(state_of(w.b.qp), IBV_QPS_ERR);
	ibv_destroy_ah(ah);
	world_close(&w);
}

static struct ibv_qp *make_qp_ex(struct end *e, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = {
	    .send_cq = cq,
	    .recv_cq = cq,
	    .cap = {.max_send_wr = 4,
		    .max_recv_wr = 4,
		    .max_send_sge = 2,
		    .max_recv_sge = 1,
		    .max_inline_data = 64},
	    .qp_type = IBV_QPT_RC,
	    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	    .pd = e->pd,
	    .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ,
	};

	return ibv_create_qp_ex(e->ctx, &attr);
}

/* The extended post and poll interfaces: batches, abort, all or nothing when the queue is full. */
static void test_extended_interfaces(void **state)
{
	struct ibv_cq_init_attr_ex cq_attr = {
	    .cqe = 32, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_poll_cq_attr poll = {0};
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *ex;
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.unconnected = true});
	cq = ibv_create_cq_ex(w.a.ctx, &cq_attr);
	assert_non_null(cq);
	ibv_destroy_qp(w.a.qp);
	w.a.qp = make_qp_ex(&w.a, ibv_cq_ex_to_cq(cq));
	assert_non_null(w.a.qp);
	connect_ends(&w.a, &w.b, NULL);
	ex = ibv_qp_to_qp_ex(w.a.qp);
	assert_null(ibv_qp_to_qp_ex(w.b.qp));
	fill(w.a.buf, 3000, 1);
	assert_int_equal(post_recv(&w.b, 50, 0, 0), 0);

	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, w.b.mr->rkey, (uintptr_t)w.b.buf);
	ibv_wr_set_sge(ex, w.a.mr->lkey, (uintptr_t)w.a.buf, 3000);
	ex->wr_id = 2;
	ibv_wr_rdma_write_imm(ex, w.b.mr->rkey, (uintptr_t)w.b.buf + 3000, htobe32(77));
	ibv_wr_set_inline_data(ex, w.a.buf, 50);
	assert_int_equal(ibv_wr_complete(ex), 0);
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, 1, 1);
	ibv_wr_abort(ex);
	settle();

	assert_int_equal(ibv_start_poll(cq, &poll), 0);
	assert_int_equal(cq->wr_id, 1);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RDMA_WRITE);
	assert_int_equal(ibv_wc_read_qp_num(cq), w.a.qp->qp_num);
	assert_true(ibv_wc_read_completion_ts(cq) > 0);
	assert_int_equal(ibv_next_poll(cq), 0);
	assert_int_equal(cq->wr_id, 2);
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	assert_int_equal(ibv_start_poll(cq, &poll), ENOENT);
	assert_int_equal(expect_wc(&w.b, 50, IBV_WC_SUCCESS).imm_data, htobe32(77));
	assert_memory_equal(w.a.buf, w.b.buf, 3000);
	assert_memory_equal(w.a.buf, w.b.buf + 3000, 50);

	ibv_wr_start(ex);
	for (int i = 0; i < 5; i++) {
		ibv_wr_rdma_write(ex, w.b.mr->rkey, (uintptr_t)w.b.buf);
		ibv_wr_set_sge(ex, w.a.mr->lkey, (uintptr_t)w.a.buf, 10);
	}
	assert_int_equal(ibv_wr_complete(ex), ENOMEM);
	settle();
	assert_int_equal(ibv_start_poll(cq, &poll), ENOENT);
	ibv_destroy_qp(w.a.qp);
	w.a.qp = NULL;
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_op_and_size),
	    cmocka_unit_test(test_infiniband),
	    cmocka_unit_test(test_loopback),
	    cmocka_unit_test(test_loopback_needs_no_link),
	    cmocka_unit_test(test_srq),
	    cmocka_unit_test(test_full_wire),
	    cmocka_unit_test(test_small_window),
	    cmocka_unit_test(test_bursts),
	    cmocka_unit_test(test_gather_and_scatter),
	    cmocka_unit_test(test_inline_is_copied_at_post),
	    cmocka_unit_test(test_atomics),
	    cmocka_unit_test(test_reads_and_fence),
	    cmocka_unit_test(test_only_signalled_wrs_complete),
	    cmocka_unit_test(test_psn_wraps),
	    cmocka_unit_test(test_ud),
	    cmocka_unit_test(test_ud_drops),
	    cmocka_unit_test(test_ud_send_error),
	    cmocka_unit_test(test_extended_interfaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
