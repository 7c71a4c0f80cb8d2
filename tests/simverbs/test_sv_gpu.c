/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices that read and write the memory of a GPU, which no processor can. The GPU is a stand-in
 * (fakecuda): who touches its memory without the driver dies, and a copy that nobody waited for was
 * not made.
 */
#include "world.h"

#include "fakecuda.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH 20000u
#define MTU    1024u
#define ON_GPU .fabric.gpu = true

/* Memory of the GPU with a region of an end's device. */
struct gpu {
	uint8_t *at;   /* as the program knows it */
	uint8_t *view; /* as the GPU sees it */
	struct ibv_mr *mr;
};

static struct gpu gpu_at(const struct end *e)
{
	struct gpu gpu = {.at = fakecuda_alloc(LENGTH)};

	assert_non_null(gpu.at);
	gpu.view = fakecuda_look(gpu.at);
	gpu.mr = ibv_reg_mr(e->pd, gpu.at, LENGTH, all_access);
	assert_non_null(gpu.mr);
	return gpu;
}

static void gpu_close(struct gpu *gpu)
{
	if (gpu->mr)
		assert_int_equal(ibv_dereg_mr(gpu->mr), 0);
	fakecuda_free(gpu->at);
}

static void assert_all(const uint8_t *at, uint8_t value, size_t length)
{
	for (size_t i = 0; i < length; i++)
		assert_int_equal(at[i], value);
}

/* One work request of `a` with its own memory here and the peer's there. */
static void post_between(struct end *a, enum ibv_wr_opcode op, uint64_t id, const void *here,
			 uint32_t lkey, uint32_t length, const void *there, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)here, length, lkey};
	struct ibv_send_wr wr = wr_of(op, id, &sge), *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)there;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)there;
		wr.wr.rdma.rkey = rkey;
	}
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
}

static void post_recv_into(struct end *e, uint64_t id, const void *at, uint32_t lkey,
			   uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)at, length, lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
}

/* ---- what is registered ---------------------------------------------------------------------- */

static void a_processor_that_touches_the_memory_dies(void **state)
{
	uint8_t *at = fakecuda_alloc(LENGTH);
	int status;
	pid_t child;

	(void)state;
	assert_non_null(at);
	child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own */
		*(volatile uint8_t *)at = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	fakecuda_free(at);
}

static void a_fabric_that_reaches_no_gpu_refuses_it_and_asks_no_driver(void **state)
{
	struct world *w = *state;
	uint8_t *at = fakecuda_alloc(LENGTH);

	fakecuda_reset();
	errno = 0;
	assert_null(ibv_reg_mr(w->a.pd, at, LENGTH, all_access));
	assert_int_equal(errno, EFAULT);
	assert_int_equal(fakecuda_calls("cuPointerGetAttribute"), 0);
	fakecuda_free(at);
}

static void only_what_is_one_gpus_from_end_to_end_is_registered(void **state)
{
	struct world *w = *state;
	uint8_t *at = fakecuda_alloc(LENGTH);
	struct ibv_mr *mr = ibv_reg_mr(w->a.pd, at + 7, LENGTH - 7, all_access);

	assert_non_null(mr);
	assert_ptr_equal(mr->addr, at + 7);
	assert_int_equal(mr->length, LENGTH - 7);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	errno = 0;
	assert_null(ibv_reg_mr(w->a.pd, at, LENGTH + 4096, all_access));
	assert_int_equal(errno, EFAULT);
	fakecuda_free(at);
	errno = 0;
	assert_null(ibv_reg_mr(w->a.pd, at, LENGTH, all_access));
	assert_int_equal(errno, EFAULT);
}

/* Programs register whole pages, wherever in them an allocation begins and ends. */
static void whole_pages_around_an_allocation_are_registered(void **state)
{
	struct world *w = *state;
	uint8_t *at = fakecuda_alloc_inside(LENGTH, 1536);
	uint8_t *page = at - 1536;
	struct ibv_mr *mr = ibv_reg_mr(w->b.pd, page, 6 * 4096, all_access);

	assert_non_null(mr);
	fill(w->a.buf, LENGTH, 13);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, w->a.buf, w->a.mr->lkey, LENGTH, at, mr->rkey);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(fakecuda_look(at), w->a.buf, LENGTH);
	/* And what is in the page, and nobody's, is not there. */
	post_between(&w->a, IBV_WR_RDMA_WRITE, 2, w->a.buf, w->a.mr->lkey, 8, page, mr->rkey);
	settle();
	expect_wc(&w->a, 2, IBV_WC_REM_OP_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	fakecuda_free(at);
}

