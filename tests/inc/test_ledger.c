/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members' records, first one by one, then put together in memory with a leader's decision, a
 * switch for each epoch and a ring that settles what only some have. The switch loses everything at
 * any step; then the next one adds in another order, so that a sum that is computed again has other
 * bits. Whatever happens, each member's elements are those of one order, when the request is
 * complete; then its memory is overwritten, as it is the application's again.
 *
 * A send reads its memory when it delivers, and again when it is acknowledged: a buffer that was
 * handed back or written to in between is found.
 */
#include "../unit/cmocka_all.h"

#include "../reduce/oracle.h"
#include "../seeded_random.h"

#include "inc/cut.h"
#include "inc/lane.h"
#include "inc/ledger.h"

#include <stdlib.h>
#include <string.h>

/* ---- one record ----------------------------------------------------------------------------- */

static struct ha_ledger one;

static void begin(unsigned int window, unsigned int copies)
{
	ha_ledger_init(&one, &(struct ha_ledger_shape){1, window, copies});
}

static void post(uint64_t unit, enum ha_ledger_place place, enum ha_ledger_source from)
{
	uint64_t next;

	assert_true(ha_ledger_next(&one, 0, 1, &next));
	assert_true(next == unit);
	assert_int_equal(ha_ledger_post(&one, unit, place), from);
}

static void send_all(uint64_t first, uint64_t end, enum ha_ledger_place place)
{
	for (uint64_t u = first; u < end; u++) {
		post(u, place, HA_LEDGER_CONTRIBUTION);
		assert_true(ha_ledger_sent(&one, u));
	}
}

static struct ha_fenced said(void)
{
	struct ha_fenced said;

	assert_true(ha_ledger_say(&one, &said));
	return said;
}

static enum ha_ledger_verdict resume(uint32_t epoch, uint64_t retired, uint64_t taken,
				     uint64_t lacked, uint16_t owner)
{
	struct ha_resume resume = {epoch, retired, taken, lacked, {0}};

	for (unsigned int i = 0; i < HA_DECISION_UNITS; i++)
		resume.owner[i] = owner;
	return ha_ledger_resume(&one, &resume);
}

static void nothing_is_sent_that_FENCED_could_not_say(void **state)
{
	uint64_t next;

	(void)state;
	begin(HA_DECISION_UNITS, 0);
	ha_ledger_issue(&one, 100);
	for (uint64_t u = 0; u < HA_DECISION_UNITS; u++) {
		send_all(u, u + 1, HA_LEDGER_APART);
		assert_true(ha_ledger_has(&one, u));
	}
	assert_true(ha_ledger_word(&one) == HA_DECISION_UNITS);
	assert_false(ha_ledger_next(&one, 0, 1, &next));
	assert_true(ha_ledger_retire(&one, 1));
	send_all(64, 65, HA_LEDGER_APART);
	assert_false(ha_ledger_next(&one, 0, 1, &next));
	assert_true(ha_ledger_has(&one, 64));
	assert_true(ha_ledger_fence(&one, 1));
	assert_true(said().retired == 1 && said().have == UINT64_MAX && said().sent == UINT64_MAX);
	assert_int_equal(resume(1, 65, 0, 0, 0), HA_LEDGER_FINE);
	assert_true(ha_ledger_fence(&one, 2));
	assert_true(said().retired == 65 && said().have == 0 && said().sent == 0);
}

static void a_member_is_no_further_than_the_window_beyond_its_results(void **state)
{
	uint64_t next;

	(void)state;
	begin(2, 0);
	ha_ledger_issue(&one, 9);
	send_all(0, 2, HA_LEDGER_APART);
	assert_false(ha_ledger_next(&one, 0, 1, &next));
	assert_true(ha_ledger_has(&one, 1)); /* over another lane */
	assert_false(ha_ledger_next(&one, 0, 1, &next));
	assert_true(ha_ledger_has(&one, 0));
	send_all(2, 4, HA_LEDGER_APART);
	assert_false(ha_ledger_next(&one, 0, 1, &next));
}

static void a_place_in_the_shadow_is_not_filled_while_it_is_read(void **state)
{
	uint64_t next;

	(void)state;
	begin(1, 0);
	ha_ledger_issue(&one, 2);
	post(0, HA_LEDGER_SHADOWED, HA_LEDGER_TO_SHADOW);
	assert_true(ha_ledger_has(&one, 0));
	assert_true(ha_ledger_retire(&one, 1));
	assert_false(ha_ledger_next(&one, 0, 1, &next));
	assert_true(ha_ledger_sent(&one, 0));
	post(1, HA_LEDGER_SHADOWED, HA_LEDGER_TO_SHADOW);
}

