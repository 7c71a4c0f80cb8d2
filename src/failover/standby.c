/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/standby.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "base/log.h"
#include "device/rank.h"
#include "failover/engine.h"
#include "failover/failback.h"
#include "failover/notes.h"
#include "failover/path_build.h"
#include "failover/path_select.h"
#include "failover/port_pair.h"
#include "failover/rails.h"
#include "failover/repair.h"
#include "failover/shared.h"
#include "failover/signaling.h"
#include "failover/witness.h"
#include "transport/comm.h"
#include "transport/comm_event.h"
#include "transport/path_msg.h"
#include "transport/rail_island.h"
#include "transport/shared.h"

#include <limits.h>
#include <stdlib.h>

/* How long the peer may take to make its end. One that is frozen is waited for. */
#define ANSWER_MS 3000

/* REBUILD is said again after this. */
#define SAY_AGAIN_MS 20
/* How often a slot on its way up is looked at. A peer that does not answer may take for ever, so a
 * time that has passed already would keep a processor busy. */
#define VISIT_NS HA_NS_PER_MS

/*
 * A pair that failed is left alone for BACKOFF_MIN_MS, twice as long after each further failure, up
 * to BACKOFF_MAX_MS while traffic flows elsewhere, and OUTAGE_MAX_MS while it does not.
 */
#define BACKOFF_MIN_MS 50ull
#define BACKOFF_MAX_MS 5000
#define OUTAGE_MAX_MS  200

/* A path that works again this soon after it was left had not failed. */
#define FALSE_ALARM_NS	      (500 * HA_NS_PER_MS)
#define FALSE_ALARMS_TO_WIDEN 3

/* A better path in reserve has to last for so long before what it replaces is given back. */
#define SURPLUS_NS (200 * HA_NS_PER_MS)

/* A drained port speaks more against a path than both it may share with the active one. */
#define DRAINED_FAULTS 3u

struct backoff {
	uint8_t failures;
	uint64_t until_ns; /* 0: not backing off */
};

struct ha_standby {
	struct backoff pairs[HA_MAX_OFFERS][HA_MAX_OFFERS]; /* ours, the peer's */
	uint64_t say_again_ns[HA_MAX_PATHS];
	uint32_t say_interval_ms[HA_MAX_PATHS];
	bool proved; /* a probe came back since the last visit */
	struct ha_failback failback;
	/* Was the path that was left last healthy all the time? */
	struct ha_pair left;
	uint64_t left_ns; /* 0: answered */
};

/* ---- life ---------------------------------------------------------------------------------- */

/* Ours, the preferred one first. The first path may have had to begin on another. */
static void rank_ports(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	const struct ha_port *begun_on = comm->paths[0]->port;
	const struct ha_rail_choice choice = {comm->port, comm->rail_alone};
	uint8_t n;

	n = (uint8_t)ha_standby_rank(comm->inst->devices, comm->port,
				     comm->is_send ? comm->id : comm->peer_id, fo->offers,
				     HA_MAX_OFFERS);
	n = (uint8_t)ha_rail_island_keep(&choice, fo->offers, n);
	for (fo->noffers = n; n-- > 0;)
		if (fo->offers[n] == begun_on)
			break;
	if (n == UINT8_MAX) /* so many ports, and this one the last choice */
		fo->offers[n = (uint8_t)(fo->noffers - 1)] = comm->paths[0]->port;
	fo->slots[0].port = n;
}

ha_result_t ha_standby_open(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	rank_ports(comm);
	for (unsigned i = 0; i < fo->noffers; i++)
		comm->ports |= ha_port_bit(fo->offers[i]);
	if (comm->is_send)
		return HA_OK;
	fo->standby = calloc(1, sizeof(*fo->standby));
	if (!fo->standby) {
		HA_WARN("out of memory for a connection's paths in reserve");
		return HA_ERR_SYSTEM;
	}
	ha_failback_init(&fo->standby->failback);
	return HA_OK;
}

void ha_standby_free(struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		ha_path_build_unwatch(comm, p);
	free(comm->failover->standby);
	comm->failover->standby = NULL;
}

/* ---- failures of pairs ----------------------------------------------------------------------- */

static struct backoff *backoff_of(struct ha_comm *comm, struct ha_pair pair)
{
	return &comm->failover->standby->pairs[pair.port][pair.peer_port];
}

