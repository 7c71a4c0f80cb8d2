/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/applier.h"

static uint32_t bit(unsigned int nic)
{
	return (uint32_t)1 << nic;
}

static unsigned int lowest(uint32_t nics)
{
	return (unsigned int)__builtin_ctz(nics);
}

void ha_gin_applier_init(struct ha_gin_applier *applier, unsigned int nics, bool is_e2e)
{
	*applier = (struct ha_gin_applier){
	    .is_e2e = is_e2e,
	    .works = (uint32_t)(((uint64_t)1 << nics) - 1),
	};
}

/* ---- what is proved to be in memory --------------------------------------------------------- */

uint64_t ha_gin_came(struct ha_gin_applier *applier, unsigned int nic)
{
	struct ha_gin_nic *n = &applier->nic[nic];

	applier->used |= bit(nic);
	if (n->proved >= n->last)
		n->proved = applier->clock;
	return n->last = ++applier->clock;
}

void ha_gin_owes_flush(struct ha_gin_applier *applier, unsigned int nic)
{
	applier->used |= bit(nic);
	applier->nic[nic].owes = ++applier->clock;
}

static void prove(struct ha_gin_nic *nic, uint64_t up_to)
{
	if (nic->proved < up_to)
		nic->proved = up_to;
}

/* Something may have come through it, not later than `when`, that is not proved. */
static bool is_unproved(const struct ha_gin_nic *nic, uint64_t when)
{
	return nic->proved < nic->last && nic->proved < when;
}

void ha_gin_unproved(struct ha_gin_applier *applier)
{
	applier->gave_up++;
	if (applier->is_e2e)
		applier->over = HA_GIN_UNPROVED;
}

static void give_up(struct ha_gin_applier *applier, struct ha_gin_nic *nic)
{
	if (nic->proved >= nic->last)
		return;
	nic->proved = nic->last;
	ha_gin_unproved(applier);
}

/* Whether a signal that came at `when` may be added through another NIC than this one. */
static enum ha_gin_do leave(struct ha_gin_applier *applier, unsigned int n, uint64_t when)
{
	struct ha_gin_nic *nic = &applier->nic[n];

	if (applier->dead & bit(n)) {
		if (is_unproved(nic, when))
			give_up(applier, nic);
		return HA_GIN_ADD;
	}
	if (!is_unproved(nic, when) && nic->owes <= nic->flushed)
		return HA_GIN_ADD;
	if (applier->flushing & bit(n) || !(applier->works & bit(n)))
		return HA_GIN_WAIT;
	applier->flushing |= bit(n);
	nic->flush_to = applier->clock;
	return HA_GIN_FLUSH;
}

bool ha_gin_flushed(struct ha_gin_applier *applier, unsigned int nic)
{
	if (!(applier->flushing & bit(nic)))
		return false;
	applier->flushing &= ~bit(nic);
	applier->nic[nic].flushed = applier->nic[nic].flush_to;
	prove(&applier->nic[nic], applier->nic[nic].flush_to);
	return true;
}

/* ---- adds ----------------------------------------------------------------------------------- */

/* The NIC that adds next: while adds are open the one that they are of. */
static unsigned int choose(const struct ha_gin_applier *applier, unsigned int via)
{
	if (applier->open)
		return applier->adder;
	return applier->works & bit(via) ? via : lowest(applier->works);
}

enum ha_gin_do ha_gin_begin_add(struct ha_gin_applier *applier, struct ha_gin_word *word,
				unsigned int via, uint64_t when, unsigned int *nic)
{
	unsigned int adder;
	uint32_t others;

	if (applier->over != HA_GIN_WORKS || word->is_open || !applier->works)
		return HA_GIN_WAIT;
	adder = choose(applier, via);
	if (applier->is_orphaned || !(applier->works & bit(adder)))
		return HA_GIN_WAIT;
	for (others = applier->used & ~bit(adder); others; others &= others - 1) {
		enum ha_gin_do first = leave(applier, *nic = lowest(others), when);

		if (first != HA_GIN_ADD)
			return first;
	}
	if (applier->over != HA_GIN_WORKS)
		return HA_GIN_WAIT;
	*nic = applier->adder = adder;
	applier->open++;
	ha_gin_owes_flush(applier, adder); /* its own write is on its way, too */
	word->is_open = true;
	return HA_GIN_ADD;
}

void ha_gin_take_back(struct ha_gin_applier *applier, struct ha_gin_word *word)
{
	word->is_open = false;
	if (--applier->open == 0)
		applier->is_orphaned = false;
}

/* What the NIC received before a signal was in memory before its word changed. */
void ha_gin_end_add(struct ha_gin_applier *applier, struct ha_gin_word *word, uint64_t when,
		    uint64_t value)
{
	word->value = value;
	prove(&applier->nic[applier->adder], when);
	ha_gin_take_back(applier, word);
}

/* ---- failures ------------------------------------------------------------------------------- */

void ha_gin_loopback_failed(struct ha_gin_applier *applier, unsigned int nic)
{
	applier->works &= ~bit(nic);
	applier->flushing &= ~bit(nic);
}

void ha_gin_loopback_fenced(struct ha_gin_applier *applier, unsigned int nic)
{
	if (applier->works & bit(nic))
		return;
	applier->fenced |= bit(nic);
	if (applier->open && applier->adder == nic)
		applier->is_orphaned = true;
}

void ha_gin_nic_died(struct ha_gin_applier *applier, unsigned int nic)
{
	ha_gin_loopback_failed(applier, nic);
	applier->dead |= bit(nic);
}

/* Of another incarnation it is younger than what came before: a read of it proves nothing of that.
 */
bool ha_gin_loopback_made(struct ha_gin_applier *applier, unsigned int nic)
{
	if (!(applier->fenced & bit(nic)))
		return false;
	if (applier->dead & bit(nic)) {
		give_up(applier, &applier->nic[nic]);
		applier->nic[nic].owes = 0;
	}
	applier->dead &= ~bit(nic);
	applier->fenced &= ~bit(nic);
	applier->works |= bit(nic);
	return true;
}

bool ha_gin_may_read(const struct ha_gin_applier *applier, unsigned int *nic)
{
	if (!applier->is_orphaned || !applier->works)
		return false;
	*nic = lowest(applier->works);
	return true;
}

enum ha_gin_do ha_gin_begin_set(struct ha_gin_applier *applier, uint64_t when, unsigned int *nic)
{
	enum ha_gin_do first;

	if (applier->over != HA_GIN_WORKS || !applier->is_orphaned || !applier->works)
		return HA_GIN_WAIT;
	first = leave(applier, *nic = applier->adder, when);
	if (first != HA_GIN_ADD)
		return first;
	if (applier->over != HA_GIN_WORKS)
		return HA_GIN_WAIT;
	*nic = lowest(applier->works);
	ha_gin_owes_flush(applier, *nic); /* its own write is on its way, too */
	return HA_GIN_SET;
}

/* A kernel may have set the word to zero before or after. */
enum ha_gin_outcome ha_gin_judge(struct ha_gin_applier *applier, const struct ha_gin_word *word,
				 uint64_t addend, uint64_t now)
{
	bool if_done = now == word->value + addend || now == addend || now == 0;
	bool if_not = now == word->value || now == 0;

	if (if_done != if_not)
		return if_done ? HA_GIN_DONE : HA_GIN_NOT_DONE;
	applier->over = HA_GIN_CANNOT_TELL;
	return HA_GIN_UNKNOWN;
}