static void registrations_share_a_context_and_a_stream_and_leave_none(void **state)
{
	struct world *w = *state;
	struct gpu one = gpu_at(&w->a), other = gpu_at(&w->b);

	assert_int_equal(fakecuda_contexts(), 1);
	assert_int_equal(fakecuda_streams(), 1);
	gpu_close(&one);
	assert_int_equal(fakecuda_streams(), 1);
	gpu_close(&other);
	assert_int_equal(fakecuda_contexts(), 0);
	assert_int_equal(fakecuda_streams(), 0);
}

static void memory_of_a_gpu_is_not_registered_again_in_place(void **state)
{
	struct world *w = *state;
	struct gpu gpu = gpu_at(&w->a);

	assert_int_equal(
	    ibv_rereg_mr(gpu.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w->a.buf, BUF_SIZE, 0),
	    IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(
	    ibv_rereg_mr(w->a.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, gpu.at, LENGTH, 0),
	    IBV_REREG_MR_ERR_INPUT);
	gpu_close(&gpu);
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void a_dmabuf_that_cannot_be_mapped_is_reached_at_its_address(void **state)
{
	struct world *w = *state;
	uint8_t *at = fakecuda_alloc(LENGTH);
	int before = open_descriptors(), fd = -1;
	struct ibv_mr *mr;

	assert_int_equal(cuMemGetHandleForAddressRange(&fd, (uintptr_t)at, LENGTH, 1, 0), 0);
	mr = ibv_reg_dmabuf_mr(w->b.pd, 0, LENGTH, (uintptr_t)at, fd, (int)all_access);
	assert_non_null(mr);
	close(fd);
	assert_int_equal(open_descriptors(), before + 1); /* the region's own */
	fill(w->a.buf, LENGTH, 3);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, w->a.buf, w->a.mr->lkey, LENGTH, at, mr->rkey);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(fakecuda_look(at), w->a.buf, LENGTH);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(open_descriptors(), before);
	/* No descriptor at all, and an address that is no GPU's. */
	errno = 0;
	assert_null(ibv_reg_dmabuf_mr(w->b.pd, 0, LENGTH, (uintptr_t)at, -1, (int)all_access));
	assert_int_equal(errno, EBADF);
	assert_int_equal(cuMemGetHandleForAddressRange(&fd, (uintptr_t)at, LENGTH, 1, 0), 0);
	fakecuda_free(at);
	assert_null(ibv_reg_dmabuf_mr(w->b.pd, 0, LENGTH, (uintptr_t)at, fd, (int)all_access));
	close(fd);
	assert_int_equal(open_descriptors(), before - 1);
}

static void a_dmabuf_of_a_gpu_needs_a_fabric_that_reaches_it(void **state)
{
	struct world *w = *state;
	uint8_t *at = fakecuda_alloc(LENGTH);
	int fd = -1;

	assert_int_equal(cuMemGetHandleForAddressRange(&fd, (uintptr_t)at, LENGTH, 1, 0), 0);
	assert_null(ibv_reg_dmabuf_mr(w->b.pd, 0, LENGTH, (uintptr_t)at, fd, (int)all_access));
	close(fd);
	fakecuda_free(at);
}

/* ---- every way to use it --------------------------------------------------------------------- */

static void writes_go_from_gpu_to_gpu_and_to_and_from_hosts(void **state)
{
	struct world *w = *state;
	struct gpu a = gpu_at(&w->a), b = gpu_at(&w->b);

	fill(w->a.buf, LENGTH, 1);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, w->a.buf + 3, w->a.mr->lkey, 9999, b.at + 5,
		     b.mr->rkey);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(b.view + 5, w->a.buf + 3, 9999);
	assert_all(b.view, 0, 5);
	assert_all(b.view + 5 + 9999, 0, LENGTH - 5 - 9999);

	fill(a.view, LENGTH, 2);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 2, a.at + 1, a.mr->lkey, LENGTH - 1, b.at,
		     b.mr->rkey);
	settle();
	expect_wc(&w->a, 2, IBV_WC_SUCCESS);
	assert_memory_equal(b.view, a.view + 1, LENGTH - 1);

	post_between(&w->a, IBV_WR_RDMA_WRITE, 3, a.at, a.mr->lkey, LENGTH, w->b.buf + 2,
		     w->b.mr->rkey);
	settle();
	expect_wc(&w->a, 3, IBV_WC_SUCCESS);
	assert_memory_equal(w->b.buf + 2, a.view, LENGTH);
	gpu_close(&a);
	gpu_close(&b);
}

