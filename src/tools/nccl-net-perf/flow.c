/* SPDX-License-Identifier: Apache-2.0 */
/* Posting, testing and completing the steps of a plan. */
#include "tools/nccl-net-perf/flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/clock.h"
#include "tools/common/netcalls.h"
#include "tools/nccl-net-perf/allreduce.h"
#include "tools/nccl-net-perf/canary.h"
#include "tools/nccl-net-perf/collnet.h"
#include "tools/nccl-net-perf/direct.h"
#include "tools/nccl-net-perf/grouped.h"
#include "tools/nccl-net-perf/inccl.h"
#include "tools/nccl-net-perf/links.h"
#include "tools/nccl-net-perf/memory.h"

/* ---- plans --------------------------------------------------------------------------------- */

struct np_flow *np_plan_add_flow(struct np_plan *plan, bool send, int peer, int channel,
				 uint32_t steps, uint32_t window)
{
	struct np_flow *flows, *flow;

	flows = realloc(plan->flows, (size_t)(plan->nflows + 1) * sizeof(*flows));
	if (!flows)
		goto err;
	plan->flows = flows;
	flow = &flows[plan->nflows];
	memset(flow, 0, sizeof(*flow));
	flow->ring = calloc(window, sizeof(*flow->ring));
	if (!flow->ring)
		goto err;
	flow->link = np_find_link(plan->side, send, peer, channel);
	flow->steps = steps;
	flow->window = window;
	flow->index = plan->nflows++;
	return flow;
err:
	np_error_set(&plan->rk->error, NP_EXIT_ERROR, "out of memory");
	return NULL;
}

struct np_plan *np_plan_new(struct np_rank *rk, struct np_side *side, enum np_op op, size_t size)
{
	struct np_plan *plan = calloc(1, sizeof(*plan));
	bool ok;

	if (!plan) {
		np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
		return NULL;
	}
	plan->rk = rk;
	plan->side = side;
	plan->op = op;
	plan->size = size;
	plan->type = size % np_type_sizes[rk->o->type] ? NP_INT8 : rk->o->type;
	if (side->via == NP_INCCL)
		ok = np_plan_inccl(plan);
	else if (side->via == NP_COLLNET)
		ok = np_plan_collnet(plan);
	else if (op == NP_ALLREDUCE)
		ok = np_plan_allreduce(plan);
	else if (op == NP_GROUPED)
		ok = np_plan_grouped(plan);
	else
		ok = np_plan_direct(plan);
	if (ok)
		return plan;
	np_plan_free(plan);
	return NULL;
}

void np_plan_free(struct np_plan *plan)
{
	if (!plan)
		return;
	for (int i = 0; i < plan->nflows; i++)
		free(plan->flows[i].ring);
	free(plan->flows);
	free(plan->state);
	free(plan);
}

void np_plan_buffer_sizes(const struct np_rank *rk, const struct np_side *side, enum np_op op,
			  size_t size, size_t len[NP_BUF_COUNT])
{
	len[NP_BUF_IN] = size;
	len[NP_BUF_OUT] = size;
	len[NP_BUF_SLOTS] = 0;
	if (op == NP_GROUPED)
		len[NP_BUF_OUT] = np_grouped_out_bytes(rk->o, side->max_recvs, size);
	if (op == NP_ALLTOALL) /* equal parts are rounded up */
		len[NP_BUF_OUT] = size + (size_t)rk->nranks;
	if (op == NP_ALLREDUCE)
		len[NP_BUF_SLOTS] = np_allreduce_slot_bytes(rk->o);
}

/* ---- messages of failure ------------------------------------------------------------------- */

static bool flow_failed(struct np_plan *plan, const struct np_flow *flow, const char *call,
			ncclResult_t result)
{
	return np_error_set(&plan->rk->error, NP_EXIT_ERROR,
			    "%s of %zu B: %s, channel %d %s rank %d, step %u of %u, returned %s",
			    np_op_names[plan->op], plan->size, call, flow->link->channel,
			    flow->link->send ? "to" : "from", flow->link->peer, flow->done,
			    flow->steps, np_result_name(result));
}

static bool sizes_wrong(struct np_plan *plan, const struct np_flow *flow, int i, int got,
			size_t want)
{
	return np_error_set(&plan->rk->error, NP_EXIT_WRONG,
			    "%s of %zu B: channel %d from rank %d, step %u of %u: test reported "
			    "%d B for buffer %d where %zu B were sent",
			    np_op_names[plan->op], plan->size, flow->link->channel,
			    flow->link->peer, flow->done, flow->steps, got, i, want);
}

