/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong use gets the error that hardware gives, at the end and in the place where it gives it. */
#include "world.h"

/* One way to make a WR fail: what is posted at `a`, and what each end then sees. */
struct mishap {
	const char *name;
	enum ibv_wr_opcode op;
	uint32_t length;
	int32_t addr_offset; /* added to the remote address */
	uint32_t rkey_xor, lkey_xor;
	uint32_t recv_length; /* posted at b; 0: none */
	uint32_t recv_lkey_xor;
	unsigned int access; /* of b's QP and MR; 0: all */
	bool other_pd;	     /* b's MR belongs to another PD than its QP */
	enum ibv_wc_status status;
	enum ibv_wc_status recv_status; /* of b's receive; SUCCESS: flushed or none */
	enum ibv_event_type event;	/* at b */
	bool no_event;
};

#define FLAG(x) IBV_ACCESS_##x
static const struct mishap mishaps[] = {
    {.name = "write to an unknown key",
     .op = IBV_WR_RDMA_WRITE,
     .length = 100,
     .rkey_xor = 0x100,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "write to a stale key",
     .op = IBV_WR_RDMA_WRITE,
     .length = 100,
     .rkey_xor = 1,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "write to another device's key",
     .op = IBV_WR_RDMA_WRITE,
     .length = 100,
     .rkey_xor = 0x3000000,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "write beyond the end",
     .op = IBV_WR_RDMA_WRITE,
     .length = 100,
     .addr_offset = BUF_SIZE - 99,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "write before the start",
     .op = IBV_WR_RDMA_WRITE,
     .length = 100,
     .addr_offset = -1,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "long write whose end is out of bounds",
     .op = IBV_WR_RDMA_WRITE,
     .length = 5000,
     .addr_offset = BUF_SIZE - 4999,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "write through another PD",
     .op = IBV_WR_RDMA_WRITE,
     .length = 100,
     .other_pd = true,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "write where writing is not enabled",
     .op = IBV_WR_RDMA_WRITE,
     .length = 100,
     .access = FLAG(LOCAL_WRITE) | FLAG(REMOTE_READ),
     .status = IBV_WC_REM_INV_REQ_ERR,
     .event = IBV_EVENT_QP_REQ_ERR},
    {.name = "read of an unknown key",
     .op = IBV_WR_RDMA_READ,
     .length = 100,
     .rkey_xor = 0x100,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "read beyond the end",
     .op = IBV_WR_RDMA_READ,
     .length = 100,
     .addr_offset = BUF_SIZE - 99,
     .status = IBV_WC_REM_ACCESS_ERR,
     .event = IBV_EVENT_QP_ACCESS_ERR},
    {.name = "read where reading is not enabled",
     .op = IBV_WR_RDMA_READ,
     .length = 100,
     .access = FLAG(LOCAL_WRITE) | FLAG(REMOTE_WRITE),
     .status = IBV_WC_REM_INV_REQ_ERR,
     .event = IBV_EVENT_QP_REQ_ERR},
    {.name = "atomic off its alignment",
     .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .length = 8,
     .addr_offset = 4,
     .status = IBV_WC_REM_INV_REQ_ERR,
     .event = IBV_EVENT_QP_REQ_ERR},
    {.name = "atomic of another length",
     .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .length = 16,
     .status = IBV_WC_LOC_LEN_ERR,
     .no_event = true},
    {.name = "send from an unknown key",
     .op = IBV_WR_SEND,
     .length = 100,
     .lkey_xor = 0x100,
     .recv_length = 100,
     .status = IBV_WC_LOC_PROT_ERR,
     .no_event = true},
    {.name = "read into an unknown key",
     .op = IBV_WR_RDMA_READ,
     .length = 100,
     .lkey_xor = 0x100,
     .status = IBV_WC_LOC_PROT_ERR,
     .no_event = true},
    {.name = "send longer than the receive",
     .op = IBV_WR_SEND,
     .length = 101,
     .recv_length = 100,
     .status = IBV_WC_REM_INV_REQ_ERR,
     .recv_status = IBV_WC_LOC_LEN_ERR,
     .no_event = true},
    {.name = "long send longer than the receive",
     .op = IBV_WR_SEND,
     .length = 5000,
     .recv_length = 4999,
     .status = IBV_WC_REM_INV_REQ_ERR,
     .recv_status = IBV_WC_LOC_LEN_ERR,
     .no_event = true},
    {.name = "receive into an unknown key",
     .op = IBV_WR_SEND,
     .length = 100,
     .recv_length = 100,
     .recv_lkey_xor = 0x100,
     .status = IBV_WC_REM_OP_ERR,
     .recv_status = IBV_WC_LOC_PROT_ERR,
     .no_event = true},
    {.name = "send with no receive",
     .op = IBV_WR_SEND,
     .length = 100,
     .status = IBV_WC_RNR_RETRY_EXC_ERR,
     .no_event = true},
    {.name = "write with immediate and no receive",
     .op = IBV_WR_RDMA_WRITE_WITH_IMM,
     .length = 100,
     .status = IBV_WC_RNR_RETRY_EXC_ERR,
     .no_event = true},
};