void ha_standby_failed(struct ha_comm *comm, unsigned p)
{
	struct backoff *b = backoff_of(comm, ha_pair_of(&comm->failover->slots[p]));
	uint64_t max_ms = comm->failover->state == HA_FO_ACTIVE ? BACKOFF_MAX_MS : OUTAGE_MAX_MS;
	uint64_t ms = (uint64_t)BACKOFF_MIN_MS << (b->failures < 8 ? b->failures : 8);

	ha_repair_failed(comm, p);
	if (b->failures < UINT8_MAX)
		b->failures++;
	b->until_ns = ha_now_ns() + (ms < max_ms ? ms : max_ms) * HA_NS_PER_MS;
	/* Where no REBUILD follows, nothing else would tell the sender to give its end back. */
	comm->failover->say |= HA_SAY_STATE;
}

void ha_standby_retry(struct ha_comm *comm, unsigned p)
{
	if (comm->failover->standby)
		backoff_of(comm, ha_pair_of(&comm->failover->slots[p]))->until_ns = 0;
	comm->failover->look = true;
}

static void give_up(struct ha_comm *comm, unsigned p, const char *why)
{
	const struct ha_path *path = comm->paths[p];

	HA_INFO_LIMITED(HA_SUBSYS_NET, "connection %s: path %u.%u on %s:%d is not usable: %s",
			comm->name, p, path->generation, path->nic->name, path->port->port_num,
			why);
	ha_standby_failed(comm, p);
	ha_slot_fence(comm, p, path->generation);
}

static void forget_unreachable(struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_unreachable *all = &comm->inst->unreachable;

	for (unsigned i = 0; i < fo->noffers; i++)
		if (fo->renewed & 1u << i)
			ha_unreachable_forget(all,
					      &(struct ha_unreachable_key){.port = fo->offers[i]});
	for (unsigned j = 0; j < fo->peer_ports.count; j++)
		if (fo->peer_renewed & 1u << j)
			ha_unreachable_forget(
			    all, &(struct ha_unreachable_key){.gid = fo->peer_ports.offers[j].gid});
}

/* Something says that these ports work now: no reason to wait with what they are part of. */
static void reset_backoffs(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	if (!(fo->renewed | fo->peer_renewed))
		return;
	forget_unreachable(comm);
	for (unsigned i = 0; i < HA_MAX_OFFERS; i++)
		for (unsigned j = 0; j < HA_MAX_OFFERS; j++)
			if (fo->renewed & 1u << i || fo->peer_renewed & 1u << j)
				fo->standby->pairs[i][j].until_ns = 0;
	fo->renewed = fo->peer_renewed = 0;
}

static void expire(struct ha_comm *comm, uint64_t now_ns)
{
	for (unsigned i = 0; i < HA_MAX_OFFERS; i++)
		for (unsigned j = 0; j < HA_MAX_OFFERS; j++)
			if (comm->failover->standby->pairs[i][j].until_ns <= now_ns)
				comm->failover->standby->pairs[i][j].until_ns = 0;
}

/* ---- building ------------------------------------------------------------------------------ */

static bool in_use(const struct ha_comm *comm, struct ha_pair pair)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->failover->slots[p].state != HA_SLOT_EMPTY &&
		    ha_pair_shared(ha_pair_of(&comm->failover->slots[p]), pair) == 2)
			return true;
	return false;
}

/* The best pair that is not in use. What it shares with `other`, if any, counts most. */
static bool best_pair(struct ha_comm *comm, const struct ha_pair *other, uint64_t now_ns,
		      struct ha_pair *out)
{
	const struct ha_failover *fo = comm->failover;
	uint32_t best_cost = HA_PAIR_NEVER;

	for (uint8_t i = 0; i < fo->noffers; i++)
		for (uint8_t j = 0; j < fo->peer_ports.count; j++) {
			struct ha_pair pair = {i, j};
			unsigned shared = other ? ha_pair_shared(pair, *other) : 0;
			uint32_t cost = ha_pair_cost(comm, pair);

			if (cost == HA_PAIR_NEVER || shared == 2 || in_use(comm, pair) ||
			    now_ns < backoff_of(comm, pair)->until_ns)
				continue;
			cost += shared * HA_PAIR_SHARED_COST;
			if (cost < best_cost) {
				best_cost = cost;
				*out = pair;
			}
		}
	return best_cost != HA_PAIR_NEVER;
}

