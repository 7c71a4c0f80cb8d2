/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about loading, init, finalize and unloading. */
#include "link.h"
#include "process.h"
#include "rules.h"

#include <stdio.h>
#include <string.h>

void rule_vtable(struct check *t)
{
	char missing[512];

	check_load(t);
	if (np_missing_members(t->plugin, NP_BEFORE_INIT, missing, sizeof(missing)) > 0)
		check_fail(t, "members that are NULL: %s", missing);
	const char *name = np_name(t->plugin);
	if (name[0] == 0)
		check_fail(t, "the name is empty");
	if (CALL(t, init, &t->ctx, 0x7461626c65ull, NCCL_NET_TRAFFIC_CLASS_UNDEF) != ncclSuccess)
		check_skip(t, "init fails, and what it may fill in cannot be looked at");
	if (np_missing_members(t->plugin, NP_AFTER_INIT, missing, sizeof(missing)) > 0)
		check_fail(t, "members that are NULL after init: %s", missing);
	check_note(t, "name \"%s\"", name);
}

void rule_init(struct check *t)
{
	check_load(t);
	check_init(t);
	check_note(t, "%d devices", t->ndev);
}

/* One message between two ends of this process, on the device under test. */
static void prove_usable(struct check *t)
{
	struct link link;

	link_open_local(t, t->opt->dev, &link);
	link_exchange(t, &link, 10007, 1);
	link_close_local(t, &link);
}

void rule_init_again(struct check *t)
{
	int ndev_before;

	check_load(t);
	check_init(t);
	ndev_before = t->ndev;
	ncclResult_t result = CALL(t, init, &t->ctx, 0x616761696eull, NCCL_NET_TRAFFIC_CLASS_UNDEF);
	if (result != ncclSuccess)
		check_fail(t, "the second init returned %s", np_result_name(result));
	MUST(t, devices, &t->ndev);
	if (t->ndev != ndev_before)
		check_fail(t, "%d devices after the first init, %d after the second", ndev_before,
			   t->ndev);
	prove_usable(t);
}

void rule_contexts(struct check *t)
{
	struct np_ctx first, second;

	check_load(t);
	check_init(t);
	first = t->ctx;
	MUST(t, init, &second, 0x7365636f6eull, NCCL_NET_TRAFFIC_CLASS_UNDEF);
	for (int i = 0; i < 2; i++) {
		t->ctx = i ? second : first;
		prove_usable(t);
	}
	MUST(t, finalize, &first);
	t->ctx = second;
	prove_usable(t);
	MUST(t, finalize, &second);
}

void rule_init_after_finalize(struct check *t)
{
	check_load(t);
	for (int round = 0; round < 3; round++) {
		check_init(t);
		prove_usable(t);
		MUST(t, finalize, &t->ctx);
	}
}

void rule_reload(struct check *t)
{
	for (int round = 0; round < 2; round++) {
		check_load(t);
		check_init(t);
		prove_usable(t);
		MUST(t, finalize, &t->ctx);
		check_enter(t, "dlclose");
		np_close(t->plugin);
		check_leave(t, ncclSuccess);
	}
}

void rule_unload(struct check *t)
{
	char path[512];

	int threads_before = process_threads();
	check_load(t);
	snprintf(path, sizeof(path), "%s", np_path(t->plugin));
	check_init(t);
	prove_usable(t);
	MUST(t, finalize, &t->ctx);
	check_enter(t, "dlclose");
	np_close(t->plugin);
	/* Whatever still ran in the library's code dies here, inside "dlclose". */
	check_sleep_ms(100);
	check_leave(t, ncclSuccess);
	if (process_maps(path)) {
		check_note(t, "the library stays mapped");
		return;
	}
	int extra = process_threads() - threads_before;
	if (extra > 0)
		check_fail(t, "%d threads of the plugin outlive the library's unmapping", extra);
}

void rule_net_attr(struct check *t)
{
	ncclNetAttr_v12_t attr = {.sendCommAttr = {16, 1, 4, 1}, .recvCommAttr = {16, 1, 4, 1}};

	MUST(t, set_net_attr, &t->ctx, &attr);
	memset(&attr, 0xff, sizeof(attr)); /* -1: unknown */
	MUST(t, set_net_attr, &t->ctx, &attr);
	prove_usable(t);
}