static void reads_fetch_from_gpus_and_into_them(void **state)
{
	struct world *w = *state;
	struct gpu a = gpu_at(&w->a), b = gpu_at(&w->b);

	fill(b.view, LENGTH, 4);
	post_between(&w->a, IBV_WR_RDMA_READ, 1, a.at + 3, a.mr->lkey, 9999, b.at + 1, b.mr->rkey);
	post_between(&w->a, IBV_WR_RDMA_READ, 2, w->a.buf, w->a.mr->lkey, LENGTH, b.at, b.mr->rkey);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	expect_wc(&w->a, 2, IBV_WC_SUCCESS);
	assert_memory_equal(a.view + 3, b.view + 1, 9999);
	assert_memory_equal(w->a.buf, b.view, LENGTH);
	gpu_close(&a);
	gpu_close(&b);
}

/* Of host and GPU memory in turn, at both ends and cut at different places. */
static void a_message_is_of_pieces_of_both_kinds(void **state)
{
	struct world *w = *state;
	struct gpu a = gpu_at(&w->a), b = gpu_at(&w->b);
	struct ibv_sge from[] = {{(uintptr_t)w->a.buf, 1500, w->a.mr->lkey},
				 {(uintptr_t)a.at, 3000, a.mr->lkey},
				 {(uintptr_t)w->a.buf + 1500, 700, w->a.mr->lkey},
				 {(uintptr_t)a.at + 3000, 4800, a.mr->lkey}};
	struct ibv_sge to[] = {{(uintptr_t)b.at, 100, b.mr->lkey},
			       {(uintptr_t)w->b.buf, 2500, w->b.mr->lkey},
			       {(uintptr_t)b.at + 100, 8000, b.mr->lkey}};
	struct ibv_send_wr send = wr_of(IBV_WR_SEND, 1, from), *bad;
	struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = to, .num_sge = 3}, *bad_recv;
	uint8_t whole[10000];

	send.num_sge = 4;
	fill(w->a.buf, LENGTH, 5);
	fill(a.view, LENGTH, 6);
	memcpy(whole, w->a.buf, 1500);
	memcpy(whole + 1500, a.view, 3000);
	memcpy(whole + 4500, w->a.buf + 1500, 700);
	memcpy(whole + 5200, a.view + 3000, 4800);
	assert_int_equal(ibv_post_recv(w->b.qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(w->a.qp, &send, &bad), 0);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_int_equal(expect_wc(&w->b, 2, IBV_WC_SUCCESS).byte_len, 10000);
	assert_memory_equal(b.view, whole, 100);
	assert_memory_equal(w->b.buf, whole + 100, 2500);
	assert_memory_equal(b.view + 100, whole + 2600, 7400);
	gpu_close(&a);
	gpu_close(&b);
}

static void inline_data_gets_into_a_gpu(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);
	uint8_t bytes[48];
	struct ibv_sge sge = {(uintptr_t)bytes, sizeof(bytes), 0};
	struct ibv_send_wr wr = wr_of(IBV_WR_RDMA_WRITE, 1, &sge), *bad;

	fill(bytes, sizeof(bytes), 7);
	wr.send_flags |= IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = (uintptr_t)b.at;
	wr.wr.rdma.rkey = b.mr->rkey;
	assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
	memset(bytes, 0, sizeof(bytes));
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	fill(bytes, sizeof(bytes), 7);
	assert_memory_equal(b.view, bytes, sizeof(bytes));
	gpu_close(&b);
}

