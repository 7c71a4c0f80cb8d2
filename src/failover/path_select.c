/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/path_select.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/port_pair.h"
#include "failover/rails.h"
#include "failover/repair.h"
#include "liveness/session_report.h"
#include "transport/comm.h"
#include "transport/shared.h"

/* A path in reserve that is in doubt itself comes last, and after this long at the earliest. */
#define DOUBT_COST 1000000u
#define HOLDOFF_NS (30 * HA_NS_PER_MS)

/* An answer to a heartbeat takes less, unless there will be none. */
#define ANSWER_NS (5 * HA_NS_PER_MS)

bool ha_path_select_is_silent(const struct ha_comm *comm, unsigned p)
{
	const struct ha_session *session = comm->failover->links[p].live.session;

	return session && ha_session_state(session) == HA_SESSION_DOWN;
}

static bool is_up(const struct ha_comm *comm, unsigned p)
{
	return ha_slot_is_up(&comm->failover->slots[p]) && ha_path_ready(comm->paths[p]);
}

bool ha_path_select_can_carry(const struct ha_comm *comm, unsigned p)
{
	return is_up(comm, p) && !ha_path_select_is_silent(comm, p);
}

/* A probe came back since the heartbeats were given up: in an outage that is worth a try. */
static bool was_proved_since(const struct ha_comm *comm, unsigned p)
{
	const struct ha_failover *fo = comm->failover;

	return is_up(comm, p) && ha_path_select_is_silent(comm, p) &&
	       fo->slots[p].proved_ns > ha_session_down_ns(fo->links[p].live.session);
}

/* Its heartbeats are overdue as well: what killed the active path may have killed this one. */
static bool is_suspected(const struct ha_failover *fo, unsigned p)
{
	const struct ha_session *session = fo->links[p].live.session;

	return session && ha_session_state(session) == HA_SESSION_SUSPECTED;
}

/* A session that was never up can prove nothing, whatever the path is like. */
static bool has_heartbeats(const struct ha_failover *fo, unsigned p)
{
	const struct ha_session *session = fo->links[p].live.session;

	return session && ha_session_state(session) != HA_SESSION_INIT;
}

static bool lacks_proof(const struct ha_failover *fo, unsigned p)
{
	const struct ha_path_select *select = &fo->path_select;

	return select->wants_proof && has_heartbeats(fo, p) &&
	       fo->slots[p].proved_ns < select->since_ns &&
	       ha_session_asked_ns(fo->links[p].live.session) < select->since_ns;
}

static bool is_doubtful(const struct ha_comm *comm, unsigned p)
{
	const struct ha_failover *fo = comm->failover;

	return is_suspected(fo, p) || lacks_proof(fo, p) || ha_path_select_is_silent(comm, p);
}

/* Building another one takes a few milliseconds, finding out that this one is dead half a second.
 */
static bool holds_off(const struct ha_comm *comm)
{
	uint64_t agreed_ns = comm->failover->path_select.agreed_ns;

	return agreed_ns == 0 || ha_now_ns() - agreed_ns < HOLDOFF_NS;
}

/*
 * What was asked later than this and answered was answered after the failure. All that is known in
 * general is that it failed before it was noticed. Where its heartbeats were given up they know
 * more, but no failure is looked back for further than three intervals allow.
 */
static uint64_t failed_before_ns(const struct ha_comm *comm, uint64_t now_ns)
{
	uint64_t most_ns = (unsigned)comm->config->heartbeat_ms * HA_NS_PER_MS * 3 / 2;
	uint64_t failed_ns;

	if (!ha_path_select_is_silent(comm, comm->active) || now_ns <= most_ns)
		return now_ns;
	failed_ns = ha_session_failed_before_ns(comm->failover->links[comm->active].live.session);
	return failed_ns > now_ns - most_ns ? failed_ns : now_ns - most_ns;
}

void ha_path_select_begin(struct ha_comm *comm, enum ha_reason reason)
{
	struct ha_failover *fo = comm->failover;
	uint64_t now_ns = ha_now_ns();

	fo->path_select = (struct ha_path_select){
	    .wants_proof = ha_reason_is_silence(reason),
	    .since_ns = failed_before_ns(comm, now_ns),
	    .begun_ns = now_ns,
	};
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && ha_path_select_can_carry(comm, p) && lacks_proof(fo, p))
			ha_liveness_ask(comm->inst->liveness, &fo->links[p].live);
}

