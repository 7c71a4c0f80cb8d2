/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the completion queues to the requests, and test, which does nearly all of it. Everything but
 * test runs under the token.
 */
#include "transport/complete.h"
#include "base/hot.h"
#include "transport/e2e.h"
#include "transport/flush.h"
#include "transport/flush_old.h"
#include "transport/gpu_proof.h"
#include "transport/latency.h"
#include "transport/path_error.h"
#include "transport/post.h"
#include "transport/recv.h"
#include "transport/stall.h"
#include "transport/stripe.h"
#include "transport/visit.h"
#include "transport/wc_error.h"

#include "transport/path_msg.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define WC_BATCH HA_POLL_BATCH_MAX

/* `rc`: what ibv_poll_cq returned. */
static void failed_poll(struct ha_comm *comm, struct ha_path *path, int rc)
{
	if (ha_path_stopped(path))
		atomic_store(&path->undrainable, true);
	else
		ha_comm_verb_failed(comm, path, HA_REASON_CQ_ERROR, "ibv_poll_cq",
				    rc == -1 ? errno : -rc);
}

/* ---- dispatch ------------------------------------------------------------------------------ */

/* What is not a message's, or says that something is wrong. */
static __attribute__((noinline)) void apply_other(struct ha_comm *comm, struct ha_path *path,
						  const struct ibv_wc *wc)
{
	uint64_t id = wc->wr_id;
	/* The queue may hold completions of queue pairs that were replaced since. */
	bool current = ha_wr_label(id) == path->label;

	if (wc->status != IBV_WC_SUCCESS) {
		if (path == ha_comm_path(comm)) /* of the others nothing counts */
			comm->life.lifeless++;
		/* An unsignalled request completes only when it fails, and has no wr_id of its own.
		 */
		if (current && ha_wr_kind(id) == HA_WR_SENTINEL)
			path->sentinels_back++;
		else if (current && ha_wr_kind(id) == HA_WR_GPU_PROOF)
			ha_gpu_proof_done(comm, path, wc->status);
		else if (current && ha_wr_kind(id) == HA_WR_FLUSH && path->flush.kept)
			ha_flush_old_failed(comm, path);
		else if (current || ha_path_has_qp(path, wc->qp_num))
			ha_comm_completion_failed(comm, path, wc);
		else
			comm->count.stale_completions++;
		return;
	}
	if (!current) {
		comm->count.stale_completions++;
		return;
	}
	switch (ha_wr_kind(id)) {
	case HA_WR_CTS:
		ha_qp_left(&path->qps[ha_wr_qp(id)], ha_wr_slot(id));
		break;
	case HA_WR_STRIPE:
		ha_stripe_sent(comm, path, ha_wr_qp(id), ha_wr_slot(id));
		break;
	case HA_WR_FLUSH:
		ha_flush_complete(comm, path, ha_wr_slot(id));
		break;
	case HA_WR_GPU_PROOF:
		ha_gpu_proof_done(comm, path, IBV_WC_SUCCESS);
		break;
	case HA_WR_WATCH:
		ha_timeout_watched(path, ha_wr_qp(id), ha_wr_slot(id));
		break;
	case HA_WR_LATENCY:
		ha_latency_done(path, ha_wr_qp(id), ha_wr_slot(id));
		break;
	case HA_WR_COUNT:
		ha_e2e_answered(comm, path, ha_wr_slot(id));
		break;
	case HA_WR_CONTROL:
		ha_path_msg_done(path, ha_wr_slot(id));
		break;
	case HA_WR_PROBE:
		ha_path_probe_done(path, ha_wr_slot(id));
		break;
	case HA_WR_DATA: /* apply's */
	case HA_WR_IMM:
	case HA_WR_SENTINEL: /* only of a peer that sends what nobody asked for: no proof */
		break;
	}
}

static inline __attribute__((always_inline)) void apply(struct ha_comm *comm, struct ha_path *path,
							const struct ibv_wc *wc)
{
	const uint64_t id = wc->wr_id;
	/* The kind alone, if it is of this path and generation. */
	const uint32_t kind = (uint32_t)(id >> 32) ^ path->label;

	if (__builtin_expect(wc->status == IBV_WC_SUCCESS && kind == (uint32_t)HA_WR_IMM << 24, 1))
		ha_recv_immediate(comm, path, ha_wr_qp(id), ntohl(wc->imm_data), wc->byte_len);
	else if (__builtin_expect(
		     wc->status == IBV_WC_SUCCESS && kind == (uint32_t)HA_WR_DATA << 24, 1))
		ha_send_complete(comm, path, ha_wr_qp(id), ha_wr_slot(id));
	else
		apply_other(comm, path, wc);
}

