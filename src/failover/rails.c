/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/rails.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/usdt.h"
#include "event/event.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/message.h"
#include "failover/notes.h"
#include "failover/path_select.h"
#include "failover/path_slot.h"
#include "failover/port_pair.h"
#include "failover/signaling.h"
#include "transport/comm.h"
#include "transport/comm_event.h"
#include "transport/recv.h"
#include "transport/replay.h"
#include "transport/stripe.h"
#include "transport/turn.h"

/* ---- who carries ----------------------------------------------------------------------------- */

/* So many messages say whether they are large, or as many bytes as so many that are. */
#define JUDGED 4

/* Between others a rail would carry what two messages need. */
bool ha_rails_has(const struct ha_comm *comm, struct ha_pair pair)
{
	return pair.port == pair.peer_port && pair.port < ha_comm_rails(comm) &&
	       pair.peer_port < comm->failover->peer_ports.rails;
}

static bool may_carry(const struct ha_comm *comm, unsigned p)
{
	const struct ha_slot *slot = &comm->failover->slots[p];

	return ha_path_ready(comm->paths[p]) && slot->state == HA_SLOT_GOOD &&
	       ha_rails_has(comm, ha_pair_of(slot)) && !ha_path_select_is_silent(comm, p) &&
	       ha_pair_drained(comm, ha_pair_of(slot)) == 0;
}

/*
 * Not while a row names what was lost of this slot: it may be of another NIC, whose keys are
 * others, and a row says of a generation only what tells it from the ones just before.
 */
static bool may_join(struct ha_comm *comm, unsigned p)
{
	struct ha_failover *fo = comm->failover;

	if (!ha_rails_is_lost(comm, p) && comm->recv->done.base >= fo->rails[p].named_end)
		return true;
	fo->rails_join_end = fo->rails[p].named_end;
	return false;
}

/* On a rail that none of them is on. */
static bool is_apart(const struct ha_comm *comm, unsigned p, unsigned others)
{
	const struct ha_slot *slots = comm->failover->slots;

	for (unsigned q = 0; q < HA_MAX_PATHS; q++)
		if (others >> q & 1 &&
		    ha_pair_shared(ha_pair_of(&slots[p]), ha_pair_of(&slots[q])) != 0)
			return false;
	return true;
}

/*
 * Rows that name several paths cost more, so a connection with small messages is as any other. One
 * message says nothing, and where they are near the threshold what was so stays so.
 */
bool ha_rails_judge(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;
	uint64_t from, messages, bytes;
	bool was;

	if (!r || !(comm->features & HA_FEATURE_RAILS))
		return false;
	from = ha_stripe_from(comm->port->bundle);
	messages = comm->count.messages - r->seen_messages;
	bytes = comm->count.bytes - r->seen_bytes;
	if (messages < JUDGED && bytes < JUDGED * 8 * from)
		return false;
	r->seen_messages = comm->count.messages;
	r->seen_bytes = comm->count.bytes;
	was = r->large;
	r->large = bytes / messages >= (was ? from : 2 * from);
	return r->large != was;
}

bool ha_rails_may_join(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return fo->rails_join_end != 0 && comm->recv->done.base >= fo->rails_join_end;
}

static void choose(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	const unsigned active = 1u << comm->active;
	unsigned mask = 0;

	if (!(comm->features & HA_FEATURE_RAILS) || !fo->resumed || fo->turn.pending)
		return;
	fo->rails_join_end = 0;
	(void)ha_rails_judge(comm);
	/* A path that is about to be left brings no others in. */
	if (comm->recv->large && may_carry(comm, comm->active))
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			if (p != comm->active && may_carry(comm, p) && may_join(comm, p) &&
			    is_apart(comm, p, mask | active))
				mask |= 1u << p;
	ha_stripe_members(comm, mask);
}

/* ---- the loss of one ------------------------------------------------------------------------- */

/* A fence of a healthy NIC takes less than a millisecond, one without its word 50; then an answer.
 */
#define SHED_NS (500 * HA_NS_PER_MS)

/* SUSPECT is said again after this, until SHED answers it. */
#define SAY_AGAIN_MS 10

