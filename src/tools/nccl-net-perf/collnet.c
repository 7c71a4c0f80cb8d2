/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-net-perf/collnet.h"

#include "tools/common/clock.h"
#include "tools/nccl-net-perf/allreduce.h"
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/job.h"
#include "tools/nccl-net-perf/memory.h"

#include <stdlib.h>

/* NCCL has no more under way in a group: eight steps for each of eight groups of channels. */
#define MOST_UNDER_WAY 64

static bool failed(struct np_rank *rk, const struct np_side *side, const char *call,
		   ncclResult_t result)
{
	return np_error_set(&rk->error, NP_EXIT_ERROR, "%s of the collNet of plugin %s returned %s",
			    call, np_path(side->net), np_result_name(result));
}

/* One call on the service thread. */
#define SERVICE(rk, side, fn, ...)                                                                 \
	NP_CALL(&(rk)->service, np_coll_##fn, &(side)->group.coll, ##__VA_ARGS__)

static int device_of(const struct np_rank *rk)
{
	return rk->o->dev >= 0 ? rk->o->dev : 0;
}

/* ---- the collNet ---------------------------------------------------------------------------- */

bool np_group_init(struct np_rank *rk, struct np_side *side)
{
	struct np_group *g = &side->group;
	char err[700], missing[200];
	ncclResult_t result;
	int ndev = 0;

	if (!np_coll_find(side->net, rk->o->api, &g->coll, err, sizeof(err)))
		return np_error_set(&rk->error, NP_EXIT_USAGE, "%s", err);
	if (np_coll_missing(&g->coll, NP_BEFORE_INIT, missing, sizeof(missing)) > 0)
		return np_error_set(&rk->error, NP_EXIT_ERROR, "the collNet lacks %s", missing);
	result = SERVICE(rk, side, init, &g->ctx, 0x6e63636c68610000ull);
	if (result != ncclSuccess)
		return failed(rk, side, "init", result);
	g->initialised = true;
	if (np_coll_missing(&g->coll, NP_AFTER_INIT, missing, sizeof(missing)) > 0)
		return np_error_set(&rk->error, NP_EXIT_ERROR, "the collNet lacks %s after init",
				    missing);
	result = SERVICE(rk, side, devices, &ndev);
	if (result != ncclSuccess)
		return failed(rk, side, "devices", result);
	if (ndev <= device_of(rk))
		return np_error_set(&rk->error, NP_EXIT_USAGE,
				    "the collNet of plugin %s has %d devices: is it switched on "
				    "(HA_NCCL_INC=1 for this project's)?",
				    np_path(side->net), ndev);
	return true;
}

void np_group_finalize(struct np_rank *rk, struct np_side *side)
{
	ncclResult_t result = ncclSuccess;

	if (side->group.initialised)
		result = SERVICE(rk, side, finalize, side->group.ctx);
	if (result != ncclSuccess)
		failed(rk, side, "finalize", result);
	side->group.initialised = false;
}

/* ---- the group ------------------------------------------------------------------------------ */

static void listen_job(void *arg)
{
	struct np_job *job = arg;
	struct np_group *g = &job->side->group;
	ncclResult_t result =
	    SERVICE(job->rk, job->side, listen, g->ctx, device_of(job->rk), g->handle, &g->listen);

	job->ok = result == ncclSuccess || failed(job->rk, job->side, "listen", result);
}

static void connect_job(void *arg)
{
	struct np_job *job = arg;
	struct np_rank *rk = job->rk;
	struct np_group *g = &job->side->group;
	void *pointers[NP_MAX_RANKS];
	ncclResult_t result;

	for (int r = 0; r < rk->nranks; r++)
		pointers[r] = g->handles + (size_t)r * NCCL_NET_HANDLE_MAXSIZE;
	result =
	    SERVICE(rk, job->side, connect, pointers, rk->nranks, rk->rank, g->listen, &g->comm);
	if (result != ncclSuccess || !g->comm) {
		g->listen = NULL; /* whoever fails to connect has freed it */
		failed(rk, job->side, "connect",
		       result == ncclSuccess ? ncclInternalError : result);
		return;
	}
	result = SERVICE(rk, job->side, close_listen, g->listen);
	g->listen = NULL;
	job->ok = result == ncclSuccess || failed(rk, job->side, "closeListen", result);
}

static void register_job(void *arg)
{
	struct np_job *job = arg;
	struct np_rank *rk = job->rk;
	struct np_group *g = &job->side->group;

	for (int kind = NP_BUF_IN; kind <= NP_BUF_OUT; kind++) {
		const struct np_buffer *b = &rk->buffers[kind];
		ncclResult_t result = SERVICE(rk, job->side, reg_mr, g->comm, b->data, b->len,
					      NCCL_PTR_HOST, &g->mr[kind]);

		if (result != ncclSuccess) {
			failed(rk, job->side, "regMr", result);
			return;
		}
		g->registered[kind] = true;
	}
	job->ok = true;
}

bool np_group_connect(struct np_rank *rk, struct np_side *side)
{
	struct np_group *g = &side->group;
	bool ok;

	g->handles = calloc((size_t)rk->nranks, NCCL_NET_HANDLE_MAXSIZE);
	if (!g->handles)
		return np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	ok = np_run_job(rk, side, NULL, listen_job, "listen of the collNet") &&
	     np_gather(rk, g->handle, g->handles, NCCL_NET_HANDLE_MAXSIZE) &&
	     np_run_job(rk, side, NULL, connect_job, "set-up of the collNet's group") &&
	     np_run_job(rk, side, NULL, register_job, "memory registration");
	free(g->handles);
	g->handles = NULL;
	return ok;
}

static void disconnect_job(void *arg)
{
	struct np_job *job = arg;
	struct np_rank *rk = job->rk;
	struct np_group *g = &job->side->group;
	ncclResult_t result;

	job->ok = true;
	for (int kind = 0; kind < NP_BUF_COUNT; kind++) {
		result = g->registered[kind]
			     ? SERVICE(rk, job->side, dereg_mr, g->comm, g->mr[kind])
			     : ncclSuccess;
		g->registered[kind] = false;
		job->ok &= result == ncclSuccess || failed(rk, job->side, "deregMr", result);
	}
	result = g->comm ? SERVICE(rk, job->side, close, g->comm) : ncclSuccess;
	job->ok &= result == ncclSuccess || failed(rk, job->side, "closeColl", result);
	result = g->listen ? SERVICE(rk, job->side, close_listen, g->listen) : ncclSuccess;
	job->ok &= result == ncclSuccess || failed(rk, job->side, "closeListen", result);
	g->comm = g->listen = NULL;
}

bool np_group_disconnect(struct np_rank *rk, struct np_side *side)
{
	return np_run_job(rk, side, NULL, disconnect_job, "closing");
}

/* ---- all-reduces ---------------------------------------------------------------------------- */

/* The pieces of one, in order: done, under way, to be asked for. */
struct collnet {
	size_t piece; /* elements of all but the last one */
	uint32_t pieces, posted, done;
	uint32_t window;
	struct {
		void *request;
		uint64_t posted_ns;
		bool is_flush;
	} ring[MOST_UNDER_WAY];
};

enum outcome { FAILED, NOTHING, MOVED };

static enum outcome call_failed(struct np_plan *plan, const char *call, ncclResult_t result)
{
	const struct collnet *c = plan->state;

	(void)np_error_set(&plan->rk->error, NP_EXIT_ERROR,
			   "%s of %zu B by the collNet: %s, piece %u of %u, returned %s",
			   np_op_names[plan->op], plan->size, call, c->done, c->pieces,
			   np_result_name(result));
	return FAILED;
}

/* Elements before a piece. */
static size_t before(const struct np_plan *plan, uint32_t piece)
{
	const struct collnet *c = plan->state;
	const size_t count = plan->size / np_type_sizes[plan->type], at = c->piece * piece;

	return at < count ? at : count;
}

static struct np_coll_reduce describe(const struct np_plan *plan, uint32_t piece)
{
	static const ncclDataType_t types[] = {
	    [NP_INT8] = ncclInt8, [NP_INT32] = ncclInt32, [NP_FLOAT] = ncclFloat32};
	const struct np_group *g = &plan->side->group;
	const size_t at = before(plan, piece);

	return (struct np_coll_reduce){
	    .send = plan->rk->buffers[NP_BUF_IN].data + at * np_type_sizes[plan->type],
	    .recv = plan->rk->buffers[NP_BUF_OUT].data + at * np_type_sizes[plan->type],
	    .send_mr = g->mr[NP_BUF_IN],
	    .recv_mr = g->mr[NP_BUF_OUT],
	    .count = before(plan, piece + 1) - at,
	    .type = types[plan->type],
	    .op = ncclSum,
	};
}

static enum outcome post(struct np_plan *plan)
{
	struct collnet *c = plan->state;
	struct np_group *g = &plan->side->group;
	const struct np_coll_reduce reduce = describe(plan, c->posted);
	const uint32_t slot = c->posted % c->window;
	ncclResult_t result;

	c->ring[slot].request = (void *)plan; /* not NULL: the plugin has to write it */
	result = NP_CALL(&plan->rk->progress, np_coll_iallreduce, &g->coll, g->comm, &reduce,
			 &c->ring[slot].request);
	if (result != ncclSuccess)
		return call_failed(plan, "iallreduce", result);
	if (!c->ring[slot].request)
		return NOTHING;
	c->ring[slot].posted_ns = np_now_ns();
	c->ring[slot].is_flush = false;
	c->posted++;
	return MOVED;
}

/* Starts the flush of a piece that is done; NOTHING: none is needed. */
static enum outcome flush(struct np_plan *plan, uint32_t slot)
{
	struct collnet *c = plan->state;
	struct np_group *g = &plan->side->group;
	const struct np_coll_reduce reduce = describe(plan, c->done);
	ncclResult_t result = NP_CALL(&plan->rk->progress, np_coll_iflush, &g->coll, g->comm,
				      reduce.recv, (int)(reduce.count * np_type_sizes[plan->type]),
				      reduce.recv_mr, &c->ring[slot].request);

	if (result != ncclSuccess)
		return call_failed(plan, "iflush", result);
	c->ring[slot].is_flush = true;
	return c->ring[slot].request ? MOVED : NOTHING;
}

static enum outcome poll_oldest(struct np_plan *plan)
{
	struct collnet *c = plan->state;
	const uint32_t slot = c->done % c->window;
	const uint64_t bytes =
	    (before(plan, c->done + 1) - before(plan, c->done)) * np_type_sizes[plan->type];
	int done = 0, size;
	ncclResult_t result =
	    NP_CALL(&plan->rk->progress, np_coll_test, &plan->side->group.coll,
		    c->ring[slot].request, &done, c->ring[slot].is_flush ? NULL : &size);
	uint64_t now;

	if (result != ncclSuccess)
		return call_failed(plan, "test", result);
	if (!done)
		return NOTHING;
	if (plan->rk->o->flush && !c->ring[slot].is_flush) {
		enum outcome o = flush(plan, slot);

		if (o != NOTHING)
			return o;
	}
	now = np_now_ns();
	np_recorder_complete(&plan->rk->recorder, now, now - c->ring[slot].posted_ns, bytes);
	c->done++;
	return MOVED;
}

static enum outcome advance(struct np_plan *plan)
{
	struct collnet *c = plan->state;
	enum outcome o, all = NOTHING;

	while (c->posted < c->pieces && c->posted - c->done < c->window) {
		o = post(plan);
		if (o == FAILED)
			return FAILED;
		if (o == NOTHING)
			break;
		all = MOVED;
	}
	while (c->done < c->posted) {
		o = poll_oldest(plan);
		if (o == FAILED)
			return FAILED;
		if (o == NOTHING)
			break;
		all = MOVED;
	}
	return all;
}

static bool run(struct np_plan *plan)
{
	struct collnet *c = plan->state;
	struct np_worker *w = &plan->rk->progress;

	c->posted = c->done = 0;
	while (c->done < c->pieces) {
		enum outcome o = advance(plan);

		if (o == FAILED)
			return false;
		if (o == MOVED)
			np_worker_progress(w);
		else if (np_worker_expired(w))
			return np_error_set(
			    &plan->rk->error, NP_EXIT_TIMEOUT,
			    "stuck: %s of %zu B by the collNet, iteration %llu, "
			    "nothing moved for %.1f s; piece %u of %u, %u under way",
			    np_op_names[plan->op], plan->size, (unsigned long long)plan->runs,
			    plan->rk->o->timeout_s, c->done, c->pieces, c->posted - c->done);
		else
			np_worker_rest(plan->rk->o->nap_us);
	}
	return true;
}

bool np_plan_collnet(struct np_plan *plan)
{
	const struct np_options *o = plan->rk->o;
	struct collnet *c = calloc(1, sizeof(*c));
	const size_t size = np_type_sizes[plan->type], count = plan->size / size;

	plan->state = c;
	if (!c)
		return np_error_set(&plan->rk->error, NP_EXIT_ERROR, "out of memory");
	c->piece = o->chunk / size;
	c->pieces = count ? (uint32_t)((count + c->piece - 1) / c->piece) : 1;
	c->window = (uint32_t)(o->depth * o->channels);
	if (c->window > MOST_UNDER_WAY)
		c->window = MOST_UNDER_WAY;
	plan->run = run;
	np_allreduce_data(plan);
	return true;
}