/* A slot to build in: one that is empty, fenced and mended, rather the one that had this pair
 * before. */
static int free_slot(const struct ha_comm *comm, struct ha_pair pair)
{
	const struct ha_failover *fo = comm->failover;
	int found = -1;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot *slot = &fo->slots[p];

		if (comm->paths[p] || slot->yielded || slot->state != HA_SLOT_EMPTY ||
		    slot->fenced_gen < slot->want_gen || ha_rails_is_lost(comm, p))
			continue;
		if (slot->newest_gen != 0 && ha_pair_shared(ha_pair_of(slot), pair) == 2)
			return (int)p;
		/* One that was never used before one that was: its heartbeats tell when it is back.
		 */
		if (found < 0 || slot->newest_gen < fo->slots[found].newest_gen)
			found = (int)p;
	}
	return found;
}

/* What a path in reserve is worth: drained ports are worst, then those it has in common with the
 * active one. As best_pair sees it. */
static unsigned faults_of(const struct ha_comm *comm, struct ha_pair pair)
{
	struct ha_pair active = ha_pair_of(&comm->failover->slots[comm->active]);

	return DRAINED_FAULTS * ha_pair_drained(comm, pair) + ha_pair_shared(pair, active);
}

/* Of a path in reserve. The sender gives its end back when it hears of it. */
static void give_back(struct ha_comm *comm, unsigned p)
{
	HA_INVARIANT(!ha_carries(comm, p));
	ha_slot_fence(comm, p, comm->failover->slots[p].newest_gen);
	ha_path_build_unwatch(comm, p);
	comm->failover->say |= HA_SAY_STATE;
}

/* While traffic stands still each may be the one that answers, and drained ports alone count: what
 * it has in common with the path that failed does not matter to best_pair then, either. */
static unsigned faults_where_taken(const struct ha_comm *comm, struct ha_pair pair)
{
	return comm->failover->state == HA_FO_ACTIVE ? faults_of(comm, pair)
						     : DRAINED_FAULTS * ha_pair_drained(comm, pair);
}

/*
 * Every slot is taken: the path in reserve that is worth least goes, if it is worth less than this
 * pair. By the order in which pairs are chosen, or what went would be built next, and go again.
 */
static void make_room(struct ha_comm *comm, struct ha_pair pair)
{
	unsigned faults = faults_where_taken(comm, pair);
	int worst = -1;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot *slot = &comm->failover->slots[p];

		if (ha_carries(comm, p) || !ha_slot_is_up(slot) ||
		    faults_where_taken(comm, ha_pair_of(slot)) <= faults)
			continue;
		faults = faults_where_taken(comm, ha_pair_of(slot));
		worst = (int)p;
	}
	if (worst >= 0)
		give_back(comm, (unsigned)worst);
}

static uint8_t nqps_on(const struct ha_comm *comm, const struct ha_port *port)
{
	const struct ha_failover *fo = comm->failover;
	uint8_t nqps = port->bundle == comm->port->bundle ? fo->rail_nqps[port->rail] : 0;

	return nqps ? nqps : fo->nqps;
}

static bool build(struct ha_comm *comm, struct ha_pair pair)
{
	struct ha_failover *fo = comm->failover;
	int p = free_slot(comm, pair);
	struct ha_path_plan plan = {.port = pair.port, .peer_port = pair.peer_port};

	if (p < 0) {
		make_room(comm, pair);
		return false;
	}
	plan.generation = fo->slots[p].newest_gen + 1;
	plan.nqps = nqps_on(comm, fo->offers[pair.port]);
	if (ha_path_build_open(comm, (unsigned)p, &plan))
		return true;
	ha_standby_failed(comm, (unsigned)p);
	return false;
}

/* Our end is there: the peer is to make its own. */
void ha_standby_opened(struct ha_comm *comm, unsigned p)
{
	struct ha_failover *fo = comm->failover;
	uint64_t now_ns = ha_now_ns();

	HA_INVARIANT(!comm->is_send);
	ha_slot_on(comm, p, HA_SLOT_ON_OPENED);
	fo->slots[p].deadline_ns = now_ns + ANSWER_MS * HA_NS_PER_MS;
	fo->standby->say_interval_ms[p] = SAY_AGAIN_MS;
	fo->standby->say_again_ns[p] = now_ns + SAY_AGAIN_MS * HA_NS_PER_MS;
	fo->say |= ha_say_of(HA_SAY_REBUILD, p);
}

