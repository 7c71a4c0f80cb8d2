/* SPDX-License-Identifier: Apache-2.0 */
/* What a device says that it has, it has, and no more. */
#include "pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static int makes_all_queue_pairs(int peer_fd, int test_fd, void *arg)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_send_sge = 1},
					.qp_type = IBV_QPT_RC};
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	int n = 0;

	(void)peer_fd;
	(void)test_fd;
	(void)arg;
	NEED(ctx && !ibv_query_device(ctx, &attr));
	pd = ibv_alloc_pd(ctx);
	init.send_cq = init.recv_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	while (n <= attr.max_qp && ibv_create_qp(pd, &init))
		n++;
	NEED(errno == ENOMEM);
	NEED(n == attr.max_qp);
	NEED(!ibv_close_device(ctx)); /* with all of them */
	ibv_free_device_list(list);
	return 0;
}

static int does_nothing(int peer_fd, int test_fd, void *arg)
{
	(void)peer_fd;
	(void)test_fd;
	(void)arg;
	return 0;
}

static void as_many_queue_pairs_as_it_says(void **state)
{
	static const char *const fabrics[] = {"", "--limit max_qp=99999", "--limit max_qp=64"};
	struct pair pair;

	(void)state;
	for (size_t i = 0; i < sizeof(fabrics) / sizeof(fabrics[0]); i++) {
		fabric_up(fabrics[i]);
		pair_start(&pair, makes_all_queue_pairs, does_nothing, NULL);
		assert_int_equal(pair_join(&pair, 0, 60), 0);
		assert_int_equal(pair_join(&pair, 1, 20), 0);
		fabric_down();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(as_many_queue_pairs_as_it_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
