/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service thread does: the life of plugins, connections and registrations.
 *
 * Connections of all peers are set up at once, as in NCCL: connect and accept are polled in turn
 * until each has returned a comm, so a plugin that waits inside one of them stalls its peers and
 * is found out by the time limit.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/netcalls.h"
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/collnet.h"
#include "tools/nccl-net-perf/inccl.h"
#include "tools/nccl-net-perf/job.h"
#include "tools/nccl-net-perf/links.h"
#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/rank.h"

static bool call_failed(struct np_rank *rk, const struct np_side *side, const char *call,
			ncclResult_t result)
{
	return np_error_set(&rk->error, NP_EXIT_ERROR, "%s of plugin %s returned %s", call,
			    np_path(side->net), np_result_name(result));
}

static bool link_failed(struct np_error *error, const struct np_link *link, const char *call,
			ncclResult_t result)
{
	return np_error_set(error, NP_EXIT_ERROR,
			    "%s of channel %d %s rank %d (device %d) returned %s", call,
			    link->channel, link->send ? "to" : "from", link->peer, link->dev,
			    np_result_name(result));
}

/* ---- loading ------------------------------------------------------------------------------- */

static bool read_devices(struct np_rank *rk, struct np_side *side)
{
	struct np_worker *w = &rk->service;
	ncclResult_t result = NP_CALL(w, np_devices, side->net, &side->ndev);

	if (result != ncclSuccess)
		return call_failed(rk, side, "devices", result);
	if (side->ndev < 1)
		return np_error_set(&rk->error, NP_EXIT_USAGE, "plugin %s found no device%s",
				    np_path(side->net),
				    rk->o->fabric ? ""
						  : " (without RDMA hardware, run it on a fabric: "
						    "--simverbs 2x2)");
	if (rk->o->dev >= side->ndev)
		return np_error_set(&rk->error, NP_EXIT_USAGE, "--dev %d: the plugin has %d",
				    rk->o->dev, side->ndev);
	side->props = calloc((size_t)side->ndev, sizeof(*side->props));
	if (!side->props)
		return np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	for (int dev = 0; dev < side->ndev; dev++) {
		result = NP_CALL(w, np_get_properties, side->net, dev, &side->props[dev]);
		if (result != ncclSuccess)
			return call_failed(rk, side, "getProperties", result);
	}
	return true;
}

static int device_of(const struct np_rank *rk, const struct np_side *side, int channel)
{
	return rk->o->dev >= 0 ? rk->o->dev : channel % side->ndev;
}

static void choose_group(const struct np_rank *rk, struct np_side *side)
{
	side->max_recvs = rk->o->group ? rk->o->group : NP_MAX_RECVS;
	for (int c = 0; c < rk->o->channels; c++) {
		int most = side->props[device_of(rk, side, c)].maxRecvs;

		if (most < 1)
			most = 1;
		if (most < side->max_recvs)
			side->max_recvs = most;
	}
}

/*
 * A plugin that the other side has loaded already is loaded as a copy: the two must not share the
 * variables they were initialised with.
 */
static struct np_plugin *open_plugin(struct np_job *job, char *err, size_t err_len)
{
	struct np_plugin *net = np_open(job->plugin, job->rk->o->api, err, err_len), *copy;

	for (int s = 0; net && s < job->rk->nsides; s++) {
		const struct np_side *other = &job->rk->sides[s];

		if (other == job->side || !other->net ||
		    np_dlhandle(other->net) != np_dlhandle(net))
			continue;
		copy = np_open_copy(net, err, err_len);
		np_close(net);
		return copy;
	}
	return net;
}

static bool has_members(struct np_rank *rk, const struct np_side *side, enum np_moment moment)
{
	char missing[200];

	if (np_missing_members(side->net, moment, missing, sizeof(missing)) == 0)
		return true;
	np_error_set(&rk->error, NP_EXIT_ERROR, "v%d of plugin %s lacks %s%s", np_api(side->net),
		     np_path(side->net), missing, moment == NP_AFTER_INIT ? " after init" : "");
	return false;
}

