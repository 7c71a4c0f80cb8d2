/* SPDX-License-Identifier: Apache-2.0 */
/* Life and error of a connection. */
#include "transport/comm.h"
#include "transport/clear_path.h"
#include "transport/complete.h"
#include "transport/flush_old.h"
#include "transport/post.h"
#include "transport/recv.h"
#include "transport/send.h"
#include "transport/visit.h"

#include "base/async_log.h"
#include "base/clock.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/random.h"
#include "base/stats.h"
#include "base/usdt.h"
#include "memory/mr.h"
#include "memory/pages.h"
#include "transport/comm_event.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/path_close.h"
#include "transport/shared.h"
#include "transport/stripe.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---------------------------------------------------------------------------------- */

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
	ha_list_init(&comm->memory.handles);
	ha_list_init(&comm->poller.link);
	ha_list_init(&comm->polled.link);
	atomic_store(&comm->refs, 1);
	comm->inst = inst;
	comm->config = &inst->config;
	comm->is_send = is_send;
	comm->ops = &ha_no_failover;
	comm->poll_batch = (uint16_t)inst->config.poll_batch;
	comm->test_batch = inst->config.test_max_poll < HA_POLL_BATCH_MAX
			       ? (uint16_t)inst->config.test_max_poll
			       : HA_POLL_BATCH_MAX;
	comm->standby_every = (uint32_t)inst->config.poll_standby_interval;
	comm->standby_in = comm->standby_every;
	comm->slot_mask = HA_WINDOW - 1;
	comm->max_recvs = (uint8_t)inst->config.max_recvs;
	comm->group_limit = comm->max_recvs;
	comm->plain_n = 1;
	comm->id = ha_random();
	comm->rto_ms = (uint32_t)inst->config.rto_ms;
	comm->report.slot = -1;
	comm->ring_length = is_send ? sizeof(struct ha_send_ring) : sizeof(struct ha_recv_ring);
	comm->ring = ha_pages_new(comm->ring_length);
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

/* A registration outlives the connection that it was made through. */
static void disown_memory(struct ha_comm *comm)
{
	while (!ha_list_empty(&comm->memory.handles))
		ha_container_of(ha_list_pop_front(&comm->memory.handles), struct ha_mr, in_owner)
		    ->owner = NULL;
}

void ha_comm_free(struct ha_comm *comm)
{
	if (!comm)
		return;
	disown_memory(comm);
	/* Side by side, where that takes long. */
	for (unsigned i = 0; i < comm->npaths; i++)
		if (comm->paths[i] && !ha_path_closing(comm->paths[i]))
			comm->paths[i] = NULL;
	for (unsigned i = 0; i < comm->npaths; i++)
		ha_path_close(comm->paths[i]);
	comm->ops->free(comm);
	ha_retain_close(comm);
	ha_ctrl_sock_free(comm->ctrl_sock);
	ha_request_pool_free(&comm->pool);
	if (comm->recv)
		ha_request_pool_free(&comm->recv->flush_pool);
	ha_flush_old_free(comm);
	free(comm->send);
	free(comm->recv);
	ha_auth_forget(&comm->auth);
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
	ha_pages_free(comm->ring, comm->ring_length);
	free(comm);
}

void ha_comm_take_path(struct ha_comm *comm, uint8_t index)
{
	struct ha_path *path = comm->paths[index];

	HA_INVARIANT(path->index == index);
	HA_INVARIANT(path->comm == comm);
	HA_INVARIANT(!ha_path_stopped(path));
	path->carried = true;
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

void ha_comm_use_path(struct ha_comm *comm, uint8_t index)
{
	ha_comm_take_path(comm, index);
	ha_stripe_begin(comm);
}

ha_result_t ha_comm_start(struct ha_comm *comm)
{
	struct ha_instance *inst = comm->inst;

	comm->ports |= ha_port_bit(comm->paths[0]->port);
	ha_comm_stats_open(comm);
	comm->poller.visit = ha_comm_visit;
	comm->poller.timer.first = comm;
	ha_progress_add(inst->progress, &comm->poller);
	HA_TRY(ha_ctrl_sock_start(comm->ctrl_sock, comm));
	pthread_mutex_lock(&inst->lock);
	ha_list_push_back(&inst->comms, &comm->in_instance);
	pthread_mutex_unlock(&inst->lock);
	/* What became of ports before it was listed, nobody has told it. */
	atomic_store_explicit(&comm->port_events, comm->ports, memory_order_release);
	ha_progress_call(inst->progress, &comm->poller);
	ha_poll_thread_add(inst->poll_thread, comm);
	return HA_OK;
}

void ha_comm_stop(struct ha_comm *comm)
{
	struct ha_instance *inst = comm->inst;

	ha_poll_thread_remove(inst->poll_thread, comm);
	ha_ctrl_sock_stop(comm->ctrl_sock);
	ha_progress_remove(inst->progress, &comm->poller);
	pthread_mutex_lock(&inst->lock);
	ha_list_remove(&comm->in_instance);
	pthread_mutex_unlock(&inst->lock);
	ha_comm_stats_close(comm);
}

void ha_token_acquire(struct ha_comm *comm)
{
	while (!ha_token_try(comm) && !ha_token_ask(comm))
		sched_yield();
}

/* ---- failure ------------------------------------------------------------------------------- */

static void report_latch(struct ha_comm *comm, const char *why)
{
	struct ha_event event = ha_event_init(HA_EVENT_LATCH, HA_REASON_NONE);

	event.epoch = ha_comm_traffic_epoch(comm);
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
	ha_async_log_flush(); /* the process may soon be gone */
	HA_USDT4(latch, ha_comm_number(comm), (int)comm->is_send, (int)code, &text[0]);
	ha_stats_conn_failed(comm->inst->stats);
	atomic_store_explicit(&comm->report.now, true, memory_order_relaxed);
	ha_progress_call(comm->inst->progress, &comm->poller); /* tells the peer */
	return code;
}
