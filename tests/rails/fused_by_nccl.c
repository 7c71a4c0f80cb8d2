/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HA_NCCL_RAILS=nccl through each version of the interface of the plugin that is named on the
 * command line, on a fabric of three rails: the table offers makeVDevice after init, and what NCCL
 * makes by it is a device behind the others.
 */
#include "../unit/cmocka_all.h"

#include "nccl_ha/nccl_net.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

static void *library;
static atomic_int warnings; /* any thread may log */

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
		   const char *fmt, ...)
{
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
	if (level == NCCL_LOG_WARN)
		atomic_fetch_add(&warnings, 1);
}

static void *table(const char *symbol)
{
	void *found = dlsym(library, symbol);

	assert_non_null(found);
	return found;
}

/* Ports 0 and 1 as one; what cannot be had is an error, and changes nothing. */
#define EXPECT_FUSED(net, version, known)                                                          \
	do {                                                                                       \
		ncclNetVDeviceProps_##version##_t both = {2, {0, 1}}, twice = {2, {2, 2}},         \
						  none = {2, {2, 9}}, part = {2, {1, 2}};          \
		int ndev, dev;                                                                     \
                                                                                                   \
		assert_non_null((net)->makeVDevice);                                               \
		assert_int_equal((net)->devices(&ndev), ncclSuccess);                              \
		assert_int_equal(ndev, (known));                                                   \
		assert_int_equal((net)->makeVDevice(&dev, &twice), ncclInvalidArgument);           \
		assert_int_equal((net)->makeVDevice(&dev, &none), ncclInvalidArgument);            \
		assert_int_equal((net)->makeVDevice(&dev, &both), ncclSuccess);                    \
		assert_int_equal(dev, 3);                                                          \
		assert_int_equal((net)->makeVDevice(&dev, &part), ncclInvalidArgument);            \
		assert_int_equal((net)->makeVDevice(&dev, &both), ncclSuccess); /* again */        \
		assert_int_equal(dev, 3);                                                          \
		assert_int_equal((net)->devices(&ndev), ncclSuccess);                              \
		assert_int_equal(ndev, 4);                                                         \
		assert_int_equal((net)->getProperties(0, &alone), ncclSuccess);                    \
		assert_int_equal((net)->getProperties(3, &fused), ncclSuccess);                    \
		assert_string_equal(fused.name, "sim0+sim1");                                      \
		assert_string_equal(fused.pciPath, alone.pciPath);                                 \
		assert_int_equal(fused.speed, 2 * alone.speed);                                    \
		assert_int_equal(alone.vProps.ndevs, 1);                                           \
		assert_int_equal(alone.vProps.devs[0], 0);                                         \
		assert_int_equal(fused.vProps.ndevs, 2);                                           \
		assert_int_equal(fused.vProps.devs[0], 0);                                         \
		assert_int_equal(fused.vProps.devs[1], 1);                                         \
	} while (0)

/* Both versions with a finalize begin anew, as NCCL does, which has forgotten the device, too. */
static void v12_and_v11_make_a_device_until_finalize(void **state)
{
	const ncclNet_v12_t *v12 = table("ncclNetPlugin_v12");
	const ncclNet_v11_t *v11 = table("ncclNetPlugin_v11");
	void *context;

	(void)state;
	assert_null(v12->makeVDevice); /* before init */
	for (int times = 0; times < 2; times++) {
		ncclNetProperties_v12_t fused, alone;

		assert_int_equal(v12->init(&context, 1, NULL, logger, NULL), ncclSuccess);
		EXPECT_FUSED(v12, v12, 3);
		assert_int_equal(v12->finalize(context), ncclSuccess);
	}
	for (int times = 0; times < 2; times++) {
		ncclNetProperties_v11_t fused, alone;

		assert_int_equal(v11->init(&context, 1, NULL, logger, NULL), ncclSuccess);
		EXPECT_FUSED(v11, v11, 3);
		assert_int_equal(v11->finalize(context), ncclSuccess);
	}
}

static void v12_has_room_for_more_than_a_bundle_may_have(void **state)
{
	const ncclNet_v12_t *net = table("ncclNetPlugin_v12");
	ncclNetVDeviceProps_v12_t many = {8, {0, 1, 2, 0, 1, 2, 0, 1}};
	void *context;
	int dev, ndev;

	(void)state;
	assert_int_equal(net->init(&context, 1, NULL, logger, NULL), ncclSuccess);
	assert_int_equal(net->makeVDevice(&dev, &many), ncclInvalidArgument);
	assert_int_equal(net->devices(&ndev), ncclSuccess);
	assert_int_equal(ndev, 3);
	assert_int_equal(net->finalize(context), ncclSuccess);
}

/* These have no finalize: what was made stays, with the process's one instance. */
static void v10_and_v9_make_a_device_for_as_long_as_the_process_runs(void **state)
{
	const ncclNet_v10_t *v10 = table("ncclNetPlugin_v10");
	const ncclNet_v9_t *v9 = table("ncclNetPlugin_v9");

	(void)state;
	{
		ncclNetProperties_v10_t fused, alone;

		assert_int_equal(v10->init(logger, NULL), ncclSuccess);
		EXPECT_FUSED(v10, v10, 3);
	}
	{
		ncclNetProperties_v9_t fused, alone;

		assert_int_equal(v9->init(logger), ncclSuccess);
		EXPECT_FUSED(v9, v9, 4);
	}
}

static void v8_cannot_and_says_so(void **state)
{
	const ncclNet_v8_t *net = table("ncclNetPlugin_v8");
	const int before = atomic_load(&warnings);

	(void)state;
	assert_int_equal(net->init(logger), ncclSuccess);
	assert_int_equal(atomic_load(&warnings), before + 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(v12_and_v11_make_a_device_until_finalize),
	    cmocka_unit_test(v12_has_room_for_more_than_a_bundle_may_have),
	    cmocka_unit_test(v10_and_v9_make_a_device_for_as_long_as_the_process_runs),
	    cmocka_unit_test(v8_cannot_and_says_so),
	};

	if (argc != 2)
		return 2;
	library = dlopen(argv[1], RTLD_NOW);
	if (!library)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
