/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For scripts/bench: the plugin as it would be if only its progress thread polled, and the
 * application's calls of test merely looked whether a request is done. Linked with
 * -Wl,--wrap=ha_test_request, so that the code which is measured is otherwise the plugin's own.
 */
#include "base/clock.h"
#include "progress/progress.h"
#include "transport/comm.h"
#include "transport/request.h"
#include "transport/shared.h"

#define WAKE_NS (20 * HA_NS_PER_US)

ha_result_t __real_ha_test_request(struct ha_request *req, int *done, int *sizes);
ha_result_t __wrap_ha_test_request(struct ha_request *req, int *done, int *sizes);

/* It sleeps when nothing is under way, and would learn of a request milliseconds later. */
static void wake_thread(struct ha_comm *comm)
{
	static _Thread_local uint64_t woken_ns;
	uint64_t now_ns = ha_now_ns();

	if (now_ns - woken_ns < WAKE_NS)
		return;
	woken_ns = now_ns;
	ha_progress_call(comm->inst->progress, &comm->poller);
}

ha_result_t __wrap_ha_test_request(struct ha_request *req, int *done, int *sizes)
{
	if (atomic_load_explicit(&req->state, memory_order_acquire) != HA_REQ_ACTIVE ||
	    ha_comm_error(req->comm) != HA_OK)
		return __real_ha_test_request(req, done, sizes);
	wake_thread(req->comm);
	*done = 0;
	return HA_OK;
}