static void use_other_pd(struct end *e)
{
	struct ibv_pd *pd = ibv_alloc_pd(e->ctx);

	assert_non_null(pd);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	e->mr = ibv_reg_mr(pd, e->buf, BUF_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(e->mr);
}

static void give_back_pd(struct end *e)
{
	struct ibv_pd *pd = e->mr->pd;

	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF_SIZE, IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void suffer(const struct mishap *m)
{
	struct ibv_sge sge, recv_sge;
	struct ibv_recv_wr recv = {.wr_id = 20, .sg_list = &recv_sge, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr wr = wr_of(m->op, 10, &sge), *bad;
	bool remote = m->status != IBV_WC_LOC_PROT_ERR && m->status != IBV_WC_LOC_LEN_ERR &&
		      m->status != IBV_WC_RNR_RETRY_EXC_ERR;
	struct world w;

	world_open(&w, &(struct world_opts){.access = m->access});
	if (m->other_pd)
		use_other_pd(&w.b);
	fill(w.a.buf, BUF_SIZE, 1);
	memset(w.b.buf, 0xee, BUF_SIZE);
	sge = (struct ibv_sge){(uintptr_t)w.a.buf, m->length, w.a.mr->lkey ^ m->lkey_xor};
	recv_sge =
	    (struct ibv_sge){(uintptr_t)w.b.buf, m->recv_length, w.b.mr->lkey ^ m->recv_lkey_xor};
	if (m->recv_length)
		assert_int_equal(ibv_post_recv(w.b.qp, &recv, &bad_recv), 0);
	wr.wr.rdma.remote_addr = (uintptr_t)w.b.buf + (uint64_t)(int64_t)m->addr_offset;
	wr.wr.rdma.rkey = w.b.mr->rkey ^ m->rkey_xor;
	if (m->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)w.b.buf + (uint64_t)(int64_t)m->addr_offset;
		wr.wr.atomic.rkey = w.b.mr->rkey;
	}
	assert_int_equal(ibv_post_send(w.a.qp, &wr, &bad), 0);
	/* What stands behind the failing WR is flushed, in order, even if unsignalled. */
	assert_int_equal(post_flags(&w.a, IBV_WR_RDMA_WRITE, 11, 0, 0, &w.b, 0, 0), 0);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 12, 0, 0, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 10, m->status);
	expect_wc(&w.a, 11, IBV_WC_WR_FLUSH_ERR);
	expect_wc(&w.a, 12, IBV_WC_WR_FLUSH_ERR);
	expect_no_wc(&w.a);
	assert_int_equal(state_of(w.a.qp), IBV_QPS_ERR);
	assert_int_equal(state_of(w.b.qp), remote ? IBV_QPS_ERR : IBV_QPS_RTS);
	if (m->recv_length && remote)
		expect_wc(&w.b, 20, m->recv_status);
	expect_no_wc(&w.b);
	if (!m->no_event)
		expect_event(w.b.ctx, m->event);
	expect_no_event(w.b.ctx);
	expect_no_event(w.a.ctx);
	/* Nothing was placed that a single packet could not have placed legally. */
	if (m->length <= 100)
		for (uint32_t i = 0; i < BUF_SIZE; i++)
			assert_int_equal(w.b.buf[i], 0xee);
	if (m->other_pd)
		give_back_pd(&w.b);
	world_close(&w);
}

static void test_mishaps(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(mishaps) / sizeof(mishaps[0]); i++) {
		print_message("  %s\n", mishaps[i].name);
		suffer(&mishaps[i]);
	}
}

/* Good WRs ahead of a bad one complete first, though the bad one is known to fail at once. */
static void test_error_waits_its_turn(void **state)
{
	struct world *w = *state;

	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 5000, &w->b, 0), 0);
	w->a.mr->lkey ^= 0x100;
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 2, 0, 100, &w->b, 0), 0);
	w->a.mr->lkey ^= 0x100;
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 3, 0, 100, &w->b, 0), 0);
	expect_no_wc(&w->a);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	expect_wc(&w->a, 2, IBV_WC_LOC_PROT_ERR);
	expect_wc(&w->a, 3, IBV_WC_WR_FLUSH_ERR);
}

