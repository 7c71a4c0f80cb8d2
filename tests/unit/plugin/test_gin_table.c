/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GIN table as NCCL 2.28.9 was compiled with it, written down here a second time: each entry's
 * arguments, which the compiler compares, and its place among the 19 words. Read once from NCCL's
 * own headers; of all releases with version 11 they are the same file.
 */
#include "../cmocka_all.h"

#include "nccl_ha/nccl_gin.h"

#include <string.h>

typedef void entry(void);

#define ENTRY(name, ...)                                                                           \
	static ncclResult_t name(__VA_ARGS__)                                                      \
	{                                                                                          \
		return ncclInternalError;                                                          \
	}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
ENTRY(init, void **ctx, uint64_t comm, ncclDebugLogger_t log)
ENTRY(devices, int *n)
ENTRY(properties, int dev, ncclNetProperties_v11_t *props)
ENTRY(listen_at, void *ctx, int dev, void *handle, void **listener)
ENTRY(connect_all, void *ctx, void **handles, int ranks, int rank, void *listener, void **coll)
ENTRY(create, void *coll, int signals, int counters, void **ctx, ncclNetDeviceHandle_v11_t **dev)
ENTRY(reg, void *coll, void *data, size_t size, int type, uint64_t flags, void **mr, void **gin)
ENTRY(reg_fd, void *coll, void *data, size_t size, int type, uint64_t offset, int fd,
      uint64_t flags, void **mr, void **gin)
ENTRY(dereg, void *coll, void *mr)
ENTRY(destroy, void *ctx)
ENTRY(close_coll, void *coll)
ENTRY(close_listen, void *listener)
ENTRY(put, void *coll, uint64_t from, void *from_mr, size_t size, uint64_t to, void *to_mr,
      uint32_t rank, void **request)
ENTRY(put_signal, void *coll, uint64_t from, void *from_mr, size_t size, uint64_t to, void *to_mr,
      uint32_t rank, uint64_t at, void *at_mr, uint64_t value, uint32_t op, void **request)
ENTRY(test, void *coll, void *request, int *done)
ENTRY(progress, void *coll)
ENTRY(last_error, void *ctx, bool *has)
ENTRY(finalize, void *ctx)
#pragma GCC diagnostic pop

static const ncclGin_v11_t table = {
    .name = "name",
    .init = init,
    .devices = devices,
    .getProperties = properties,
    .listen = listen_at,
    .connect = connect_all,
    .createContext = create,
    .regMrSym = reg,
    .regMrSymDmaBuf = reg_fd,
    .deregMrSym = dereg,
    .destroyContext = destroy,
    .closeColl = close_coll,
    .closeListen = close_listen,
    .iput = put,
    .iputSignal = put_signal,
    .test = test,
    .ginProgress = progress,
    .queryLastError = last_error,
    .finalize = finalize,
};

static void every_entry_is_where_NCCL_calls_it(void **state)
{
	static entry *const order[] = {
	    (entry *)init,	  (entry *)devices,    (entry *)properties, (entry *)listen_at,
	    (entry *)connect_all, (entry *)create,     (entry *)reg,	    (entry *)reg_fd,
	    (entry *)dereg,	  (entry *)destroy,    (entry *)close_coll, (entry *)close_listen,
	    (entry *)put,	  (entry *)put_signal, (entry *)test,	    (entry *)progress,
	    (entry *)last_error,  (entry *)finalize,
	};

	(void)state;
	assert_int_equal(sizeof(table), sizeof(table.name) + sizeof(order));
	assert_int_equal(offsetof(ncclGin_v11_t, name), 0);
	assert_memory_equal((const char *)&table + sizeof(table.name), order, sizeof(order));
}

/* In the order that NCCL's headers of 2.29.7, 2.30.4 and 2.30.7 have them in. */
#define AT(type, entry)                                                                            \
	{                                                                                          \
#entry, offsetof(type, entry)                                                      \
	}
#define FIRST(type)                                                                                \
	AT(type, name), AT(type, init), AT(type, devices), AT(type, getProperties),                \
	    AT(type, listen), AT(type, connect), AT(type, createContext), AT(type, regMrSym),      \
	    AT(type, regMrSymDmaBuf), AT(type, deregMrSym), AT(type, destroyContext),              \
	    AT(type, closeColl), AT(type, closeListen), AT(type, iput), AT(type, iputSignal)

struct place {
	const char *entry;
	size_t offset;
};

static void are_in_order(const struct place *places, size_t count, size_t size)
{
	assert_int_equal(size, count * sizeof(void *));
	for (size_t i = 0; i < count; i++)
		if (places[i].offset != i * sizeof(void *))
			fail_msg("%s is at %zu", places[i].entry, places[i].offset);
}

static void newer_tables_have_their_entries_where_NCCL_calls_them(void **state)
{
	static const struct place v12[] = {
	    FIRST(ncclGin_v12_t), AT(ncclGin_v12_t, test), AT(ncclGin_v12_t, ginProgress),
	    AT(ncclGin_v12_t, queryLastError), AT(ncclGin_v12_t, finalize)};
	static const struct place v13[] = {
	    FIRST(ncclGin_v13_t),	    AT(ncclGin_v13_t, iget),
	    AT(ncclGin_v13_t, iflush),	    AT(ncclGin_v13_t, test),
	    AT(ncclGin_v13_t, ginProgress), AT(ncclGin_v13_t, queryLastError),
	    AT(ncclGin_v13_t, finalize)};
	static const struct place v14[] = {
	    FIRST(ncclRma_v14_t),	    AT(ncclRma_v14_t, iget),
	    AT(ncclRma_v14_t, iflush),	    AT(ncclRma_v14_t, test),
	    AT(ncclRma_v14_t, rmaProgress), AT(ncclRma_v14_t, queryLastError),
	    AT(ncclRma_v14_t, finalize)};

	(void)state;
	are_in_order(v12, sizeof(v12) / sizeof(v12[0]), sizeof(ncclGin_v12_t));
	are_in_order(v13, sizeof(v13) / sizeof(v13[0]), sizeof(ncclGin_v13_t));
	are_in_order(v14, sizeof(v14) / sizeof(v14[0]), sizeof(ncclRma_v14_t));
	assert_int_equal(sizeof(ncclGinConfig_v13_t), 5 * sizeof(int));
	assert_int_equal(offsetof(ncclGinConfig_v13_t, nContexts), 2 * sizeof(int));
	assert_int_equal(sizeof(ncclRmaConfig_v14_t), 3 * sizeof(int));
	assert_int_equal(offsetof(ncclRmaConfig_v14_t, nContexts), 0);
}

static void numbers_are_those_that_NCCL_says(void **state)
{
	(void)state;
	assert_int_equal(NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET, 2);
	assert_int_equal(NCCL_NET_DEVICE_GIN_PROXY, 2);
	assert_int_equal(NCCL_NET_MR_FLAG_FORCE_SO, 1);
	assert_int_equal(NCCL_NET_SIGNAL_OP_INC, 1);
	assert_int_equal(NCCL_NET_SIGNAL_OP_ADD, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_entry_is_where_NCCL_calls_it),
	    cmocka_unit_test(newer_tables_have_their_entries_where_NCCL_calls_them),
	    cmocka_unit_test(numbers_are_those_that_NCCL_says),
	};

	return cmocka_run_group_tests_name("gin_table", tests, NULL, NULL);
}
