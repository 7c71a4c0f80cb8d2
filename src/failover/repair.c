/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/repair.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/path_select.h"
#include "failover/port_pair.h"
#include "liveness/liveness.h"
#include "transport/comm.h"
#include "transport/recv.h"
#include "transport/shared.h"

#include <string.h>

/*
 * A repair takes both ends a few commands of their NICs and four ways over the network: under a
 * millisecond where commands are quick, six where they take as long as a ConnectX's. One that takes
 * much longer is worse than a change of port. A port whose queue pairs break again and again is
 * sick, whatever its heartbeats say.
 */
static const struct rule {
	uint8_t times; /* so often in a window; 0: what is left for this is not repaired */
	uint16_t window_ms, timeout_ms;
} rules[HA_REASON_COUNT] = {
    [HA_REASON_QP_FATAL] = {.times = HA_REPAIR_MOST, .window_ms = 10000, .timeout_ms = 20},
    [HA_REASON_CQ_ERROR] = {.times = HA_REPAIR_MOST, .window_ms = 10000, .timeout_ms = 20},
    [HA_REASON_COMPLETION] = {.times = HA_REPAIR_MOST, .window_ms = 10000, .timeout_ms = 20},
    [HA_REASON_POST] = {.times = 1, /* it is rather memory than a queue pair */
			.window_ms = 10000,
			.timeout_ms = 20},
};

static unsigned times_since(const struct ha_repair *repair, uint64_t since_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < HA_REPAIR_MOST; i++)
		n += repair->begun_ns[i] != 0 && repair->begun_ns[i] > since_ns;
	return n;
}

bool ha_repair_is_on_path(const struct ha_comm *comm, unsigned p)
{
	const struct ha_failover *fo = comm->failover;

	return ha_pair_shared(ha_pair_of(&fo->slots[p]), fo->repair.pair) == 2;
}

/* Messages that have come over the connection. */
static uint64_t received(const struct ha_comm *comm)
{
	const struct ha_window *done = &comm->recv->done;

	return done->base + (uint64_t)__builtin_popcountll(done->bits);
}

/* Since it was repaired last nothing has come through: that was no repair. */
static bool was_in_vain(const struct ha_comm *comm, uint64_t since_ns)
{
	const struct ha_repair *repair = &comm->failover->repair;

	return repair->last_ns > since_ns && repair->received == received(comm);
}

/* On other ports than the last one. */
static void begin_anew(struct ha_repair *repair, struct ha_pair pair)
{
	repair->pair = pair;
	memset(repair->begun_ns, 0, sizeof(repair->begun_ns));
}

void ha_repair_begin(struct ha_comm *comm, enum ha_reason reason)
{
	struct ha_repair *repair = &comm->failover->repair;
	const struct rule *rule = &rules[reason < HA_REASON_COUNT ? reason : HA_REASON_NONE];
	uint64_t now_ns = ha_now_ns(), window_ns = rule->window_ms * HA_NS_PER_MS;
	uint64_t since_ns = now_ns > window_ns ? now_ns - window_ns : 0;

	if (!ha_repair_is_on_path(comm, comm->active))
		begin_anew(repair, ha_pair_of(&comm->failover->slots[comm->active]));
	repair->until_ns = 0;
	if (times_since(repair, since_ns) >= rule->times || was_in_vain(comm, since_ns))
		return;
	repair->last_ns = now_ns;
	repair->received = received(comm);
	repair->begun_ns[repair->next] = now_ns;
	repair->next = (uint8_t)((repair->next + 1) % HA_REPAIR_MOST);
	repair->until_ns = now_ns + rule->timeout_ms * HA_NS_PER_MS;
	ha_liveness_ask(comm->inst->liveness, &comm->failover->links[comm->active].live);
}

/* Both ports are up, nobody wants them left alone, and their heartbeats are answered. */
static bool ports_are_well(const struct ha_comm *comm)
{
	return ha_pair_cost(comm, comm->failover->repair.pair) < HA_PAIR_DRAINED_COST &&
	       ha_path_select_left_answers(comm);
}

bool ha_repair_is_under_way(const struct ha_comm *comm, uint64_t now_ns)
{
	const struct ha_failover *fo = comm->failover;

	return fo->state == HA_FO_FENCING && now_ns < fo->repair.until_ns && ports_are_well(comm);
}

void ha_repair_failed(struct ha_comm *comm, unsigned p)
{
	if (ha_repair_is_on_path(comm, p))
		comm->failover->repair.until_ns = 0;
}
