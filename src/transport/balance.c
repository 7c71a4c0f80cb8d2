/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/balance.h"

#include "base/invariant.h"
#include "transport/share.h"

/* After so many stripes what was carried before them counts half. */
#define STRIPES 8

/* For so long a rail has carried what its port announces: next to nothing beside what it does
 * carry. Mb/s are as many bytes in that time. */
#define ANNOUNCED_NS 8000

/* What a rail has at least, on which nothing is under way. */
#define SHARE_LEAST (HA_SHARE_ALL / 64)

/* Bytes in a millisecond. */
static uint64_t rate(const struct ha_rail_load *rail)
{
	const uint64_t bytes = rail->carried * 1000000 / rail->busy_ns;

	return bytes != 0 ? bytes : 1;
}

/* Its time under way counts up to now. */
static void count_time(struct ha_rail_load *rail, uint64_t now_ns)
{
	if (rail->pending == 0)
		return;
	rail->busy_ns += now_ns - rail->since_ns;
	rail->since_ns = now_ns;
}

void ha_balance_begin(struct ha_balance *balance, unsigned slot, uint32_t speed_mbps)
{
	struct ha_rail_load *rail = &balance->rails[slot];

	if (rail->busy_ns != 0)
		return;
	rail->carried = speed_mbps;
	rail->busy_ns = ANNOUNCED_NS;
}

void ha_balance_posted(struct ha_balance *balance, unsigned slot, uint32_t bytes, uint64_t now_ns)
{
	struct ha_rail_load *rail = &balance->rails[slot];

	if (rail->pending == 0)
		rail->since_ns = now_ns;
	rail->pending += bytes;
}

void ha_balance_carried(struct ha_balance *balance, unsigned slot, uint32_t bytes, uint64_t now_ns)
{
	struct ha_rail_load *rail = &balance->rails[slot];

	HA_INVARIANT(rail->pending >= bytes);
	count_time(rail, now_ns);
	rail->pending -= bytes;
	rail->carried += bytes;
	if (++rail->stripes < STRIPES)
		return;
	rail->stripes = 0;
	rail->carried /= 2;
	rail->busy_ns = (rail->busy_ns + 1) / 2;
}

uint64_t ha_balance_pending(const struct ha_balance *balance)
{
	uint64_t pending = 0;

	for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++)
		pending += balance->rails[slot].pending;
	return pending;
}

/* ---- a message ------------------------------------------------------------------------------- */

/* The rails in the mask, and what they have to do. */
struct work {
	unsigned slots;
	uint64_t bytes; /* with what is under way there */
	uint64_t rates; /* of all of them */
};

static struct work work_of(const struct ha_balance *balance, unsigned slots, uint64_t message)
{
	struct work work = {.slots = slots, .bytes = message};

	for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++)
		if (slots >> slot & 1) {
			work.bytes += balance->rails[slot].pending;
			work.rates += rate(&balance->rails[slot]);
		}
	return work;
}

/* What of all that work a rail has to do so that all end together; it may have more already. */
static uint64_t goal(const struct ha_rail_load *rail, const struct work *work)
{
	return rate(rail) * work->bytes / work->rates;
}

/* Without the rails that are not through with what they have when the others are with all. */
static struct work who_helps(const struct ha_balance *balance, unsigned slots, uint64_t message)
{
	struct work work;
	unsigned helpers = slots;

	do {
		work = work_of(balance, helpers, message);
		for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++)
			if (work.slots >> slot & 1 &&
			    balance->rails[slot].pending > goal(&balance->rails[slot], &work))
				helpers &= ~(1u << slot);
	} while (helpers != work.slots && helpers != 0);
	return work;
}

static unsigned share(const struct ha_rail_load *rail, const struct work *work, bool helps,
		      uint64_t message)
{
	uint64_t bytes = helps ? goal(rail, work) : 0, part;

	bytes -= bytes < rail->pending ? bytes : rail->pending;
	part = bytes < message ? bytes * HA_SHARE_ALL / message : HA_SHARE_ALL;
	return part < SHARE_LEAST && rail->pending == 0 ? SHARE_LEAST : (unsigned)part;
}

uint64_t ha_balance_by_rates(const struct ha_balance *balance, unsigned slots)
{
	struct ha_balance idle = *balance;

	for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++)
		idle.rails[slot].pending = 0;
	return ha_balance_shares(&idle, slots, 1 << 20, 0);
}

uint64_t ha_balance_shares(struct ha_balance *balance, unsigned slots, uint64_t bytes,
			   uint64_t now_ns)
{
	unsigned parts[HA_MAX_PATHS] = {0}, rest = HA_SHARE_ALL;
	unsigned largest = (unsigned)__builtin_ctz(slots);
	struct work work;
	uint64_t word = 0;

	for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++)
		if (slots >> slot & 1)
			count_time(&balance->rails[slot], now_ns);
	work = who_helps(balance, slots, bytes);
	for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++) {
		if (slots >> slot & 1)
			parts[slot] =
			    share(&balance->rails[slot], &work, work.slots >> slot & 1, bytes);
		if (parts[slot] > parts[largest])
			largest = slot;
	}
	for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++)
		if (slot != largest) {
			const unsigned part = parts[slot] < rest ? parts[slot] : rest;

			word |= ha_share_word(slot, part);
			rest -= part;
		}
	return word | ha_share_word(largest, rest);
}