/* A region deregistered in the middle of a message ends it, at either side. */
static void test_dereg_in_flight(void **state)
{
	struct world *w = *state;
	struct ibv_mr *mr;

	mr = ibv_reg_mr(w->b.pd, w->b.buf, 65536, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(mr);
	fill(w->a.buf, 65536, 1);
	{
		struct ibv_sge sge = {(uintptr_t)w->a.buf, 65536, w->a.mr->lkey};
		struct ibv_send_wr wr = wr_of(IBV_WR_RDMA_WRITE, 1, &sge), *bad;

		wr.wr.rdma.remote_addr = (uintptr_t)w->b.buf;
		wr.wr.rdma.rkey = mr->rkey;
		assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
	}
	for (int i = 0; i < 6; i++)
		assert_true(sv_stepped_step());
	assert_int_equal(ibv_dereg_mr(mr), 0);
	settle();
	expect_wc(&w->a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_memory_equal(w->a.buf, w->b.buf, 1024); /* what had come stays */
	assert_int_equal(w->b.buf[65535], 0);
}

/* A region that goes while it is being read: the reader is told. */
static void test_dereg_while_read(void **state)
{
	struct world *w = *state;
	struct ibv_sge sge;
	struct ibv_send_wr wr = wr_of(IBV_WR_RDMA_READ, 1, &sge), *bad;
	struct ibv_mr *mr;

	/* Room for few packets, so that the answer is not all under way at once. */
	mr = ibv_reg_mr(w->b.pd, w->b.buf, 65536, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	sge = (struct ibv_sge){(uintptr_t)w->a.buf, 65536, w->a.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)w->b.buf;
	wr.wr.rdma.rkey = mr->rkey;
	assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
	for (int i = 0; i < 6; i++)
		assert_true(sv_stepped_step());
	assert_int_equal(ibv_dereg_mr(mr), 0);
	settle();
	expect_wc(&w->a, 1, IBV_WC_REM_ACCESS_ERR);
	expect_event(w->b.ctx, IBV_EVENT_QP_ACCESS_ERR);
}

/* More outstanding READs than the peer allows: it refuses. */
static void test_no_reads_allowed(void **state)
{
	struct world *w = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .timeout = 10, .sq_psn = 1};

	assert_int_equal(to_init(&w->a, NULL), 0);
	assert_int_equal(to_rtr(&w->a, &w->b, NULL), 0);
	/* max_rd_atomic 0 as initiator */
	assert_int_equal(ibv_modify_qp(w->a.qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
	assert_int_equal(post(&w->a, IBV_WR_RDMA_READ, 1, 0, 8, &w->b, 0), 0);
	expect_wc(&w->a, 1, IBV_WC_LOC_QP_OP_ERR);
}

static void test_flush_order_on_err(void **state)
{
	struct world *w = *state;

	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(post_recv(&w->a, 100 + i, 0, 10), 0);
	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(post_flags(&w->a, IBV_WR_RDMA_WRITE, i, 0, 10, &w->b, 0, 0), 0);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	/* The sentinel of a drain comes last. */
	assert_int_equal(post(&w->a, IBV_WR_SEND, 50, 0, 0, NULL, 0), 0);
	assert_int_equal(post_recv(&w->a, 51, 0, 0), 0);
	for (uint64_t i = 0; i < 5; i++)
		expect_wc(&w->a, i, IBV_WC_WR_FLUSH_ERR);
	for (uint64_t i = 0; i < 5; i++)
		expect_wc(&w->a, 100 + i, IBV_WC_WR_FLUSH_ERR);
	expect_wc(&w->a, 50, IBV_WC_WR_FLUSH_ERR);
	expect_wc(&w->a, 51, IBV_WC_WR_FLUSH_ERR);
	expect_no_wc(&w->a);
	settle();
}

/* As the kernel's soft RoCE does it. */
static void test_late_recvs_stay_until_err_is_set_again(void **state)
{
	struct world *w = *state;

	assert_int_equal(post_recv(&w->a, 1, 0, 10), 0);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	expect_wc(&w->a, 1, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(post_recv(&w->a, 2, 0, 10), 0);
	assert_int_equal(post(&w->a, IBV_WR_SEND, 3, 0, 0, NULL, 0), 0);
	expect_wc(&w->a, 3, IBV_WC_WR_FLUSH_ERR);
	expect_no_wc(&w->a);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	expect_wc(&w->a, 2, IBV_WC_WR_FLUSH_ERR);
	expect_no_wc(&w->a);
	settle();
}

static void test_queues_fill_up(void **state)
{
	struct world *w = *state;

	for (uint64_t i = 0; i < 16; i++) {
		assert_int_equal(post_flags(&w->a, IBV_WR_RDMA_WRITE, i, 0, 10, &w->b, 0, 0), 0);
		assert_int_equal(post_recv(&w->a, i, 0, 10), 0);
	}
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 16, 0, 10, &w->b, 0), ENOMEM);
	assert_int_equal(post_recv(&w->a, 16, 0, 10), ENOMEM);
	settle();
	/* Unsignalled WRs leave room again once acknowledged. */
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 17, 0, 10, &w->b, 0), 0);
	settle();
	expect_wc(&w->a, 17, IBV_WC_SUCCESS);
}

static void test_bad_wr_is_named(void **state)
{
	struct world *w = *state;
	struct ibv_sge sge = {0};
	struct ibv_send_wr wr[3], *bad;
	struct ibv_recv_wr recv[2], *bad_recv;

	sge = (struct ibv_sge){(uintptr_t)w->a.buf, 10, w->a.mr->lkey};
	for (int i = 0; i < 3; i++) {
		wr[i] = wr_of(IBV_WR_RDMA_WRITE, (uint64_t)i, &sge);
		wr[i].wr.rdma.remote_addr = (uintptr_t)w->b.buf;
		wr[i].wr.rdma.rkey = w->b.mr->rkey;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].num_sge = 5; /* 4 are allowed */
	assert_int_equal(ibv_post_send(w->a.qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	settle();
	expect_wc(&w->a, 0, IBV_WC_SUCCESS);
	expect_no_wc(&w->a);
	wr[0].opcode = IBV_WR_LOCAL_INV;
	assert_int_equal(ibv_post_send(w->a.qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[0]);
	recv[0] = (struct ibv_recv_wr){.next = &recv[1]};
	recv[1] = (struct ibv_recv_wr){.num_sge = 5};
	assert_int_equal(ibv_post_recv(w->a.qp, recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv[1]);
}

/* A CQ that overflows: CQ_ERR on it, QP_FATAL on the QP whose completion found no place. */
static void test_cq_overrun(void **state)
{
	struct world *w = *state;
	struct ibv_wc wc[16];

	assert_int_equal(w->a.cq->cqe, 7);
	for (uint64_t i = 0; i < 9; i++)
		assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, i, 0, 10, &w->b, 0), 0);
	settle();
	expect_event(w->a.ctx, IBV_EVENT_CQ_ERR);
	expect_event(w->a.ctx, IBV_EVENT_QP_FATAL);
	expect_no_event(w->a.ctx);
	assert_int_equal(state_of(w->a.qp), IBV_QPS_ERR);
	assert_int_equal(ibv_poll_cq(w->a.cq, 16, wc), 7);
	for (uint64_t i = 0; i < 7; i++)
		assert_int_equal(wc[i].wr_id, i);
}

static void test_cq_resize(void **state)
{
	struct world *w = *state;

	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, i, 0, 10, &w->b, 0), 0);
	settle();
	expect_wc(&w->a, 0, IBV_WC_SUCCESS);
	assert_int_equal(ibv_resize_cq(w->a.cq, 3), EINVAL); /* five are waiting */
	assert_int_equal(ibv_resize_cq(w->a.cq, 20), 0);
	assert_int_equal(w->a.cq->cqe, 31);
	for (uint64_t i = 6; i < 20; i++)
		assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, i, 0, 10, &w->b, 0), 0);
	settle();
	for (uint64_t i = 1; i < 20; i++)
		expect_wc(&w->a, i, IBV_WC_SUCCESS);
	expect_no_event(w->a.ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_mishaps),
	    WORLD_TEST(test_error_waits_its_turn),
	    WORLD_TEST(test_dereg_in_flight, .fabric = {.window_packets = 4}),
	    WORLD_TEST(test_dereg_while_read, .fabric = {.inbox_packets = 4}),
	    WORLD_TEST(test_no_reads_allowed, .unconnected = true),
	    WORLD_TEST(test_flush_order_on_err),
	    WORLD_TEST(test_late_recvs_stay_until_err_is_set_again, .fabric.late_recvs_stay = true),
	    WORLD_TEST(test_queues_fill_up, .wrs = 16),
	    WORLD_TEST(test_bad_wr_is_named),
	    WORLD_TEST(test_cq_overrun, .cqe = 7),
	    WORLD_TEST(test_cq_resize, .cqe = 7),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
