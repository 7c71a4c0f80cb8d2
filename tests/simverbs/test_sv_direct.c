/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs whose send queue the program drives in the layout of a ConnectX, found by
 * mlx5dv_init_obj(): bytes move, failures come back as completions, and what is posted wrongly is
 * caught and counted.
 */
#include "world.h"

#include "nccl_ha/ibgda_cqe.h"
#include "nccl_ha/ibgda_dv.h"
#include "nccl_ha/ibgda_wqe.h"

#include <simverbs/mlx5.h>

#define WRS   4u
#define LOG   4u /* the device makes four blocks of each request that is asked for */
#define COUNT (1u << LOG)
#define LATE  10000000u /* ns, that a record may be ahead of its doorbell */

ha_dv_init_obj_fn mlx5dv_init_obj;

static struct {
	struct end a, b;
	struct ibv_cq *cq;
	struct ibv_pd *domain; /* with allocators; or NULL */
	struct ha_dv_qp queue;
	struct ha_dv_cq completions;
	uint32_t posted;
	uint64_t seen;
	struct sv_direct_mistakes before;
} w;

static const struct world_opts options = {.unconnected = true, .fabric = {.window_packets = 4}};

/* ---------------------------------------------------------------- a program */

static struct ha_wqe *block(void)
{
	return (struct ha_wqe *)w.queue.sends.buf + (w.posted & (COUNT - 1));
}

static void records(void)
{
	__atomic_store_n(&w.queue.records[1], ha_wqe_record(w.posted), __ATOMIC_RELEASE);
}

static void rings(void)
{
	const struct ha_wqe *last =
	    (struct ha_wqe *)w.queue.sends.buf + ((w.posted - 1) & (COUNT - 1));

	__atomic_store_n((uint64_t *)w.queue.bf.reg, last->words[0], __ATOMIC_RELEASE);
}

static void publishes(void)
{
	w.posted++;
	records();
	rings();
}

static struct ha_wqe_data data_of(uint32_t offset, uint32_t remote_offset, uint32_t size)
{
	return (struct ha_wqe_data){.addr = (uintptr_t)w.a.buf + offset,
				    .remote_addr = (uintptr_t)w.b.buf + remote_offset,
				    .lkey = w.a.mr->lkey,
				    .rkey = w.b.mr->rkey,
				    .size = size};
}

/* A write, where the next request goes; nobody is told of it. */
static void lays_down(const struct ha_wqe_data *data)
{
	ha_wqe_transfer(block(), w.posted, HA_WQE_WRITE, w.a.qp->qp_num, data, 0);
}

static void writes(uint32_t offset, uint32_t remote_offset, uint32_t size)
{
	const struct ha_wqe_data data = data_of(offset, remote_offset, size);

	lays_down(&data);
	publishes();
}

static struct ha_cqe next(void)
{
	return ha_cqe_read(w.completions.buf, (uint32_t)__builtin_ctz(w.completions.count), w.seen);
}

static void takes(void)
{
	w.seen++;
	__atomic_store_n(&w.completions.records[0], ha_wqe_be32((uint32_t)w.seen & 0xffffff),
			 __ATOMIC_RELEASE);
}

static void expect_done(void)
{
	const struct ha_cqe cqe = next();

	assert_int_equal(cqe.kind, HA_CQE_DONE);
	assert_int_equal(cqe.index, (uint16_t)w.seen);
	takes();
}

static void expect_failed(uint8_t syndrome)
{
	const struct ha_cqe cqe = next();

	assert_int_equal(cqe.kind, HA_CQE_FAILED);
	assert_int_equal(cqe.syndrome, syndrome);
	assert_int_equal(cqe.index, (uint16_t)w.seen);
	takes();
}

static void expect_none(void)
{
	assert_int_equal(next().kind, HA_CQE_NOT_YET);
}

static struct sv_direct_mistakes mistakes(void)
{
	struct sv_direct_mistakes m;

	sv_direct_mistakes(w.a.ctx, &m);
	return m;
}