static void say_again(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_standby *standby = comm->failover->standby;
	uint32_t next_ms = ha_signaling_repeat(comm, ha_say_of(HA_SAY_REBUILD, p),
					       standby->say_interval_ms[p], now_ns);

	standby->say_interval_ms[p] = next_ms;
	standby->say_again_ns[p] = now_ns + next_ms * HA_NS_PER_MS;
}

static bool is_on_its_way(const struct ha_comm *comm, unsigned p)
{
	return p != comm->active && ha_slot_is_on_its_way(&comm->failover->slots[p]);
}

static bool is_building(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (is_on_its_way(comm, p))
			return true;
	return false;
}

/* A rail beside the active one carries as soon as messages are large. Beside a path that is no rail
 * of the bundle none does: there it is a path in reserve as any other. */
static bool wants_rail(const struct ha_comm *comm, struct ha_pair pair)
{
	const struct ha_pair active = ha_pair_of(&comm->failover->slots[comm->active]);

	return comm->features & HA_FEATURE_RAILS && ha_rails_has(comm, active) &&
	       ha_rails_has(comm, pair) && ha_pair_shared(pair, active) == 0 &&
	       ha_pair_cost(comm, pair) < HA_PAIR_DRAINED_COST;
}

/* Of a bundle: rail i with rail i, where no path is and one may be. */
static bool missing_rail(struct ha_comm *comm, uint64_t now_ns, struct ha_pair *out)
{
	for (uint8_t i = 0; i < ha_comm_rails(comm); i++) {
		struct ha_pair pair = {i, i};

		if (!wants_rail(comm, pair) || in_use(comm, pair) ||
		    now_ns < backoff_of(comm, pair)->until_ns)
			continue;
		*out = pair;
		return true;
	}
	return false;
}

/*
 * While traffic flows: one path in reserve that shares as little as possible with the active one.
 * One that is on its way is hoped for, and nothing is built beside it but what is better: where
 * nobody answers it takes a second to fail.
 */
static void build_standby(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	struct ha_pair active = ha_pair_of(&fo->slots[comm->active]), pair;
	unsigned fewest = UINT_MAX;

	if (missing_rail(comm, now_ns, &pair) && build(comm, pair))
		return;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		unsigned n = faults_of(comm, ha_pair_of(&fo->slots[p]));

		if (p != comm->active &&
		    (ha_path_select_can_carry(comm, p) || is_on_its_way(comm, p)) && n < fewest)
			fewest = n;
	}
	if (fewest == 0 || !best_pair(comm, &active, now_ns, &pair) ||
	    faults_of(comm, pair) >= fewest)
		return;
	(void)build(comm, pair);
}

/* As many as there is room for, the best first: as best_pair sees them. */
static void build_all(struct ha_comm *comm, const struct ha_pair *other, uint64_t now_ns)
{
	struct ha_pair pair;

	for (unsigned i = 0; i < HA_MAX_PATHS; i++)
		if (!best_pair(comm, other, now_ns, &pair) || !build(comm, pair))
			return;
}

/* Traffic flows on another one and is to go back to it. */
static bool misses_preferred(struct ha_comm *comm, uint64_t now_ns)
{
	return ha_failback_wants_preferred(&comm->failover->standby->failback, comm, now_ns) &&
	       !in_use(comm, ha_pair_preferred);
}

/* ---- giving back ----------------------------------------------------------------------------- */

static bool is_in_reserve(const struct ha_comm *comm, unsigned p)
{
	return p != comm->active && ha_path_select_can_carry(comm, p) &&
	       !ha_path_select_is_silent(comm, p);
}

/* The cheapest in reserve that no single failure takes together with the active path; -1: none. */
static int best_in_reserve(const struct ha_comm *comm)
{
	uint32_t best_cost = HA_PAIR_NEVER;
	int best = -1;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_pair pair = ha_pair_of(&comm->failover->slots[p]);

		if (!is_in_reserve(comm, p) || faults_of(comm, pair) != 0 ||
		    ha_pair_cost(comm, pair) >= best_cost)
			continue;
		best_cost = ha_pair_cost(comm, pair);
		best = (int)p;
	}
	return best;
}

/* One beside it, which costs memory and queue pairs for nothing; -1: none, or the active path has
 * not answered yet, and whether the best does is not known either. */