static void what_was_sent_is_of_the_epoch_that_ends(void **state)
{
	(void)state;
	begin(2, 0);
	ha_ledger_issue(&one, 2);
	send_all(0, 1, HA_LEDGER_DIRECT);
	assert_true(ha_ledger_fence(&one, 1));
	assert_true(said().epoch == 1 && said().sent == 1 && said().direct == 1);
	assert_true(ha_ledger_fence(&one, 1)); /* said again */
	assert_true(said().sent == 1);
	assert_true(ha_ledger_fence(&one, 2)); /* RESUME of epoch 1 has not come */
	assert_true(said().epoch == 2 && said().sent == 0 && said().direct == 1);
	assert_false(ha_ledger_fence(&one, 1));
}

static void RESUME_counts_in_its_own_epoch_and_once(void **state)
{
	(void)state;
	begin(2, 0);
	ha_ledger_issue(&one, 2);
	assert_int_equal(resume(0, 0, 0, 0, 0), HA_LEDGER_STALE);
	assert_true(ha_ledger_fence(&one, 2));
	assert_int_equal(resume(1, 0, 0, 0, 0), HA_LEDGER_STALE);
	assert_int_equal(resume(3, 0, 0, 0, 0), HA_LEDGER_STALE);
	assert_int_equal(one.state, HA_LEDGER_FENCED);
	assert_int_equal(resume(2, 0, 0, 0, 0), HA_LEDGER_FINE);
	assert_int_equal(resume(2, 0, 0, 0, 0), HA_LEDGER_STALE);
}

static void what_contradicts_the_record_is_refused(void **state)
{
	(void)state;
	begin(2, 0);
	ha_ledger_issue(&one, 2);
	assert_false(ha_ledger_has(&one, 0)); /* not contributed to */
	assert_false(ha_ledger_sent(&one, 0));
	assert_int_equal(ha_ledger_forward(&one, 0), HA_LEDGER_NOTHING);
	assert_int_equal(ha_ledger_post(&one, 2, HA_LEDGER_APART), HA_LEDGER_NOTHING);
	send_all(0, 2, HA_LEDGER_APART);
	assert_true(ha_ledger_has(&one, 0));
	assert_false(ha_ledger_has(&one, 0));
	assert_false(ha_ledger_has(&one, 64));
	assert_false(ha_ledger_retire(&one, 2));
	assert_false(ha_ledger_leave(&one));
	assert_true(ha_ledger_fence(&one, 1));
	assert_false(ha_ledger_retire(&one, 1));
	assert_int_equal(resume(1, 2, 0, 0, 0), HA_LEDGER_IMPOSSIBLE); /* retired, and not here */
	assert_int_equal(resume(1, 0, 0, 0, 0), HA_LEDGER_IMPOSSIBLE); /* again, and here */
	assert_int_equal(resume(1, 0, 3, 2, 1),
			 HA_LEDGER_IMPOSSIBLE); /* to be sent, and not here */
	assert_int_equal(resume(1, 0, 1, 2, 0), HA_LEDGER_IMPOSSIBLE); /* lacked, and not taken */
	assert_int_equal(resume(1, 0, 3, 2, 0), HA_LEDGER_FINE);
	assert_true(ha_ledger_has(&one, 1)); /* an owner's */
}

/* ---- everything put together ---------------------------------------------------------------- */

#define MEMBERS	   4
#define LANES	   2
#define WINDOW	   3
#define UNIT_BYTES 64
#define FLOATS	   (UNIT_BYTES / sizeof(float))
#define WIDE_BYTES (UNIT_BYTES * HA_REDUCE_MAX_WIDENING)
#define OPS	   8
#define UNITS	   (3 * OPS)
#define COPIES	   2
#define IN_FLIGHT  (2 * WINDOW)
#define EPOCHS	   64
#define POISON	   0xee
#define NOBODY	   MEMBERS

typedef uint8_t unit_bytes[UNIT_BYTES];

struct message {
	uint64_t unit;
	const uint8_t *at;
	uint8_t delivered[WIDE_BYTES];
};

/* Counts of messages. */
struct edge {
	uint64_t posted, delivered, acked;
	uint64_t seen; /* by the software of the member that it leads to */
	struct message message[IN_FLIGHT];
};

/* One unit on its way from a member to the next one that lacks it. */
struct pass {
	bool is_posted, is_own, has_landed;
	unsigned int to;
	struct message message;
};

