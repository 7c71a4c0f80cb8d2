/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/parking.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "transport/share.h"

/* What is measured: so long, and so many stripes at least. */
#define MEASURED_NS	 (50 * HA_NS_PER_MS)
#define MEASURED_STRIPES 8

/* Before it counts what was under way has to end, and shares to be found. */
#define SETTLED_NS (25 * HA_NS_PER_MS)

/* By so much it has to be better without a rail, so often. Where one of the two is not even this of
 * the other, half of what is measured is enough to tell. */
#define BETTER	 1.03
#define OFTEN	 2
#define HOPELESS 0.85

/* At the earliest; and a hundred times as long as a rail had nothing, which with slow messages is
 * more. */
#define TRY_AGAIN_NS   (60 * HA_NS_PER_S)
#define TRY_AGAIN_COST 100

#define PARKED_MIN_MS  2000
#define PARKED_MOST_MS 300000

static void measure(struct ha_parking *parking, enum ha_parking_state state, uint64_t under_way)
{
	if (parking->state == HA_PARKING_ALONE)
		parking->without_ns += parking->busy_ns;
	parking->state = (uint8_t)state;
	parking->settled = false;
	parking->under_way = under_way;
	parking->stripes = 0;
	parking->bytes = parking->busy_ns = 0;
}

static double rate(const struct ha_parking *parking)
{
	return (double)parking->bytes / (double)parking->busy_ns;
}

static bool settles(const struct ha_parking *parking)
{
	return parking->busy_ns >= SETTLED_NS && parking->bytes >= parking->under_way;
}

/* Much less than with the other choice. */
static bool is_hopeless(const struct ha_parking *parking)
{
	double other = 0;

	if (parking->state == HA_PARKING_ALONE)
		other = parking->together;
	else if (parking->state == HA_PARKING_AGAIN)
		other = parking->alone;
	return parking->stripes >= MEASURED_STRIPES / 2 && parking->busy_ns >= MEASURED_NS / 2 &&
	       rate(parking) < HOPELESS * other;
}

/* Whether it was measured for long enough. */
static bool measured(struct ha_parking *parking)
{
	if (parking->settled)
		return is_hopeless(parking) ||
		       (parking->stripes >= MEASURED_STRIPES && parking->busy_ns >= MEASURED_NS);
	if (settles(parking)) {
		measure(parking, (enum ha_parking_state)parking->state, 0);
		parking->settled = true;
	}
	return false;
}

/* In eighths of all. */
static unsigned roughly(uint64_t word, unsigned slot)
{
	return (ha_share_of(word, slot) * 8 + HA_SHARE_ALL / 2) / HA_SHARE_ALL;
}

/*
 * The one that would carry least, with nothing under way; of those that are about alike the same
 * one in all connections: they begin together, and where each leaves out another one what it
 * measures is how the others have spread.
 */
static unsigned weakest(const struct ha_balance *balance, unsigned slots)
{
	const uint64_t word = ha_balance_by_rates(balance, slots);
	unsigned found = (unsigned)__builtin_ctz(slots);

	for (unsigned slot = found; slot < HA_MAX_PATHS; slot++)
		if (slots >> slot & 1 && roughly(word, slot) < roughly(word, found))
			found = slot;
	return found;
}

static void park(struct ha_parking *parking, uint64_t now_ns)
{
	const uint32_t longer_ms = 2 * parking->parked_ms;

	if (parking->parked_ms == 0)
		parking->parked_ms = PARKED_MIN_MS;
	else
		parking->parked_ms = longer_ms < PARKED_MOST_MS ? longer_ms : PARKED_MOST_MS;
	measure(parking, HA_PARKING_PARKED, 0);
	parking->parked = parking->slot;
	parking->due_ns = now_ns + parking->parked_ms * HA_NS_PER_MS;
	parking->without_ns = 0;
	parking->broken = false;
}

/* For so long nothing is tried, after what that has cost. */
static uint64_t cost_ns(const struct ha_parking *parking)
{
	return TRY_AGAIN_COST * parking->without_ns;
}

static void rest(struct ha_parking *parking, uint64_t now_ns)
{
	const uint64_t least_ns = cost_ns(parking);

	parking->parked_ms = 0;
	parking->due_ns = now_ns + (least_ns > TRY_AGAIN_NS ? least_ns : TRY_AGAIN_NS);
	parking->without_ns = 0;
	parking->broken = false;
}