static int surplus_beside(const struct ha_comm *comm, int best, uint64_t now_ns)
{
	const struct ha_failover *fo = comm->failover;

	if (fo->links[comm->active].asked_ns != 0)
		return -1;
	for (unsigned p = 0; best >= 0 && p < HA_MAX_PATHS; p++)
		if (!ha_carries(comm, p) && (int)p != best && ha_slot_is_up(&fo->slots[p]) &&
		    !wants_rail(comm, ha_pair_of(&fo->slots[p])) &&
		    !(ha_pair_shared(ha_pair_of(&fo->slots[p]), ha_pair_preferred) == 2 &&
		      ha_failback_wants_preferred(&fo->standby->failback, comm, now_ns)))
			return (int)p;
	return -1;
}

/* When the first of what is too much is to be given back; 0: there is none. */
static uint64_t surplus_due_ns(const struct ha_comm *comm, uint64_t now_ns)
{
	int best = best_in_reserve(comm);

	return surplus_beside(comm, best, now_ns) < 0
		   ? 0
		   : comm->failover->slots[best].up_ns + SURPLUS_NS;
}

/* The rail that it stood in for is back. */
static void give_back_surplus(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	int best = best_in_reserve(comm), p = surplus_beside(comm, best, now_ns);

	if (p < 0 || fo->slots[best].up_ns == 0 || now_ns < fo->slots[best].up_ns + SURPLUS_NS)
		return;
	HA_INVARIANT(p != best);
	HA_TRACE(1, "connection %s: path %d.%u is given back: path %d.%u is in its place",
		 comm->name, p, fo->slots[p].newest_gen, best, fo->slots[best].newest_gen);
	give_back(comm, (unsigned)p);
}

/* ---- one thing after the other --------------------------------------------------------------- */

static void build_in_reserve(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_pair active = ha_pair_of(&comm->failover->slots[comm->active]);

	give_back_surplus(comm, now_ns);
	if (ha_witness_is_wanted(comm, now_ns))
		build_all(comm, &active, now_ns);
	else if (is_building(comm) || !misses_preferred(comm, now_ns) ||
		 now_ns < backoff_of(comm, ha_pair_preferred)->until_ns ||
		 !build(comm, ha_pair_preferred))
		build_standby(comm, now_ns);
}

/* Beside the fence of those that broke, in a slot of their own. */
static void build_in_place(struct ha_comm *comm)
{
	struct ha_pair pair = comm->failover->repair.pair;

	if (!in_use(comm, pair))
		(void)build(comm, pair);
}

/* While traffic stands still: what it waits for. True: there is a path to go on with, as an answer
 * came or the hold-off time is over. */
static bool build_next(struct ha_comm *comm, uint64_t now_ns)
{
	bool found = ha_path_select_best(comm) >= 0;

	if (!found && ha_repair_is_under_way(comm, now_ns))
		build_in_place(comm);
	else if (!found && !ha_path_select_awaits_answer(comm))
		build_all(comm, NULL, now_ns); /* the failed pair itself included */
	return found;
}

void ha_standby_rebuilt(struct ha_comm *comm, const struct ha_message *m)
{
	const struct ha_slot *slot = &comm->failover->slots[m->path];
	const struct ha_path *path = comm->paths[m->path];

	if (slot->state != HA_SLOT_REBUILDING || !path || path->generation != m->generation)
		return; /* repeated, or of one we gave up */
	if (ha_path_build_connect(comm, m->path, &m->endpoint) != HA_OK)
		ha_standby_not_connected(comm, m->path);
}

void ha_standby_connected(struct ha_comm *comm, unsigned p)
{
	struct ha_slot *slot = &comm->failover->slots[p];

	slot->deadline_ns = ha_now_ns() + (uint64_t)comm->rto_ms * HA_NS_PER_MS;
	ha_path_probe(comm, comm->paths[p]);
	comm->failover->due_ns = 1;
}

void ha_standby_not_connected(struct ha_comm *comm, unsigned p)
{
	give_up(comm, p, "our end could not be connected");
}

void ha_standby_refused(struct ha_comm *comm, const struct ha_message *m)
{
	const struct ha_path *path = comm->paths[m->path];

	if (comm->failover->slots[m->path].state == HA_SLOT_REBUILDING && path &&
	    path->generation == m->generation)
		give_up(comm, m->path, "the peer cannot make its end");
}