static void expect_no_mistakes(void)
{
	const struct sv_direct_mistakes m = mistakes();

	assert_memory_equal(&m, &(struct sv_direct_mistakes){0}, sizeof(m));
}

/* ---------------------------------------------------------------- set up */

static void make_queue_pair(uint32_t flags)
{
	struct ibv_cq_init_attr_ex cq = {
	    .cqe = COUNT - 1, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = flags};
	struct ibv_qp_init_attr init = {
	    .recv_cq = w.a.cq,
	    .cap = {.max_send_wr = WRS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	    .qp_type = IBV_QPT_RC};
	struct ha_dv_obj obj = {0};

	if (w.domain) {
		cq.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
		cq.parent_domain = w.domain;
	}
	w.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(w.a.ctx, &cq));
	assert_non_null(w.cq);
	init.send_cq = w.cq;
	if (w.a.qp)
		assert_int_equal(ibv_destroy_qp(w.a.qp), 0);
	w.a.qp = ibv_create_qp(w.domain ? w.domain : w.a.pd, &init);
	assert_non_null(w.a.qp);
	obj.qp.in = w.a.qp;
	obj.qp.out = &w.queue;
	obj.cq.in = w.cq;
	obj.cq.out = &w.completions;
	assert_int_equal(mlx5dv_init_obj(&obj, HA_DV_OBJ_QP | HA_DV_OBJ_CQ), 0);
	assert_int_equal(w.queue.sends.stride, 64);
	assert_int_equal(w.queue.sends.count, COUNT);
	assert_int_equal(w.completions.count, COUNT);
	connect_ends(&w.a, &w.b, &options);
	w.posted = 0;
	w.seen = 0;
}

static void give_queue_pair(void)
{
	assert_int_equal(ibv_destroy_qp(w.a.qp), 0);
	w.a.qp = NULL;
	assert_int_equal(ibv_destroy_cq(w.cq), 0);
}

