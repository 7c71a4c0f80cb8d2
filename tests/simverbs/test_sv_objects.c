/* SPDX-License-Identifier: Apache-2.0 */
/* Memory regions, domains, queues: what they hold, what they refuse, and that they go in order. */
#include "world.h"

static struct ibv_qp *plain_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.cap = {.max_send_wr = 16, .max_send_sge = 1},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	return qp;
}

static void test_registration(void **state)
{
	struct world *w = *state;
	static const unsigned int bad_access[] = {IBV_ACCESS_REMOTE_WRITE,
						  IBV_ACCESS_REMOTE_ATOMIC};
	struct ibv_mr *mr;
	int fd;

	for (size_t i = 0; i < 2; i++) {
		assert_null(ibv_reg_mr(w->a.pd, w->a.buf, 10, bad_access[i]));
		assert_int_equal(errno, EINVAL);
	}
	assert_null(ibv_reg_mr(w->a.pd, w->a.buf, 10, IBV_ACCESS_ON_DEMAND));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_reg_mr(w->a.pd, (void *)4096, 10, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EFAULT);
	/* Relaxed ordering is a hint. */
	mr =
	    ibv_reg_mr(w->a.pd, w->a.buf, 10, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	assert_non_null(mr);
	assert_int_equal(ibv_dealloc_pd(w->a.pd), EBUSY);
	ibv_dereg_mr(mr);
	fd = fileno(tmpfile());
	assert_null(ibv_reg_dmabuf_mr(w->a.pd, 0, 4096, 1, fd, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EINVAL); /* iova and offset in different places of their pages */
	assert_null(ibv_reg_dmabuf_mr(w->a.pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EBADF);
}

/* Addresses in WRs are the region's I/O addresses, whatever the memory behind them. */
static void test_iova_and_dmabuf(void **state)
{
	struct world *w = *state;
	struct ibv_sge sge;
	struct ibv_send_wr wr = wr_of(IBV_WR_RDMA_WRITE, 1, &sge), *bad;
	struct ibv_mr *mr, *dma;
	FILE *file = tmpfile();
	char read_back[16];

	mr = ibv_reg_mr_iova(w->a.pd, w->a.buf + 4096, 4096, 0x10000, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_int_equal(fseek(file, 8191, SEEK_SET), 0);
	assert_int_equal(fputc(0, file), 0);
	assert_int_equal(fflush(file), 0);
	dma = ibv_reg_dmabuf_mr(w->b.pd, 4096 + 512, 1000, 512, fileno(file),
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(dma);
	memcpy(w->a.buf + 4096 + 100, "through a window", 16);
	sge = (struct ibv_sge){0x10000 + 100, 16, mr->lkey};
	wr.wr.rdma.remote_addr = 512 + 3;
	wr.wr.rdma.rkey = dma->rkey;
	assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_int_equal(fseek(file, 4096 + 512 + 3, SEEK_SET), 0);
	assert_int_equal(fread(read_back, 1, 16, file), 16);
	assert_memory_equal(read_back, "through a window", 16);
	ibv_dereg_mr(mr);
	ibv_dereg_mr(dma);
	fclose(file);
}

static void test_reregistration(void **state)
{
	struct world *w = *state;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	pd = ibv_alloc_pd(w->b.ctx);
	assert_non_null(pd);
	mr = w->b.mr;
	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(
	    ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE),
	    IBV_REREG_MR_ERR_INPUT);
	/* Half the size: what lies behind is out of bounds now. */
	assert_int_equal(
	    ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w->b.buf, BUF_SIZE / 2, 0), 0);
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 10, &w->b, BUF_SIZE / 2 - 10), 0);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	/* Another PD: the QP may not use it any more. */
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 2, 0, 10, &w->b, 0), 0);
	settle();
	expect_wc(&w->a, 2, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, w->b.pd, NULL, 0, 0), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* A parent domain stands for its PD: objects of both work together. */
static void test_parent_domain(void **state)
{
	struct world *w = *state;
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_parent_domain_init_attr attr = {0};
	struct ibv_pd *parent;
	struct ibv_td *td;

	td = ibv_alloc_td(w->b.ctx, &td_attr);
	assert_non_null(td);
	assert_null(ibv_alloc_parent_domain(w->b.ctx, &attr));
	attr.pd = w->b.pd;
	attr.td = td;
	parent = ibv_alloc_parent_domain(w->b.ctx, &attr);
	assert_non_null(parent);
	assert_int_equal(ibv_destroy_qp(w->b.qp), 0);
	w->b.qp = plain_qp(parent, w->b.cq);
	connect_ends(&w->a, &w->b, NULL);
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 10, &w->b, 0), 0);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_qp(w->b.qp), 0);
	w->b.qp = NULL;
	assert_int_equal(ibv_dealloc_pd(w->b.pd), EBUSY);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
}

/* A QP that goes takes its completions out of a CQ it shares, and leaves the others in order. */
static void test_destroy_cleans_a_shared_cq(void **state)
{
	struct world *w = *state;
	struct ibv_qp *first;

	first = w->a.qp;
	assert_int_equal(to_init(&w->a, NULL), 0);
	w->a.qp = plain_qp(w->a.pd, w->a.cq);
	assert_int_equal(to_state(first, IBV_QPS_ERR), 0);
	assert_int_equal(to_init(&w->a, NULL), 0);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	for (uint64_t i = 0; i < 5; i++) {
		struct ibv_send_wr wr = {.wr_id = 100 + i, .opcode = IBV_WR_SEND}, *bad;

		assert_int_equal(ibv_post_send(first, &wr, &bad), 0);
		assert_int_equal(post(&w->a, IBV_WR_SEND, i, 0, 0, NULL, 0), 0);
	}
	assert_int_equal(ibv_destroy_qp(first), 0);
	for (uint64_t i = 0; i < 5; i++)
		expect_wc(&w->a, i, IBV_WC_WR_FLUSH_ERR);
	expect_no_wc(&w->a);
}