static void datagrams_leave_gpus_and_come_into_them(void **state)
{
	struct world *w = *state;
	struct gpu a = gpu_at(&w->a), b = gpu_at(&w->b);

	fill(a.view, 1000, 8);
	post_recv_into(&w->b, 2, b.at, b.mr->lkey, 40 + 1000);
	{
		struct ibv_ah_attr attr = address_of(&w->b);
		struct ibv_ah *ah = ibv_create_ah(w->a.pd, &attr);
		struct ibv_sge sge = {(uintptr_t)a.at, 1000, a.mr->lkey};
		struct ibv_send_wr wr = wr_of(IBV_WR_SEND, 1, &sge), *bad;

		assert_non_null(ah);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = w->b.qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
		assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
		settle();
		assert_int_equal(ibv_destroy_ah(ah), 0);
	}
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	expect_wc(&w->b, 2, IBV_WC_SUCCESS);
	assert_memory_equal(b.view + 40, a.view, 1000);
	gpu_close(&a);
	gpu_close(&b);
}

static uint64_t word_at(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static void post_atomic(struct end *e, enum ibv_wr_opcode op, uint64_t id, const struct gpu *result,
			const struct gpu *target, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = {(uintptr_t)result->at, 8, result->mr->lkey};
	struct ibv_send_wr wr = wr_of(op, id, &sge), *bad;

	wr.wr.atomic.remote_addr = (uintptr_t)target->at + 16;
	wr.wr.atomic.rkey = target->mr->rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	settle();
	expect_wc(e, id, IBV_WC_SUCCESS);
}

static void atomics_work_on_words_of_a_gpu(void **state)
{
	struct world *w = *state;
	struct gpu a = gpu_at(&w->a), b = gpu_at(&w->b);

	post_atomic(&w->a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &a, &b, 5, 0);
	assert_int_equal(word_at(a.view), 0);
	assert_int_equal(word_at(b.view + 16), 5);
	post_atomic(&w->a, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, &a, &b, ~0ull, 0);
	assert_int_equal(word_at(a.view), 5);
	assert_int_equal(word_at(b.view + 16), 4);
	post_atomic(&w->a, IBV_WR_ATOMIC_CMP_AND_SWP, 3, &a, &b, 3, 9);
	assert_int_equal(word_at(a.view), 4);
	assert_int_equal(word_at(b.view + 16), 4);
	post_atomic(&w->a, IBV_WR_ATOMIC_CMP_AND_SWP, 4, &a, &b, 4, 9);
	assert_int_equal(word_at(a.view), 4);
	assert_int_equal(word_at(b.view + 16), 9);
	gpu_close(&a);
	gpu_close(&b);
}

/* An atomic whose answer is lost is not done again. */
static void a_lost_answer_does_not_repeat_an_atomic(void **state)
{
	struct world *w = *state;
	struct gpu a = gpu_at(&w->a), b = gpu_at(&w->b);
	int rule = add_rule("drop op=atomicack nth=1");

	post_atomic(&w->a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &a, &b, 5, 0);
	assert_int_equal(fired(rule), 1);
	assert_int_equal(word_at(a.view), 0);
	assert_int_equal(word_at(b.view + 16), 5);
	gpu_close(&a);
	gpu_close(&b);
}

static void an_immediate_says_that_the_data_is_in_the_gpu(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);
	struct ibv_wc wc;

	fill(w->a.buf, LENGTH, 9);
	post_recv(&w->b, 2, 0, 0);
	post_between(&w->a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, w->a.buf, w->a.mr->lkey, LENGTH, b.at,
		     b.mr->rkey);
	while (ibv_poll_cq(w->b.cq, 1, &wc) == 0)
		assert_true(sv_stepped_step());
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(b.view, w->a.buf, LENGTH);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	gpu_close(&b);
}

/* The sender waits for the driver once for each packet, and so does the receiver. */
static void each_packet_is_waited_for_once_at_each_end(void **state)
{
	const unsigned packets = (LENGTH + MTU - 1) / MTU;
	struct world *w = *state;
	struct gpu a = gpu_at(&w->a), b = gpu_at(&w->b);

	fill(a.view, LENGTH, 10);
	fakecuda_reset();
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, a.at, a.mr->lkey, LENGTH, b.at, b.mr->rkey);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_int_equal(fakecuda_calls("cuMemcpyDtoHAsync_v2"), packets);
	assert_int_equal(fakecuda_calls("cuMemcpyHtoDAsync_v2"), packets);
	assert_int_equal(fakecuda_calls("cuStreamSynchronize"), 2 * packets);
	assert_memory_equal(b.view, a.view, LENGTH);
	gpu_close(&a);
	gpu_close(&b);
}