static void open_job(void *arg)
{
	struct np_job *job = arg;
	struct np_rank *rk = job->rk;
	struct np_side *side = job->side;
	char err[900];
	ncclResult_t result;

	side->net = open_plugin(job, err, sizeof(err));
	if (!side->net) {
		np_error_set(&rk->error, NP_EXIT_USAGE, "%s", err);
		return;
	}
	if (!has_members(rk, side, NP_BEFORE_INIT))
		return;
	result = NP_CALL(&rk->service, np_init, side->net, &side->ctx, 0x6e63636c68610000ull,
			 NCCL_NET_TRAFFIC_CLASS_UNDEF);
	if (result != ncclSuccess) {
		call_failed(rk, side, "init", result);
		return;
	}
	side->initialised = true;
	job->ok = has_members(rk, side, NP_AFTER_INIT) && read_devices(rk, side);
	if (job->ok)
		choose_group(rk, side);
	if (job->ok && side->via == NP_COLLNET)
		job->ok = np_group_init(rk, side);
}

bool np_side_open(struct np_rank *rk, struct np_side *side, const char *plugin)
{
	return np_run_job(rk, side, plugin, open_job, "loading the plugin");
}

static void close_job(void *arg)
{
	struct np_job *job = arg;
	struct np_side *side = job->side;
	ncclResult_t result = ncclSuccess;

	np_group_finalize(job->rk, side);
	if (side->initialised)
		result = NP_CALL(&job->rk->service, np_finalize, side->net, &side->ctx);
	job->ok = result == ncclSuccess || call_failed(job->rk, side, "finalize", result);
	np_close(side->net);
	free(side->props);
	side->net = NULL;
	side->props = NULL;
	side->initialised = false;
}

bool np_side_close(struct np_rank *rk, struct np_side *side)
{
	return np_run_job(rk, side, NULL, close_job, "unloading the plugin");
}

/* ---- which connections --------------------------------------------------------------------- */

struct np_link *np_find_link(struct np_side *side, bool send, int peer, int channel)
{
	for (int i = 0; i < side->nlinks; i++)
		if (side->links[i].send == send && side->links[i].peer == peer &&
		    side->links[i].channel == channel)
			return &side->links[i];
	return NULL;
}

static bool needs_all_peers(const struct np_options *o)
{
	for (int i = 0; i < o->nops; i++)
		if (o->ops[i] == NP_ALLTOALL)
			return true;
	return false;
}

static bool needs_both_ways(const struct np_options *o)
{
	for (int i = 0; i < o->nops; i++)
		if (o->ops[i] == NP_PINGPONG)
			return true;
	return false;
}

/* Whether `from` sends to `to` in any of the operations. */
static bool connected(const struct np_rank *rk, int from, int to)
{
	int n = rk->nranks;

	if (from == to)
		return false;
	return needs_all_peers(rk->o) || to == (from + 1) % n ||
	       (needs_both_ways(rk->o) && (to ^ 1) == from);
}

static bool list_links(struct np_rank *rk, struct np_side *side)
{
	size_t most = (size_t)rk->nranks * (size_t)rk->o->channels * 2;

	side->links = calloc(most, sizeof(*side->links));
	side->nlinks = 0;
	if (!side->links)
		return np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	for (int peer = 0; peer < rk->nranks; peer++)
		for (int c = 0; c < rk->o->channels; c++)
			for (int send = 0; send < 2; send++)
				if (send ? connected(rk, rk->rank, peer)
					 : connected(rk, peer, rk->rank))
					side->links[side->nlinks++] = (struct np_link){
					    .send = send,
					    .peer = peer,
					    .channel = c,
					    .dev = device_of(rk, side, c),
					};
	return true;
}

/* ---- connecting ---------------------------------------------------------------------------- */

static void listen_job(void *arg)
{
	struct np_job *job = arg;
	struct np_side *side = job->side;

	for (int i = 0; i < side->nlinks; i++) {
		struct np_link *link = &side->links[i];
		ncclResult_t result;

		if (link->send)
			continue;
		result = NP_CALL(&job->rk->service, np_listen, side->net, &side->ctx, link->dev,
				 link->handle, &link->listen);
		if (result != ncclSuccess) {
			link_failed(&job->rk->error, link, "listen", result);
			return;
		}
		np_worker_progress(&job->rk->service);
	}
	job->ok = true;
}