static int setup_with(uint32_t flags)
{
	memset(&w, 0, sizeof(w));
	assert_int_equal(sv_stepped_open(&options.fabric), 0);
	end_open(&w.a, 0, 0, &options);
	end_open(&w.b, 1, 0, &options);
	make_queue_pair(flags);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return setup_with(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
}

static int setup_counting(void **state)
{
	(void)state;
	return setup_with(0);
}

static int teardown(void **state)
{
	(void)state;
	sv_stepped_destroy();
	free(w.a.buf);
	free(w.b.buf);
	return 0;
}

/* ---------------------------------------------------------------- what moves */

static void what_a_program_rings_for_moves(void **state)
{
	const uint64_t value = 0x1122334455667788ull;
	struct ha_wqe_data data = data_of(0, 512, 8);

	(void)state;
	fill(w.a.buf, 8192, 3);
	writes(0, 4096, 8192); /* more than a packet */
	ha_wqe_write_value(block(), w.posted, HA_WQE_WRITE, w.a.qp->qp_num,
			   (uintptr_t)w.b.buf + 256, w.b.mr->rkey, value, 0);
	publishes();
	ha_wqe_nop(block(), w.posted, w.a.qp->qp_num);
	publishes();
	settle();
	for (unsigned int i = 0; i < 3; i++)
		expect_done();
	assert_memory_equal(w.b.buf + 4096, w.a.buf, 8192);
	assert_memory_equal(w.b.buf + 256, &value, sizeof(value));
	memcpy(w.b.buf + 512, &value, sizeof(value));
	ha_wqe_fetch_add(block(), w.posted, w.a.qp->qp_num, &data, 5);
	publishes();
	data = data_of(16384, 256, 8);
	ha_wqe_transfer(block(), w.posted, HA_WQE_READ, w.a.qp->qp_num, &data, 0);
	publishes();
	settle();
	expect_done();
	expect_done();
	assert_memory_equal(w.a.buf, &value, sizeof(value));
	assert_memory_equal(w.a.buf + 16384, &value, sizeof(value));
	assert_int_equal(*(uint64_t *)(void *)(w.b.buf + 512), value + 5);
	expect_none();
	expect_no_mistakes();
}

static void an_immediate_reaches_who_receives(void **state)
{
	const struct ha_wqe_data data = data_of(0, 64, 8);
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(post_recv(&w.b, 9, 0, 0), 0);
	ha_wqe_transfer(block(), w.posted, HA_WQE_WRITE_IMM, w.a.qp->qp_num, &data, 0x01020304);
	publishes();
	settle();
	expect_done();
	wc = expect_wc(&w.b, 9, IBV_WC_SUCCESS);
	assert_int_equal(wc.imm_data, 0x01020304);
}

/* Rings go round, and 16 bits of indices with them. */
static void it_goes_on_for_many_laps(void **state)
{
	(void)state;
	for (uint32_t n = 0; n < 65536 + 5 * COUNT; n++) {
		w.a.buf[0] = (uint8_t)n;
		writes(0, 100 + n % 7, 1);
		if (n % 3)
			continue; /* several are under way */
		settle();
		while (w.seen < w.posted)
			expect_done();
		assert_int_equal(w.b.buf[100 + n % 7], (uint8_t)n);
	}
	settle();
	while (w.seen < w.posted)
		expect_done();
	expect_no_mistakes();
}

static void nothing_moves_before_the_doorbell(void **state)
{
	const struct ha_wqe_data data = data_of(0, 0, 8);

	(void)state;
	fill(w.a.buf, 8, 1);
	lays_down(&data);
	w.posted++;
	settle();
	records();
	settle();
	expect_none();
	assert_memory_not_equal(w.b.buf, w.a.buf, 8);
	rings();
	settle();
	expect_done();
	assert_memory_equal(w.b.buf, w.a.buf, 8);
	expect_no_mistakes();
}

/* It is read when it is executed: what the program changes until then goes out changed. */
static void a_request_that_waits_for_its_turn_is_not_read_yet(void **state)
{
	struct ha_wqe_data data = data_of(8, 64, 8);

	(void)state;
	fill(w.a.buf, 16384, 5);
	writes(4096, 4096, 8192); /* eight packets, of which one may be under way */
	writes(0, 64, 8);
	writes(0, 128, 8);
	sv_stepped_step();
	ha_wqe_transfer((struct ha_wqe *)w.queue.sends.buf + 2, 2, HA_WQE_WRITE, w.a.qp->qp_num,
			&data, 0);
	settle();
	for (unsigned int i = 0; i < 3; i++)
		expect_done();
	assert_memory_equal(w.b.buf + 64, w.a.buf + 8, 8);
	expect_no_mistakes();
}

/* ---------------------------------------------------------------- what fails */

static void a_path_that_is_cut_fails_the_oldest_and_flushes_the_rest(void **state)
{
	(void)state;
	writes(0, 0, 8);
	settle();
	expect_done();
	sv_stepped_link(0, 0, false);
	writes(0, 0, 8);
	writes(0, 0, 8);
	settle();
	expect_failed(HA_CQE_RETRIES);
	expect_failed(HA_CQE_FLUSHED);
	expect_none();
	/* Doorbells that come later are flushed as well. */
	writes(0, 0, 8);
	settle();
	expect_failed(HA_CQE_FLUSHED);
	expect_no_mistakes();
}

static void a_program_that_sets_it_to_error_gets_all_back(void **state)
{
	(void)state;
	fill(w.a.buf, 8, 1);
	assert_int_equal(to_state(w.a.qp, IBV_QPS_ERR), 0);
	writes(0, 0, 8);
	settle();
	expect_failed(HA_CQE_FLUSHED);
	assert_memory_not_equal(w.b.buf, w.a.buf, 8);
}

static void wrong_keys_are_told_as_hardware_tells_them(void **state)
{
	struct ha_wqe_data data = data_of(0, 0, 8);

	(void)state;
	data.rkey ^= 0xff;
	lays_down(&data);
	publishes();
	settle();
	expect_failed(HA_CQE_REMOTE_ACCESS);
	give_queue_pair();
	end_close(&w.b);
	end_open(&w.b, 1, 0, &options);
	make_queue_pair(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	data = data_of(0, 0, 8);
	data.lkey ^= 0xff;
	lays_down(&data);
	publishes();
	settle();
	expect_failed(HA_CQE_LOCAL_PROTECTION);
	expect_no_mistakes();
}

static void a_device_that_dies_says_nothing(void **state)
{
	(void)state;
	sv_stepped_kill(0, 0);
	writes(0, 0, 8);
	settle();
	expect_none();
}

static void what_is_the_programs_nobody_else_posts_or_resizes(void **state)
{
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 8, &w.b, 0), ENOMEM);
	assert_int_equal(ibv_poll_cq(w.cq, 1, &wc), 0);
	assert_int_equal(ibv_resize_cq(w.cq, 64), EINVAL);
}