static void lost_packets_are_sent_again_from_gpu_to_gpu(void **state)
{
	struct world *w = *state;
	struct gpu a = gpu_at(&w->a), b = gpu_at(&w->b);
	int rule = add_rule("drop op=write every=7 count=4");

	fill(a.view, LENGTH, 11);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, a.at, a.mr->lkey, LENGTH, b.at, b.mr->rkey);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_int_equal(fired(rule), 4);
	assert_memory_equal(b.view, a.view, LENGTH);
	gpu_close(&a);
	gpu_close(&b);
}

/* Late packets, which carry what was there when they were sent. */
static void unordered_writes_get_into_a_gpu(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);
	int rule = add_rule("unordered=1ms host=1");

	fill(w->a.buf, LENGTH, 12);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, w->a.buf, w->a.mr->lkey, LENGTH, b.at,
		     b.mr->rkey);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_true(fired(rule) > 10);
	assert_memory_equal(b.view, w->a.buf, LENGTH);
	gpu_close(&b);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void a_region_deregistered_in_use_refuses_the_rest(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);
	unsigned written;

	memset(w->a.buf, 1, LENGTH);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, w->a.buf, w->a.mr->lkey, LENGTH, b.at,
		     b.mr->rkey);
	while (!b.view[5 * MTU])
		assert_true(sv_stepped_step());
	assert_int_equal(ibv_dereg_mr(b.mr), 0);
	b.mr = NULL;
	fakecuda_reset();
	settle();
	written = fakecuda_calls("cuMemcpyHtoDAsync_v2");
	expect_wc(&w->a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(written, 0);
	assert_all(b.view + 6 * MTU, 0, LENGTH - 6 * MTU);
	gpu_close(&b);
}

/* Freed while registered: what the driver refuses ends the connection, at the end that is to blame
 * and at the other one. */
static void memory_that_was_freed_is_an_error_at_both_ends(void **state)
{
	static const struct {
		enum ibv_wr_opcode op;
		bool local;
		enum ibv_wc_status status;
	} cases[] = {
	    {IBV_WR_RDMA_WRITE, true, IBV_WC_LOC_QP_OP_ERR},
	    {IBV_WR_RDMA_READ, true, IBV_WC_LOC_QP_OP_ERR},
	    {IBV_WR_RDMA_WRITE, false, IBV_WC_REM_OP_ERR},
	    {IBV_WR_RDMA_READ, false, IBV_WC_REM_OP_ERR},
	    {IBV_WR_ATOMIC_FETCH_AND_ADD, false, IBV_WC_REM_OP_ERR},
	    {IBV_WR_ATOMIC_FETCH_AND_ADD, true, IBV_WC_LOC_QP_OP_ERR},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool atomic = cases[i].op == IBV_WR_ATOMIC_FETCH_AND_ADD;
		struct world w;
		struct gpu gpu;

		world_open(&w, &(struct world_opts){ON_GPU});
		gpu = gpu_at(cases[i].local ? &w.a : &w.b);
		fakecuda_free(gpu.at);
		post_between(&w.a, cases[i].op, 1, cases[i].local ? gpu.at : w.a.buf,
			     cases[i].local ? gpu.mr->lkey : w.a.mr->lkey, atomic ? 8 : 5000,
			     cases[i].local ? w.b.buf : gpu.at,
			     cases[i].local ? w.b.mr->rkey : gpu.mr->rkey);
		settle();
		expect_wc(&w.a, 1, cases[i].status);
		assert_int_equal(state_of(w.a.qp), IBV_QPS_ERR);
		if (!cases[i].local) {
			expect_event(w.b.ctx, IBV_EVENT_QP_REQ_ERR);
			assert_int_equal(state_of(w.b.qp), IBV_QPS_ERR);
		}
		assert_int_equal(ibv_dereg_mr(gpu.mr), 0);
		world_close(&w);
	}
}

static void a_receive_into_memory_that_was_freed_fails(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);

	fakecuda_free(b.at);
	post_recv_into(&w->b, 2, b.at, b.mr->lkey, LENGTH);
	post(&w->a, IBV_WR_SEND, 1, 0, 5000, &w->b, 0);
	settle();
	expect_wc(&w->a, 1, IBV_WC_REM_OP_ERR);
	expect_wc(&w->b, 2, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(ibv_dereg_mr(b.mr), 0);
}

