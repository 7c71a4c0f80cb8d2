/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/ledger.h"

#include "inc/cut.h"

/* ---- bitmaps -------------------------------------------------------------------------------- */

/* A bitmap without its first units. */
static uint64_t without(uint64_t bitmap, uint64_t units)
{
	return units < HA_DECISION_UNITS ? bitmap >> units : 0;
}

/* Of a unit that the record does not reach, nothing. */
static uint64_t bit(const struct ha_ledger *ledger, uint64_t unit)
{
	bool is_here = unit >= ledger->first && unit - ledger->first < HA_DECISION_UNITS;

	return is_here ? (uint64_t)1 << (unit - ledger->first) : 0;
}

/* All units below. */
static uint64_t below(const struct ha_ledger *ledger, uint64_t unit)
{
	if (unit <= ledger->first)
		return 0;
	return unit - ledger->first < HA_DECISION_UNITS ? bit(ledger, unit) - 1 : UINT64_MAX;
}

/* Lets go of what is retired and not read any more. */
static void advance(struct ha_ledger *ledger)
{
	const uint64_t read = ledger->sending | ledger->forwarding;
	uint64_t *const bitmaps[] = {&ledger->have,    &ledger->kept,	    &ledger->sent,
				     &ledger->sending, &ledger->forwarding, &ledger->taken,
				     &ledger->own,     &ledger->shadowed,   &ledger->direct};
	uint64_t units = ledger->retired - ledger->first;

	if (read && units > (unsigned int)__builtin_ctzll(read))
		units = (unsigned int)__builtin_ctzll(read);
	ledger->first += units;
	for (unsigned int i = 0; i < sizeof(bitmaps) / sizeof(bitmaps[0]); i++)
		*bitmaps[i] = without(*bitmaps[i], units);
}

void ha_ledger_init(struct ha_ledger *ledger, const struct ha_ledger_shape *shape)
{
	*ledger = (struct ha_ledger){.shape = *shape};
}

void ha_ledger_issue(struct ha_ledger *ledger, uint64_t units)
{
	ledger->issued += units;
}

/* ---- sends ---------------------------------------------------------------------------------- */

/* Contributed, or sent by its owner; and not yet in this epoch. */
static uint64_t to_send(const struct ha_ledger *ledger)
{
	return (~ledger->taken | ledger->own) & ~ledger->sent;
}

/* The shadow's place of a unit is still read for the unit that had it before. */
static bool is_place_read(const struct ha_ledger *ledger, uint64_t unit)
{
	return unit >= ledger->shape.window &&
	       bit(ledger, unit - ledger->shape.window) & ledger->sending & ledger->shadowed;
}

static bool may_send(const struct ha_ledger *ledger, uint64_t unit)
{
	/* WINDOW: the parent's buffers are free again before this member has the result, so they
	 * do not keep it from overrunning its shadow. */
	if (unit >= ha_ledger_word(ledger) + ledger->shape.window)
		return false;
	return !is_place_read(ledger, unit);
}

bool ha_ledger_next(const struct ha_ledger *ledger, unsigned int lane, unsigned int lanes,
		    uint64_t *unit)
{
	/* BITMAP: FENCED must be able to say that this member has it. */
	const uint64_t end = ledger->first + HA_DECISION_UNITS;

	if (ledger->state != HA_LEDGER_RUNS)
		return false;
	for (*unit = ledger->first; *unit < end && *unit < ledger->issued; ++*unit) {
		if (ha_cut_lane(*unit, lanes) == lane && to_send(ledger) & bit(ledger, *unit))
			return may_send(ledger, *unit);
	}
	return false;
}

/* Of a unit that is here. */
static enum ha_ledger_source result_of(const struct ha_ledger *ledger, uint64_t bit)
{
	return ledger->kept & bit ? HA_LEDGER_COPY : HA_LEDGER_RESULT;
}

static enum ha_ledger_source contribution_of(struct ha_ledger *ledger, uint64_t bit,
					     enum ha_ledger_place place)
{
	const bool is_in_shadow = ledger->shadowed & bit;