static bool plan_stuck(struct np_plan *plan)
{
	char list[400] = "";
	size_t used = 0;

	for (int i = 0; i < plan->nflows && used < sizeof(list); i++) {
		const struct np_flow *f = &plan->flows[i];

		if (f->done == f->steps)
			continue;
		used += (size_t)snprintf(list + used, sizeof(list) - used,
					 "; channel %d %s rank %d: step %u of %u, %u posted",
					 f->link->channel, f->link->send ? "to" : "from",
					 f->link->peer, f->done, f->steps, f->posted - f->done);
	}
	return np_error_set(&plan->rk->error, NP_EXIT_TIMEOUT,
			    "stuck: %s of %zu B, iteration %llu, nothing moved for %.1f s%s",
			    np_op_names[plan->op], plan->size, (unsigned long long)plan->runs,
			    plan->rk->o->timeout_s, list);
}

/* ---- canaries ------------------------------------------------------------------------------ */

bool np_plan_lend(struct np_plan *plan, const struct np_flow *flow, uint32_t step,
		  enum np_buffer_kind kind, const void *data, size_t len)
{
	const struct np_use use = {
	    .op = plan->op,
	    .peer = flow->link->peer,
	    .channel = flow->link->channel,
	    .step = step,
	};

	return !plan->rk->canary || np_canary_lend(plan->rk->canary, kind, data, len, &use) ||
	       np_error_set(&plan->rk->error, NP_EXIT_ERROR, "out of memory");
}

void np_plan_return(struct np_plan *plan, enum np_buffer_kind kind, const void *data,
		    size_t written)
{
	if (plan->rk->canary)
		np_canary_return(plan->rk->canary, kind, data, written);
}

static bool lend_receive(struct np_plan *plan, const struct np_flow *flow,
			 const struct np_message *msg)
{
	for (int i = 0; i < msg->n; i++)
		if (!np_plan_lend(plan, flow, flow->posted, msg->buffer, msg->data[i],
				  msg->size[i]))
			return false;
	return true;
}

static void consume_receive(struct np_plan *plan, struct np_flow *flow,
			    const struct np_message *msg)
{
	plan->consume(plan, flow, flow->done, msg);
	for (int i = 0; i < msg->n; i++)
		if (msg->size[i]) /* nothing of no size was lent; it may lie where a neighbour does
				   */
			np_plan_return(plan, msg->buffer, msg->data[i], msg->expect[i]);
}

/* ---- one step ------------------------------------------------------------------------------ */

enum outcome { FAILED, NOTHING, MOVED };

/* Hands the next step to the plugin if it is ready and the plugin takes it. */
static enum outcome post(struct np_plan *plan, struct np_flow *flow)
{
	struct np_inflight *in = &flow->ring[flow->posted % flow->window];
	struct np_worker *w = &plan->rk->progress;
	struct np_message *msg = &in->msg;
	struct np_link *link = flow->link;
	void *mrs[NP_MAX_RECVS];
	ncclResult_t result;

	if (!plan->describe(plan, flow, flow->posted, msg))
		return NOTHING;
	if (plan->rk->canary && !link->send && !lend_receive(plan, flow, msg))
		return FAILED;
	if (link->send) {
		in->request = (void *)plan; /* not NULL: the plugin has to write it */
		result = NP_CALL(w, np_isend, plan->side->net, link->comm, msg->data[0],
				 msg->size[0], msg->tag[0], link->mr[msg->buffer], &in->request);
	} else {
		for (int i = 0; i < msg->n; i++)
			mrs[i] = link->mr[msg->buffer];
		in->request = NULL;
		result = NP_CALL(w, np_irecv, plan->side->net, link->comm, msg->n, msg->data,
				 msg->size, msg->tag, mrs, &in->request);
	}
	if (result != ncclSuccess) {
		flow_failed(plan, flow, link->send ? "isend" : "irecv", result);
		return FAILED;
	}
	if (!in->request)
		return NOTHING;
	in->flushing = false;
	in->posted_ns = np_now_ns();
	flow->posted++;
	return MOVED;
}

static bool sizes_right(struct np_plan *plan, struct np_flow *flow, const struct np_inflight *in,
			const int *sizes)
{
	for (int i = 0; i < in->msg.n; i++)
		if (sizes[i] < 0 || (size_t)sizes[i] != in->msg.expect[i])
			return sizes_wrong(plan, flow, i, sizes[i], in->msg.expect[i]);
	return true;
}