/* clang-format off */
static const uint8_t table[HA_RAIL_COUNT][HA_RAIL_EVENT_COUNT] = {
#define ROW(state, lost, fenced, mended, epoch)                                                    \
	[HA_RAIL_##state] = {                                                                      \
		[HA_RAIL_ON_LOST] = HA_RAIL_##lost, [HA_RAIL_ON_FENCED] = HA_RAIL_##fenced,        \
		[HA_RAIL_ON_MENDED] = HA_RAIL_##mended, [HA_RAIL_ON_EPOCH] = HA_RAIL_##epoch},
	/*            LOST      FENCED  MENDED  EPOCH */
	ROW(WHOLE,    SHEDDING, COUNT,  COUNT,  WHOLE)
	ROW(SHEDDING, COUNT,    SHED,   COUNT,  WHOLE)
	ROW(SHED,     COUNT,    COUNT,  WHOLE,  WHOLE)
#undef ROW
};
/* clang-format on */

enum ha_rail_state ha_rail_next(enum ha_rail_state state, enum ha_rail_event event)
{
	return (enum ha_rail_state)table[state][event];
}

static struct ha_rail *rail_of(struct ha_comm *comm, unsigned p)
{
	return &comm->failover->rails[p];
}

/* The only writer of the state. */
static void on(struct ha_comm *comm, unsigned p, enum ha_rail_event event)
{
	static const char *const names[] = {
#define NAME(name, text) text,
	    HA_RAIL_STATES(NAME)
#undef NAME
	};
	struct ha_rail *rail = rail_of(comm, p);
	enum ha_rail_state next = ha_rail_next((enum ha_rail_state)rail->state, event);

	HA_INVARIANT(next != HA_RAIL_COUNT);
	if (next == rail->state || next == HA_RAIL_COUNT)
		return;
	HA_TRACE(1, "connection %s: path %u.%u is %s", comm->name, p, rail->generation,
		 names[next]);
	rail->state = (uint8_t)next;
	/* What is said has changed: at once, and then at short intervals again. */
	ha_signaling_new_statement(comm);
	ha_say(comm, HA_SAY_STATEMENT);
}

bool ha_rails_is_lost(const struct ha_comm *comm, unsigned p)
{
	return comm->failover->rails[p].state != HA_RAIL_WHOLE;
}

bool ha_rails_lack(const struct ha_comm *comm)
{
	if (!(comm->features & HA_FEATURE_SHED))
		return false;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_rails_is_lost(comm, p))
			return true;
	return false;
}

/* ---- whose turn it is ------------------------------------------------------------------------ */

/* One that carries or did, and is well: where the active one is in doubt no row names another. At a
 * sender any rail: the receiver knows. */
static bool may_take_place(const struct ha_comm *comm, unsigned q)
{
	const struct ha_slot *slot = &comm->failover->slots[q];

	if (q == comm->active)
		return false;
	if (!comm->is_send)
		return ha_carries(comm, q) && may_carry(comm, q);
	return ha_path_ready(comm->paths[q]) && ha_slot_is_up(slot) &&
	       ha_rails_has(comm, ha_pair_of(slot));
}

/* The path that would take the active one's place, rather of a rail that comes first; -1: none. */
static int next_in_turn(const struct ha_comm *comm)
{
	const struct ha_slot *slots = comm->failover->slots;
	int next = -1;

	for (unsigned q = 0; q < HA_MAX_PATHS; q++)
		if (may_take_place(comm, q) && (next < 0 || slots[q].port < slots[next].port))
			next = (int)q;
	return next;
}

static bool may_turn(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return comm->features & HA_FEATURE_TURN && fo->state == HA_FO_ACTIVE &&
	       (comm->is_send || fo->resumed) && !ha_rails_lack(comm) &&
	       ha_rails_has(comm, ha_pair_of(&fo->slots[comm->active])) && next_in_turn(comm) >= 0;
}

bool ha_rails_may_shed(const struct ha_comm *comm, unsigned p)
{
	if (!(comm->features & HA_FEATURE_SHED) || comm->failover->turn.pending)
		return false;
	return p != comm->active || may_turn(comm);
}

