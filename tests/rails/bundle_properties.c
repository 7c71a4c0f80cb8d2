/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle-properties PLUGIN: on a host with the ports sim0, sim1 and sim2 of which the first two are
 * asked for as a bundle, what each version of NCCL's interface is told of its devices.
 */
#include "../unit/cmocka_all.h"

#include "nccl_ha/nccl_net.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

static void *library;

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
		   const char *fmt, ...)
{
	(void)level, (void)flags, (void)file, (void)line, (void)fmt;
}

static const void *table(const char *name)
{
	const void *found = dlsym(library, name);

	assert_non_null(found);
	return found;
}

/* Members that all versions have. */
#define EXPECT_DEVICES(net)                                                                        \
	do {                                                                                       \
		int ndev = 0;                                                                      \
		assert_int_equal((net)->devices(&ndev), ncclSuccess);                              \
		assert_int_equal(ndev, 2);                                                         \
		assert_int_equal((net)->getProperties(0, &fused), ncclSuccess);                    \
		assert_int_equal((net)->getProperties(1, &alone), ncclSuccess);                    \
		assert_int_not_equal((net)->getProperties(2, &none), ncclSuccess);                 \
		assert_string_equal(fused.name, "sim0+sim1");                                      \
		assert_string_equal(alone.name, "sim2");                                           \
		assert_int_equal(fused.speed, 2 * alone.speed);                                    \
		assert_int_equal(fused.ptrSupport, alone.ptrSupport);                              \
		assert_int_equal(fused.maxComms, alone.maxComms);                                  \
		assert_int_equal(fused.maxRecvs, alone.maxRecvs);                                  \
		assert_int_equal(fused.regIsGlobal, 1);                                            \
		assert_int_equal(fused.port, 1);                                                   \
		assert_true(fused.guid != alone.guid);                                             \
		assert_int_equal(fused.netDeviceType, NCCL_NET_DEVICE_HOST);                       \
	} while (0)

#define EXPECT_PARTS()                                                                             \
	do {                                                                                       \
		assert_int_equal(fused.forceFlush, 0);                                             \
		assert_int_equal(fused.vProps.ndevs, 2);                                           \
		assert_int_equal(fused.vProps.devs[0], 0);                                         \
		assert_int_equal(fused.vProps.devs[1], 1);                                         \
		assert_int_equal(alone.vProps.ndevs, 1);                                           \
		assert_int_equal(alone.vProps.devs[0], 2);                                         \
		assert_true(fused.maxP2pBytes == alone.maxP2pBytes);                               \
		assert_true(fused.maxCollBytes == alone.maxCollBytes);                             \
	} while (0)

static void v8_has_a_bundle_as_one_device(void **state)
{
	const ncclNet_v8_t *net = table("ncclNetPlugin_v8");
	ncclNetProperties_v8_t fused, alone, none;

	(void)state;
	assert_int_equal(net->init(logger), ncclSuccess);
	EXPECT_DEVICES(net);
}

static void v9_has_its_parts_too(void **state)
{
	const ncclNet_v9_t *net = table("ncclNetPlugin_v9");
	ncclNetProperties_v9_t fused, alone, none;

	(void)state;
	assert_int_equal(net->init(logger), ncclSuccess);
	EXPECT_DEVICES(net);
	EXPECT_PARTS();
	assert_null(net->makeVDevice);
}

static void v10_has_its_parts_too(void **state)
{
	const ncclNet_v10_t *net = table("ncclNetPlugin_v10");
	ncclNetProperties_v10_t fused, alone, none;

	(void)state;
	assert_int_equal(net->init(logger, NULL), ncclSuccess);
	EXPECT_DEVICES(net);
	EXPECT_PARTS();
	assert_null(net->makeVDevice);
}

static void v11_has_its_parts_too(void **state)
{
	const ncclNet_v11_t *net = table("ncclNetPlugin_v11");
	ncclNetProperties_v11_t fused, alone, none;
	void *context;

	(void)state;
	assert_int_equal(net->init(&context, 1, NULL, logger, NULL), ncclSuccess);
	EXPECT_DEVICES(net);
	EXPECT_PARTS();
	assert_int_equal(fused.maxMultiRequestSize, 1);
	assert_null(net->makeVDevice);
	assert_int_equal(net->finalize(context), ncclSuccess);
}

static void v12_has_its_parts_and_the_rail_number_that_they_share(void **state)
{
	const ncclNet_v12_t *net = table("ncclNetPlugin_v12");
	ncclNetProperties_v12_t fused, alone, none;
	void *context;

	(void)state;
	assert_int_equal(net->init(&context, 1, NULL, logger, NULL), ncclSuccess);
	EXPECT_DEVICES(net);
	EXPECT_PARTS();
	assert_int_equal(fused.maxMultiRequestSize, 1);
	assert_int_equal(fused.railId, NCCL_NET_ID_UNDEF); /* its ports are in two subnets */
	assert_int_equal(fused.planeId, NCCL_NET_ID_UNDEF);
	assert_int_equal(alone.railId, 2);
	assert_int_equal(alone.planeId, NCCL_NET_ID_UNDEF);
	assert_null(net->makeVDevice);
	assert_int_equal(net->finalize(context), ncclSuccess);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(v8_has_a_bundle_as_one_device),
	    cmocka_unit_test(v9_has_its_parts_too),
	    cmocka_unit_test(v10_has_its_parts_too),
	    cmocka_unit_test(v11_has_its_parts_too),
	    cmocka_unit_test(v12_has_its_parts_and_the_rail_number_that_they_share),
	};

	if (argc != 2)
		return 2;
	library = dlopen(argv[1], RTLD_NOW);
	if (!library)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