/* One call of connect or accept. */
static bool try_link(struct np_rank *rk, struct np_side *side, struct np_link *link)
{
	struct np_worker *w = &rk->service;
	ncclResult_t result;

	if (link->send) {
		result = NP_CALL(w, np_connect, side->net, &side->ctx, link->dev, link->handle,
				 &link->comm, NULL);
		if (result != ncclSuccess)
			return link_failed(&rk->error, link, "connect", result);
	} else {
		result = NP_CALL(w, np_accept, side->net, link->listen, &link->comm, NULL);
		if (result != ncclSuccess)
			return link_failed(&rk->error, link, "accept", result);
		if (link->comm) {
			result = NP_CALL(w, np_close_listen, side->net, link->listen);
			link->listen = NULL;
			if (result != ncclSuccess)
				return link_failed(&rk->error, link, "closeListen", result);
		}
	}
	if (link->comm)
		np_worker_progress(w);
	return true;
}

static void connect_stuck(struct np_rank *rk, const struct np_side *side)
{
	char list[300] = "";
	size_t used = 0;
	int open = 0;

	for (int i = 0; i < side->nlinks; i++) {
		const struct np_link *link = &side->links[i];

		if (link->comm)
			continue;
		open++;
		if (used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used,
						 "%s%s rank %d channel %d", used ? ", " : "",
						 link->send ? "connect to" : "accept from",
						 link->peer, link->channel);
	}
	np_error_set(&rk->error, NP_EXIT_TIMEOUT,
		     "%d of %d connections not made, nothing moved for %.1f s: %s", open,
		     side->nlinks, rk->o->timeout_s, list);
}

/* Polls the links of [first, first + n) until all have their comm. */
static bool connect_range(struct np_rank *rk, struct np_side *side, int first, int n)
{
	int missing;

	do {
		missing = 0;
		for (int i = first; i < first + n; i++) {
			struct np_link *link = &side->links[i];

			if (link->comm)
				continue;
			if (!try_link(rk, side, link))
				return false;
			missing += !link->comm;
		}
		if (missing && np_worker_expired(&rk->service)) {
			connect_stuck(rk, side);
			return false;
		}
		if (missing)
			sched_yield();
	} while (missing);
	return true;
}

/* The same order of (sender, receiver, channel) on every rank: one by one cannot deadlock. */
static int by_pair(const void *a, const void *b, void *rank)
{
	const struct np_link *x = a, *y = b;
	int self = *(const int *)rank;
	int from_x = x->send ? self : x->peer, from_y = y->send ? self : y->peer;
	int to_x = x->send ? x->peer : self, to_y = y->send ? y->peer : self;

	if (from_x != from_y)
		return from_x - from_y;
	if (to_x != to_y)
		return to_x - to_y;
	return x->channel - y->channel;
}

static void connect_job(void *arg)
{
	struct np_job *job = arg;
	struct np_side *side = job->side;

	if (job->rk->o->parallel_connect) {
		job->ok = connect_range(job->rk, side, 0, side->nlinks);
		return;
	}
	qsort_r(side->links, (size_t)side->nlinks, sizeof(*side->links), by_pair, &job->rk->rank);
	job->ok = true;
	for (int i = 0; i < side->nlinks && job->ok; i++)
		job->ok = connect_range(job->rk, side, i, 1);
}

static bool exchange_handles(struct np_rank *rk, struct np_side *side)
{
	/* One handle for each (peer that sends to me, channel); unused ones stay zero. */
	size_t channels = (size_t)rk->o->channels, n = (size_t)rk->nranks;
	size_t mine_len = n * channels * NCCL_NET_HANDLE_MAXSIZE;
	uint8_t *mine = calloc(1, mine_len), *all = malloc(mine_len * n);
	char err[200];
	bool ok = false;

	if (!mine || !all) {
		np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
		goto out;
	}
	for (int i = 0; i < side->nlinks; i++) {
		struct np_link *link = &side->links[i];
		size_t at = (size_t)link->peer * channels + (size_t)link->channel;

		if (!link->send)
			memcpy(mine + at * NCCL_NET_HANDLE_MAXSIZE, link->handle,
			       sizeof(link->handle));
	}
	ok = np_bootstrap_gather(rk->bootstrap, mine, all, mine_len, err, sizeof(err)) ||
	     np_error_set(&rk->error, NP_EXIT_ERROR, "while exchanging handles: %s", err);
	for (int i = 0; ok && i < side->nlinks; i++) {
		struct np_link *link = &side->links[i];
		size_t at =
		    ((size_t)link->peer * n + (size_t)rk->rank) * channels + (size_t)link->channel;

		if (link->send)
			memcpy(link->handle, all + at * NCCL_NET_HANDLE_MAXSIZE,
			       sizeof(link->handle));
	}
out:
	free(mine);
	free(all);
	return ok;
}