struct member {
	struct ha_ledger ledger;
	unit_bytes pristine[UNITS], data[UNITS], apart[UNITS];
	unit_bytes shadow[WINDOW], copy[COPIES];
	uint64_t copied[COPIES]; /* unit + 1 */
	bool is_done[OPS];
	struct edge up[LANES], down[LANES];
	struct pass pass;
	bool is_to_forward[UNITS];
	unsigned int ops; /* asked for */
	uint64_t word;	  /* as the root has heard it */
	bool posted_in[EPOCHS][UNITS];
};

struct tree {
	struct ha_lane lane;
	void *memory;
	uint8_t landing[MEMBERS][WINDOW][WIDE_BYTES];
	uint64_t freed;
	uint64_t units, unit[UNITS]; /* in the order in which they go over it */
};

static struct world {
	struct member member[MEMBERS];
	struct tree tree[LANES];
	bool is_dead; /* nothing passes any more, on the ring neither */
	struct ha_fenced said[MEMBERS];
	struct ha_decision decision;
	struct ha_resume resume;
	bool is_decided, is_damaged;
	uint64_t first_of[OPS + 1], chance;
	unsigned int faults, copies;
	enum ha_ledger_place place;
	unit_bytes result[UNITS];
	bool has_result[UNITS];
} w;

/* How often in all runs. */
static struct {
	unsigned int epochs, taken, again, from_shadow, kept, owner_kept, forwarded, damaged, stale,
	    left_in_fence, orders;
} seen;

static uint64_t random_below(uint64_t n)
{
	w.chance = mix(w.chance);
	return w.chance % n;
}

/* ---- memory --------------------------------------------------------------------------------- */

static uint8_t *result_at(struct member *member, uint64_t unit)
{
	return w.place == HA_LEDGER_APART ? member->apart[unit] : member->data[unit];
}

static uint8_t *copy_of(struct member *member, uint64_t unit)
{
	for (unsigned int i = 0; i < COPIES; i++)
		if (member->copied[i] == unit + 1)
			return member->copy[i];
	fail_msg("there is no copy of unit %u", (unsigned int)unit);
	return NULL;
}

static uint8_t *source(struct member *member, uint64_t unit, enum ha_ledger_source from)
{
	uint8_t *shadow = member->shadow[unit % WINDOW];

	switch (from) {
	case HA_LEDGER_CONTRIBUTION:
		return member->data[unit];
	case HA_LEDGER_TO_SHADOW:
		return memcpy(shadow, member->data[unit], UNIT_BYTES);
	case HA_LEDGER_SHADOW:
		seen.from_shadow++;
		return shadow;
	case HA_LEDGER_RESULT:
		return result_at(member, unit);
	case HA_LEDGER_COPY:
		seen.owner_kept++;
		return copy_of(member, unit);
	case HA_LEDGER_NOTHING:
		break;
	}
	fail_msg("unit %u cannot be sent", (unsigned int)unit);
	return NULL;
}

/* The member that is a switch's child in this place, which each epoch changes. */
static unsigned int member_at(unsigned int place, uint32_t epoch)
{
	return (place * (epoch % 2 ? 3 : 1) + epoch / 2) % MEMBERS;
}

/* That of the switches: until the leader has decided, the last one. */
static uint32_t epoch_of_tree(void)
{
	return w.decision.epoch - !w.is_decided;
}

static unsigned int place_of(unsigned int m)
{
	for (unsigned int place = 0; place < MEMBERS; place++)
		if (member_at(place, epoch_of_tree()) == m)
			return place;
	return NOBODY;
}

static void ask_oracle(uint64_t unit, uint32_t epoch, uint8_t *out)
{
	uint8_t wide[MEMBERS][WIDE_BYTES];
	const void *src[MEMBERS];

	for (unsigned int i = 0; i < MEMBERS; i++) {
		const void *from = w.member[member_at(i, epoch)].pristine[unit];

		oracle_reduce(HA_REDUCE_FP32, HA_REDUCE_SUM, HA_REDUCE_WIRE, HA_REDUCE_WIDE,
			      wide[i], &from, 1, FLOATS);
		src[i] = wide[i];
	}
	oracle_reduce(HA_REDUCE_FP32, HA_REDUCE_SUM, HA_REDUCE_WIDE, HA_REDUCE_WIRE, out, src,
		      MEMBERS, FLOATS);
}

/* A result is at a member: the first one of the unit has the bits of this epoch's order, and all
 * others have the same. */
static void member_has(unsigned int m, uint64_t unit)
{
	if (!w.has_result[unit]) {
		unit_bytes other;

		ask_oracle(unit, epoch_of_tree(), w.result[unit]);
		ask_oracle(unit, epoch_of_tree() + 1, other);
		seen.orders += memcmp(other, w.result[unit], UNIT_BYTES) != 0;
		w.has_result[unit] = true;
	}
	if (memcmp(result_at(&w.member[m], unit), w.result[unit], UNIT_BYTES) != 0)
		fail_msg("member %u has another result of unit %u", m, (unsigned int)unit);
	assert_true(ha_ledger_has(&w.member[m].ledger, unit));
}