/* ---- what came of it ------------------------------------------------------------------------ */

void ha_standby_proved(struct ha_comm *comm)
{
	comm->failover->standby->proved = true;
}

/* Three false alarms in a row: the soft timeout is too short for this network. */
static void false_alarm(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	uint32_t wider = comm->rto_ms + comm->rto_ms / 2;

	comm->count.false_alarms++;
	if (++fo->false_alarms < FALSE_ALARMS_TO_WIDEN || comm->rto_ms >= HA_RTO_MAX_MS)
		return;
	fo->false_alarms = 0;
	if (wider > HA_RTO_MAX_MS)
		wider = HA_RTO_MAX_MS;
	HA_WARN(
	    "connection %s: %d times in a row a path was healthy right after it was left for want "
	    "of completions: the soft timeout goes from %u to %u ms (HA_NCCL_RTO_MS)",
	    comm->name, FALSE_ALARMS_TO_WIDEN, comm->rto_ms, wider);
	comm->rto_ms = wider;
}

static void came_up(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	struct ha_standby *standby = fo->standby;
	struct ha_slot *slot = &fo->slots[p];
	struct ha_event event = ha_event_init(HA_EVENT_RECOVERY, HA_REASON_NONE);

	HA_INVARIANT(ha_slot_is_up(slot) && comm->paths[p]);
	slot->up_ns = now_ns;
	*backoff_of(comm, ha_pair_of(slot)) = (struct backoff){0};
	if (standby->left_ns != 0 && ha_pair_shared(standby->left, ha_pair_of(slot)) == 2) {
		if (now_ns - standby->left_ns < FALSE_ALARM_NS)
			false_alarm(comm);
		else
			fo->false_alarms = 0;
		standby->left_ns = 0;
	}
	event.to = ha_event_path(comm->paths[p]);
	ha_event_report(comm, &event);
	/* Over the new path, too: the sender may use it for messages now. */
	fo->say |= HA_SAY_STATE;
}

/*
 * A slot on its way up to a port that is of no use any more, at either end. Where the port's NIC is
 * sick, what was asked of it may take a minute, and an end that waits for it says nothing.
 */
static bool is_hopeless(const struct ha_comm *comm, const struct ha_slot *slot)
{
	return (slot->state == HA_SLOT_OPENING || slot->state == HA_SLOT_REBUILDING) &&
	       ha_pair_cost(comm, ha_pair_of(slot)) == HA_PAIR_NEVER;
}

static void give_up_hopeless(struct ha_comm *comm, unsigned p)
{
	struct ha_slot *slot = &comm->failover->slots[p];

	if (!is_hopeless(comm, slot))
		return;
	HA_TRACE(1, "connection %s: path %u.%u is not built: a port of it is of no use now",
		 comm->name, p, slot->newest_gen);
	ha_standby_failed(comm, p);
	ha_slot_fence(comm, p, slot->newest_gen);
}

/*
 * Its probe came back once, and heartbeats go between its ports: only a message shows that its
 * queue pair does nothing any more. One that is under way for longer than traffic may be shows
 * that.
 */
static bool is_wedged(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	const struct ha_path *path = comm->paths[p];

	if (p == comm->active || !ha_path_ready(path) || path->msgs_out == 0) {
		slot->msg_ns = 0;
		return false;
	}
	if (slot->msg_ns == 0 || slot->msg_done != path->qps[0].sq_done) {
		slot->msg_ns = now_ns;
		slot->msg_done = path->qps[0].sq_done;
	}
	return now_ns - slot->msg_ns > comm->rto_ms * HA_NS_PER_MS;
}

static void wedged(struct ha_comm *comm, unsigned p)
{
	static const char why[] = "a message over it does not get there";

	if (ha_carries(comm, p))
		ha_failover_trigger(comm, comm->paths[p], HA_REASON_SOFT_TIMEOUT, "%s", why);
	else
		give_up(comm, p, why);
}

/* When a message has to be there; 0: none is under way. */
static uint64_t message_due_ns(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	uint64_t due_ns = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && ha_slot_is_up(&fo->slots[p]) &&
		    ha_path_ready(comm->paths[p]) && comm->paths[p]->msgs_out != 0)
			due_ns = ha_earlier_ns(
			    due_ns, (fo->slots[p].msg_ns ? fo->slots[p].msg_ns : fo->tick_ns) +
					comm->rto_ms * HA_NS_PER_MS + VISIT_NS);
	return due_ns;
}

