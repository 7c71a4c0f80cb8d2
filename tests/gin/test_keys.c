/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stream's queue pairs are to a device that does not take them back. And what the ranks of a
 * group, and the ends of a connection, have keys of beside the application's memory. A key is good
 * for whole pages, so there is nothing else on them.
 */
#include "../transport/harness.h"

#include "gin/verbs/group.h"
#include "gin/verbs/group_memory.h"
#include "gin/verbs/group_peers.h"
#include "gin/verbs/group_post.h"
#include "gin/verbs/qp.h"
#include "memory/mr.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 32

static struct {
	const uint8_t *at;
	size_t length;
} registered[MOST];
static unsigned n_registered;

ha_result_t __real_ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr,
				  size_t length, int type, uint64_t offset, int fd,
				  struct ha_mr **out);
ha_result_t __wrap_ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr,
				  size_t length, int type, uint64_t offset, int fd,
				  struct ha_mr **out);
ha_result_t __wrap_ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr,
				  size_t length, int type, uint64_t offset, int fd,
				  struct ha_mr **out)
{
	assert_true(n_registered < MOST);
	registered[n_registered].at = addr;
	registered[n_registered++].length = length;
	return __real_ha_mr_register(set, nic, addr, length, type, offset, fd, out);
}

/* Not in the heap, from the beginning of a page on, and zeros behind up to the next page. */
static void assert_pages_of_its_own(const uint8_t *at, size_t length)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	assert_int_equal((uintptr_t)at % page, 0);
	assert_true((uintptr_t)at > (uintptr_t)sbrk(0));
	for (size_t i = length; i % page != 0; i++)
		assert_int_equal(at[i], 0);
}

/* A group of one rank, which has streams and connections to itself. */
static void what_others_have_a_key_of_lies_on_pages_of_its_own(void **state)
{
	struct ha_gin_group *group;
	struct ha_listen *listen;
	uint8_t handle[HA_HANDLE_MAX];
	const void *const handles[] = {handle};
	struct ha_gin_shape shape = {.ranks = 1, .handles = handles};
	struct pair pair;

	(void)state;
	n_registered = 0;
	pair_init(&pair);
	pair_open(&pair);
	sv_stepped_set_host(0);
	assert_int_equal(ha_listen(pair.inst[0], 0, handle, &listen), HA_OK);
	shape.inst = pair.inst[0];
	shape.listen = listen;
	assert_int_equal(ha_gin_group_open(&shape, &group), HA_OK);
	for (int i = 0; i < 5000 && !ha_gin_group_is_connected(group); i++) {
		sv_stepped_set_host(0);
		assert_int_equal(ha_gin_group_progress(group), HA_OK);
		pair_advance(&pair);
	}
	assert_true(ha_gin_group_is_connected(group));
	/* Rows and counts, where adds land, and what is said and heard. */
	assert_int_equal(n_registered, 4);
	for (unsigned i = 0; i < n_registered; i++)
		assert_pages_of_its_own(registered[i].at, registered[i].length);
	ha_gin_group_close(group);
	ha_close_listen(listen);
	pair_close(&pair);
}

/* Its stream asks for it again and again. What a device refuses for seconds is counted for it,
 * until it is otherwise. */
static void a_queue_pair_that_is_refused_for_seconds_is_a_leak(void **state)
{
	const struct ha_gin_depth depth = {1, 1, 0};
	struct ha_gin_qp qp;
	struct ha_nic *nic;
	struct pair pair;
	int rule;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	pair_idle(&pair, 1);
	sv_stepped_set_host(0);
	nic = pair.inst[0]->devices->ports[0].nic;
	assert_int_equal(ha_gin_qp_open(&qp, &pair.inst[0]->devices->ports[0], &depth), HA_OK);
	rule = add_rule("errno=EBUSY verb=destroy_qp host=0");
	assert_false(ha_gin_qp_close(&qp));
	pair_idle(&pair, 1000);
	assert_false(ha_gin_qp_close(&qp));
	assert_int_equal(ha_nic_leaks(nic).of[HA_OBJECT_QP], 0);
	pair_idle(&pair, 2000);
	assert_false(ha_gin_qp_close(&qp));
	assert_false(ha_gin_qp_close(&qp));
	assert_int_equal(ha_nic_leaks(nic).of[HA_OBJECT_QP], 1);
	assert_int_equal(fired(rule), 4);
	sv_stepped_fault_remove(-1);
	assert_true(ha_gin_qp_close(&qp));
	assert_int_equal(ha_nic_leaks(nic).of[HA_OBJECT_QP], 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_queue_pair_that_is_refused_for_seconds_is_a_leak),
	    cmocka_unit_test(what_others_have_a_key_of_lies_on_pages_of_its_own),
	};

	return cmocka_run_group_tests_name("gin_keys", tests, NULL, NULL);
}