static void deliver(struct message *message, void *to)
{
	memcpy(message->delivered, message->at, UNIT_BYTES);
	memcpy(to, message->at, UNIT_BYTES);
}

static void acknowledge(const struct message *message)
{
	if (memcmp(message->delivered, message->at, UNIT_BYTES) != 0)
		fail_msg("unit %u was overwritten while it was sent", (unsigned int)message->unit);
}

static struct message *message_at(struct edge *edge, uint64_t i)
{
	return &edge->message[i % IN_FLIGHT];
}

/* ---- who may do something ------------------------------------------------------------------- */

static bool runs(unsigned int m)
{
	return w.is_decided && w.member[m].ledger.state == HA_LEDGER_RUNS &&
	       w.member[m].ledger.epoch == w.decision.epoch;
}

/* While the leader still collects answers, members that it has not fenced go on as before. */
static bool passes(unsigned int m)
{
	return w.member[m].ledger.state == HA_LEDGER_RUNS && !w.is_dead &&
	       w.member[m].ledger.epoch == epoch_of_tree();
}

static bool has(unsigned int m, uint64_t unit)
{
	const struct ha_ledger *ledger = &w.member[m].ledger;

	return unit < ledger->first || (unit - ledger->first < HA_DECISION_UNITS &&
					ledger->have >> (unit - ledger->first) & 1);
}

static unsigned int next_that_lacks(unsigned int m, uint64_t unit)
{
	for (unsigned int i = 1; i < MEMBERS; i++)
		if (!has((m + i) % MEMBERS, unit))
			return (m + i) % MEMBERS;
	return NOBODY;
}

static bool is_own(unsigned int m, uint64_t unit)
{
	const uint64_t i = unit - w.resume.retired;

	return unit >= w.resume.retired && i < HA_DECISION_UNITS && w.resume.lacked >> i & 1 &&
	       w.resume.owner[i] == m;
}

/* ---- events: each says whether it happened -------------------------------------------------- */

static bool asks(unsigned int m, unsigned int lane)
{
	struct member *member = &w.member[m];

	if (lane || !runs(m) || member->ops == OPS)
		return false;
	ha_ledger_issue(&member->ledger, w.first_of[member->ops + 1] - w.first_of[member->ops]);
	member->ops++;
	return true;
}

static void pass_on(unsigned int m, uint64_t unit, enum ha_ledger_source from, bool is_own)
{
	struct member *member = &w.member[m];

	member->pass = (struct pass){
	    .is_posted = true,
	    .is_own = is_own,
	    .to = next_that_lacks(m, unit),
	    .message = {.unit = unit, .at = source(member, unit, from)},
	};
	assert_int_not_equal(member->pass.to, NOBODY);
}

static bool contributes(unsigned int m, unsigned int lane, uint64_t unit)
{
	struct member *member = &w.member[m];
	struct edge *up = &member->up[lane];
	struct tree *tree = &w.tree[lane];

	if (up->posted >= tree->freed + WINDOW || up->posted - up->acked == IN_FLIGHT)
		return false;
	if (up->posted == tree->units)
		tree->unit[tree->units++] = unit;
	assert_true(tree->unit[up->posted] == unit); /* all have the same order */
	*message_at(up, up->posted++) = (struct message){
	    .unit = unit,
	    .at = source(member, unit, ha_ledger_post(&member->ledger, unit, w.place)),
	};
	member->posted_in[member->ledger.epoch][unit] = true;
	return true;
}

static bool sends(unsigned int m, unsigned int lane)
{
	struct member *member = &w.member[m];
	uint64_t unit;

	if (!passes(m) || !ha_ledger_next(&member->ledger, lane, LANES, &unit))
		return false;
	if (!is_own(m, unit))
		return contributes(m, lane, unit);
	if (member->pass.is_posted)
		return false;
	pass_on(m, unit, ha_ledger_post(&member->ledger, unit, w.place), true);
	seen.taken++;
	return true;
}

static bool contribution_lands(unsigned int m, unsigned int lane)
{
	struct edge *up = &w.member[m].up[lane];
	struct tree *tree = &w.tree[lane];
	struct ha_contribution c = {
	    .reduction = ha_reduction_of(HA_REDUCE_FP32, HA_REDUCE_SUM),
	    .form = HA_REDUCE_WIRE,
	    .count = FLOATS,
	};

	if (!passes(m) || up->delivered == up->posted)
		return false;
	c.at = tree->landing[place_of(m)][up->delivered % WINDOW];
	deliver(message_at(up, up->delivered++), c.at);
	ha_lane_came(&tree->lane, place_of(m), &c);
	assert_int_equal(tree->lane.fault, HA_LANE_SOUND);
	return true;
}