/* Each call of the driver that a copy takes, on either side. */
static void a_copy_that_the_driver_refuses_is_an_error(void **state)
{
	static const struct {
		const char *entry;
		unsigned skip;
		int error;
		enum ibv_wc_status status;
	} cases[] = {
	    {"cuMemcpyDtoHAsync_v2", 3, CUDA_ERROR_ILLEGAL_ADDRESS, IBV_WC_LOC_QP_OP_ERR},
	    {"cuMemcpyHtoDAsync_v2", 3, CUDA_ERROR_LAUNCH_FAILED, IBV_WC_REM_OP_ERR},
	    {"cuStreamSynchronize", 0, CUDA_ERROR_LAUNCH_FAILED, IBV_WC_LOC_QP_OP_ERR},
	    {"cuCtxPushCurrent_v2", 0, CUDA_ERROR_INVALID_CONTEXT, IBV_WC_LOC_QP_OP_ERR},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world w;
		struct gpu a, b;

		world_open(&w, &(struct world_opts){ON_GPU});
		a = gpu_at(&w.a);
		b = gpu_at(&w.b);
		memset(a.view, 1, LENGTH);
		fakecuda_reset();
		fakecuda_fail(cases[i].entry, cases[i].skip, 1, cases[i].error);
		post_between(&w.a, IBV_WR_RDMA_WRITE, 1, a.at, a.mr->lkey, LENGTH, b.at,
			     b.mr->rkey);
		settle();
		assert_int_equal(fakecuda_failed(cases[i].entry), 1);
		expect_wc(&w.a, 1, cases[i].status);
		/* What came before it is there, and nothing of what came after it. */
		assert_all(b.view, 1, cases[i].skip * MTU);
		assert_all(b.view + cases[i].skip * MTU, 0, LENGTH - cases[i].skip * MTU);
		fakecuda_reset();
		gpu_close(&a);
		gpu_close(&b);
		world_close(&w);
	}
}

/* What is asked of the driver when memory is registered, each of it refused in turn. */
static void a_registration_that_the_driver_refuses_leaves_nothing(void **state)
{
	static const char *const entries[] = {
	    "cuPointerGetAttribute",	   "cuDeviceGet",	  "cuDevicePrimaryCtxRetain",
	    "cuCtxGetStreamPriorityRange", "cuCtxPushCurrent_v2", "cuStreamCreateWithPriority",
	};
	struct world *w = *state;
	uint8_t *at = fakecuda_alloc(LENGTH);
	struct ibv_mr *mr;

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		fakecuda_reset();
		fakecuda_fail(entries[i], 0, 1, CUDA_ERROR_DEVICE_UNAVAILABLE);
		errno = 0;
		assert_null(ibv_reg_mr(w->a.pd, at, LENGTH, all_access));
		assert_int_equal(errno, EFAULT);
		assert_int_equal(fakecuda_failed(entries[i]), 1);
		assert_int_equal(fakecuda_contexts(), 0);
		assert_int_equal(fakecuda_streams(), 0);
		mr = ibv_reg_mr(w->a.pd, at, LENGTH, all_access);
		assert_non_null(mr);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	fakecuda_reset();
	fakecuda_free(at);
}

static void a_device_may_be_unable_to_reach_a_gpu(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);
	int rule = add_rule("unreachable host=1");

	memset(w->a.buf, 1, LENGTH);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, w->a.buf, w->a.mr->lkey, LENGTH, b.at,
		     b.mr->rkey);
	settle();
	expect_wc(&w->a, 1, IBV_WC_REM_OP_ERR);
	assert_true(fired(rule) > 0);
	assert_all(b.view, 0, LENGTH);
	gpu_close(&b);
}

/* ---- writes that are posted ------------------------------------------------------------------ */

#define LATE "gpu=reorder within=50ms host=1"

/* The receiver reads a byte of its own memory by its own device. */
static void flush_by(struct end *self, const struct gpu *gpu)
{
	post_between(self, IBV_WR_RDMA_READ, 77, self->buf, self->mr->lkey, 1, gpu->at,
		     gpu->mr->rkey);
}

