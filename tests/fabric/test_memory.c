/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as a device sees it, between processes: pages that stay a region's. */
#include "pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define LENGTH ((size_t)1 << 20)

static uint8_t *map_at(void *addr)
{
	void *map = mmap(addr, LENGTH, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE | (addr ? MAP_FIXED : 0), -1, 0);

	NEED(map != MAP_FAILED);
	return map;
}

static bool is_all(const uint8_t *at, uint8_t value)
{
	for (size_t i = 0; i < LENGTH; i++)
		if (end_sees(&at[i]) != value)
			return false;
	return true;
}

/* Its memory is mapped anew when the other has written once. */
static int is_written_to(int peer_fd, int test_fd, void *arg)
{
	struct end_options opt = {.len = LENGTH, .timeout = 16, .buf = map_at(NULL)};
	uint8_t *map = opt.buf, *old = mremap(map, 0, LENGTH, MREMAP_MAYMOVE);
	const bool *pinned = arg;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end end;

	(void)test_fd;
	NEED(old != MAP_FAILED);
	end_open(&end, peer_fd, &opt);
	meet(peer_fd);
	meet(peer_fd);
	NEED(is_all(map, 1));
	map_at(map);
	/* For the thread sanitizer: what the device's thread writes comes after the mapping. */
	NEED(ibv_query_qp(end.qp, &attr, IBV_QP_STATE, &init) == 0);
	meet(peer_fd);
	meet(peer_fd);
	NEED(is_all(map, *pinned ? 0 : 2));
	NEED(is_all(old, *pinned ? 2 : 1));
	end.buf = NULL; /* it is no heap's */
	end_close(&end);
	return 0;
}

static int writes_twice(int peer_fd, int test_fd, void *arg)
{
	struct end_options opt = {.len = LENGTH, .timeout = 16, .buf = map_at(NULL)};
	struct ibv_wc wc;
	struct end end;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &opt);
	for (int value = 1; value <= 2; value++) {
		meet(peer_fd);
		memset(end.buf, value, LENGTH);
		NEED(!end_post_write(&end, 0, LENGTH, 1));
		NEED(end_wait(&end, &wc, 20) == IBV_WC_SUCCESS);
		meet(peer_fd);
	}
	end.buf = NULL; /* it is no heap's */
	end_close(&end);
	return 0;
}

static void write_to_memory_mapped_anew(bool pinned)
{
	struct pair pair;

	fabric_up(pinned ? "--hosts 2 --rails 1 --pin" : "--hosts 2 --rails 1");
	pair_start(&pair, is_written_to, writes_twice, &pinned);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	fabric_down();
}

static void a_pinned_region_keeps_its_pages_when_others_are_mapped_there(void **state)
{
	(void)state;
	write_to_memory_mapped_anew(true);
}

static void nothing_is_pinned_unless_the_fabric_was_made_so(void **state)
{
	(void)state;
	write_to_memory_mapped_anew(false);
}

/* ---- memory of another device ---------------------------------------------------------------- */

static int has_device_memory(int peer_fd, int test_fd, void *arg)
{
	struct end_options opt = {.len = LENGTH, .timeout = 12};
	int fd = memfd_create("gpu", MFD_CLOEXEC);
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct end end;

	(void)test_fd, (void)arg;
	NEED(fd >= 0 && ftruncate(fd, LENGTH) == 0);
	end_open(&end, peer_fd, &opt);
	mr = ibv_reg_dmabuf_mr(end.pd, 0, LENGTH, 0, fd, IBV_ACCESS_LOCAL_WRITE);
	NEED(mr);
	NEED(!ibv_post_send(
	    end.qp,
	    &(struct ibv_send_wr){.sg_list = &(struct ibv_sge){0, 100, mr->lkey},
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = {.remote_addr = end.peer_addr, .rkey = end.peer_rkey}},
	    &(struct ibv_send_wr *){NULL}));
	NEED(end_wait(&end, &wc, 20) == IBV_WC_LOC_QP_OP_ERR);
	meet(peer_fd);
	NEED(!ibv_dereg_mr(mr));
	close(fd);
	end_close(&end);
	return 0;
}

static int has_none(int peer_fd, int test_fd, void *arg)
{
	struct end_options opt = {.len = LENGTH, .timeout = 12};
	struct end end;

	(void)test_fd, (void)arg;
	end_open(&end, peer_fd, &opt);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void a_device_may_be_unable_to_reach_what_it_has_registered(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1 --dmabuf");
	assert_int_equal(fabric_tool("fault %s 'unreachable host=0 rail=0'", fabric_name()), 0);
	pair_start(&pair, has_device_memory, has_none, NULL);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	status = fabric_status();
	assert_int_equal(status_fired(status, 0), 1);
	json_decref(status);
	fabric_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_pinned_region_keeps_its_pages_when_others_are_mapped_there),
	    cmocka_unit_test(nothing_is_pinned_unless_the_fabric_was_made_so),
	    cmocka_unit_test(a_device_may_be_unable_to_reach_what_it_has_registered),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	fabric_down();
	return failed;
}
