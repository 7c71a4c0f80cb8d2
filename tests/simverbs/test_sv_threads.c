/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applications post and poll in threads of their own while another one steps, breaks links and
 * reads events: nothing is lost, and ThreadSanitizer has nothing to say.
 */
#include "world.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MESSAGES 400u
#define LENGTH	 3000u

struct worker {
	pthread_t thread;
	struct end *e, *peer;
	uint32_t sent, received;
	atomic_bool done;
};

static bool post_more(struct worker *k, uint32_t posted)
{
	if (posted >= MESSAGES || posted - k->sent >= 16)
		return false;
	return post(k->e, IBV_WR_RDMA_WRITE_WITH_IMM, posted, (posted % 8) * LENGTH, LENGTH,
		    k->peer, 32768 + (posted % 8) * LENGTH) == 0;
}

static void *work(void *arg)
{
	struct worker *k = arg;
	uint32_t posted = 0, recvs = 0;
	struct ibv_wc wc;

	while (k->sent < MESSAGES || k->received < MESSAGES) {
		while (recvs - k->received < 32 && recvs < MESSAGES) {
			assert_int_equal(post_recv(k->e, 1000 + recvs, 0, 0), 0);
			recvs++;
		}
		while (post_more(k, posted))
			posted++;
		while (ibv_poll_cq(k->e->cq, 1, &wc) == 1) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			if (wc.wr_id >= 1000)
				assert_int_equal(wc.wr_id, 1000 + k->received++);
			else
				assert_int_equal(wc.wr_id, k->sent++);
		}
		sched_yield();
	}
	atomic_store(&k->done, true);
	return NULL;
}

static void test_threads(void **state)
{
	char err[200];
	struct worker a = {0}, b = {0};
	struct world w;
	uint32_t flaps = 0;

	(void)state;
	world_open(&w, &(struct world_opts){.retry_cnt = 7, .rnr_retry = 7});
	assert_true(sv_stepped_fault_add("drop prob=0.01\ndup prob=0.01", err, sizeof(err)) >= 0);
	fill(w.a.buf, 32768, 1);
	fill(w.b.buf, 32768, 2);
	a.e = b.peer = &w.a;
	b.e = a.peer = &w.b;
	assert_int_equal(pthread_create(&a.thread, NULL, work, &a), 0);
	assert_int_equal(pthread_create(&b.thread, NULL, work, &b), 0);
	while (!atomic_load(&a.done) || !atomic_load(&b.done)) {
		if (!sv_stepped_step())
			sched_yield();
		if (sv_stepped_index() / 1000 > flaps && flaps < 10) {
			sv_stepped_link(flaps++ % 2, 0, false);
			sv_stepped_link(0, 0, true);
			sv_stepped_link(1, 0, true);
		}
	}
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
	settle();
	assert_true(flaps > 0);
	assert_memory_equal(w.a.buf, w.b.buf + 32768, 8 * LENGTH);
	assert_memory_equal(w.b.buf, w.a.buf + 32768, 8 * LENGTH);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
