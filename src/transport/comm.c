/* SPDX-License-Identifier: Apache-2.0 */
/* Life and failure of a connection, and what the progress thread does for it. */
#include "transport/comm.h"

#include "base/async_log.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/stats.h"
#include "base/usdt.h"
#include "transport/comm_event.h"
#include "transport/ctrl_sock.h"
#include "transport/instance.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/*
 * How long the hardware may take to report what the peer, which closed in good order, says is
 * done. Acknowledgements that were still under way take microseconds.
 */
#define BYE_GRACE_NS (200 * HA_NS_PER_MS)

/* Every so often an idle connection is visited in full: its statistics, the paths in reserve. */
#define GLANCES_PER_VISIT 16

/* ---- life ---------------------------------------------------------------------------------- */

static void *map_ring(size_t length)
{
	/* Pages of its own: registered memory is not copied into children of fork. */
	void *ring = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return ring == MAP_FAILED ? NULL : ring;
}

static void *zalloc_aligned(size_t size)
{
	void *mem = aligned_alloc(64, (size + 63) & ~(size_t)63);

	if (mem)
		memset(mem, 0, size);
	return mem;
}

ha_result_t ha_comm_new(struct ha_instance *inst, bool is_send, struct ha_comm **out)
{
	struct ha_comm *comm = zalloc_aligned(sizeof(*comm));
	/* As many receives as there are requests for them. */
	uint16_t nrequests = is_send ? HA_MAX_OUTSTANDING * HA_GROUP_MAX : HA_MAX_OUTSTANDING;

	*out = NULL;
	if (!comm)
		goto no_memory;
	ha_list_init(&comm->in_instance);
	ha_list_init(&comm->poller.link);
	atomic_store(&comm->refs, 1);
	comm->inst = inst;
	comm->config = &inst->config;
	comm->is_send = is_send;
	comm->poll_batch = (uint16_t)inst->config.poll_batch;
	comm->test_batch = inst->config.test_max_poll < HA_POLL_BATCH_MAX
			       ? (uint16_t)inst->config.test_max_poll
			       : HA_POLL_BATCH_MAX;
	comm->standby_in = (uint32_t)inst->config.poll_standby_interval;
	comm->slot_mask = HA_WINDOW - 1;
	comm->max_recvs = (uint8_t)inst->config.max_recvs;
	comm->id = ha_random();
	comm->rto_ms = (uint32_t)inst->config.rto_ms;
	comm->report.slot = -1;
	comm->ring_length = is_send ? sizeof(struct ha_send_ring) : sizeof(struct ha_recv_ring);
	comm->ring = map_ring(comm->ring_length);
	if (!comm->ring || ha_request_pool_init(&comm->pool, comm, nrequests) != 0)
		goto no_memory;
	if (is_send) {
		comm->send = zalloc_aligned(sizeof(*comm->send));
		if (!comm->send)
			goto no_memory;
		ha_send_init(comm);
	} else {
		comm->recv = zalloc_aligned(sizeof(*comm->recv));
		if (!comm->recv ||
		    ha_request_pool_init(&comm->recv->flush_pool, comm, HA_MAX_OUTSTANDING) != 0)
			goto no_memory;
		ha_recv_init(comm);
	}
	*out = comm;
	return HA_OK;
no_memory:
	HA_WARN("out of memory for a connection");
	ha_comm_free(comm);
	return HA_ERR_SYSTEM;
}

void ha_comm_free(struct ha_comm *comm)
{
	if (!comm)
		return;
	/* Side by side, where that takes long. */
	for (unsigned i = 0; i < comm->npaths; i++)
		if (comm->paths[i] && !ha_path_closing(comm->paths[i]))
			comm->paths[i] = NULL;
	for (unsigned i = 0; i < comm->npaths; i++)
		ha_path_close(comm->paths[i]);
	ha_failover_free(comm);
	ha_lane_free(comm->lane);
	ha_request_pool_free(&comm->pool);
	if (comm->recv)
		ha_request_pool_free(&comm->recv->flush_pool);
	free(comm->send);
	free(comm->recv);
	ha_comm_put(comm);
}

