/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as a device sees it, which need not be how a processor sees it. */
#include "world.h"

#include <sys/mman.h>

#define PAGE   ((size_t)4096)
#define PAGES  8u
#define LENGTH (PAGES * PAGE)

static uint8_t *map_at(void *addr, int flags)
{
	uint8_t *map = mmap(addr, LENGTH, PROT_READ | PROT_WRITE,
			    flags | MAP_ANONYMOUS | (addr ? MAP_FIXED : 0), -1, 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	return map;
}

static void write_to_b(struct world *w, uint64_t id, const uint8_t *to, uint32_t rkey,
		       uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)w->a.buf, length, w->a.mr->lkey};
	struct ibv_send_wr wr = wr_of(IBV_WR_RDMA_WRITE, id, &sge), *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)to;
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
	settle();
	expect_wc(&w->a, id, IBV_WC_SUCCESS);
}

/* Two mappings of one file, so that a test can look at pages that are mapped no more. */
static uint8_t *second_view(const uint8_t *map)
{
	uint8_t *view = mremap((void *)(uintptr_t)map, 0, LENGTH, MREMAP_MAYMOVE);

	assert_ptr_not_equal(view, MAP_FAILED);
	return view;
}

static void assert_all(const uint8_t *at, uint8_t value, size_t length)
{
	for (size_t i = 0; i < length; i++)
		assert_int_equal(at[i], value);
}

static void a_pinned_region_keeps_its_pages_when_others_are_mapped_there(void **state)
{
	struct world *w = *state;
	uint8_t *map = map_at(NULL, MAP_SHARED), *old = second_view(map);
	/* Not all of the first page and of the last. */
	struct ibv_mr *mr = ibv_reg_mr(w->b.pd, map + 100, LENGTH - 200, all_access);

	assert_non_null(mr);
	assert_ptr_equal(mr->addr, map + 100);
	memset(w->a.buf, 1, LENGTH);
	write_to_b(w, 1, map + 100, mr->rkey, LENGTH - 200);
	assert_all(map, 0, 100);
	assert_all(map + 100, 1, LENGTH - 200);
	assert_all(map + LENGTH - 100, 0, 100);
	map_at(map, MAP_SHARED);
	memset(w->a.buf, 2, LENGTH);
	write_to_b(w, 2, map + 100, mr->rkey, LENGTH - 200);
	assert_all(map, 0, LENGTH);
	assert_all(old + 100, 2, LENGTH - 200);
	/* Registered anew, the new ones. */
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, map, LENGTH, 0),
			 0);
	memset(w->a.buf, 3, LENGTH);
	write_to_b(w, 3, map, mr->rkey, LENGTH);
	assert_all(map, 3, LENGTH);
	assert_all(old + 100, 2, LENGTH - 200);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(map, LENGTH);
	munmap(old, LENGTH);
}

static void private_memory_is_used_where_it_lies(void **state)
{
	struct world *w = *state;
	uint8_t *map = map_at(NULL, MAP_PRIVATE);
	struct ibv_mr *mr = ibv_reg_mr(w->b.pd, map, LENGTH, all_access);

	assert_non_null(mr);
	map_at(map, MAP_PRIVATE);
	memset(w->a.buf, 1, LENGTH);
	write_to_b(w, 1, map, mr->rkey, LENGTH);
	assert_all(map, 1, LENGTH);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(map, LENGTH);
}

static void nothing_is_pinned_unless_the_fabric_was_made_so(void **state)
{
	struct world *w = *state;
	uint8_t *map = map_at(NULL, MAP_SHARED);
	struct ibv_mr *mr = ibv_reg_mr(w->b.pd, map, LENGTH, all_access);

	assert_non_null(mr);
	map_at(map, MAP_SHARED);
	memset(w->a.buf, 1, LENGTH);
	write_to_b(w, 1, map, mr->rkey, LENGTH);
	assert_all(map, 1, LENGTH);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(map, LENGTH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WORLD_TEST(a_pinned_region_keeps_its_pages_when_others_are_mapped_there,
		       .fabric.pin = true),
	    WORLD_TEST(private_memory_is_used_where_it_lies, .fabric.pin = true),
	    WORLD_TEST(nothing_is_pinned_unless_the_fabric_was_made_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