static void write_late(struct world *w, const struct gpu *b, uint8_t value, uint32_t length)
{
	memset(w->a.buf, value, length);
	post_between(&w->a, IBV_WR_RDMA_WRITE, 1, w->a.buf, w->a.mr->lkey, length, b->at,
		     b->mr->rkey);
	for (int i = 0; i < 200; i++) {
		struct ibv_wc wc;

		sv_stepped_run(sv_stepped_now() + 1000);
		if (ibv_poll_cq(w->a.cq, 1, &wc) == 0)
			continue;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		return;
	}
	fail_msg("not acknowledged");
}

static uint32_t missing(const struct gpu *gpu, uint8_t value, uint32_t length)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < length; i++)
		n += gpu->view[i] != value;
	return n;
}

static void posted_writes_are_behind_their_acknowledgement_until_the_device_reads(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);
	int rule = add_rule(LATE);

	write_late(w, &b, 1, LENGTH);
	assert_int_equal(fired(rule), (LENGTH + MTU - 1) / MTU);
	assert_true(missing(&b, 1, LENGTH) > LENGTH / 2);
	/* The other end asks the device for a byte. */
	flush_by(&w->a, &b);
	sv_stepped_run(sv_stepped_now() + 10000);
	expect_wc(&w->a, 77, IBV_WC_SUCCESS);
	assert_int_equal(missing(&b, 1, LENGTH), 0);
	gpu_close(&b);
}

static void posted_writes_pass_each_other_and_get_there_in_time(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);
	uint32_t holes = 0;

	add_rule(LATE);
	write_late(w, &b, 1, LENGTH);
	for (int i = 0; i < 50; i++) {
		sv_stepped_run(sv_stepped_now() + 1000000);
		for (uint32_t k = MTU; k < LENGTH; k += MTU)
			holes += b.view[k] && !b.view[k - MTU];
	}
	assert_true(holes > 0);
	assert_int_equal(missing(&b, 1, LENGTH), 0);
	gpu_close(&b);
}

static void posted_writes_of_one_place_stay_in_order(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);

	add_rule(LATE);
	for (uint8_t i = 1; i <= 20; i++)
		write_late(w, &b, i, 100);
	sv_stepped_run(sv_stepped_now() + 60000000);
	assert_int_equal(missing(&b, 20, 100), 0);
	gpu_close(&b);
}

/* One that is not late does not pass one that is. */
static void a_prompt_write_of_the_same_place_comes_after_a_late_one(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);

	add_rule(LATE " count=1");
	write_late(w, &b, 1, 100);
	write_late(w, &b, 2, 100);
	assert_int_equal(missing(&b, 2, 100), 0);
	sv_stepped_run(sv_stepped_now() + 60000000);
	assert_int_equal(missing(&b, 2, 100), 0);
	gpu_close(&b);
}

static void deregistering_waits_for_posted_writes(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);

	add_rule(LATE);
	write_late(w, &b, 1, LENGTH);
	assert_true(missing(&b, 1, LENGTH) > 0);
	assert_int_equal(ibv_dereg_mr(b.mr), 0);
	b.mr = NULL;
	assert_int_equal(missing(&b, 1, LENGTH), 0);
	gpu_close(&b);
}

static void posted_writes_are_lost_with_their_device(void **state)
{
	struct world *w = *state;
	struct gpu b = gpu_at(&w->b);
	uint32_t before;

	add_rule(LATE);
	write_late(w, &b, 1, LENGTH);
	before = missing(&b, 1, LENGTH);
	assert_true(before > 0);
	sv_stepped_kill(1, 0);
	sv_stepped_run(sv_stepped_now() + 60000000);
	assert_int_equal(missing(&b, 1, LENGTH), before);
	gpu_close(&b);
}

/* kill=unplaced, kill=placed: acknowledged, and nothing or all of it is in the GPU. */
static void a_device_that_dies_acknowledging_has_written_nothing_or_all(void **state)
{
	static const struct {
		const char *rule;
		uint32_t missing;
	} cases[] = {{"kill=unplaced op=write host=1 nth=1", LENGTH},
		     {"kill=placed op=write host=1 nth=1", 0}};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct world w;
		struct gpu b;

		world_open(&w, &(struct world_opts){ON_GPU});
		b = gpu_at(&w.b);
		add_rule(cases[i % 2].rule);
		if (i >= 2)
			add_rule(LATE);
		write_late(&w, &b, 1, LENGTH);
		settle();
		assert_int_equal(missing(&b, 1, LENGTH), cases[i % 2].missing);
		gpu_close(&b);
		world_close(&w);
	}
}