static __attribute__((noinline)) void apply_all(struct ha_comm *comm, struct ha_path *path,
						const struct ibv_wc *wc, int n)
{
	for (int i = 0; i < n; i++)
		apply(comm, path, &wc[i]);
}

/* Takes at most `want` completions, WC_BATCH at most. */
static int poll_batch(struct ha_comm *comm, struct ha_path *path, int want)
{
	struct ibv_wc wc[WC_BATCH];
	int n = ibv_poll_cq(path->cq, want, wc);

	if (__builtin_expect(n < 0, 0)) {
		failed_poll(comm, path, n);
		return 0;
	}
	apply_all(comm, path, wc, n);
	return n;
}

static __attribute__((noinline)) int poll_path(struct ha_comm *comm, struct ha_path *path,
					       int budget)
{
	int total = 0;

	while (total < budget) {
		int want = budget - total < WC_BATCH ? budget - total : WC_BATCH;
		int n = poll_batch(comm, path, want);

		total += n;
		if (n < want)
			break;
	}
	return total;
}

void ha_comm_pump(struct ha_comm *comm)
{
	if (!(comm->silent & HA_SILENT_HELD))
		return;
	if (comm->is_send)
		ha_send_pump(comm);
	else
		ha_recv_pump(comm);
}

static __attribute__((noinline)) void serve_held(struct ha_comm *comm)
{
	if (comm->silent & HA_SILENT_TELL)
		ha_e2e_note(comm);
	ha_comm_pump(comm);
}

/* After completions: what a receiver says that it has, and what may have room now. */
static inline void serve(struct ha_comm *comm)
{
	if (__builtin_expect(comm->silent & (HA_SILENT_TELL | HA_SILENT_HELD), 0)) {
		if (comm->silent == HA_SILENT_TELL)
			ha_e2e_note(comm);
		else
			serve_held(comm);
	}
}

int ha_comm_poll_path(struct ha_comm *comm, struct ha_path *path, int budget)
{
	int n = poll_path(comm, path, budget);

	comm->count.completions += (uint64_t)n;
	if (path != ha_comm_path(comm)) /* what is flushed there, too */
		comm->life.lifeless += (uint64_t)n;
	return n;
}

int ha_comm_poll_standby(struct ha_comm *comm)
{
	int total = 0;

	if (comm->standby_every == 1)
		ha_stripe_looked(comm);
	comm->standby_in = comm->standby_every;
	for (unsigned i = 0; i < comm->npaths; i++) {
		struct ha_path *path = comm->paths[i];

		/* A path that is fenced has no completions any more; its queue pairs may be gone.
		 */
		if (i != comm->active && path &&
		    atomic_load_explicit(&path->state, memory_order_relaxed) != HA_PATH_FENCED)
			total += ha_comm_poll_path(comm, path, comm->poll_batch);
	}
	return total;
}

static inline unsigned state_of(const struct ha_request *req)
{
	return atomic_load_explicit(&req->state, memory_order_acquire);
}

/* What a poll does now and then. */
static __attribute__((noinline)) int look_around(struct ha_comm *comm)
{
	comm->looks_later = (uint32_t)comm->config->poll_standby_interval;
	ha_comm_note_life(comm);
	ha_stall_poll(comm);
	return ha_comm_poll_standby(comm);
}

/*
 * While messages are cut others are looked at as often as the active path, but not for a request
 * that is done without: then as often as ever.
 */
static bool looks_later(struct ha_comm *comm, const struct ha_request *req)
{
	if (comm->standby_every != 1 || state_of(req) != HA_REQ_DONE || comm->looks_later == 0)
		return false;
	comm->looks_later--;
	comm->standby_in = 1;
	return true;
}

/* After `total` completions of the active path. Returns them with those of the others. `req`: what
 * they are polled for, or NULL. */
static inline int polled(struct ha_comm *comm, const struct ha_request *req, int total)
{
	comm->count.completions += (uint64_t)total;
	if (__builtin_expect(--comm->standby_in == 0, 0) && !(req && looks_later(comm, req)))
		total += look_around(comm);
	serve(comm);
	return total;
}

int ha_comm_poll(struct ha_comm *comm, int budget)
{
	struct ha_path *path = ha_comm_path(comm);
	int total = polled(comm, NULL, path ? poll_path(comm, path, budget) : 0);

	ha_e2e_look(comm);
	return total;
}

