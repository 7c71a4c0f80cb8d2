/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs rely on that we did not write, and found missing: each of these was wrong once.
 */
#include "world.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- signals */

static volatile sig_atomic_t ticks;

/* Nothing but a signal ends the wait; a wait that goes on after ten of them goes on for ever. */
static void on_tick(int number)
{
	(void)number;
	if (++ticks > 10)
		_exit(3);
}

static void tick(bool on)
{
	const struct itimerval every = {{0, on ? 20000 : 0}, {0, on ? 20000 : 0}};
	struct sigaction action = {.sa_handler = on ? on_tick : SIG_DFL};

	ticks = 0;
	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static void a_signal_ends_the_wait_for_an_event(void **state)
{
	struct ibv_comp_channel *channel;
	struct ibv_async_event event;
	struct ibv_context *ctx;
	struct ibv_cq *cq;
	void *cq_context;

	(void)state;
	assert_int_equal(sv_stepped_open(NULL), 0);
	ctx = open_host(0, 0);
	channel = ibv_create_comp_channel(ctx);
	assert_non_null(channel);
	tick(true);
	errno = 0;
	assert_int_equal(ibv_get_cq_event(channel, &cq, &cq_context), -1);
	assert_int_equal(errno, EINTR);
	errno = 0;
	assert_int_equal(ibv_get_async_event(ctx, &event), -1);
	assert_int_equal(errno, EINTR);
	tick(false);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_int_equal(sv_stepped_close(), 0);
}

/* ---------------------------------------------------------------- what is refused, and how */

static void a_table_of_gids_fits_or_is_refused(void **state)
{
	struct ibv_gid_entry entries[8];
	struct ibv_context *ctx;

	(void)state;
	assert_int_equal(sv_stepped_open(&(struct sv_stepped_opts){.ports = 2}), 0);
	ctx = open_host(0, 0);
	for (size_t room = 0; room < 8; room++)
		assert_int_equal(ibv_query_gid_table(ctx, entries, room, 0), -EINVAL);
	assert_int_equal(ibv_query_gid_table(ctx, entries, 8, 0), 8);
	assert_int_equal(entries[7].port_num, 2);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_int_equal(sv_stepped_close(), 0);
}

static void memory_windows_are_not_supported_rather_than_wrong(void **state)
{
	struct world *w = *state;

	errno = 0;
	assert_null(ibv_reg_mr(w->a.pd, w->a.buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	assert_int_equal(errno, EOPNOTSUPP);
}

/* A verb that says what is wrong says so in errno, too. */
#define SAYS(expected, call)                                                                       \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_int_equal((call), (expected));                                              \
		assert_int_equal(errno, (expected));                                               \
	} while (0)

static void a_verb_that_fails_sets_errno(void **state)
{
	struct world *w = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_device_attr_ex device;
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	struct ibv_srq_attr srq = {.max_wr = 1};
	struct ibv_qp_init_attr init;

	SAYS(EINVAL, ibv_modify_qp(w->a.qp, &attr, IBV_QP_STATE | IBV_QP_AV));
	SAYS(EINVAL, ibv_query_port(w->a.ctx, 9, &port));
	SAYS(EINVAL, ibv_query_gid_ex(w->a.ctx, 9, 0, &entry, 0));
	SAYS(EINVAL, ibv_resize_cq(w->a.cq, 0));
	SAYS(EOPNOTSUPP, ibv_modify_srq(w->b.srq, &srq, IBV_SRQ_MAX_WR));
	SAYS(EOPNOTSUPP, ibv_attach_mcast(w->a.qp, &entry.gid, 0));
	SAYS(EBUSY, ibv_dealloc_pd(w->a.pd));
	SAYS(EBUSY, ibv_destroy_cq(w->a.cq));
	SAYS(EBUSY, ibv_destroy_srq(w->b.srq));
	add_rule("errno=ENOMEM verb=query_qp");
	SAYS(ENOMEM, ibv_query_qp(w->a.qp, &attr, IBV_QP_STATE, &init));
	add_rule("errno=ENODEV verb=query_device");
	SAYS(ENODEV, ibv_query_device_ex(w->a.ctx, NULL, &device));
	add_rule("errno=EAGAIN verb=dereg_mr");
	SAYS(EAGAIN, ibv_dereg_mr(w->a.mr));
	add_rule("errno=EPERM verb=destroy_qp");
	SAYS(EPERM, ibv_destroy_qp(w->a.qp));
	assert_int_equal(sv_stepped_fault_remove(-1), 0);
}

/* ---------------------------------------------------------------- receives that are shared */

static void post_shared(struct ibv_srq *srq, const uint8_t *buf, const struct ibv_mr *mr)
{
	struct ibv_sge sge = {(uintptr_t)buf, 64, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

/* The SRQ of world b is in a PD of its own: what is posted there is registered there. */
static void a_shared_receive_is_in_the_pd_of_its_queue(void **state)
{
	const struct world_opts opts = {.unconnected = true};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 4, .max_send_sge = 1},
					.qp_type = IBV_QPT_RC};
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	struct world w;

	(void)state;
	world_open(&w, &opts);
	pd = ibv_alloc_pd(w.b.ctx);
	assert_non_null(pd);
	mr = ibv_reg_mr(pd, w.b.buf, BUF_SIZE, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	w.b.srq = ibv_create_srq(pd, &shared);
	assert_non_null(w.b.srq);
	assert_int_equal(ibv_destroy_qp(w.b.qp), 0);
	init.send_cq = init.recv_cq = w.b.cq;
	init.srq = w.b.srq;
	w.b.qp = ibv_create_qp(w.b.pd, &init);
	assert_non_null(w.b.qp);
	connect_ends(&w.a, &w.b, &opts);
	fill(w.a.buf, 64, 3);
	post_shared(w.b.srq, w.b.buf, mr);
	assert_int_equal(post(&w.a, IBV_WR_SEND, 1, 0, 64, &w.b, 0), 0);
	settle();
	expect_wc(&w.b, 5, IBV_WC_SUCCESS);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(w.a.buf, w.b.buf, 64);
	/* And not in the queue pair's. */
	post_shared(w.b.srq, w.b.buf, w.b.mr);
	assert_int_equal(post(&w.a, IBV_WR_SEND, 2, 0, 64, &w.b, 0), 0);
	settle();
	expect_wc(&w.b, 5, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_destroy_qp(w.b.qp), 0);
	w.b.qp = NULL;
	assert_int_equal(ibv_destroy_srq(w.b.srq), 0);
	w.b.srq = NULL;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	world_close(&w);
}

/* ---------------------------------------------------------------- when it was done */

/* However late it is read: between two completions as much time has passed by either clock. */
static void the_wall_clock_of_completions_goes_forward(void **state)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16,
					   .wc_flags =
					       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
					       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 4, .max_send_sge = 1},
					.qp_type = IBV_QPT_RC};
	const struct world_opts opts = {.unconnected = true};
	struct ibv_poll_cq_attr none = {0};
	uint64_t ts = 0, wall = 0;
	struct ibv_cq_ex *cq;
	struct world w;

	(void)state;
	world_open(&w, &opts);
	cq = ibv_create_cq_ex(w.a.ctx, &attr);
	assert_non_null(cq);
	assert_int_equal(ibv_destroy_qp(w.a.qp), 0);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	w.a.qp = ibv_create_qp(w.a.pd, &init);
	assert_non_null(w.a.qp);
	connect_ends(&w.a, &w.b, &opts);
	for (uint64_t i = 0; i < 5; i++) {
		assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, i, 0, 8, &w.b, 0), 0);
		settle();
		sv_stepped_run(sv_stepped_now() + i * 1000000);
		assert_int_equal(ibv_start_poll(cq, &none), 0);
		if (i)
			assert_int_equal(ibv_wc_read_completion_wallclock_ns(cq) - wall,
					 ibv_wc_read_completion_ts(cq) - ts);
		wall = ibv_wc_read_completion_wallclock_ns(cq);
		ts = ibv_wc_read_completion_ts(cq);
		ibv_end_poll(cq);
	}
	assert_int_equal(ibv_destroy_qp(w.a.qp), 0);
	w.a.qp = NULL;
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_signal_ends_the_wait_for_an_event),
	    cmocka_unit_test(a_table_of_gids_fits_or_is_refused),
	    WORLD_TEST(memory_windows_are_not_supported_rather_than_wrong),
	    WORLD_TEST(a_verb_that_fails_sets_errno, .srq_wrs = 4),
	    cmocka_unit_test(a_shared_receive_is_in_the_pd_of_its_queue),
	    cmocka_unit_test(the_wall_clock_of_completions_goes_forward),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