/* Before anything is fenced. */
static void begin_turn(struct ha_comm *comm)
{
	struct ha_rail_turn *turn = &comm->failover->turn;
	const int next = next_in_turn(comm);

	*turn = (struct ha_rail_turn){.pending = true, .from = ha_event_path(ha_comm_path(comm))};
	if (comm->is_send)
		return;
	HA_INVARIANT(next >= 0);
	turn->to = (uint8_t)next;
	turn->to_gen = comm->paths[next]->generation;
}

/* Still the one that was named. */
static bool can_turn(const struct ha_comm *comm)
{
	const struct ha_rail_turn *turn = &comm->failover->turn;
	const struct ha_path *path = comm->paths[turn->to];

	return turn->to != comm->active && ha_path_ready(path) &&
	       path->generation == turn->to_gen &&
	       ha_rails_has(comm, ha_pair_of(&comm->failover->slots[turn->to]));
}

/*
 * Of a fence that is known. Where a NIC does not confirm its own, nothing turns: notices are the
 * same after a turn, and rows of before could come after it.
 */
static bool is_enough(const struct ha_comm *comm, unsigned p)
{
	const struct ha_failover *fo = comm->failover;

	return p != comm->active || fo->slots[p].fenced_gen >= fo->rails[p].generation;
}

/* ---- telling people -------------------------------------------------------------------------- */

/* The rail that a slot is on which carried: it stays so until what was lost is mended. */
static unsigned rail_number(const struct ha_comm *comm, unsigned p)
{
	const struct ha_pair pair = ha_pair_of(&comm->failover->slots[p]);

	HA_INVARIANT(pair.port < ha_comm_rails(comm));
	return pair.port;
}

static struct nccl_ha_shed_stats *count_of(struct ha_comm *comm, unsigned p)
{
	return &comm->striped.sheds[rail_number(comm, p)];
}

/* The path itself may be gone. */
static struct ha_event event_of(struct ha_comm *comm, unsigned p, enum ha_event_kind kind)
{
	const struct ha_port *port = comm->port->bundle->rails[rail_number(comm, p)];
	const struct ha_rail *rail = rail_of(comm, p);
	struct ha_event event = ha_event_init(kind, (enum ha_reason)rail->reason);

	event.again = true; /* a rail may come and go */
	event.from =
	    (struct ha_event_path){port->nic->name, port->port_num, (int)p, rail->generation};
	event.epoch = comm->failover->epoch;
	return event;
}

static void tell_shed(struct ha_comm *comm, unsigned p)
{
	const struct ha_event event = event_of(comm, p, HA_EVENT_SHED);

	HA_USDT5(rail_shed, ha_comm_number(comm), (int)comm->is_send, ha_reason_text(event.reason),
		 p, event.from.generation);
	count_of(comm, p)->sheds++;
	ha_event_report(comm, &event);
}

/* What this end has sent again: nothing, at a receiver. */
static void tell_mended(struct ha_comm *comm, unsigned p, const struct ha_replay *replay)
{
	struct ha_event event = event_of(comm, p, HA_EVENT_MENDED);
	struct nccl_ha_shed_stats *count = count_of(comm, p);

	HA_USDT6(rail_mended, ha_comm_number(comm), (int)comm->is_send, p, event.from.generation,
		 replay->messages, replay->bytes);
	event.completed_without_resend = replay->known;
	event.replayed_messages = replay->messages;
	event.replayed_bytes = replay->bytes;
	count->mends++;
	count->mended_stripes += replay->messages;
	count->mended_bytes += replay->bytes;
	ha_event_report(comm, &event);
}

/* ---- an end loses one ------------------------------------------------------------------------ */

/* Sender: has the receiver know, and what is fenced here. */
static void suspect(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_rail *rail = rail_of(comm, p);

	ha_say(comm, ha_say_of(HA_SAY_SUSPECT, p));
	rail->say_interval_ms = SAY_AGAIN_MS;
	rail->say_again_ns = now_ns + SAY_AGAIN_MS * HA_NS_PER_MS;
}