static bool contribution_is_acknowledged(unsigned int m, unsigned int lane)
{
	struct edge *up = &w.member[m].up[lane];

	if (!passes(m) || up->acked == up->delivered)
		return false;
	if (w.place != HA_LEDGER_DIRECT) /* a result may be there already */
		acknowledge(message_at(up, up->acked));
	assert_true(ha_ledger_sent(&w.member[m].ledger, message_at(up, up->acked++)->unit));
	return true;
}

static bool switch_looks(unsigned int m, unsigned int lane)
{
	struct tree *tree = &w.tree[lane];
	uint64_t before = tree->freed;

	if (m || w.is_dead)
		return false;
	ha_lane_look(&tree->lane);
	tree->freed = tree->lane.reduced;
	return tree->freed > before;
}

static bool switch_sends(unsigned int m, unsigned int lane)
{
	struct edge *down = &w.member[m].down[lane];
	struct tree *tree = &w.tree[lane];
	struct ha_unit_send send;

	if (!passes(m) || down->posted - down->acked == IN_FLIGHT ||
	    down->posted - down->seen == IN_FLIGHT ||
	    !ha_lane_next_send(&tree->lane, place_of(m), &send))
		return false;
	*message_at(down, down->posted) =
	    (struct message){.unit = tree->unit[down->posted], .at = send.at};
	down->posted++;
	ha_lane_posted(&tree->lane, place_of(m));
	return true;
}

/* Half of it, as long as it likes. */
static bool result_begins(unsigned int m, unsigned int lane)
{
	struct edge *down = &w.member[m].down[lane];
	const struct message *message = message_at(down, down->delivered);

	if (!passes(m) || down->delivered == down->posted)
		return false;
	memcpy(result_at(&w.member[m], message->unit), message->at, UNIT_BYTES / 2);
	return random_below(2);
}

static bool result_lands(unsigned int m, unsigned int lane)
{
	struct edge *down = &w.member[m].down[lane];
	struct message *message = message_at(down, down->delivered);

	if (!passes(m) || down->delivered == down->posted)
		return false;
	deliver(message, result_at(&w.member[m], message->unit));
	down->delivered++;
	return true;
}

static bool result_is_acknowledged(unsigned int m, unsigned int lane)
{
	struct edge *down = &w.member[m].down[lane];

	if (!passes(m) || down->acked == down->delivered)
		return false;
	acknowledge(message_at(down, down->acked++));
	ha_lane_sent(&w.tree[lane].lane, place_of(m));
	return true;
}

static bool result_is_seen(unsigned int m, unsigned int lane)
{
	struct edge *down = &w.member[m].down[lane];

	if (w.member[m].ledger.state != HA_LEDGER_RUNS || down->seen == down->delivered)
		return false;
	member_has(m, message_at(down, down->seen++)->unit);
	return true;
}

static bool pass_lands(unsigned int m, unsigned int lane)
{
	struct pass *pass = &w.member[m].pass;

	if (lane || !passes(m) || !pass->is_posted || pass->has_landed || !runs(pass->to))
		return false;
	deliver(&pass->message, result_at(&w.member[pass->to], pass->message.unit));
	pass->has_landed = true;
	member_has(pass->to, pass->message.unit);
	w.member[pass->to].is_to_forward[pass->message.unit] = true;
	return true;
}

static bool pass_is_acknowledged(unsigned int m, unsigned int lane)
{
	struct pass *pass = &w.member[m].pass;
	struct ha_ledger *ledger = &w.member[m].ledger;

	if (lane || !passes(m) || !pass->is_posted || !pass->has_landed)
		return false;
	acknowledge(&pass->message);
	assert_true(pass->is_own ? ha_ledger_sent(ledger, pass->message.unit)
				 : ha_ledger_forwarded(ledger, pass->message.unit));
	pass->is_posted = false;
	return true;
}

static bool forwards(unsigned int m, unsigned int lane)
{
	struct member *member = &w.member[m];

	if (lane || !passes(m) || member->pass.is_posted)
		return false;
	for (uint64_t u = 0; u < UNITS; u++) {
		if (!member->is_to_forward[u])
			continue;
		member->is_to_forward[u] = false;
		if (next_that_lacks(m, u) == NOBODY)
			continue;
		pass_on(m, u, ha_ledger_forward(&member->ledger, u), false);
		seen.forwarded++;
		return true;
	}
	return false;
}

