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
		if (at[i] != value)
			return false;
	return true;
}

/* Its memory is mapped anew when the other has written once. */
static int is_written_to(int peer_fd, int test_fd, void *arg)
{
	struct end_options opt = {.len = LENGTH, .timeout = 16, .buf = map_at(NULL)};
	uint8_t *map = opt.buf, *old = mremap(map, 0, LENGTH, MREMAP_MAYMOVE);
	const bool *pinned = arg;
	struct end end;

	(void)test_fd;
	NEED(old != MAP_FAILED);
	end_open(&end, peer_fd, &opt);
	meet(peer_fd);
	meet(peer_fd);
	NEED(is_all(map, 1));
	map_at(map);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_pinned_region_keeps_its_pages_when_others_are_mapped_there),
	    cmocka_unit_test(nothing_is_pinned_unless_the_fabric_was_made_so),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	fabric_down();
	return failed;
}
