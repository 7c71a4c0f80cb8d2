/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registration while traffic runs: NCCL registers user buffers on connections whose progress thread
 * is busy, so regMr and deregMr of the service thread race isend, irecv and test.
 */
#include <sched.h>
#include <stdlib.h>

#include "tools/common/netcalls.h"
#include "tools/nccl-net-perf/churn.h"
#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/rank.h"

static bool failed(struct np_churn *churn, const struct np_link *link, const char *call,
		   ncclResult_t result)
{
	return np_error_set(
	    &churn->error, NP_EXIT_ERROR, "%s during traffic, channel %d %s rank %d, returned %s",
	    call, link->channel, link->send ? "to" : "from", link->peer, np_result_name(result));
}

#define CHURN_BYTES 65536

static bool churn_once(struct np_churn *churn, struct np_link *link, void *data)
{
	struct np_worker *w = &churn->rk->service;
	void *mr = NULL;
	ncclResult_t result = NP_CALL(w, np_reg_mr, churn->side->net, link->comm, data, CHURN_BYTES,
				      NCCL_PTR_HOST, &mr);

	if (result != ncclSuccess)
		return failed(churn, link, "regMr", result);
	result = NP_CALL(w, np_dereg_mr, churn->side->net, link->comm, mr);
	if (result != ncclSuccess)
		return failed(churn, link, "deregMr", result);
	np_worker_progress(w);
	return true;
}

static void churn_job(void *arg)
{
	struct np_churn *churn = arg;
	struct np_side *side = churn->side;
	void *data = aligned_alloc(4096, CHURN_BYTES);

	if (!data)
		np_error_set(&churn->error, NP_EXIT_ERROR, "out of memory");
	for (int i = 0; data && !churn->stop; i = (i + 1) % side->nlinks) {
		if (!churn_once(churn, &side->links[i], data))
			break;
		churn->rounds++;
		sched_yield();
	}
	free(data);
}

void np_churn_start(struct np_churn *churn, struct np_rank *rk, struct np_side *side)
{
	churn->rk = rk;
	churn->side = side;
	churn->stop = false;
	churn->rounds = 0;
	churn->error.status = NP_EXIT_OK;
	np_worker_post(&rk->service, churn_job, churn, "registration during traffic");
}

bool np_churn_stop(struct np_churn *churn)
{
	churn->stop = true;
	while (!np_worker_wait(&churn->rk->service, 1000))
		;
	return churn->error.status == NP_EXIT_OK ||
	       np_error_set(&churn->rk->error, churn->error.status, "%s", churn->error.text);
}