static bool word_goes_up(unsigned int m, unsigned int lane)
{
	uint64_t word = ha_ledger_word(&w.member[m].ledger);

	if (lane || !passes(m) || word == w.member[m].word)
		return false;
	w.member[m].word = word;
	return true;
}

static bool word_comes_down(unsigned int m, unsigned int lane)
{
	struct ha_ledger *ledger = &w.member[m].ledger;
	uint64_t retired = UINT64_MAX;

	for (unsigned int i = 0; i < MEMBERS; i++)
		if (w.member[i].word < retired)
			retired = w.member[i].word;
	if (lane || !passes(m) || retired <= ledger->retired)
		return false;
	assert_true(ha_ledger_retire(ledger, retired));
	return true;
}

static void keep(struct member *member, uint64_t unit)
{
	for (unsigned int i = 0; i < w.copies; i++) {
		bool is_free = !member->copied[i] || member->copied[i] <= member->ledger.first;

		if (!is_free && member->copied[i] <= member->ledger.retired) {
			uint64_t at = member->copied[i] - 1 - member->ledger.first;

			is_free = !((member->ledger.sending | member->ledger.forwarding) >> at & 1);
		}
		if (is_free) {
			member->copied[i] = unit + 1;
			memcpy(member->copy[i], result_at(member, unit), UNIT_BYTES);
			seen.kept++;
			return;
		}
	}
	fail_msg("there is no room for a copy");
}

static bool completes(unsigned int m, unsigned int lane)
{
	struct member *member = &w.member[m];

	for (unsigned int op = 0; op < member->ops && !lane; op++) {
		const uint64_t first = w.first_of[op], units = w.first_of[op + 1] - first;
		enum ha_ledger_completion completion;

		if (member->is_done[op])
			continue;
		completion = ha_ledger_complete(&member->ledger, first, units);
		if (completion == HA_LEDGER_WAITS)
			continue;
		for (uint64_t u = first; u < first + units; u++)
			assert_memory_equal(result_at(member, u), w.result[u], UNIT_BYTES);
		if (completion == HA_LEDGER_KEEP)
			keep(member, first);
		memset(member->data[first], POISON, units * UNIT_BYTES);
		memset(member->apart[first], POISON, units * UNIT_BYTES);
		member->is_done[op] = true;
		return true;
	}
	return false;
}

/* The leader leaves last. */
static bool leaves(unsigned int m, unsigned int lane)
{
	struct member *member = &w.member[m];
	bool is_fenced = member->ledger.state == HA_LEDGER_FENCED;

	for (unsigned int i = 1; i < MEMBERS; i++)
		if (m == 0 && w.member[i].ledger.state != HA_LEDGER_LEFT)
			return false;
	if (lane || member->ops < OPS || member->ledger.state == HA_LEDGER_LEFT ||
	    !ha_ledger_leave(&member->ledger))
		return false;
	seen.left_in_fence += is_fenced;
	member->word = UINT64_MAX;
	return true;
}

/* ---- epochs --------------------------------------------------------------------------------- */

static void build_switches(void)
{
	const struct ha_lane_shape shape = {MEMBERS, true, WINDOW, UNIT_BYTES};

	for (unsigned int lane = 0; lane < LANES; lane++) {
		struct tree *tree = &w.tree[lane];

		free(tree->memory);
		memset(tree, 0, sizeof(*tree));
		tree->memory = malloc(ha_lane_bytes(&shape));
		assert_non_null(tree->memory);
		ha_lane_init(&tree->lane, &shape, tree->memory);
	}
	w.is_dead = false;
}

static bool switch_dies(unsigned int m, unsigned int lane)
{
	if (m || lane || w.is_dead || !w.faults || random_below(20))
		return false;
	w.faults--;
	w.is_dead = true;
	return true;
}

static void begin_fence(void)
{
	w.is_decided = false;
	ha_decision_begin(&w.decision);
	assert_true(w.decision.epoch < EPOCHS);
	seen.epochs++;
}

static bool leader_fences(unsigned int m, unsigned int lane)
{
	bool is_alarm = w.faults && !random_below(50);

	if (m || lane || !w.is_decided || w.member[0].ledger.state == HA_LEDGER_LEFT ||
	    (!is_alarm && !(w.is_dead && !random_below(10))))
		return false;
	w.faults -= is_alarm;
	begin_fence();
	return true;
}

