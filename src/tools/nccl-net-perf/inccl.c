/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-net-perf/inccl.h"

#include "base/random.h"
#include "inccl/inccl.h"
#include "tools/common/clock.h"
#include "tools/nccl-net-perf/allreduce.h"
#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/job.h"
#include "tools/nccl-net-perf/memory.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libinccl.so.0"

/* What is called of the library. */
#define CALLS(X)                                                                                   \
	X(inccl_group_open)                                                                        \
	X(inccl_group_close)                                                                       \
	X(inccl_group_why)                                                                         \
	X(inccl_register)                                                                          \
	X(inccl_comm_open)                                                                         \
	X(inccl_comm_close)                                                                        \
	X(inccl_comm_why)                                                                          \
	X(inccl_iallreduce)                                                                        \
	X(inccl_test)                                                                              \
	X(inccl_strerror)

struct np_inccl {
	void *library;
#define POINTER(name) __typeof__(&name) name;
	CALLS(POINTER)
#undef POINTER
	struct inccl_group *group;
	struct inccl_comm *comm;
	struct inccl_region *region[NP_BUF_COUNT];
	char name[32]; /* of the group: rank 0's */
	struct inccl_request *request;
};

static bool failed(struct np_rank *rk, const struct np_inccl *i, const char *call, int result,
		   const char *why)
{
	return np_error_set(&rk->error, NP_EXIT_ERROR, "%s: %s%s%s", call,
			    i->inccl_strerror(result), *why ? ": " : "", why);
}

/* ---- the library ----------------------------------------------------------------------------- */

static void *load(const char *plugin)
{
	const char *slash = strrchr(plugin, '/');
	char beside[4096];
	void *library = NULL;

	if (slash && (size_t)snprintf(beside, sizeof(beside), "%.*s/" LIBRARY,
				      (int)(slash - plugin), plugin) < sizeof(beside))
		library = dlopen(beside, RTLD_NOW | RTLD_LOCAL);
	return library ? library : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static bool find_call(void *library, const char *name, void *out, size_t size)
{
	void *at = dlsym(library, name);

	memcpy(out, &at, size);
	return at != NULL;
}

static bool find_calls(struct np_inccl *i)
{
#define AND_FIND(name) &&find_call(i->library, #name, &i->name, sizeof(i->name))
	return true CALLS(AND_FIND);
#undef AND_FIND
}

/* ---- the communicator ------------------------------------------------------------------------ */

static bool open_group(struct np_rank *rk, struct np_inccl *i)
{
	const struct inccl_options options = {.size = sizeof(options),
					      .rank = (uint32_t)rk->rank,
					      .ranks = (uint32_t)rk->nranks,
					      .group = i->name};
	int result = NP_CALL(&rk->service, i->inccl_group_open, &options, &i->group);

	if (result != INCCL_OK)
		return failed(rk, i, "inccl_group_open", result, "");
	result = NP_CALL(&rk->service, i->inccl_comm_open, i->group, &i->comm);
	return result == INCCL_OK ||
	       failed(rk, i, "inccl_comm_open", result, i->inccl_group_why(i->group));
}

static bool register_buffers(struct np_rank *rk, struct np_inccl *i)
{
	for (int kind = NP_BUF_IN; kind <= NP_BUF_OUT; kind++) {
		const struct np_buffer *b = &rk->buffers[kind];
		const int result = NP_CALL(&rk->service, i->inccl_register, i->group, b->data,
					   b->len, &i->region[kind]);

		if (result != INCCL_OK)
			return failed(rk, i, "inccl_register", result, "");
	}
	return true;
}

static void connect_job(void *arg)
{
	struct np_job *job = arg;
	struct np_inccl *i = job->side->inccl;

	i->library = load(np_path(job->side->net));
	if (!i->library || !find_calls(i))
		np_error_set(&job->rk->error, NP_EXIT_USAGE, "--via inccl: %s", dlerror());
	else
		job->ok = open_group(job->rk, i) && register_buffers(job->rk, i);
}

bool np_inccl_connect(struct np_rank *rk, struct np_side *side)
{
	struct np_inccl *i = side->inccl = calloc(1, sizeof(*i));
	const uint64_t own = ha_random();
	uint64_t *all = calloc((size_t)rk->nranks, sizeof(*all));
	bool ok = i && all && np_gather(rk, &own, all, sizeof(own));

	if (ok) {
		snprintf(i->name, sizeof(i->name), "perf-%016" PRIx64, all[0]);
		ok = np_run_job(rk, side, NULL, connect_job, "set-up of libinccl's communicator");
	} else {
		np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	}
	free(all);
	return ok;
}

static void disconnect_job(void *arg)
{
	struct np_job *job = arg;
	struct np_inccl *i = job->side->inccl;

	job->ok = true;
	if (i->comm)
		(void)NP_CALL(&job->rk->service, i->inccl_comm_close, i->comm);
	if (i->group) /* with what is registered */
		job->ok = NP_CALL(&job->rk->service, i->inccl_group_close, i->group) == INCCL_OK;
	if (!job->ok)
		np_error_set(&job->rk->error, NP_EXIT_ERROR, "inccl_group_close failed");
	if (i->library)
		dlclose(i->library);
}

bool np_inccl_disconnect(struct np_rank *rk, struct np_side *side)
{
	const bool ok =
	    !side->inccl || np_run_job(rk, side, NULL, disconnect_job, "closing libinccl");

	free(side->inccl);
	side->inccl = NULL;
	return ok;
}

/* ---- all-reduces ----------------------------------------------------------------------------- */

static int begin(struct np_plan *plan)
{
	static const enum inccl_type types[] = {
	    [NP_INT8] = INCCL_INT8, [NP_INT32] = INCCL_INT32, [NP_FLOAT] = INCCL_FLOAT32};
	struct np_inccl *i = plan->side->inccl;

	return NP_CALL(&plan->rk->progress, i->inccl_iallreduce, i->comm,
		       plan->rk->buffers[NP_BUF_IN].data, plan->rk->buffers[NP_BUF_OUT].data,
		       plan->size / np_type_sizes[plan->type], types[plan->type], INCCL_SUM,
		       INCCL_DIRECT, &i->request);
}

static bool run(struct np_plan *plan)
{
	struct np_inccl *i = plan->side->inccl;
	struct np_worker *w = &plan->rk->progress;
	const uint64_t begun_ns = np_now_ns();
	int result = begin(plan);

	while (result == INCCL_OK &&
	       (result = NP_CALL(w, i->inccl_test, i->request)) == INCCL_AGAIN) {
		result = INCCL_OK;
		if (np_worker_expired(w))
			return np_error_set(&plan->rk->error, NP_EXIT_TIMEOUT,
					    "stuck: all-reduce of %zu B by libinccl, iteration "
					    "%llu, is not done after %.1f s",
					    plan->size, (unsigned long long)plan->runs,
					    plan->rk->o->timeout_s);
		np_worker_rest(plan->rk->o->nap_us);
	}
	if (result != INCCL_OK)
		return failed(plan->rk, i, "inccl_iallreduce", result, i->inccl_comm_why(i->comm));
	np_worker_progress(w);
	np_recorder_complete(&plan->rk->recorder, np_now_ns(), np_now_ns() - begun_ns, plan->size);
	return true;
}

bool np_plan_inccl(struct np_plan *plan)
{
	plan->run = run;
	np_allreduce_data(plan);
	return true;
}