/* ---------------------------------------------------------------- what is wrong */

static void a_request_that_is_not_there_is_caught(void **state)
{
	(void)state;
	w.posted++;
	records();
	*(uint64_t *)w.queue.bf.reg = ha_wqe_head(0, HA_WQE_WRITE, w.a.qp->qp_num, 3);
	settle();
	expect_failed(HA_CQE_LOCAL_QP);
	assert_int_equal(mistakes().stale, 1);
}

static void a_request_of_the_lap_before_is_caught(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < COUNT; i++) {
		writes(0, 0, 8);
		settle();
		expect_done();
	}
	w.posted++;
	records();
	*(uint64_t *)w.queue.bf.reg = ha_wqe_head(COUNT, HA_WQE_WRITE, w.a.qp->qp_num, 3);
	settle();
	expect_failed(HA_CQE_LOCAL_QP);
	assert_int_equal(mistakes().stale, 1);
	assert_int_equal(state_of(w.a.qp), IBV_QPS_ERR);
}

static void a_doorbell_without_its_record_is_caught(void **state)
{
	const struct ha_wqe_data data = data_of(0, 0, 8);

	(void)state;
	lays_down(&data);
	w.posted++;
	rings();
	settle();
	expect_none();
	assert_int_equal(mistakes().without_record, 1);
}

static void a_record_without_its_doorbell_is_caught(void **state)
{
	const struct ha_wqe_data data = data_of(0, 0, 8);

	(void)state;
	lays_down(&data);
	w.posted++;
	records();
	sv_stepped_step();
	sv_stepped_run(sv_stepped_now() + LATE + 1);
	sv_stepped_step();
	expect_none();
	assert_int_equal(mistakes().without_doorbell, 1);
}

/* Who does not look whose an entry is does not say what it took, either. */
static void a_completion_that_nobody_took_is_caught(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < COUNT + 1; i++) {
		writes(0, 0, 8);
		settle();
	}
	assert_int_equal(mistakes().overrun, 1);
}

static void a_request_that_cannot_be_is_caught(void **state)
{
	struct ha_wqe_data data = data_of(0, 0, 0); /* no bytes: 2^31 of them */

	(void)state;
	lays_down(&data);
	publishes();
	settle();
	expect_failed(HA_CQE_LOCAL_QP);
	assert_int_equal(mistakes().malformed, 1);
}

/* A thread that is late rings for a queue pair that is gone: nobody hears it, and if the register
 * is another one's by then it is not taken for that one's. */