/* What has landed is counted, or its completion is lost with the edge. */
static bool member_fences(unsigned int m, unsigned int lane)
{
	struct member *member = &w.member[m];

	if (lane || w.is_decided || member->ledger.state == HA_LEDGER_LEFT ||
	    member->ledger.epoch == w.decision.epoch)
		return false;
	for (unsigned int i = 0; i < LANES; i++) {
		while (random_below(4) && result_is_seen(m, i))
			;
		memset(&member->up[i], 0, sizeof(member->up[i]));
		memset(&member->down[i], 0, sizeof(member->down[i]));
	}
	memset(&member->pass, 0, sizeof(member->pass));
	memset(member->is_to_forward, 0, sizeof(member->is_to_forward));
	assert_true(ha_ledger_fence(&member->ledger, w.decision.epoch));
	return true;
}

static bool member_says(unsigned int m, unsigned int lane)
{
	struct ha_fenced said;
	bool is_new;

	if (lane || w.is_decided || !ha_ledger_say(&w.member[m].ledger, &said))
		return false;
	if (!said.leaves && said.epoch != w.decision.epoch) {
		assert_false(ha_decision_hear(&w.decision, (uint16_t)m, &said));
		seen.stale++;
		return false;
	}
	is_new = !w.said[m].leaves && (said.leaves || w.said[m].epoch != said.epoch);
	ha_decision_hear(&w.decision, (uint16_t)m, &said); /* as often as it likes */
	return is_new;
}

/* What is called damaged really is: all had sent it in the tree that ended, and nobody has it. */
static void check_damage(uint64_t unit)
{
	assert_int_equal(w.place, HA_LEDGER_DIRECT);
	for (unsigned int m = 0; m < MEMBERS; m++) {
		assert_true(w.member[m].posted_in[w.decision.epoch - 1][unit]);
		assert_false(has(m, unit));
	}
	seen.damaged++;
	w.is_damaged = true;
}

static bool leader_decides(unsigned int m, unsigned int lane)
{
	struct ha_decision_fault fault;

	if (m || lane || w.is_decided)
		return false;
	switch (ha_decision_make(&w.decision, &w.resume, &fault)) {
	case HA_DECISION_WAITS:
		return false;
	case HA_DECISION_DAMAGED:
		check_damage(fault.unit);
		return true;
	case HA_DECISION_LOST:
		fail_msg("member %u lacks unit %u", fault.member, (unsigned int)fault.unit);
		return false;
	case HA_DECISION_MADE:
		break;
	}
	for (unsigned int i = 0; i < MEMBERS; i++)
		if (w.member[i].ledger.state != HA_LEDGER_LEFT)
			w.member[i].word = w.resume.retired;
	w.is_decided = true;
	build_switches();
	return true;
}

static bool member_resumes(unsigned int m, unsigned int lane)
{
	struct ha_ledger *ledger = &w.member[m].ledger;

	if (lane || ledger->state != HA_LEDGER_FENCED)
		return false;
	/* While the leader fences again, the last RESUME may still come to who has not. */
	if (ledger->epoch == epoch_of_tree()) {
		assert_int_equal(ha_ledger_resume(ledger, &w.resume), HA_LEDGER_FINE);
		return true;
	}
	assert_int_equal(ha_ledger_resume(ledger, &w.resume), HA_LEDGER_STALE);
	return false;
}

static bool (*const events[])(unsigned int m, unsigned int lane) = {
    asks,
    sends,
    contribution_lands,
    contribution_is_acknowledged,
    switch_looks,
    switch_sends,
    result_begins,
    result_lands,
    result_is_seen,
    result_is_acknowledged,
    pass_lands,
    pass_is_acknowledged,
    forwards,
    word_goes_up,
    word_comes_down,
    completes,
    leaves,
    switch_dies,
    leader_fences,
    member_fences,
    member_says,
    leader_decides,
    member_resumes,
};

#define EVENTS (sizeof(events) / sizeof(events[0]))

