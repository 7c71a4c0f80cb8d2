/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory on a live fabric: what two processes exchange is in the memory of a GPU at either end,
 * which is a stand-in that nothing but its driver reads (fakecuda). Each process's own engine
 * copies.
 */
#include "pair.h"

#include "fakecuda.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define LENGTH ((size_t)3 << 20)
#define WORDS  64u /* at the end, for atomics */

/* Memory of the GPU that both ends' verbs are about. */
struct gpu_end {
	struct end end;
	uint8_t *at, *view;
	struct ibv_mr *mr;
	uint64_t peer_at;
	uint32_t peer_rkey;
};

static const int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static void swap(int fd, const void *own, void *other, size_t size)
{
	NEED(write(fd, own, size) == (ssize_t)size);
	NEED(read(fd, other, size) == (ssize_t)size);
}

static void open_gpu_end(struct gpu_end *g, int peer_fd)
{
	struct end_options opt = {.len = 4096, .timeout = 16, .retry_cnt = 7};
	struct {
		uint64_t at;
		uint32_t rkey, unused;
	} own = {0}, other;

	end_open(&g->end, peer_fd, &opt);
	g->at = fakecuda_alloc(LENGTH);
	NEED(g->at);
	g->view = fakecuda_look(g->at);
	g->mr = ibv_reg_mr_iova(g->end.pd, g->at, LENGTH, (uintptr_t)g->at, everything);
	NEED(g->mr);
	own.at = (uintptr_t)g->at;
	own.rkey = g->mr->rkey;
	swap(peer_fd, &own, &other, sizeof(own));
	g->peer_at = other.at;
	g->peer_rkey = other.rkey;
}

static void close_gpu_end(struct gpu_end *g)
{
	NEED(!ibv_dereg_mr(g->mr));
	end_close(&g->end);
	fakecuda_free(g->at);
	NEED(fakecuda_contexts() == 0 && fakecuda_streams() == 0);
}

static int rdma(struct gpu_end *g, enum ibv_wr_opcode op, size_t offset, size_t length)
{
	struct ibv_sge sge = {(uintptr_t)g->at + offset, (uint32_t)length, g->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_wc wc;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = g->peer_at + LENGTH - 8;
		wr.wr.atomic.rkey = g->peer_rkey;
		wr.wr.atomic.compare_add = 3;
	} else {
		wr.wr.rdma.remote_addr = g->peer_at + offset;
		wr.wr.rdma.rkey = g->peer_rkey;
	}
	NEED(!ibv_post_send(g->end.qp, &wr, &bad));
	return end_wait(&g->end, &wc, 30);
}

static void fill_view(struct gpu_end *g, uint32_t seed)
{
	for (size_t i = 0; i < LENGTH - 8; i++)
		g->view[i] = pattern(seed, i);
}

static void check_view(const struct gpu_end *g, uint32_t seed)
{
	for (size_t i = 0; i < LENGTH - 8; i++)
		NEED(end_sees(&g->view[i]) == pattern(seed, i));
}

/* ---- everything there is --------------------------------------------------------------------- */

static int uses_the_peers(int peer_fd, int test_fd, void *arg)
{
	const uint64_t *slow_ns = arg;
	struct gpu_end g;

	(void)test_fd;
	open_gpu_end(&g, peer_fd);
	fakecuda_slow("cuStreamSynchronize", *slow_ns);
	fill_view(&g, 1);
	NEED(rdma(&g, IBV_WR_RDMA_WRITE, 0, LENGTH - 8) == IBV_WC_SUCCESS);
	meet(peer_fd); /* it is there */
	meet(peer_fd); /* and something else is */
	NEED(rdma(&g, IBV_WR_RDMA_READ, 0, LENGTH - 8) == IBV_WC_SUCCESS);
	check_view(&g, 2);
	for (uint64_t i = 0; i < WORDS; i++) {
		uint64_t old;

		NEED(rdma(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8) == IBV_WC_SUCCESS);
		memcpy(&old, g.view, sizeof(old));
		NEED(old == 3 * i);
	}
	meet(peer_fd);
	close_gpu_end(&g);
	return 0;
}

static int is_used(int peer_fd, int test_fd, void *arg)
{
	uint64_t word;
	struct gpu_end g;

	(void)test_fd, (void)arg;
	open_gpu_end(&g, peer_fd);
	meet(peer_fd);
	check_view(&g, 1);
	fill_view(&g, 2);
	meet(peer_fd);
	meet(peer_fd);
	memcpy(&word, g.view + LENGTH - 8, sizeof(word));
	NEED(word == 3 * WORDS);
	close_gpu_end(&g);
	return 0;
}

static void run_both(pair_body first, pair_body second, void *arg)
{
	struct pair pair;

	pair_start(&pair, first, second, arg);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
}

static void writes_reads_and_atomics_go_between_gpus(void **state)
{
	uint64_t slow_ns = 0;

	(void)state;
	fabric_up("--hosts 2 --rails 1 --gpu");
	run_both(uses_the_peers, is_used, &slow_ns);
	fabric_down();
}