/* ---- registration -------------------------------------------------------------------------- */

static bool register_buffer(struct np_rank *rk, struct np_side *side, struct np_link *link,
			    enum np_buffer_kind kind)
{
	struct np_buffer *b = &rk->buffers[kind];
	ncclResult_t result;

	result = NP_CALL(&rk->service, np_reg_mr, side->net, link->comm, b->data, b->len,
			 NCCL_PTR_HOST, &link->mr[kind]);
	if (result != ncclSuccess)
		return link_failed(&rk->error, link, "regMr", result);
	link->registered[kind] = true;
	np_worker_progress(&rk->service);
	return true;
}

static void register_job(void *arg)
{
	struct np_job *job = arg;

	for (int i = 0; i < job->side->nlinks; i++)
		for (int kind = 0; kind < NP_BUF_COUNT; kind++)
			if (job->rk->buffers[kind].len &&
			    !register_buffer(job->rk, job->side, &job->side->links[i],
					     (enum np_buffer_kind)kind))
				return;
	job->ok = true;
}

bool np_side_connect(struct np_rank *rk, struct np_side *side)
{
	if (side->via == NP_INCCL)
		return np_inccl_connect(rk, side);
	if (side->via == NP_COLLNET)
		return np_group_connect(rk, side);
	return list_links(rk, side) && np_run_job(rk, side, NULL, listen_job, "listen") &&
	       exchange_handles(rk, side) &&
	       np_run_job(rk, side, NULL, connect_job, "connection set-up") &&
	       np_run_job(rk, side, NULL, register_job, "memory registration");
}

/* ---- taking down ---------------------------------------------------------------------------- */

static void close_link(struct np_rank *rk, struct np_side *side, struct np_link *link)
{
	struct np_worker *w = &rk->service;
	ncclResult_t result = ncclSuccess;

	for (int kind = 0; kind < NP_BUF_COUNT; kind++) {
		if (!link->registered[kind])
			continue;
		result = NP_CALL(w, np_dereg_mr, side->net, link->comm, link->mr[kind]);
		if (result != ncclSuccess)
			link_failed(&rk->error, link, "deregMr", result);
		link->registered[kind] = false;
	}
	if (link->comm && link->send)
		result = NP_CALL(w, np_close_send, side->net, link->comm);
	else if (link->comm)
		result = NP_CALL(w, np_close_recv, side->net, link->comm);
	if (result != ncclSuccess)
		link_failed(&rk->error, link, link->send ? "closeSend" : "closeRecv", result);
	if (link->listen) {
		result = NP_CALL(w, np_close_listen, side->net, link->listen);
		if (result != ncclSuccess)
			link_failed(&rk->error, link, "closeListen", result);
	}
	np_worker_progress(w);
}

static void disconnect_job(void *arg)
{
	struct np_job *job = arg;
	enum np_exit before = job->rk->error.status;

	for (int i = 0; i < job->side->nlinks; i++)
		close_link(job->rk, job->side, &job->side->links[i]);
	job->ok = job->rk->error.status == before;
}

bool np_side_disconnect(struct np_rank *rk, struct np_side *side)
{
	if (side->via == NP_INCCL)
		return np_inccl_disconnect(rk, side);
	if (side->via == NP_COLLNET)
		return np_group_disconnect(rk, side);
	bool ok = np_run_job(rk, side, NULL, disconnect_job, "closing");

	free(side->links);
	side->links = NULL;
	side->nlinks = 0;
	return ok;
}