static void test_ignored_overrun_keeps_the_latest(void **state)
{
	struct world *w = *state;
	struct ibv_cq_init_attr_ex attr = {.cqe = 3,
					   .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					   .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
	struct ibv_cq *plain;

	plain = w->a.cq;
	assert_int_equal(ibv_destroy_qp(w->a.qp), 0);
	w->a.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(w->a.ctx, &attr));
	assert_non_null(w->a.cq);
	w->a.qp = plain_qp(w->a.pd, w->a.cq);
	connect_ends(&w->a, &w->b, NULL);
	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, i, 0, 10, &w->b, 0), 0);
	settle();
	for (uint64_t i = 2; i < 5; i++)
		expect_wc(&w->a, i, IBV_WC_SUCCESS);
	expect_no_wc(&w->a);
	expect_no_event(w->a.ctx);
	assert_int_equal(ibv_destroy_qp(w->a.qp), 0);
	w->a.qp = NULL;
	assert_int_equal(ibv_destroy_cq(w->a.cq), 0);
	w->a.cq = plain;
}

static void test_limits(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr init;
	struct ibv_device_attr attr;
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	assert_int_equal(ibv_query_device(w->a.ctx, &attr), 0);
	assert_int_equal(attr.max_qp, 2);
	assert_int_equal(attr.max_qp_wr, 64);
#define QP(...)                                                                                    \
	(init = (struct ibv_qp_init_attr){.send_cq = w->a.cq,                                      \
					  .recv_cq = w->a.cq,                                      \
					  .qp_type = IBV_QPT_RC,                                   \
					  .cap = {__VA_ARGS__}},                                   \
	 ibv_create_qp(w->a.pd, &init))
	assert_null(QP(.max_send_wr = 65));
	assert_null(QP(.max_recv_wr = 65));
	assert_null(QP(.max_send_wr = 1, .max_send_sge = 5));
	assert_null(QP(.max_send_wr = 1, .max_inline_data = 33));
	assert_int_equal(errno, EINVAL);
	qp = QP(.max_send_wr = 5, .max_recv_wr = 3, .max_recv_sge = 1);
	assert_non_null(qp);
	assert_true(init.cap.max_send_wr >= 5 && init.cap.max_recv_wr >= 3);
	assert_null(QP(.max_send_wr = 1));
	assert_int_equal(errno, ENOMEM);
	ibv_destroy_qp(qp);
	qp = QP(.max_send_wr = 1);
	assert_non_null(qp);
	ibv_destroy_qp(qp);
#undef QP
	mr = ibv_reg_mr(w->a.pd, w->a.buf, 10, 0);
	assert_non_null(mr);
	assert_null(ibv_reg_mr(w->a.pd, w->a.buf, 10, 0));
	assert_int_equal(errno, ENOMEM);
	ibv_dereg_mr(mr);
	assert_null(ibv_create_cq(w->a.ctx, 301, NULL, NULL, 0));
	assert_null(ibv_create_cq(w->a.ctx, 0, NULL, NULL, 0));
	assert_null(ibv_create_cq(w->a.ctx, 1, NULL, NULL, 99));
}

static void test_busy_objects(void **state)
{
	struct world *w = *state;

	assert_int_equal(ibv_destroy_cq(w->b.cq), EBUSY);
	assert_int_equal(ibv_destroy_srq(w->b.srq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(w->b.pd), EBUSY);
	assert_int_equal(sv_stepped_close(), -EBUSY);
	assert_int_equal(sv_stepped_open_contexts(), 2);
}

/* Closing a device takes everything with it; the sanitizer looks for what is left. */
static void test_close_takes_everything(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.srq_wrs = 4});
	assert_int_equal(post_recv(&w.b, 1, 0, 10), 0);
	assert_int_equal(post(&w.a, IBV_WR_SEND, 1, 0, 10, NULL, 0), 0);
	assert_int_equal(ibv_close_device(w.a.ctx), 0);
	settle(); /* its packets find nobody to answer to */
	assert_int_equal(ibv_close_device(w.b.ctx), 0);
	free(w.a.buf);
	free(w.b.buf);
	assert_int_equal(sv_stepped_close(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WORLD_TEST(test_registration),
	    WORLD_TEST(test_iova_and_dmabuf),
	    WORLD_TEST(test_reregistration),
	    WORLD_TEST(test_parent_domain, .unconnected = true),
	    WORLD_TEST(test_destroy_cleans_a_shared_cq, .unconnected = true),
	    WORLD_TEST(test_ignored_overrun_keeps_the_latest, .unconnected = true),
	    WORLD_TEST(test_limits, .fabric = {.max_qp = 2,
					       .max_mr = 2,
					       .max_qp_wr = 64,
					       .max_sge = 4,
					       .max_inline = 32,
					       .max_cqe = 300}),
	    WORLD_TEST(test_busy_objects, .srq_wrs = 4),
	    cmocka_unit_test(test_close_takes_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