/* Packets for themselves, some lost and some late; a driver that takes its time. */
static void they_do_over_a_bad_network_and_with_a_slow_driver(void **state)
{
	uint64_t slow_ns = 200000;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1 --gpu");
	assert_int_equal(
	    fabric_tool("fault %s 'drop op=write|readresp every=40 count=6'", fabric_name()), 0);
	assert_int_equal(
	    fabric_tool("fault %s 'delay=300us op=write every=30 count=6'", fabric_name()), 0);
	run_both(uses_the_peers, is_used, &slow_ns);
	status = fabric_status();
	assert_int_equal(status_fired(status, 0), 6);
	assert_int_equal(status_fired(status, 1), 6);
	json_decref(status);
	fabric_down();
}

/* ---- what a completion says ------------------------------------------------------------------ */

/* Acknowledged long before it is in the GPU, unless the device is asked for a byte. */
static int writes_late(int peer_fd, int test_fd, void *arg)
{
	struct gpu_end g;

	(void)test_fd, (void)arg;
	open_gpu_end(&g, peer_fd);
	fill_view(&g, 1);
	NEED(rdma(&g, IBV_WR_RDMA_WRITE, 0, LENGTH - 8) == IBV_WC_SUCCESS);
	meet(peer_fd);
	meet(peer_fd);
	NEED(rdma(&g, IBV_WR_RDMA_READ, 0, 1) == IBV_WC_SUCCESS);
	meet(peer_fd);
	close_gpu_end(&g);
	return 0;
}

static int is_written_late(int peer_fd, int test_fd, void *arg)
{
	size_t there = 0;
	struct gpu_end g;

	(void)test_fd, (void)arg;
	open_gpu_end(&g, peer_fd);
	meet(peer_fd);
	for (size_t i = 0; i < LENGTH - 8; i++)
		there += end_sees(&g.view[i]) == pattern(1, i);
	NEED(there < LENGTH * 9 / 10);
	meet(peer_fd);
	meet(peer_fd);
	check_view(&g, 1);
	close_gpu_end(&g);
	return 0;
}

static void posted_writes_are_behind_their_acknowledgement_until_the_device_reads(void **state)
{
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1 --gpu");
	assert_int_equal(fabric_tool("fault %s 'gpu=reorder within=1000s host=1'", fabric_name()),
			 0);
	run_both(writes_late, is_written_late, NULL);
	status = fabric_status();
	assert_true(status_fired(status, 0) > 0);
	json_decref(status);
	fabric_down();
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static int has_it_freed_under_it(int peer_fd, int test_fd, void *arg)
{
	struct gpu_end g;

	(void)test_fd, (void)arg;
	open_gpu_end(&g, peer_fd);
	fakecuda_free(g.at);
	meet(peer_fd);
	meet(peer_fd);
	NEED(!ibv_dereg_mr(g.mr));
	end_close(&g.end);
	return 0;
}

static int writes_there(int peer_fd, int test_fd, void *arg)
{
	struct gpu_end g;

	(void)test_fd, (void)arg;
	open_gpu_end(&g, peer_fd);
	meet(peer_fd);
	NEED(rdma(&g, IBV_WR_RDMA_WRITE, 0, LENGTH) == IBV_WC_REM_OP_ERR);
	meet(peer_fd);
	close_gpu_end(&g);
	return 0;
}

static void memory_that_was_freed_is_an_error_for_the_peer(void **state)
{
	(void)state;
	fabric_up("--hosts 2 --rails 1 --gpu");
	run_both(has_it_freed_under_it, writes_there, NULL);
	fabric_down();
}

static int is_refused(int peer_fd, int test_fd, void *arg)
{
	struct end_options opt = {.len = 4096, .timeout = 14};
	uint8_t *at = fakecuda_alloc(LENGTH);
	struct end end;

	(void)test_fd, (void)arg;
	end_open(&end, peer_fd, &opt);
	errno = 0;
	NEED(!ibv_reg_mr_iova(end.pd, at, LENGTH, (uintptr_t)at, everything));
	NEED(errno == EFAULT);
	NEED(fakecuda_calls("cuPointerGetAttribute") == 0);
	meet(peer_fd);
	end_close(&end);
	fakecuda_free(at);
	return 0;
}

static void a_fabric_made_without_it_refuses_gpu_memory(void **state)
{
	(void)state;
	fabric_up("--hosts 2 --rails 1");
	run_both(is_refused, is_refused, NULL);
	fabric_down();
}

/* SIMVERBS_GPU is what a fabric gets whose maker says nothing. */
static void the_environment_makes_a_fabric_that_reaches_gpus(void **state)
{
	uint64_t slow_ns = 0;

	(void)state;
	setenv("SIMVERBS_GPU", "1", 1);
	fabric_up("--hosts 2 --rails 1");
	unsetenv("SIMVERBS_GPU");
	run_both(uses_the_peers, is_used, &slow_ns);
	fabric_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(writes_reads_and_atomics_go_between_gpus),
	    cmocka_unit_test(they_do_over_a_bad_network_and_with_a_slow_driver),
	    cmocka_unit_test(posted_writes_are_behind_their_acknowledgement_until_the_device_reads),
	    cmocka_unit_test(memory_that_was_freed_is_an_error_for_the_peer),
	    cmocka_unit_test(a_fabric_made_without_it_refuses_gpu_memory),
	    cmocka_unit_test(the_environment_makes_a_fabric_that_reaches_gpus),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	fabric_down();
	return failed;
}