static void lose(struct ha_comm *comm, unsigned p, uint32_t generation, enum ha_reason reason)
{
	struct ha_rail *rail = rail_of(comm, p);
	const uint64_t now_ns = ha_now_ns();

	HA_INVARIANT(generation > rail->generation);
	if (p == comm->active)
		begin_turn(comm);
	rail->generation = generation;
	rail->reason = (uint8_t)reason;
	rail->lost_ns = now_ns;
	rail->stated = false;
	on(comm, p, HA_RAIL_ON_LOST);
	if (comm->is_send) {
		suspect(comm, p, now_ns);
	} else {
		rail->named_end = comm->recv->cts_seq;
		ha_stripe_members(comm, comm->recv->members & ~(1u << p));
	}
	ha_slot_fence(comm, p, generation);
	tell_shed(comm, p);
}

void ha_rails_lost(struct ha_comm *comm, unsigned p, enum ha_reason reason)
{
	HA_INVARIANT(ha_carries(comm, p) && ha_rails_may_shed(comm, p));
	lose(comm, p, comm->paths[p]->generation, reason);
}

void ha_rails_end(struct ha_comm *comm)
{
	comm->failover->turn.pending = false;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		on(comm, p, HA_RAIL_ON_EPOCH);
}

/* ---- mending --------------------------------------------------------------------------------- */

/* False: what was lost cannot be posted again in this epoch. */
static bool post_again(struct ha_comm *comm, unsigned p, struct ha_replay *replay)
{
	struct ha_rail_turn *turn = &comm->failover->turn;
	const struct ha_rail *rail = rail_of(comm, p);

	if (p != comm->active)
		return ha_stripe_mend(comm, p, &rail->done, rail->seen, replay);
	if (!can_turn(comm) || !ha_send_turn(comm, turn->to, &rail->done, turn->seen, replay))
		return false;
	turn->pending = false;
	return true;
}

/* Sender, of a path that is fenced here: when it is known what has come over it. */
static void mend(struct ha_comm *comm, unsigned p)
{
	struct ha_rail *rail = rail_of(comm, p);
	struct ha_replay replay = {0};

	if (rail->state != HA_RAIL_SHED || !rail->stated)
		return;
	if (!post_again(comm, p, &replay)) {
		if (ha_comm_error(comm) == HA_OK) /* no other rail can take it */
			ha_failover_leave(comm, (enum ha_reason)rail->reason);
		return;
	}
	rail->mended_gen = rail->generation;
	on(comm, p, HA_RAIL_ON_MENDED);
	ha_say(comm, HA_SAY_MENDED);
	tell_mended(comm, p, &replay);
}

/* Which path is to take the control rail's place, and what has come of what that carried. */
static void take_turn(struct ha_rail_turn *turn, const struct ha_message *m)
{
	if (m->path < HA_MAX_PATHS) {
		turn->to = m->path;
		turn->to_gen = m->generation;
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		turn->seen[p] = m->seen[p];
}

/* What the receiver says of path p, which is lost. */
static void take_statement(struct ha_comm *comm, unsigned p, const struct ha_message *m)
{
	struct ha_rail *rail = rail_of(comm, p);

	if (!(m->drained >> p & 1) || m->fenced_gen[p] != rail->generation)
		return; /* of what is mended, or not final yet */
	rail->stated = true;
	rail->done = m->window;
	rail->seen = m->seen[p];
	if (p == comm->active)
		take_turn(&comm->failover->turn, m);
	mend(comm, p);
}

/* Not repeated, or of what the peer cannot mean. */
static bool is_news(const struct ha_comm *comm, unsigned p, uint32_t generation)
{
	const struct ha_rail *rail = &comm->failover->rails[p];
	const struct ha_slot *slot = &comm->failover->slots[p];

	return rail->state == HA_RAIL_WHOLE && generation > rail->generation &&
	       generation == slot->newest_gen && ha_rails_has(comm, ha_pair_of(slot)) &&
	       ha_rails_may_shed(comm, p);
}

void ha_rails_hear_shed(struct ha_comm *comm, const struct ha_message *m)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_rail *rail = rail_of(comm, p);

		if (!(m->lost >> p & 1))
			continue;
		if (m->fenced_gen[p] <= rail->mended_gen) /* it has not heard */
			ha_say(comm, HA_SAY_MENDED);
		if (is_news(comm, p, m->fenced_gen[p]))
			lose(comm, p, m->fenced_gen[p],
			     m->reason ? (enum ha_reason)m->reason : HA_REASON_PEER);
		if (rail->state != HA_RAIL_WHOLE)
			take_statement(comm, p, m);
	}
}