/* The next one of those that were not tried; when all were, they rest. */
static void try_without(struct ha_parking *parking, const struct ha_balance *balance,
			unsigned slots, uint64_t now_ns)
{
	slots &= ~(unsigned)parking->tried;
	measure(parking, slots ? HA_PARKING_ALONE : HA_PARKING_REST, ha_balance_pending(balance));
	if (slots == 0) {
		rest(parking, now_ns);
		return;
	}
	parking->slot = (uint8_t)weakest(balance, slots);
	parking->tried |= (uint8_t)(1u << parking->slot);
	parking->better = 0;
}

/* What gets through without the one that is parked, of late: so a try of it need not ask. */
static void look_without(struct ha_parking *parking)
{
	if (!measured(parking))
		return;
	parking->alone = rate(parking);
	measure(parking, HA_PARKING_PARKED, 0);
}

/* One that is parked carries again, until it is clear whether that is better. It was parked for
 * this, so once is enough. */
static void try_with(struct ha_parking *parking, const struct ha_balance *balance)
{
	parking->tried = (uint8_t)(1u << parking->slot);
	parking->better = OFTEN - 1;
	measure(parking, HA_PARKING_AGAIN, ha_balance_pending(balance));
}

void ha_parking_goes_on(struct ha_parking *parking, uint64_t now_ns)
{
	parking->since_ns = now_ns;
}

bool ha_parking_carried(struct ha_parking *parking, const struct ha_balance *balance,
			unsigned slots, uint32_t bytes, uint64_t now_ns)
{
	parking->bytes += bytes;
	parking->stripes++;
	parking->busy_ns += now_ns - parking->since_ns;
	parking->since_ns = now_ns;
	switch ((enum ha_parking_state)parking->state) {
	case HA_PARKING_REST:
		if (now_ns >= parking->due_ns && (slots & (slots - 1)) != 0)
			measure(parking, HA_PARKING_TOGETHER, ha_balance_pending(balance));
		return false;
	case HA_PARKING_PARKED:
		look_without(parking);
		if (now_ns >= parking->due_ns && (slots & (slots - 1)) != 0 && parking->alone > 0)
			try_with(parking, balance);
		return false;
	case HA_PARKING_TOGETHER:
		if (!measured(parking))
			return false;
		parking->together = rate(parking);
		parking->tried = 0;
		try_without(parking, balance, slots, now_ns);
		return false;
	case HA_PARKING_ALONE:
		if (!measured(parking))
			return false;
		parking->alone = rate(parking);
		if (parking->alone >= BETTER * parking->together)
			measure(parking, HA_PARKING_AGAIN, ha_balance_pending(balance));
		else
			try_without(parking, balance, slots, now_ns);
		return false;
	case HA_PARKING_AGAIN:
		if (!measured(parking))
			return false;
		parking->together = rate(parking);
		if (parking->alone < BETTER * parking->together) {
			try_without(parking, balance, slots, now_ns);
			return false;
		}
		if (++parking->better == OFTEN) {
			park(parking, now_ns);
			return true;
		}
		measure(parking, HA_PARKING_ALONE, ha_balance_pending(balance));
		return false;
	}
	HA_INVARIANT(false);
	return false;
}

/* With the rail that comes there it is due again; a rail that is parked is no better for the loss
 * of another one. */
void ha_parking_lost(struct ha_parking *parking, unsigned slot)
{
	if (parking->state != HA_PARKING_PARKED || parking->slot == slot)
		*parking = (struct ha_parking){.since_ns = parking->since_ns};
}

void ha_parking_stop(struct ha_parking *parking)
{
	const enum ha_parking_state state = (enum ha_parking_state)parking->state;

	if (state == HA_PARKING_REST || state == HA_PARKING_PARKED)
		return;
	measure(parking, parking->parked_ms ? HA_PARKING_PARKED : HA_PARKING_REST, 0);
	parking->slot = parking->parked;
	parking->due_ns = parking->since_ns;
	parking->broken = !parking->broken;
	if (parking->broken)
		return;
	parking->due_ns +=
	    parking->parked_ms ? parking->parked_ms * HA_NS_PER_MS : cost_ns(parking);
	parking->without_ns = 0;
}

void ha_parking_goes_over(struct ha_parking *parking, unsigned slot)
{
	parking->slot = parking->parked = (uint8_t)slot;
	parking->alone = 0; /* it carries another part of all */
}