struct ha_comm *ha_comm_hold(struct ha_comm *comm)
{
	atomic_fetch_add_explicit(&comm->refs, 1, memory_order_relaxed);
	return comm;
}

void ha_comm_put(struct ha_comm *comm)
{
	/* Whoever is last sees what all others did before they let go. */
	if (atomic_fetch_sub_explicit(&comm->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (comm->ring)
		munmap(comm->ring, comm->ring_length);
	free(comm);
}

void ha_comm_use_path(struct ha_comm *comm, uint8_t index)
{
	const struct ha_path *path = comm->paths[index];

	comm->active = index;
	ha_comm_not_clear(comm);
	if (comm->is_send) {
		comm->send->sge[HA_GROUP_MAX].lkey = path->ring_lkey;
		comm->send->wr[HA_GROUP_MAX].wr.rdma.rkey = path->remote_rkey;
	} else {
		comm->recv->cts_sge.lkey = path->ring_lkey;
		comm->recv->cts_wr.wr.rdma.rkey = path->remote_rkey;
	}
}

static enum ha_poll_result visit(struct ha_poller *poller);

ha_result_t ha_comm_start(struct ha_comm *comm)
{
	struct ha_instance *inst = comm->inst;

	pthread_mutex_lock(&inst->lock);
	ha_list_push_back(&inst->comms, &comm->in_instance);
	pthread_mutex_unlock(&inst->lock);

	ha_report_comm_open(comm);
	comm->poller.visit = visit;
	comm->poller.entry.first = comm;
	ha_progress_add(inst->progress, &comm->poller);
	return ha_lane_start(comm->lane, comm);
}

void ha_comm_stop(struct ha_comm *comm)
{
	struct ha_instance *inst = comm->inst;

	ha_lane_stop(comm->lane);
	ha_progress_remove(inst->progress, &comm->poller);
	pthread_mutex_lock(&inst->lock);
	ha_list_remove(&comm->in_instance);
	pthread_mutex_unlock(&inst->lock);
	ha_report_comm_close(comm);
}

void ha_token_acquire(struct ha_comm *comm)
{
	while (!ha_token_try(comm))
		sched_yield();
}

/* ---- failure ------------------------------------------------------------------------------- */

static void report_latch(struct ha_comm *comm, const char *why)
{
	struct ha_event event = ha_event_init(HA_EVENT_LATCH, HA_REASON_NONE);

	event.epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed);
	event.detail = why;
	ha_event_report(comm, &event);
}

ha_result_t ha_comm_fail(struct ha_comm *comm, ha_result_t code, const char *fmt, ...)
{
	int none = 0;
	char text[512];
	va_list args;

	if (!atomic_compare_exchange_strong(&comm->error, &none, (int)code))
		return (ha_result_t)none;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	HA_WARN("connection %s: %s", comm->name, text);
	report_latch(comm, text);
	ha_writer_flush(); /* the process may soon be gone */
	HA_USDT4(latch, ha_comm_number(comm), (int)comm->is_send, (int)code, &text[0]);
	ha_stats_conn_failed(comm->inst->stats);
	atomic_store_explicit(&comm->report.now, true, memory_order_relaxed);
	ha_progress_call(comm->inst->progress, &comm->poller); /* tells the peer */
	return code;
}

/* Takes what has completed already, so that it is not lost to the failure that follows. */
static void drain(struct ha_comm *comm)
{
	for (int i = 0; i < 64; i++)
		if (ha_comm_poll(comm, comm->poll_batch) + ha_comm_poll_standby(comm) == 0)
			break;
}

void ha_comm_peer_lost(struct ha_comm *comm, const char *how)
{
	drain(comm);
	ha_comm_fail(
	    comm, HA_ERR_REMOTE,
	    "the peer left without a goodbye (%s): its process is gone, or it failed and its "
	    "log says why; %u requests outstanding here",
	    how, comm->outstanding);
}

void ha_comm_peer_aborted(struct ha_comm *comm, const struct ha_abort *given_up)
{
	drain(comm);
	comm->abort_said = true; /* it knows */
	ha_comm_fail(comm, HA_ERR_REMOTE,
		     "the peer has given up (result %u, its log says why) with %u requests "
		     "outstanding here",
		     given_up->code, comm->outstanding);
}

void ha_comm_peer_bye(struct ha_comm *comm, const struct ha_bye *bye)
{
	comm->peer_done = (struct ha_window){.base = bye->done, .bits = bye->done_bits};
	comm->peer_bye_ns = ha_now_ns();
	comm->failover.state = HA_FO_CLOSED; /* what errors from now on is no failure */
	atomic_store_explicit(&comm->peer_bye, true, memory_order_release);
}

void ha_comm_settle(struct ha_comm *comm)
{
	comm->settling = true;
	for (unsigned i = 0; i < comm->npaths; i++)
		ha_path_fence(comm->paths[i]);
}

static bool all_fenced(struct ha_comm *comm, uint64_t now_ns)
{
	bool all = true;

	for (unsigned i = 0; i < comm->npaths; i++) {
		if (!comm->paths[i])
			continue;
		switch (ha_path_fenced(comm, comm->paths[i], now_ns)) {
		case HA_FENCE_DONE:
			break;
		case HA_FENCE_PENDING:
			all = false;
			break;
		case HA_FENCE_FAILED:
			ha_comm_fail(comm, HA_ERR_SYSTEM,
				     "a path to the peer, which has closed, cannot be fenced: %u "
				     "requests are not known to be through",
				     comm->outstanding);
			return false;
		}
	}
	return all;
}

/* Goes on with it. What is delivered is not complete before the hardware has let go of its memory.
 */
static void settle(struct ha_comm *comm)
{
	ha_comm_settle(comm);
	if (!all_fenced(comm, ha_now_ns()))
		return;
	if (comm->is_send)
		ha_send_settle(comm, &comm->peer_done);
	if (comm->outstanding != 0)
		ha_comm_fail(comm, HA_ERR_REMOTE,
			     "the peer closed the connection with %u requests outstanding here",
			     comm->outstanding);
}

void ha_comm_fill_bye(const struct ha_comm *comm, struct ha_bye *bye)
{
	const struct ha_window *w = comm->is_send ? &comm->send->completed : &comm->recv->done;

	bye->done = w->base;
	bye->done_bits = w->bits;
}

/* ---- progress thread ------------------------------------------------------------------------ */

static bool bye_overdue(const struct ha_comm *comm)
{
	return atomic_load_explicit(&comm->peer_bye, memory_order_acquire) &&
	       ha_now_ns() - comm->peer_bye_ns > BYE_GRACE_NS;
}

/* A peer whose path still looks healthy would wait for us for ever. */
static void tell_peer(struct ha_comm *comm, ha_result_t error)
{
	struct ha_abort given_up = {
	    .epoch = atomic_load_explicit(&comm->epoch, memory_order_relaxed),
	    .code = (uint16_t)error,
	};

	if (comm->abort_said)
		return;
	comm->abort_said = true;
	ha_lane_abort(comm->lane, &given_up);
}

/* Requests, or a count that the sender waits for. Under the token. */
static bool under_way(const struct ha_comm *comm)
{
	return comm->outstanding != 0 || atomic_load_explicit(&comm->telling, memory_order_relaxed);
}

/* Several times in an RTO, while something is under way. Under the token. */
static void look_for_timeouts(struct ha_comm *comm)
{
	uint64_t now_ns, due_ns;

	if (!under_way(comm) || ha_comm_error(comm) != HA_OK)
		return;
	now_ns = ha_now_ns();
	ha_timeout_look(comm, now_ns);
	due_ns = comm->timeout.due_ns;
	/* Traffic counts as an answer to heartbeats, so it is looked at as often as they come. */
	if (due_ns > now_ns + (unsigned)comm->config->heartbeat_ms * HA_NS_PER_MS)
		due_ns = now_ns + (unsigned)comm->config->heartbeat_ms * HA_NS_PER_MS;
	if (comm->poller.due_ns == 0 || comm->poller.due_ns > due_ns)
		comm->poller.due_ns = due_ns;
}

/* Polls for an application that does not do so itself. Under the token. */
static enum ha_poll_result poll_for_application(struct ha_comm *comm)
{
	int n;

	if (!under_way(comm))
		return HA_POLL_IDLE;
	if (!comm->config->use_progress_thread)
		return HA_POLL_IDLE;
	if (comm->polls != comm->seen_polls) {
		comm->seen_polls = comm->polls; /* the application does it */
		return HA_POLL_WATCHED;
	}
	n = ha_comm_poll(comm, comm->poll_batch);
	comm->count.thread_completions += (uint64_t)n;
	return n > 0 ? HA_POLL_WORKED : HA_POLL_EMPTY;
}

void ha_comm_note_life(struct ha_comm *comm)
{
	/* What completes on a standby says nothing of the active path; an error is no life. */
	uint64_t completions = comm->count.completions - comm->lifeless_completions;
	uint64_t life = completions << 8 | comm->active;

	if (comm->outstanding == 0)
		comm->idle_ns = ha_now_ns();
	if (atomic_load_explicit(&comm->life_seen, memory_order_relaxed) == life)
		return;
	comm->alive_ns = ha_now_ns();
	atomic_store_explicit(&comm->life_seen, life, memory_order_relaxed);
}

/* Under the token. */
static enum ha_poll_result visit_connection(struct ha_comm *comm)
{
	ha_result_t error = ha_comm_error(comm);
	enum ha_poll_result found;

	if (error == HA_OK && comm->outstanding != 0 &&
	    (comm->settling || (bye_overdue(comm) && ha_comm_waits_for_peer(comm)))) {
		settle(comm);
		return HA_POLL_EMPTY;
	}
	if (ha_comm_has_failover(comm)) {
		ha_comm_poll_standby(comm);
		/* Mail and probes come over the active path, too, when nobody polls it for
		 * requests.
		 */
		if ((comm->epoch_changing || comm->outstanding == 0) &&
		    ha_path_ready(comm->paths[comm->active]))
			(void)ha_comm_poll_path(comm, comm->paths[comm->active], comm->poll_batch);
		ha_comm_note_life(comm);
		ha_failover_visit(comm);
		comm->poller.due_ns = comm->failover.due_ns;
		look_for_timeouts(comm);
	} else if (error != HA_OK) {
		tell_peer(comm, error);
	}
	found = error == HA_OK ? poll_for_application(comm) : HA_POLL_IDLE;
	/* Traffic waits for that, and a queue that works is drained before a tick is over. */
	if (ha_comm_has_failover(comm) && !ha_slots_fenced(comm))
		found = HA_POLL_SOON;
	return found;
}

/*
 * All that a visit by the tick does on a connection that is idle, but for now and then: mail may
 * come over a path whose bootstrap socket broke at the other end only. With very many connections
 * nothing of this is in a cache, and each line that is looked at costs more than what is done with
 * it; everything else that may happen calls the poller. False: there is more to do.
 */
static bool glance(struct ha_comm *comm)
{
	bool quiet = false;

	if (comm->poller.asked || ha_comm_error(comm) != HA_OK ||
	    (comm->poller.quiet_visits + 1) % GLANCES_PER_VISIT == 0 || !ha_token_try(comm))
		return false;
	if (!under_way(comm) && !comm->epoch_changing && ha_path_ready(ha_comm_path(comm)))
		quiet = ha_comm_poll_path(comm, ha_comm_path(comm), comm->poll_batch) == 0;
	ha_token_release(comm);
	return quiet;
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_comm *comm = ha_container_of(poller, struct ha_comm, poller);
	enum ha_poll_result found;
	uint64_t report_ns;

	if (glance(comm))
		return HA_POLL_IDLE;
	ha_comm_queue_events(comm);
	/* The application has it all the time while it polls, and never for long. */
	if (!ha_token_try(comm))
		return poller->asked ? HA_POLL_SOON : HA_POLL_WATCHED;
	poller->due_ns = 0;
	found = visit_connection(comm);
	ha_token_release(comm);
	/* What this visit changed is to be seen soon, also if the connection is idle from now on.
	 */
	report_ns = ha_report_comm(comm);
	if (report_ns != 0 && (poller->due_ns == 0 || poller->due_ns > report_ns))
		poller->due_ns = report_ns;
	return found;
}