/* The sender has turned. */
static void turn_too(struct ha_comm *comm)
{
	ha_recv_turn(comm, comm->failover->turn.to);
	comm->failover->turn.pending = false;
}

void ha_rails_hear_mended(struct ha_comm *comm, const struct ha_message *m)
{
	static const struct ha_replay nothing;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		if (rail_of(comm, p)->state != HA_RAIL_SHED ||
		    m->mended_gen[p] < rail_of(comm, p)->generation)
			continue;
		if (p == comm->active && !can_turn(comm)) {
			ha_failover_leave(comm, (enum ha_reason)rail_of(comm, p)->reason);
			continue;
		}
		if (p == comm->active)
			turn_too(comm);
		on(comm, p, HA_RAIL_ON_MENDED);
		tell_mended(comm, p, &nothing);
	}
}

/* Which path takes the control rail's place. */
static void name_turn(const struct ha_comm *comm, struct ha_message *m)
{
	const struct ha_rail_turn *turn = &comm->failover->turn;

	if (comm->is_send || !turn->pending)
		return;
	m->path = turn->to;
	m->generation = turn->to_gen;
}

/* Path p is lost and fenced: which of its stripes have come, and of those that it carried for
 * others.
 */
static void fill_seen(const struct ha_comm *comm, struct ha_message *m, unsigned p)
{
	m->seen[p] = ha_stripe_seen(comm, p);
	if (p != comm->active)
		return;
	for (unsigned q = 0; q < HA_MAX_PATHS; q++)
		m->seen[q] = ha_stripe_seen(comm, q);
}

void ha_rails_fill(const struct ha_comm *comm, struct ha_message *m)
{
	name_turn(comm, m);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_rail *rail = &comm->failover->rails[p];

		m->mended_gen[p] = rail->mended_gen;
		if (rail->state == HA_RAIL_WHOLE || comm->is_send)
			continue;
		m->reason = rail->reason;
		m->lost |= (uint8_t)(1u << p);
		if (rail->state != HA_RAIL_SHED)
			continue;
		m->drained |= (uint8_t)(1u << p);
		fill_seen(comm, m, p);
	}
}

/* ---- visits ---------------------------------------------------------------------------------- */

static void visit_lost(struct ha_comm *comm, unsigned p, uint64_t now_ns)
{
	struct ha_rail *rail = rail_of(comm, p);

	if (rail->state == HA_RAIL_SHEDDING && !ha_slot_waits(comm, p)) {
		if (!is_enough(comm, p)) {
			ha_failover_leave(comm, (enum ha_reason)rail->reason);
			return;
		}
		on(comm, p, HA_RAIL_ON_FENCED);
		if (comm->is_send && !rail->stated)
			suspect(comm, p, now_ns); /* now with the fence */
	}
	if (comm->is_send)
		mend(comm, p);
	if (!ha_rails_is_lost(comm, p))
		return;
	if (comm->is_send && !rail->stated && now_ns >= rail->say_again_ns) {
		rail->say_interval_ms = ha_signaling_repeat(comm, ha_say_of(HA_SAY_SUSPECT, p),
							    2 * rail->say_interval_ms, now_ns);
		rail->say_again_ns = now_ns + rail->say_interval_ms * HA_NS_PER_MS;
	}
	if (now_ns >= rail->lost_ns + SHED_NS)
		ha_failover_leave(comm, (enum ha_reason)rail->reason);
}

void ha_rails_visit(struct ha_comm *comm, uint64_t now_ns)
{
	if (comm->failover->state != HA_FO_ACTIVE)
		return;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_rails_is_lost(comm, p))
			visit_lost(comm, p, now_ns);
	if (!comm->is_send)
		choose(comm);
}
