/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collNet tables as NCCL was compiled with them, written down here a second time: each entry's
 * arguments, which the compiler compares, and its place. Of version 8 NCCL 2.20.3's,
 * then 2.24.3's, 2.26.2's, 2.28.3's and 2.30.3's.
 */
#include "../cmocka_all.h"

#include "nccl_ha/nccl_coll.h"

#include <string.h>

typedef void entry(void);

#define ENTRY(name, ...)                                                                           \
	static ncclResult_t name(__VA_ARGS__)                                                      \
	{                                                                                          \
		return ncclInternalError;                                                          \
	}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
ENTRY(init_once, ncclDebugLogger_t log)
ENTRY(init_each, void **ctx, uint64_t comm, ncclDebugLogger_t log)
ENTRY(devices, int *n)
ENTRY(properties_8, int dev, ncclNetProperties_v8_t *props)
ENTRY(properties_9, int dev, ncclNetProperties_v9_t *props)
ENTRY(properties_11, int dev, ncclNetProperties_v11_t *props)
ENTRY(properties_12, int dev, ncclNetProperties_v12_t *props)
ENTRY(listen_once, int dev, void *handle, void **listener)
ENTRY(listen_each, void *ctx, int dev, void *handle, void **listener)
ENTRY(connect_all, void **handles, int ranks, int rank, void *listener, void **coll)
ENTRY(supports, ncclDataType_t type, ncclRedOp_t op, int *yes)
ENTRY(reg, void *coll, void *data, size_t size, int type, void **mr)
ENTRY(reg_fd, void *coll, void *data, size_t size, int type, uint64_t offset, int fd, void **mr)
ENTRY(dereg, void *coll, void *mr)
ENTRY(reduce_8, void *coll, void *send, void *recv, int n, ncclDataType_t type, ncclRedOp_t op,
      void *send_mr, void *recv_mr, void **request)
ENTRY(reduce_9, void *coll, void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op,
      void *send_mr, void *recv_mr, void **request)
ENTRY(gather_8, void *coll, void *send, int n, ncclNetSGE_v8_t *parts, size_t bytes, size_t from,
      size_t window, void *mr, void **request)
ENTRY(gather_9, void *coll, void *send, int n, ncclNetSGE_v9_t *parts, size_t bytes, size_t from,
      size_t window, void *mr, void **request)
ENTRY(scatter_8, void *coll, int n, ncclNetSGE_v8_t *parts, void *recv, size_t bytes, size_t from,
      size_t window, ncclDataType_t type, ncclRedOp_t op, void *mr, void **request)
ENTRY(scatter_9, void *coll, int n, ncclNetSGE_v9_t *parts, void *recv, size_t bytes, size_t from,
      size_t window, ncclDataType_t type, ncclRedOp_t op, void *mr, void **request)
ENTRY(flush, void *coll, void *data, int size, void *mr, void **request)
ENTRY(test, void *request, int *done, int *size)
ENTRY(close_coll, void *coll)
ENTRY(close_listen, void *listener)
ENTRY(fuse_9, int *dev, ncclNetVDeviceProps_v9_t *props)
ENTRY(fuse_12, int *dev, ncclNetVDeviceProps_v12_t *props)
ENTRY(finalize, void *ctx)
#pragma GCC diagnostic pop

#define BEGIN(n) .name = "name", .devices = devices, .getProperties = properties_##n
#define MIDDLE                                                                                     \
	.connect = connect_all, .reduceSupport = supports, .regMr = reg, .regMrDmaBuf = reg_fd,    \
	.deregMr = dereg, .iflush = flush, .test = test, .closeColl = close_coll,                  \
	.closeListen = close_listen
#define DATA(n) .iallreduce = reduce_##n, .iallgather = gather_##n, .ireducescatter = scatter_##n

#define ORDER(init, n, listen, data)                                                               \
	(entry *)init, (entry *)devices, (entry *)properties_##n, (entry *)listen,                 \
	    (entry *)connect_all, (entry *)supports, (entry *)reg, (entry *)reg_fd,                \
	    (entry *)dereg, (entry *)reduce_##data, (entry *)gather_##data,                        \
	    (entry *)scatter_##data, (entry *)flush, (entry *)test, (entry *)close_coll,           \
	    (entry *)close_listen

#define EXPECT(table, order)                                                                       \
	do {                                                                                       \
		assert_int_equal(sizeof(table), sizeof((table).name) + sizeof(order));             \
		assert_memory_equal((const char *)&(table) + sizeof((table).name), order,          \
				    sizeof(order));                                                \
	} while (0)

static void the_old_ones_have_their_entries_where_NCCL_calls_them(void **state)
{
	static const ncclCollNet_v8_t v8 = {BEGIN(8), .init = init_once, .listen = listen_once,
					    MIDDLE, DATA(8)};
	static const ncclCollNet_v9_t v9 = {BEGIN(9), .init = init_once, .listen = listen_once,
					    MIDDLE,   DATA(9),		 .makeVDevice = fuse_9};
	static const ncclCollNet_v10_t v10 = {BEGIN(9), .init = init_once, .listen = listen_once,
					      MIDDLE,	DATA(9),	   .makeVDevice = fuse_9};
	static entry *const order_8[] = {ORDER(init_once, 8, listen_once, 8)};
	static entry *const order_9[] = {ORDER(init_once, 9, listen_once, 9), (entry *)fuse_9};

	(void)state;
	EXPECT(v8, order_8);
	EXPECT(v9, order_9);
	EXPECT(v10, order_9);
}

static void those_with_a_context_too(void **state)
{
	static const ncclCollNet_v11_t v11 = {
	    BEGIN(11), .init = init_each,     .listen = listen_each, MIDDLE,
	    DATA(9),   .makeVDevice = fuse_9, .finalize = finalize};
	static const ncclCollNet_v12_t v12 = {
	    BEGIN(12), .init = init_each,      .listen = listen_each, MIDDLE,
	    DATA(9),   .makeVDevice = fuse_12, .finalize = finalize};
	static entry *const order_11[] = {ORDER(init_each, 11, listen_each, 9), (entry *)fuse_9,
					  (entry *)finalize};
	static entry *const order_12[] = {ORDER(init_each, 12, listen_each, 9), (entry *)fuse_12,
					  (entry *)finalize};

	(void)state;
	EXPECT(v11, order_11);
	EXPECT(v12, order_12);
}

static void numbers_are_those_that_NCCL_says(void **state)
{
	(void)state;
	assert_int_equal(ncclFloat16, 6);
	assert_int_equal(ncclFloat32, 7);
	assert_int_equal(ncclFloat64, 8);
	assert_int_equal(ncclBfloat16, 9);
	assert_int_equal(ncclFloat8e5m2, 11);
	assert_int_equal(ncclSum, 0);
	assert_int_equal(ncclProd, 1);
	assert_int_equal(ncclMax, 2);
	assert_int_equal(ncclMin, 3);
	assert_int_equal(ncclAvg, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_old_ones_have_their_entries_where_NCCL_calls_them),
	    cmocka_unit_test(those_with_a_context_too),
	    cmocka_unit_test(numbers_are_those_that_NCCL_says),
	};

	return cmocka_run_group_tests_name("coll_table", tests, NULL, NULL);
}