void ha_path_select_agreed(struct ha_comm *comm)
{
	struct ha_path_select *select = &comm->failover->path_select;

	if (select->agreed_ns == 0)
		select->agreed_ns = ha_now_ns();
}

static bool may_be_answered(const struct ha_comm *comm)
{
	return ha_now_ns() - comm->failover->path_select.begun_ns < ANSWER_NS;
}

bool ha_path_select_left_answers(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return !is_suspected(fo, comm->active) && !ha_path_select_is_silent(comm, comm->active) &&
	       (!lacks_proof(fo, comm->active) || may_be_answered(comm));
}

bool ha_path_select_awaits_answer(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	if (!may_be_answered(comm))
		return false;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_path_select_can_carry(comm, p) && !is_suspected(fo, p) &&
		    lacks_proof(fo, p) && ha_pair_drained(comm, ha_pair_of(&fo->slots[p])) == 0)
			return true;
	return false;
}

/*
 * What it costs to go on over path p. Rather over one that shares no port with the path that
 * failed: what failed may be more than the pair, as when a switch dies silently, and the sessions
 * of the others have not noticed yet. Whoever only goes back has left nothing that failed.
 */
static uint32_t cost_after(const struct ha_comm *comm, unsigned p)
{
	const struct ha_failover *fo = comm->failover;
	const struct ha_pair pair = ha_pair_of(&fo->slots[p]),
			     left = ha_pair_of(&fo->slots[comm->active]);
	uint32_t cost = ha_pair_cost(comm, pair);

	if (cost == HA_PAIR_NEVER || fo->now.reason == HA_REASON_FAILBACK)
		return cost;
	return cost + HA_PAIR_SHARED_COST * ha_pair_shared(pair, left);
}

/*
 * What carried on all rails of a bundle has to be built again, and a pair that crosses may be there
 * first: it would carry alone until the next failure.
 */
static bool awaits_rail(const struct ha_comm *comm, uint32_t cost)
{
	const struct ha_failover *fo = comm->failover;

	if (!(comm->features & HA_FEATURE_RAILS) || !holds_off(comm))
		return false;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_slot_is_on_its_way(&fo->slots[p]) &&
		    ha_rails_has(comm, ha_pair_of(&fo->slots[p])) && cost_after(comm, p) < cost)
			return true;
	return false;
}

int ha_path_select_best(const struct ha_comm *comm)
{
	const bool repairs = ha_repair_is_under_way(comm, ha_now_ns());
	uint32_t best_cost = HA_PAIR_NEVER;
	int best = -1;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		uint32_t cost;

		if ((!ha_path_select_can_carry(comm, p) && !was_proved_since(comm, p)) ||
		    (repairs && !ha_repair_is_on_path(comm, p)))
			continue;
		cost = cost_after(comm, p);
		if (cost == HA_PAIR_NEVER)
			continue;
		if (is_doubtful(comm, p))
			cost += DOUBT_COST;
		if (cost < best_cost) {
			best_cost = cost;
			best = (int)p;
		}
	}
	if (best >= 0 &&
	    ((best_cost >= DOUBT_COST && holds_off(comm)) || awaits_rail(comm, best_cost)))
		return -1;
	return best;
}

bool ha_path_select_is_better(const struct ha_comm *comm, unsigned p)
{
	const struct ha_failover *fo = comm->failover;

	return p != comm->active && ha_path_select_can_carry(comm, p) &&
	       ha_pair_cost(comm, ha_pair_of(&fo->slots[p])) <
		   ha_pair_cost(comm, ha_pair_of(&fo->slots[comm->active]));
}

int ha_path_select_healthy(const struct ha_comm *comm, unsigned most_drained)
{
	uint32_t best_cost = HA_PAIR_NEVER;
	int best = -1;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_pair pair = ha_pair_of(&comm->failover->slots[p]);
		uint32_t cost;

		if (p == comm->active || !ha_path_select_can_carry(comm, p) ||
		    is_suspected(comm->failover, p) || ha_pair_drained(comm, pair) > most_drained)
			continue;
		cost = ha_pair_cost(comm, pair);
		if (cost < best_cost) {
			best_cost = cost;
			best = (int)p;
		}
	}
	return best;
}

bool ha_path_select_has_standby(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && ha_path_select_can_carry(comm, p) &&
		    ha_pair_drained(comm, ha_pair_of(&comm->failover->slots[p])) == 0 &&
		    ha_pair_shared(ha_pair_of(&comm->failover->slots[p]),
				   ha_pair_of(&comm->failover->slots[comm->active])) == 0)
			return true;
	return false;
}
