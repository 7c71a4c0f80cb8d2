/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as a device sees it, which need not be how a processor sees it. */
#include "world.h"

#include <sys/mman.h>
#include <unistd.h>

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

/* ---- memory of another device ---------------------------------------------------------------- */

struct gpu {
	uint8_t *bytes;
	struct ibv_mr *mr;
};

static struct gpu gpu_at(const struct end *e)
{
	int fd = memfd_create("gpu", MFD_CLOEXEC);
	struct gpu gpu;

	assert_int_equal(ftruncate(fd, LENGTH), 0);
	gpu.bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(gpu.bytes, MAP_FAILED);
	gpu.mr = ibv_reg_dmabuf_mr(e->pd, 0, LENGTH, (uintptr_t)gpu.bytes, fd, (int)all_access);
	assert_non_null(gpu.mr);
	close(fd);
	return gpu;
}

static void gpu_close(struct gpu *gpu)
{
	assert_int_equal(ibv_dereg_mr(gpu->mr), 0);
	munmap(gpu->bytes, LENGTH);
}

static int add(const char *rule)
{
	char err[300];
	int id = sv_stepped_fault_add(rule, err, sizeof(err));

	if (id < 0)
		fail_msg("%s", err);
	return id;
}

static uint64_t times_fired(int id)
{
	uint64_t matched, fired;

	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	return fired;
}

/* From host 0's memory `from` to the peer's, or from the peer's. */
static void post_rdma(struct world *w, enum ibv_wr_opcode op, const void *from, uint32_t lkey,
		      const void *to, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)from, 5000, lkey};
	struct ibv_send_wr wr = wr_of(op, 1, &sge), *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)to;
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
	settle();
}

/* Each way to use it, with what becomes of it by default and where nothing is said. */
static void a_device_may_be_unable_to_reach_what_it_has_registered(void **state)
{
	static const struct {
		const char *rule;
		enum ibv_wr_opcode op;
		bool local;
		enum ibv_wc_status status;
	} cases[] = {
	    {"unreachable host=0", IBV_WR_RDMA_WRITE, true, IBV_WC_LOC_QP_OP_ERR},
	    {"unreachable host=1 rail=0", IBV_WR_RDMA_WRITE, false, IBV_WC_REM_OP_ERR},
	    {"unreachable host=1 rail=0", IBV_WR_RDMA_READ, false, IBV_WC_REM_OP_ERR},
	    {"unreachable=silent host=1", IBV_WR_RDMA_WRITE, false, IBV_WC_RETRY_EXC_ERR},
	    {"unreachable=silent host=1", IBV_WR_RDMA_READ, false, IBV_WC_RETRY_EXC_ERR},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world w;
		struct gpu gpu;
		int rule;

		world_open(&w, &(struct world_opts){.fabric.seed = 1});
		gpu = gpu_at(cases[i].local ? &w.a : &w.b);
		memset(w.a.buf, 7, LENGTH);
		rule = add(cases[i].rule);
		post_rdma(&w, cases[i].op, cases[i].local ? gpu.bytes : w.a.buf,
			  cases[i].local ? gpu.mr->lkey : w.a.mr->lkey,
			  cases[i].local ? w.b.buf : gpu.bytes,
			  cases[i].local ? w.b.mr->rkey : gpu.mr->rkey);
		expect_wc(&w.a, 1, cases[i].status);
		assert_true(times_fired(rule) > 0);
		assert_all(gpu.bytes, 0, LENGTH);
		gpu_close(&gpu);
		world_close(&w);
	}
}

static void what_is_nobodys_device_memory_is_reached(void **state)
{
	struct world *w = *state;
	struct gpu gpu = gpu_at(&w->b);
	int rule = add("unreachable host=0"), later = add("unreachable host=1 at=1s");

	fill(w->a.buf, LENGTH, 3);
	post_rdma(w, IBV_WR_RDMA_WRITE, w->a.buf, w->a.mr->lkey, w->b.buf, w->b.mr->rkey);
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	post_rdma(w, IBV_WR_RDMA_WRITE, w->a.buf, w->a.mr->lkey, gpu.bytes, gpu.mr->rkey);
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(gpu.bytes, w->a.buf, 5000);
	assert_int_equal(times_fired(rule) + times_fired(later), 0);
	sv_stepped_run(1000000000);
	post_rdma(w, IBV_WR_RDMA_WRITE, w->a.buf, w->a.mr->lkey, gpu.bytes, gpu.mr->rkey);
	expect_wc(&w->a, 1, IBV_WC_REM_OP_ERR);
	gpu_close(&gpu);
}

static void a_rule_that_makes_no_sense_is_refused(void **state)
{
	static const char *const rules[] = {"unreachable=gpu", "unreachable op=write",
					    "unreachable dir=rx", "unreachable verb=reg_mr"};
	char err[300];

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		assert_int_equal(sv_stepped_fault_add(rules[i], err, sizeof(err)), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WORLD_TEST(a_pinned_region_keeps_its_pages_when_others_are_mapped_there,
		       .fabric.pin = true),
	    WORLD_TEST(private_memory_is_used_where_it_lies, .fabric.pin = true),
	    WORLD_TEST(nothing_is_pinned_unless_the_fabric_was_made_so),
	    cmocka_unit_test(a_device_may_be_unable_to_reach_what_it_has_registered),
	    WORLD_TEST(what_is_nobodys_device_memory_is_reached),
	    WORLD_TEST(a_rule_that_makes_no_sense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