static void a_late_doorbell_rings_for_nobody(void **state)
{
	uint64_t *reg = w.queue.bf.reg;
	const uint64_t late = ha_wqe_head(7, HA_WQE_WRITE, w.a.qp->qp_num, 3);

	(void)state;
	give_queue_pair();
	*reg = late;
	settle();
	expect_no_mistakes();
	end_close(&w.b);
	end_open(&w.b, 1, 0, &options);
	make_queue_pair(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	assert_ptr_equal(w.queue.bf.reg, reg);
	settle();
	expect_no_mistakes();
	*reg = late + 1;
	settle();
	expect_none();
	expect_no_mistakes();
	*reg = ha_wqe_head(7, HA_WQE_WRITE, w.b.qp->qp_num, 3); /* which never had it */
	settle();
	expect_none();
	assert_int_equal(mistakes().malformed, 1);
	writes(0, 0, 8);
	settle();
	expect_done();
}

/* ---------------------------------------------------------------- where queues lie */

static struct {
	uint8_t memory[4][8192] __attribute__((aligned(4096)));
	unsigned int given, back;
} arena;

static void *gives(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		   uint64_t type)
{
	assert_non_null(pd);
	assert_ptr_equal(pd_context, &arena);
	assert_true(size <= sizeof(arena.memory[0]) && alignment <= 4096);
	assert_true(type == HA_DV_RES_QP || type == HA_DV_RES_CQ || type == HA_DV_RES_DBR);
	return arena.memory[arena.given++];
}

static void takes_back(struct ibv_pd *pd, void *pd_context, void *at, uint64_t type)
{
	(void)pd;
	(void)at;
	(void)type;
	assert_ptr_equal(pd_context, &arena);
	arena.back++;
}

/* Threads may look at queues that are gone: their memory is the program's to keep. */
static void queues_lie_where_the_program_wants_them(void **state)
{
	struct ibv_parent_domain_init_attr attr = {.pd = w.a.pd,
						   .comp_mask =
						       IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
						       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
						   .alloc = gives,
						   .free = takes_back,
						   .pd_context = &arena};

	(void)state;
	give_queue_pair();
	end_close(&w.b);
	end_open(&w.b, 1, 0, &options);
	w.domain = ibv_alloc_parent_domain(w.a.ctx, &attr);
	assert_non_null(w.domain);
	make_queue_pair(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	assert_int_equal(arena.given, 4);
	assert_ptr_equal(w.queue.sends.buf, arena.memory[0]);
	assert_ptr_equal(w.completions.buf, arena.memory[2]);
	writes(0, 0, 8);
	settle();
	expect_done();
	assert_int_equal(ibv_dealloc_pd(w.domain), EBUSY);
	give_queue_pair();
	assert_int_equal(arena.back, 4);
	w.seen = 0;
	expect_done();
	assert_int_equal(ibv_dealloc_pd(w.domain), 0);
}

int main(void)
{
#define DIRECT_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
	    DIRECT_TEST(what_a_program_rings_for_moves),
	    DIRECT_TEST(an_immediate_reaches_who_receives),
	    DIRECT_TEST(it_goes_on_for_many_laps),
	    DIRECT_TEST(nothing_moves_before_the_doorbell),
	    DIRECT_TEST(a_request_that_waits_for_its_turn_is_not_read_yet),
	    DIRECT_TEST(a_path_that_is_cut_fails_the_oldest_and_flushes_the_rest),
	    DIRECT_TEST(a_program_that_sets_it_to_error_gets_all_back),
	    DIRECT_TEST(wrong_keys_are_told_as_hardware_tells_them),
	    DIRECT_TEST(a_device_that_dies_says_nothing),
	    DIRECT_TEST(what_is_the_programs_nobody_else_posts_or_resizes),
	    DIRECT_TEST(a_request_that_is_not_there_is_caught),
	    DIRECT_TEST(a_request_of_the_lap_before_is_caught),
	    DIRECT_TEST(a_doorbell_without_its_record_is_caught),
	    DIRECT_TEST(a_record_without_its_doorbell_is_caught),
	    cmocka_unit_test_setup_teardown(a_completion_that_nobody_took_is_caught, setup_counting,
					    teardown),
	    DIRECT_TEST(a_request_that_cannot_be_is_caught),
	    DIRECT_TEST(a_late_doorbell_rings_for_nobody),
	    DIRECT_TEST(queues_lie_where_the_program_wants_them),
	};

	return cmocka_run_group_tests_name("sv_direct", tests, NULL, NULL);
}