/* Starts the flush of a receive that has completed; NOTHING: none is needed. */
static enum outcome start_flush(struct np_plan *plan, struct np_flow *flow, struct np_inflight *in,
				int *sizes)
{
	struct np_worker *w = &plan->rk->progress;
	void *mrs[NP_MAX_RECVS];
	ncclResult_t result;
	int total = 0;

	for (int i = 0; i < in->msg.n; i++) {
		total += sizes[i];
		mrs[i] = flow->link->mr[in->msg.buffer];
	}
	if (!total)
		return NOTHING;
	result = NP_CALL(w, np_iflush, plan->side->net, flow->link->comm, in->msg.n, in->msg.data,
			 sizes, mrs, &in->request);
	if (result != ncclSuccess) {
		flow_failed(plan, flow, "iflush", result);
		return FAILED;
	}
	in->flushing = true;
	return in->request ? MOVED : NOTHING;
}

static uint64_t received_bytes(const struct np_flow *flow, const struct np_inflight *in)
{
	uint64_t bytes = 0;

	for (int i = 0; i < in->msg.n && !flow->link->send; i++)
		bytes += in->msg.expect[i];
	return bytes;
}

/* Tests the oldest step in flight. */
static enum outcome poll_oldest(struct np_plan *plan, struct np_flow *flow)
{
	struct np_inflight *in = &flow->ring[flow->done % flow->window];
	struct np_worker *w = &plan->rk->progress;
	int done = 0, sizes[NP_MAX_RECVS];
	ncclResult_t result;
	uint64_t now;

	for (int i = 0; i < in->msg.n; i++)
		sizes[i] = -1;
	result = NP_CALL(w, np_test, plan->side->net, in->request, &done, sizes);
	if (result != ncclSuccess) {
		flow_failed(plan, flow, in->flushing ? "test of a flush" : "test", result);
		return FAILED;
	}
	if (!done)
		return NOTHING;
	if (!flow->link->send && !in->flushing) {
		if (!sizes_right(plan, flow, in, sizes))
			return FAILED;
		if (plan->rk->o->flush) {
			enum outcome o = start_flush(plan, flow, in, sizes);

			if (o != NOTHING)
				return o;
		}
	}
	now = np_now_ns();
	np_recorder_complete(&plan->rk->recorder, now, now - in->posted_ns,
			     received_bytes(flow, in));
	if (plan->completed)
		plan->completed(plan, flow, flow->done, &in->msg);
	if (plan->rk->canary && !flow->link->send && plan->consume)
		consume_receive(plan, flow, &in->msg);
	flow->done++;
	return MOVED;
}

/* Posts what can be posted and tests what is oldest. */
static enum outcome advance(struct np_plan *plan, struct np_flow *flow)
{
	enum outcome o, result = NOTHING;

	while (flow->posted < flow->steps && flow->posted - flow->done < flow->window) {
		o = post(plan, flow);
		if (o == FAILED)
			return FAILED;
		if (o == NOTHING)
			break;
		result = MOVED;
	}
	while (flow->done < flow->posted) {
		o = poll_oldest(plan, flow);
		if (o == FAILED)
			return FAILED;
		if (o == NOTHING)
			break;
		result = MOVED;
	}
	return result;
}

bool np_plan_run(struct np_plan *plan)
{
	struct np_worker *w = &plan->rk->progress;
	int finished;

	for (int i = 0; i < plan->nflows; i++)
		plan->flows[i].posted = plan->flows[i].done = 0;
	plan->runs++;
	np_recorder_start(&plan->rk->recorder, np_now_ns());
	np_worker_progress(w);
	if (plan->run)
		return plan->run(plan);
	do {
		enum outcome result = NOTHING;

		finished = 0;
		for (int i = 0; i < plan->nflows; i++) {
			struct np_flow *flow = &plan->flows[i];
			enum outcome o = NOTHING;

			if (flow->done < flow->steps)
				o = advance(plan, flow);
			if (o == FAILED)
				return false;
			if (o == MOVED)
				result = MOVED;
			finished += flow->done == flow->steps;
		}
		if (result == MOVED) {
			np_worker_progress(w);
		} else if (np_worker_expired(w)) {
			return plan_stuck(plan);
		} else if (finished < plan->nflows) {
			if (plan->rk->canary)
				np_canary_watch(plan->rk->canary);
			np_worker_rest(plan->rk->o->nap_us);
		}
	} while (finished < plan->nflows);
	return true;
}