/* ---- test ---------------------------------------------------------------------------------- */

/*
 * What came, `taken` completions, was not all that the request waits for. What comes without one
 * may be there. And if there were any the rest may have come meanwhile, while who tests it sees to
 * others before the next test: so look again for as long as that brings something, within what one
 * test may take.
 */
static __attribute__((noinline)) bool poll_on(struct ha_comm *comm, const struct ha_request *req,
					      int taken)
{
	const int most = comm->config->test_max_poll;

	ha_e2e_look(comm);
	for (int n = taken; state_of(req) != HA_REQ_DONE; taken += n) {
		if (n <= 0 || taken >= most || ha_comm_error(comm) != HA_OK)
			return false;
		n = ha_comm_poll(comm, most - taken < WC_BATCH ? most - taken : WC_BATCH);
	}
	return true;
}

/* Of a look at the queue that brought none, or several. */
static __attribute__((noinline)) bool polled_others(struct ha_comm *comm, struct ha_path *path,
						    const struct ha_request *req,
						    const struct ibv_wc *wc, int n)
{
	if (__builtin_expect(n < 0, 0)) {
		failed_poll(comm, path, n);
		n = 0;
	}
	apply_all(comm, path, wc, n);
	polled(comm, req, n);
	return state_of(req) == HA_REQ_DONE || poll_on(comm, req, n);
}

/*
 * What ha_comm_poll does, for the one call that is made all the time, and whether the request is
 * done then. Written out so that nothing is kept in mind where the one completion that came is the
 * one that the request waits for.
 */
static inline __attribute__((always_inline)) bool poll_for(struct ha_comm *comm,
							   const struct ha_request *req)
{
	struct ha_path *path = ha_comm_path(comm);
	struct ibv_wc wc[WC_BATCH];
	int n = __builtin_expect(path != NULL, 1) ? ibv_poll_cq(path->cq, comm->test_batch, wc) : 0;

	if (__builtin_expect(n != 1, 0))
		return polled_others(comm, path, req, wc, n);
	apply(comm, path, &wc[0]);
	polled(comm, req, 1);
	return __builtin_expect(state_of(req) == HA_REQ_DONE, 1) || poll_on(comm, req, 1);
}

/* A request that is done. Its data is good, whatever became of the connection since. */
static inline ha_result_t report(struct ha_comm *comm, struct ha_request *req, int *done,
				 int *sizes)
{
	struct ha_request_pool *pool = &comm->pool;

	*done = 1;
	if (req->kind == HA_REQ_RECV) {
		struct ha_recv_slot *slot = req->recv;

		if (sizes) {
			if (slot->n == 1)
				sizes[0] = ha_int_size((uint64_t)slot->bytes);
			else
				memcpy(sizes, slot->sizes, slot->n * sizeof(int));
		}
		slot->in_use = false;
	} else if (__builtin_expect(req->kind == HA_REQ_SEND, 1)) {
		if (sizes)
			sizes[0] = ha_int_size(req->size);
	} else {
		pool = &comm->recv->flush_pool;
	}
	ha_request_put(pool, req);
	return HA_OK;
}

/* Of a request that was not done a moment ago. Not inline: most tests of a group need none of it.
 */
static __attribute__((noinline)) HA_NO_CANARY ha_result_t test_active(struct ha_request *req,
								      int *done, int *sizes)
{
	struct ha_comm *comm = req->comm;

	if (ha_comm_error(comm) == HA_OK && ha_token_try(comm)) {
		comm->polls++;
		if (poll_for(comm, req)) {
			ha_token_release(comm);
			return report(comm, req, done, sizes);
		}
		if (req->kind == HA_REQ_FLUSH && req->posted != HA_FLUSH_POSTED)
			ha_flush_post(comm, req);
		ha_token_release(comm);
	}
	*done = 0;
	if (state_of(req) == HA_REQ_DONE) /* another thread had the token */
		return report(comm, req, done, sizes);
	return ha_comm_error(comm);
}

HA_CALLED_DIRECTLY ha_result_t ha_test_request(struct ha_request *req, int *done, int *sizes)
{
	switch (state_of(req)) {
	case HA_REQ_ACTIVE:
		return test_active(req, done, sizes);
	case HA_REQ_DONE:
		return report(req->comm, req, done, sizes);
	default:
		*done = 0;
		return HA_ERR_ARGUMENT; /* tested again after it was done */
	}
}