	if (place == HA_LEDGER_DIRECT)
		ledger->direct |= bit;
	if (place != HA_LEDGER_SHADOWED)
		return HA_LEDGER_CONTRIBUTION;
	ledger->shadowed |= bit;
	/* SHADOW: an earlier epoch's result may have begun to overwrite it. */
	return is_in_shadow ? HA_LEDGER_SHADOW : HA_LEDGER_TO_SHADOW;
}

enum ha_ledger_source ha_ledger_post(struct ha_ledger *ledger, uint64_t unit,
				     enum ha_ledger_place place)
{
	const uint64_t posted = bit(ledger, unit);

	if (ledger->state != HA_LEDGER_RUNS || unit >= ledger->issued ||
	    !(to_send(ledger) & posted))
		return HA_LEDGER_NOTHING;
	ledger->sent |= posted;
	ledger->sending |= posted;
	return ledger->own & posted ? result_of(ledger, posted)
				    : contribution_of(ledger, posted, place);
}

static bool end_send(struct ha_ledger *ledger, uint64_t *sends, uint64_t unit)
{
	const uint64_t ended = bit(ledger, unit);

	if (!(*sends & ended))
		return false;
	*sends &= ~ended;
	advance(ledger);
	return true;
}

bool ha_ledger_sent(struct ha_ledger *ledger, uint64_t unit)
{
	return end_send(ledger, &ledger->sending, unit);
}

enum ha_ledger_source ha_ledger_forward(struct ha_ledger *ledger, uint64_t unit)
{
	const uint64_t posted = bit(ledger, unit);

	if (ledger->state != HA_LEDGER_RUNS || unit < ledger->retired ||
	    !(ledger->have & ~ledger->forwarding & posted))
		return HA_LEDGER_NOTHING;
	ledger->forwarding |= posted;
	return result_of(ledger, posted);
}

bool ha_ledger_forwarded(struct ha_ledger *ledger, uint64_t unit)
{
	return end_send(ledger, &ledger->forwarding, unit);
}

/* ---- results -------------------------------------------------------------------------------- */

bool ha_ledger_has(struct ha_ledger *ledger, uint64_t unit)
{
	const uint64_t come = bit(ledger, unit);

	/* There is no result without this member's contribution, unless it is an owner's. */
	if (ledger->state != HA_LEDGER_RUNS ||
	    !((ledger->sent | ledger->taken) & ~ledger->have & come))
		return false;
	ledger->have |= come;
	return true;
}

uint64_t ha_ledger_word(const struct ha_ledger *ledger)
{
	/* HAVE_IS_ACK: what the hardware has acknowledged need not be in its place. */
	const uint64_t lacks = ~ledger->have;

	return ledger->first + (lacks ? (unsigned int)__builtin_ctzll(lacks) : HA_DECISION_UNITS);
}

bool ha_ledger_retire(struct ha_ledger *ledger, uint64_t retired)
{
	if (ledger->state != HA_LEDGER_RUNS || retired > ha_ledger_word(ledger))
		return false;
	if (retired > ledger->retired)
		ledger->retired = retired;
	advance(ledger);
	return true;
}

/* Sends that read a request's memory: not those from the shadow or from a copy. */
static uint64_t reads_request(const struct ha_ledger *ledger)
{
	const uint64_t from_shadow = ledger->shadowed & ~ledger->own;
	const uint64_t sending = ledger->sending & ~from_shadow; /* COMPLETE_SENDING */
	const uint64_t forwarding = ledger->forwarding;		 /* COMPLETE_FORWARD */

	return sending | forwarding;
}

/* KEEP_FULL: a copy stays until nobody can lack the unit, and nothing reads it. */
static bool has_room_for_copy(const struct ha_ledger *ledger)
{
	const uint64_t open = ~below(ledger, ledger->retired);
	const uint64_t used = ledger->kept & (open | ledger->sending | ledger->forwarding);

	return (unsigned int)__builtin_popcountll(used) < ledger->shape.copies;
}

