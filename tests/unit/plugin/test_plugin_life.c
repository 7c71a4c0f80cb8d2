/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin as NCCL sees it before there is any connection: init and its end in every version,
 * the switches, calls out of turn, the log. On a machine without devices all of this must hold,
 * too; connections are tested on simverbs.
 */
#include "../cmocka_all.h"

#include "nccl_ha/nccl_net.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char log_text[16384];
static unsigned long log_flags;

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
		   const char *fmt, ...)
{
	size_t used = strlen(log_text);
	va_list args;

	(void)level, (void)file, (void)line;
	log_flags |= flags;
	va_start(args, fmt);
	vsnprintf(log_text + used, sizeof(log_text) - used, fmt, args);
	va_end(args);
	strncat(log_text, "\n", sizeof(log_text) - strlen(log_text) - 1);
}

static void *library;

static const void *table(const char *symbol)
{
	const void *found = dlsym(library, symbol);

	if (!found)
		fail_msg("%s: %s", symbol, dlerror());
	return found;
}

static int load(void **state)
{
	(void)state;
	/* The test must not depend on interfaces or devices of this machine. */
	setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
	setenv("HA_NCCL_STATS", "0", 1);
	library = dlopen(HA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		print_error("%s\n", dlerror());
	log_text[0] = '\0';
	log_flags = 0;
	return library ? 0 : -1;
}

static int unload(void **state)
{
	(void)state;
	unsetenv("HA_NCCL_DISABLE");
	return dlclose(library);
}

static void every_version_has_our_name_and_all_it_needs(void **state)
{
	const ncclNet_v8_t *v8 = table("ncclNetPlugin_v8");
	const ncclNet_v9_t *v9 = table("ncclNetPlugin_v9");
	const ncclNet_v10_t *v10 = table("ncclNetPlugin_v10");
	const ncclNet_v11_t *v11 = table("ncclNetPlugin_v11");
	const ncclNet_v12_t *v12 = table("ncclNetPlugin_v12");

	(void)state;
	assert_string_equal(v8->name, "HA");
	assert_string_equal(v9->name, "HA");
	assert_string_equal(v10->name, "HA");
	assert_string_equal(v11->name, "HA");
	assert_string_equal(v12->name, "HA");
	/* No device offload and no fusion: what NCCL must find empty. */
	assert_null(v8->getDeviceMr);
	assert_null(v8->irecvConsumed);
	assert_null(v12->getDeviceMr);
	assert_null(v12->irecvConsumed);
	assert_null(v9->makeVDevice);
	assert_null(v12->makeVDevice);
	assert_non_null(v11->finalize);
	assert_non_null(v12->finalize);
}

/* The library stays mapped after dlclose, so these go before the first init of the process. */
static void calls_before_init_fail_and_say_so(void **state)
{
	const ncclNet_v8_t *v8 = table("ncclNetPlugin_v8");
	ncclNetProperties_v8_t props;
	char handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
	void *comm = (void *)1;
	int ndev = -1;

	(void)state;
	assert_int_not_equal(v8->devices(&ndev), ncclSuccess);
	assert_int_equal(ndev, 0);
	assert_int_not_equal(v8->getProperties(0, &props), ncclSuccess);
	assert_int_not_equal(v8->listen(0, handle, &comm), ncclSuccess);
	assert_null(comm);
}

static void the_kill_switch_makes_init_fail(void **state)
{
	const ncclNet_v8_t *v8 = table("ncclNetPlugin_v8");
	const ncclNet_v12_t *v12 = table("ncclNetPlugin_v12");
	void *context = NULL;

	(void)state;
	setenv("HA_NCCL_DISABLE", "1", 1);
	assert_int_not_equal(v8->init(logger), ncclSuccess);
	assert_int_not_equal(v12->init(&context, 1, NULL, logger, NULL), ncclSuccess);
	assert_non_null(strstr(log_text, "switched off by HA_NCCL_DISABLE"));
	unsetenv("HA_NCCL_DISABLE");
	assert_int_equal(v12->init(&context, 1, NULL, logger, NULL), ncclSuccess);
	assert_int_equal(v12->finalize(context), ncclSuccess);
}

static void init_announces_version_and_devices_to_nccls_log(void **state)
{
	const ncclNet_v12_t *v12 = table("ncclNetPlugin_v12");
	ncclNetCommConfig_v12_t config = {.trafficClass = 105};
	void *context = NULL;
	int ndev = -1;

	(void)state;
	assert_int_equal(v12->init(&context, 1, &config, logger, NULL), ncclSuccess);
	assert_non_null(strstr(log_text, "nccl-ha " HA_VERSION));
	assert_non_null(strstr(log_text, "device(s)"));
	assert_true(log_flags & NCCL_NET);
	assert_int_equal(v12->devices(&ndev), ncclSuccess);
	assert_true(ndev >= 0);
	assert_int_equal(v12->finalize(context), ncclSuccess);
}

static void the_last_finalize_ends_the_instance_and_init_begins_anew(void **state)
{
	const ncclNet_v11_t *v11 = table("ncclNetPlugin_v11");
	void *a = NULL, *b = NULL;
	int ndev;

	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(v11->init(&a, 1, NULL, logger, NULL), ncclSuccess);
		assert_int_equal(v11->init(&b, 2, NULL, logger, NULL), ncclSuccess);
		assert_int_equal(v11->finalize(a), ncclSuccess);
		assert_int_equal(v11->devices(&ndev), ncclSuccess);
		assert_int_equal(v11->finalize(b), ncclSuccess);
		assert_int_not_equal(v11->devices(&ndev), ncclSuccess);
	}
	assert_int_equal(v11->finalize(a), ncclSuccess); /* one too many does no harm */
}

/* Last: what an init without an end leaves is there for good. */
static void old_versions_keep_their_instance_for_the_process(void **state)
{
	const ncclNet_v8_t *v8 = table("ncclNetPlugin_v8");
	const ncclNet_v12_t *v12 = table("ncclNetPlugin_v12");
	void *context = NULL;
	int ndev;

	(void)state;
	assert_int_equal(v8->init(logger), ncclSuccess);
	assert_int_equal(v12->init(&context, 1, NULL, logger, NULL), ncclSuccess);
	assert_int_equal(v12->finalize(context), ncclSuccess);
	assert_int_equal(v8->devices(&ndev), ncclSuccess);
	assert_int_equal(v8->init(logger), ncclSuccess);
	assert_int_equal(v8->devices(&ndev), ncclSuccess);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(every_version_has_our_name_and_all_it_needs, load,
					    unload),
	    cmocka_unit_test_setup_teardown(calls_before_init_fail_and_say_so, load, unload),
	    cmocka_unit_test_setup_teardown(the_kill_switch_makes_init_fail, load, unload),
	    cmocka_unit_test_setup_teardown(init_announces_version_and_devices_to_nccls_log, load,
					    unload),
	    cmocka_unit_test_setup_teardown(
		the_last_finalize_ends_the_instance_and_init_begins_anew, load, unload),
	    cmocka_unit_test_setup_teardown(old_versions_keep_their_instance_for_the_process, load,
					    unload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