/* From a place by chance on the first thing that can happen. */
static bool something_happens(void)
{
	const size_t all = EVENTS * MEMBERS * LANES;
	const size_t start = random_below(all);

	for (size_t i = 0; i < all; i++) {
		size_t at = (start + i * 101) % all; /* a prime: comes by all of them */

		if (events[at % EVENTS]((unsigned int)(at / EVENTS % MEMBERS),
					(unsigned int)(at / EVENTS / MEMBERS)))
			return true;
	}
	return false;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void make_world(uint64_t seed, enum ha_ledger_place place)
{
	memset(&w, 0, sizeof(w));
	w.chance = seed;
	w.place = place;
	w.copies = (unsigned int)random_below(COPIES + 1);
	w.faults = (unsigned int)random_below(6);
	w.is_decided = true;
	ha_decision_init(&w.decision, MEMBERS, w.said);
	for (unsigned int op = 0; op < OPS; op++)
		w.first_of[op + 1] =
		    w.first_of[op] + (random_below(2) ? 1 : 1 + random_below(WINDOW));
	for (unsigned int m = 0; m < MEMBERS; m++) {
		struct member *member = &w.member[m];

		ha_ledger_init(&member->ledger,
			       &(struct ha_ledger_shape){(uint16_t)m, WINDOW, w.copies});
		for (unsigned int u = 0; u < UNITS; u++)
			for (unsigned int i = 0; i < FLOATS; i++) {
				float x = (float)random_below(1u << 24) / (float)(m * 900 + 7);

				memcpy(&member->pristine[u][i * sizeof(x)], &x, sizeof(x));
			}
		memcpy(member->data, member->pristine, sizeof(member->data));
	}
	build_switches();
}

static bool everybody_has_left(void)
{
	for (unsigned int m = 0; m < MEMBERS; m++)
		if (w.member[m].ledger.state != HA_LEDGER_LEFT)
			return false;
	return true;
}

/* What was handed back nothing has touched since. */
static void check_that_memory_is_the_applications(void)
{
	for (unsigned int m = 0; m < MEMBERS; m++)
		for (unsigned int op = 0; op < OPS; op++)
			for (uint64_t u = w.first_of[op];
			     w.member[m].is_done[op] && u < w.first_of[op + 1]; u++)
				for (unsigned int i = 0; i < UNIT_BYTES; i++) {
					assert_int_equal(w.member[m].data[u][i], POISON);
					assert_int_equal(w.member[m].apart[u][i], POISON);
				}
}

#define MAX_STEPS 100000

static void run(uint64_t seed, enum ha_ledger_place place)
{
	unsigned int steps = 0;

	make_world(seed, place);
	while (!w.is_damaged && !everybody_has_left()) {
		if (steps++ == MAX_STEPS)
			fail_msg("seed %u: it does not end", (unsigned int)seed);
		if (something_happens())
			continue;
		if (!w.is_dead || !w.is_decided)
			fail_msg("seed %u: nobody can do anything", (unsigned int)seed);
		begin_fence();
	}
	check_that_memory_is_the_applications();
	for (unsigned int lane = 0; lane < LANES; lane++)
		free(w.tree[lane].memory);
}

#define RUNS 500

static void run_many(enum ha_ledger_place place)
{
	memset(&seen, 0, sizeof(seen));
	for (uint64_t seed = 0; seed < RUNS; seed++)
		run(mix(seed), place);
	print_message("%u epochs, %u taken, %u copies, %u sent from copies, %u from the shadow, "
		      "%u passed on, %u damaged, %u stale, %u left in a fence, %u orders\n",
		      seen.epochs, seen.taken, seen.kept, seen.owner_kept, seen.from_shadow,
		      seen.forwarded, seen.damaged, seen.stale, seen.left_in_fence, seen.orders);
	/* Nothing is so rare that the runs say little of it. */
	assert_true(seen.epochs > RUNS / 2 && seen.taken > 100 && seen.kept > 100);
	assert_true(seen.owner_kept > 20 && seen.forwarded > 50 && seen.orders > RUNS);
}

static void a_switch_that_dies_changes_no_element(void **state)
{
	(void)state;
	run_many(HA_LEDGER_APART);
	assert_true(seen.stale > 20 && seen.left_in_fence > 0);
}

static void a_switch_that_dies_changes_no_element_in_place(void **state)
{
	(void)state;
	run_many(HA_LEDGER_SHADOWED);
	assert_true(seen.from_shadow > 100 && !seen.damaged);
}

static void without_a_shadow_an_element_is_right_or_the_unit_is_called_damaged(void **state)
{
	(void)state;
	run_many(HA_LEDGER_DIRECT);
	assert_true(seen.damaged > RUNS / 10 && seen.damaged < RUNS * 3 / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_is_sent_that_FENCED_could_not_say),
	    cmocka_unit_test(a_member_is_no_further_than_the_window_beyond_its_results),
	    cmocka_unit_test(a_place_in_the_shadow_is_not_filled_while_it_is_read),
	    cmocka_unit_test(what_was_sent_is_of_the_epoch_that_ends),
	    cmocka_unit_test(RESUME_counts_in_its_own_epoch_and_once),
	    cmocka_unit_test(what_contradicts_the_record_is_refused),
	    cmocka_unit_test(a_switch_that_dies_changes_no_element),
	    cmocka_unit_test(a_switch_that_dies_changes_no_element_in_place),
	    cmocka_unit_test(without_a_shadow_an_element_is_right_or_the_unit_is_called_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