enum ha_ledger_completion ha_ledger_complete(struct ha_ledger *ledger, uint64_t unit,
					     uint64_t units)
{
	const uint64_t end = unit + units;
	const uint64_t span = below(ledger, end) & ~below(ledger, unit);

	if (end > ledger->first + HA_DECISION_UNITS || span & ~ledger->have ||
	    span & reads_request(ledger))
		return HA_LEDGER_WAITS;
	if (end <= ledger->retired) {
		ledger->completed += units;
		return HA_LEDGER_COMPLETE;
	}
	/* RETAIN: somebody may lack it, and only this member have it. */
	if (units > 1 || !has_room_for_copy(ledger))
		return HA_LEDGER_WAITS;
	ledger->kept |= span;
	ledger->completed += units;
	return HA_LEDGER_KEEP;
}

/* ---- epochs --------------------------------------------------------------------------------- */

bool ha_ledger_fence(struct ha_ledger *ledger, uint32_t epoch)
{
	if (ledger->state == HA_LEDGER_LEFT || epoch < ledger->epoch)
		return false;
	if (epoch == ledger->epoch)
		return ledger->state == HA_LEDGER_FENCED;
	/* SENT_EVER: the epoch that ends is one in which this member did not even go on. */
	if (ledger->state == HA_LEDGER_FENCED)
		ledger->sent = 0;
	ledger->state = HA_LEDGER_FENCED;
	ledger->epoch = epoch;
	ledger->sending = 0;
	ledger->forwarding = 0;
	advance(ledger);
	return true;
}

bool ha_ledger_leave(struct ha_ledger *ledger)
{
	/* LEAVE_RETIRED: LEAVE says that nobody lacks anything. */
	if (ledger->retired < ledger->issued || ledger->completed < ledger->issued)
		return false;
	ledger->state = HA_LEDGER_LEFT;
	return true;
}

bool ha_ledger_say(const struct ha_ledger *ledger, struct ha_fenced *said)
{
	const uint64_t known = ledger->retired - ledger->first;

	*said = (struct ha_fenced){
	    .epoch = ledger->epoch,
	    .leaves = ledger->state == HA_LEDGER_LEFT,
	    .retired = ledger->retired,
	    .have = without(ledger->have, known),
	    .sent = without(ledger->sent, known),
	    .direct = without(ledger->direct, known),
	};
	return ledger->state != HA_LEDGER_RUNS;
}

/* Units that this member is to send, from unit `retired` on. */
static uint64_t own_of(const struct ha_ledger *ledger, const struct ha_resume *resume)
{
	uint64_t own = 0;

	for (unsigned int i = 0; i < HA_DECISION_UNITS; i++) {
		if (resume->lacked >> i & 1 && resume->owner[i] == ledger->shape.member)
			own |= (uint64_t)1 << i;
	}
	return own;
}

/* What is retired it has; what it has is not computed again; and what it is to send it has. */
static bool is_possible(const struct ha_ledger *ledger, const struct ha_resume *resume)
{
	const uint64_t have = without(ledger->have, resume->retired - ledger->first);

	return resume->retired >= ledger->retired && resume->retired <= ha_ledger_word(ledger) &&
	       !(have & ~resume->taken) && !(own_of(ledger, resume) & ~have) &&
	       !(resume->lacked & ~resume->taken);
}

static void count_fates(struct ha_ledger *ledger, const struct ha_resume *resume)
{
	const uint64_t sent = without(ledger->sent, resume->retired - ledger->first);

	ledger->units_taken += (unsigned int)__builtin_popcountll(resume->taken);
	ledger->units_again += (unsigned int)__builtin_popcountll(sent & ~resume->taken);
}

enum ha_ledger_verdict ha_ledger_resume(struct ha_ledger *ledger, const struct ha_resume *resume)
{
	/* RESUME_EPOCH: the tree of another one is gone. */
	if (ledger->state != HA_LEDGER_FENCED || resume->epoch != ledger->epoch)
		return HA_LEDGER_STALE;
	if (!is_possible(ledger, resume))
		return HA_LEDGER_IMPOSSIBLE;
	count_fates(ledger, resume);
	ledger->retired = resume->retired;
	advance(ledger);
	/* RESUME_FREES: copies stay, as the next epoch may ask for them. */
	ledger->sent = 0;
	ledger->taken = resume->taken;
	ledger->own = own_of(ledger, resume);
	ledger->state = HA_LEDGER_RUNS;
	return HA_LEDGER_FINE;
}