/* Slots on their way up: what takes too long is given up. */
static void visit_slot(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	struct ha_slot *slot = &fo->slots[p];

	give_up_hopeless(comm, p);
	switch (slot->state) {
	case HA_SLOT_REBUILDING:
		if (ha_signaling_peer_frozen(comm, now_ns))
			slot->deadline_ns = now_ns + ANSWER_MS * HA_NS_PER_MS;
		if (now_ns >= slot->deadline_ns) {
			give_up(comm, p, "the peer does not answer");
		} else if (now_ns >= fo->standby->say_again_ns[p]) {
			say_again(comm, p, now_ns);
		}
		break;
	case HA_SLOT_PROBING:
		if (now_ns >= slot->deadline_ns)
			give_up(comm, p, "the probe does not come back");
		else
			ha_path_probe(comm, comm->paths[p]); /* if there was no room before */
		break;
	case HA_SLOT_GOOD:
	case HA_SLOT_SUSPECTED:
		if (slot->up_ns == 0)
			came_up(comm, p, now_ns);
		if (is_wedged(comm, p, now_ns))
			wedged(comm, p);
		break;
	default:
		break;
	}
}

/* ---- visits -------------------------------------------------------------------------------- */

bool ha_standby_visit(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	bool proved = fo->standby->proved;

	fo->standby->proved = false;
	if (fo->peer_ports.count == 0)
		return false; /* PORTS has not come yet */
	reset_backoffs(comm);
	expire(comm, now_ns);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		visit_slot(comm, p, now_ns);
	if (fo->state == HA_FO_FENCING)
		proved |= build_next(comm, now_ns);
	if (fo->state == HA_FO_ACTIVE && fo->resumed && !fo->turn.pending) {
		if (now_ns >= ha_hold_off_until_ns(&comm->inst->failover_shared->hold_off, now_ns))
			build_in_reserve(comm, now_ns);
		ha_failback_visit(&fo->standby->failback, comm, now_ns);
	}
	return proved;
}

void ha_standby_drain(struct ha_comm *comm)
{
	ha_failback_drained(&comm->failover->standby->failback);
	comm->failover->look = true;
}

void ha_standby_return(struct ha_comm *comm)
{
	ha_failback_ask(&comm->failover->standby->failback, ha_now_ns());
	comm->failover->look = true;
}

void ha_standby_left(struct ha_comm *comm)
{
	struct ha_standby *standby = comm->failover->standby;
	enum ha_reason reason = comm->failover->now.reason;

	if (reason != HA_REASON_FAILBACK && reason != HA_REASON_OPERATOR)
		ha_failback_failed(&standby->failback, ha_now_ns());
	standby->left_ns = 0;
	if (reason == HA_REASON_SOFT_TIMEOUT) {
		standby->left = ha_pair_of(&comm->failover->slots[comm->active]);
		standby->left_ns = ha_now_ns();
	}
}

uint64_t ha_standby_due_ns(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	const struct ha_standby *standby = fo->standby;
	uint64_t due_ns;

	if (standby->proved)
		return fo->tick_ns + VISIT_NS;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot *slot = &fo->slots[p];

		if (slot->state == HA_SLOT_OPENING || slot->state == HA_SLOT_REBUILDING ||
		    slot->state == HA_SLOT_PROBING)
			return fo->tick_ns + VISIT_NS;
	}
	due_ns = ha_earlier_ns(ha_failback_due_ns(&standby->failback, comm), message_due_ns(comm));
	if (ha_failback_wants_preferred(&standby->failback, comm, fo->tick_ns))
		due_ns = ha_earlier_ns(due_ns, standby->pairs[0][0].until_ns);
	if (ha_path_select_has_standby(comm))
		return ha_earlier_ns(due_ns, surplus_due_ns(comm, fo->tick_ns));
	/* Unprotected: as soon as a pair that might do may be tried. */
	for (uint8_t i = 0; i < fo->noffers; i++)
		for (uint8_t j = 0; j < fo->peer_ports.count; j++)
			if (ha_pair_cost(comm, (struct ha_pair){i, j}) != HA_PAIR_NEVER)
				due_ns = ha_earlier_ns(due_ns, standby->pairs[i][j].until_ns);
	return due_ns;
}
