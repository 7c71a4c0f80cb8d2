/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/visit.h"
#include "transport/async_event.h"
#include "transport/check.h"
#include "transport/flush.h"
#include "transport/flush_old.h"
#include "transport/latency.h"
#include "transport/recv.h"

#include "base/clock.h"
#include "base/log.h"
#include "transport/comm.h"
#include "transport/complete.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/peer_end.h"
#include "transport/post.h"
#include "transport/rail_agent.h"
#include "transport/rail_share.h"
#include "transport/recv.h"
#include "transport/shared.h"
#include "transport/stall.h"
#include "transport/stripe.h"

/*
 * How long the hardware may take to report what the peer, which closed in good order, says is
 * done. Acknowledgements that were still under way take microseconds.
 */
#define BYE_GRACE_NS (200 * HA_NS_PER_MS)

/* Every so often an idle connection is visited in full: its statistics, the paths in reserve. */
#define QUICK_CHECKS_PER_VISIT 16

static bool bye_overdue(const struct ha_comm *comm)
{
	return atomic_load_explicit(&comm->peer_bye, memory_order_acquire) &&
	       ha_now_ns() - comm->peer_bye_ns > BYE_GRACE_NS;
}

/* Several times in an RTO, while something is under way. Under the token. */
static void look_for_timeouts(struct ha_comm *comm)
{
	uint64_t now_ns, due_ns;

	if (comm->outstanding == 0 || ha_comm_error(comm) != HA_OK)
		return;
	now_ns = ha_now_ns();
	ha_timeout_look(comm, now_ns);
	due_ns = comm->timeout.due_ns;
	/* Traffic counts as an answer to heartbeats, so it is looked at as often as they come. */
	if (due_ns > now_ns + (unsigned)comm->config->heartbeat_ms * HA_NS_PER_MS)
		due_ns = now_ns + (unsigned)comm->config->heartbeat_ms * HA_NS_PER_MS;
	due_ns = ha_earlier_ns(due_ns, ha_stall_visit(comm, now_ns));
	due_ns = ha_earlier_ns(due_ns, ha_latency_visit(comm, now_ns));
	comm->poller.due_ns = ha_earlier_ns(comm->poller.due_ns, due_ns);
}

/* Polls for an application that does not do so itself. Under the token. */
static enum ha_poll_result poll_for_application(struct ha_comm *comm)
{
	int n;

	if (comm->outstanding == 0)
		return HA_POLL_IDLE;
	if (comm->config->use_progress_thread == HA_POLLS_NONE)
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
	uint64_t completions = comm->count.completions - comm->life.lifeless;
	uint64_t life = completions << 8 | comm->active;

	if (comm->outstanding == 0)
		comm->life.idle_ns = ha_now_ns();
	if (atomic_load_explicit(&comm->life.seen, memory_order_relaxed) == life)
		return;
	comm->life.alive_ns = ha_now_ns();
	atomic_store_explicit(&comm->life.seen, life, memory_order_relaxed);
}

/* It is stopped and drains, or is to prove itself while traffic stands still. */
static bool takes_microseconds(const struct ha_comm *comm, const struct ha_path *path)
{
	return !ha_path_away(path) &&
	       (ha_path_stopped(path) || (comm->epoch_changing && path->probe_busy));
}

/* Whether something is waited for that comes from a queue, and not from a NIC's command or the
 * peer. Under the token. */
static bool waits_for_queue(const struct ha_comm *comm)
{
	for (unsigned i = 0; i < comm->npaths && ha_comm_has_failover(comm); i++)
		if (comm->paths[i] && takes_microseconds(comm, comm->paths[i]))
			return true;
	return ha_latency_waits(comm);
}

/* Under the token. */
static void look_after_flushes(struct ha_comm *comm)
{
	ha_flush_prepare(comm);
	ha_flush_old_visit(comm);
}

/* Under the token. */
static enum ha_poll_result visit_connection(struct ha_comm *comm)
{
	ha_result_t error;
	enum ha_poll_result found;

	ha_comm_take_events(comm);
	ha_ctrl_sock_read(comm->ctrl_sock);
	error = ha_comm_error(comm);
	if (error == HA_OK && comm->outstanding != 0 &&
	    (comm->settling || (bye_overdue(comm) && ha_comm_waits_for_peer(comm)))) {
		ha_comm_settle_on(comm);
		return HA_POLL_EMPTY;
	}
	if (ha_comm_has_failover(comm)) {
		ha_comm_poll_standby(comm);
		/* Messages and probes come over the active path, too, when nobody polls it for
		 * requests.
		 */
		if ((comm->epoch_changing || comm->outstanding == 0) &&
		    ha_path_ready(comm->paths[comm->active]))
			(void)ha_comm_poll_path(comm, comm->paths[comm->active], comm->poll_batch);
		ha_comm_note_life(comm);
	}
	comm->poller.due_ns = comm->ops->visit(comm);
	ha_rail_agent_visit(comm);
	ha_rail_shares_visit(comm);
	ha_stripe_visit(comm);
	if (comm->recv && ha_comm_has_failover(comm))
		look_after_flushes(comm);
	/* Memory that was being registered is, whoever completes requests. */
	if (ha_comm_error(comm) == HA_OK)
		ha_comm_pump(comm);
	if (ha_comm_has_failover(comm))
		look_for_timeouts(comm);
	found = error == HA_OK ? poll_for_application(comm) : HA_POLL_IDLE;
	/* Traffic waits for that, and a queue that works is drained before a tick is over. */
	return waits_for_queue(comm) ? HA_POLL_SOON : found;
}

/*
 * All that a visit by the tick does on a connection that is idle, but for now and then: messages
 * may come over a path whose bootstrap socket broke at the other end only. With very many
 * connections nothing of this is in a cache, and each line that is looked at costs more than what
 * is done with it; everything else that may happen calls the poller. False: there is more to do.
 */
static bool quick_check(struct ha_comm *comm)
{
	bool quiet = false;

	if (comm->poller.asked || ha_comm_error(comm) != HA_OK ||
	    (comm->poller.quiet_visits + 1) % QUICK_CHECKS_PER_VISIT == 0 || !ha_token_try(comm))
		return false;
	if (comm->outstanding == 0 && !comm->epoch_changing && ha_path_ready(ha_comm_path(comm)))
		quiet = ha_comm_poll_path(comm, ha_comm_path(comm), comm->poll_batch) == 0;
	ha_token_release(comm);
	return quiet;
}

enum ha_poll_result ha_comm_visit(struct ha_poller *poller)
{
	struct ha_comm *comm = ha_container_of(poller, struct ha_comm, poller);
	enum ha_poll_result found;
	uint64_t report_ns;

	if (quick_check(comm))
		return HA_POLL_IDLE;
	/* The application has it all the time while it polls, and never for long. */
	if (!ha_token_try(comm) && !ha_token_ask(comm))
		return poller->asked ? HA_POLL_SOON : HA_POLL_WATCHED;
	poller->due_ns = 0;
	found = visit_connection(comm);
	ha_comm_check(comm);
	if (comm->epoch_changing)
		ha_comm_stats_hold(comm);
	ha_token_release(comm);
	/* What this visit changed is to be seen soon, also if the connection is idle from now on.
	 */
	report_ns = ha_comm_stats_publish(comm);
	if (report_ns != 0 && (poller->due_ns == 0 || poller->due_ns > report_ns))
		poller->due_ns = report_ns;
	return found;
}
