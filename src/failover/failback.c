/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/failback.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/notes.h"
#include "failover/path_select.h"
#include "failover/port_pair.h"
#include "transport/comm.h"

/* The hold doubles each time the path fails again within HOLD_RESET of going back to it. */
#define HOLD_MIN_MS   1000
#define HOLD_MAX_MS   60000
#define HOLD_RESET_NS (60 * HA_NS_PER_S)

void ha_failback_init(struct ha_failback *back)
{
	*back = (struct ha_failback){.hold_ms = HOLD_MIN_MS};
}

void ha_failback_ask(struct ha_failback *back, uint64_t now_ns)
{
	back->return_until_ns = now_ns + HA_FAILBACK_ASKED_MS * HA_NS_PER_MS;
}

void ha_failback_failed(struct ha_failback *back, uint64_t now_ns)
{
	if (back->failed_ns == 0)
		back->failed_ns = now_ns;
}

void ha_failback_drained(struct ha_failback *back)
{
	back->drained_now = true;
}

/* ---- what is better, and how soon ------------------------------------------------------------ */

static struct ha_pair pair_at(const struct ha_comm *comm, unsigned p)
{
	return ha_pair_of(&comm->failover->slots[p]);
}

static bool is_preferred(struct ha_pair pair)
{
	return ha_pair_shared(pair, ha_pair_preferred) == 2;
}

/* It could carry traffic, as far as ports go, and nobody wants it left alone. */
static bool preferred_is_possible(const struct ha_comm *comm)
{
	return ha_pair_cost(comm, ha_pair_preferred) < HA_PAIR_DRAINED_COST;
}

/* Of two bundles: over a pair that crosses rails one path carries all, where all rails might. */
static bool is_crossed(const struct ha_comm *comm)
{
	return comm->features & HA_FEATURE_RAILS &&
	       ha_pair_crosses_rails(comm, pair_at(comm, comm->active));
}

static bool wants_back(const struct ha_comm *comm)
{
	return comm->config->enable_failback || is_crossed(comm);
}

static bool leaves_drained(const struct ha_comm *comm, unsigned p)
{
	return ha_pair_drained(comm, pair_at(comm, p)) <
	       ha_pair_drained(comm, pair_at(comm, comm->active));
}

/* 0: there is nothing to go to on path p, or nobody wants it. */
static uint64_t ready_ns(const struct ha_failback *back, const struct ha_comm *comm, unsigned p)
{
	uint64_t up_ns = comm->failover->slots[p].up_ns;

	if (up_ns == 0 || !ha_path_select_is_better(comm, p))
		return 0;
	if (leaves_drained(comm, p))
		return back->drained_now ? up_ns : up_ns + back->hold_ms * HA_NS_PER_MS;
	if (back->return_until_ns != 0 &&
	    (is_preferred(pair_at(comm, p)) || !preferred_is_possible(comm)))
		return up_ns;
	return wants_back(comm) ? up_ns + back->hold_ms * HA_NS_PER_MS : 0;
}

bool ha_failback_wants_preferred(const struct ha_failback *back, const struct ha_comm *comm,
				 uint64_t now_ns)
{
	return (wants_back(comm) || now_ns < back->return_until_ns) &&
	       !is_preferred(pair_at(comm, comm->active)) && preferred_is_possible(comm);
}

uint64_t ha_failback_due_ns(const struct ha_failback *back, const struct ha_comm *comm)
{
	uint64_t due_ns = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		uint64_t at_ns = ready_ns(back, comm, p);

		if (at_ns != 0 && (due_ns == 0 || at_ns < due_ns))
			due_ns = at_ns;
	}
	return due_ns;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Measured to the failure: the hold itself, which may be as long as HOLD_RESET, is no time that the
 * path was good. */
static void widen(struct ha_failback *back)
{
	if (back->failed_ns == 0 || back->back_ns == 0 ||
	    back->failed_ns - back->back_ns >= HOLD_RESET_NS)
		back->hold_ms = HOLD_MIN_MS;
	else if (back->hold_ms < HOLD_MAX_MS / 2)
		back->hold_ms *= 2;
	else
		back->hold_ms = HOLD_MAX_MS;
}

/* What was asked for is there, or has taken too long. */
static void forget_requests(struct ha_failback *back, const struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_pair active = pair_at(comm, comm->active);

	if (now_ns >= back->return_until_ns || is_preferred(active))
		back->return_until_ns = 0;
	if (ha_pair_drained(comm, active) == 0)
		back->drained_now = false;
}

void ha_failback_visit(struct ha_failback *back, struct ha_comm *comm, uint64_t now_ns)
{
	bool drained, asked;
	uint64_t due_ns;

	forget_requests(back, comm, now_ns);
	due_ns = ha_failback_due_ns(back, comm);
	if (due_ns == 0 || now_ns < due_ns)
		return;
	drained = ha_pair_drained(comm, pair_at(comm, comm->active)) != 0;
	asked = drained ? back->drained_now : back->return_until_ns != 0;
	if (!asked) {
		widen(back);
		back->back_ns = now_ns;
		back->failed_ns = 0;
	}
	back->drained_now = false;
	back->return_until_ns = 0;
	ha_failover_leave(comm, drained ? HA_REASON_OPERATOR : HA_REASON_FAILBACK);
}