static void a_rule_for_gpus_says_what_is_wrong_with_it(void **state)
{
	static const struct {
		const char *rule, *text;
	} cases[] = {
	    {"gpu host=1", "expected gpu=reorder"},
	    {"gpu=late", "expected gpu=reorder"},
	    {"gpu=reorder within=0ms", "expected a time above 0"},
	    {"gpu=reorder dir=rx", "without dir="},
	    {"drop within=1ms", "within= only says something about gpu=reorder"},
	};
	char err[300];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(sv_stepped_fault_add(cases[i].rule, err, sizeof(err)), -EINVAL);
		if (!strstr(err, cases[i].text))
			fail_msg("%s", err);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_processor_that_touches_the_memory_dies),
	    WORLD_TEST(a_fabric_that_reaches_no_gpu_refuses_it_and_asks_no_driver, .cqe = 256),
	    WORLD_TEST(only_what_is_one_gpus_from_end_to_end_is_registered, ON_GPU),
	    WORLD_TEST(whole_pages_around_an_allocation_are_registered, ON_GPU),
	    WORLD_TEST(registrations_share_a_context_and_a_stream_and_leave_none, ON_GPU),
	    WORLD_TEST(memory_of_a_gpu_is_not_registered_again_in_place, ON_GPU),
	    WORLD_TEST(a_dmabuf_that_cannot_be_mapped_is_reached_at_its_address, ON_GPU),
	    WORLD_TEST(a_dmabuf_of_a_gpu_needs_a_fabric_that_reaches_it, .cqe = 256),
	    WORLD_TEST(writes_go_from_gpu_to_gpu_and_to_and_from_hosts, ON_GPU),
	    WORLD_TEST(reads_fetch_from_gpus_and_into_them, ON_GPU),
	    WORLD_TEST(a_message_is_of_pieces_of_both_kinds, ON_GPU),
	    WORLD_TEST(inline_data_gets_into_a_gpu, ON_GPU, .max_inline = 64),
	    WORLD_TEST(datagrams_leave_gpus_and_come_into_them, ON_GPU, .type = IBV_QPT_UD),
	    WORLD_TEST(atomics_work_on_words_of_a_gpu, ON_GPU),
	    WORLD_TEST(a_lost_answer_does_not_repeat_an_atomic, ON_GPU),
	    WORLD_TEST(an_immediate_says_that_the_data_is_in_the_gpu, ON_GPU),
	    WORLD_TEST(each_packet_is_waited_for_once_at_each_end, ON_GPU),
	    WORLD_TEST(lost_packets_are_sent_again_from_gpu_to_gpu, ON_GPU),
	    WORLD_TEST(unordered_writes_get_into_a_gpu, ON_GPU),
	    WORLD_TEST(a_region_deregistered_in_use_refuses_the_rest, ON_GPU),
	    cmocka_unit_test(memory_that_was_freed_is_an_error_at_both_ends),
	    WORLD_TEST(a_receive_into_memory_that_was_freed_fails, ON_GPU),
	    cmocka_unit_test(a_copy_that_the_driver_refuses_is_an_error),
	    WORLD_TEST(a_registration_that_the_driver_refuses_leaves_nothing, ON_GPU),
	    WORLD_TEST(a_device_may_be_unable_to_reach_a_gpu, ON_GPU),
	    WORLD_TEST(posted_writes_are_behind_their_acknowledgement_until_the_device_reads,
		       ON_GPU),
	    WORLD_TEST(posted_writes_pass_each_other_and_get_there_in_time, ON_GPU),
	    WORLD_TEST(posted_writes_of_one_place_stay_in_order, ON_GPU),
	    WORLD_TEST(a_prompt_write_of_the_same_place_comes_after_a_late_one, ON_GPU),
	    WORLD_TEST(deregistering_waits_for_posted_writes, ON_GPU),
	    WORLD_TEST(posted_writes_are_lost_with_their_device, ON_GPU),
	    cmocka_unit_test(a_device_that_dies_acknowledging_has_written_nothing_or_all),
	    WORLD_TEST(a_rule_for_gpus_says_what_is_wrong_with_it, ON_GPU),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
