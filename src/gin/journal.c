/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/journal.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void ha_gin_journal_init(struct ha_gin_journal *journal, unsigned int room, bool is_e2e)
{
	*journal = (struct ha_gin_journal){.room = room, .is_e2e = is_e2e};
}

bool ha_gin_issue(struct ha_gin_journal *journal, uint64_t *number)
{
	if (journal->issued - ha_gin_completed(journal) == HA_GIN_WINDOW)
		return false;
	*number = journal->issued++;
	return true;
}

bool ha_gin_post(struct ha_gin_journal *journal, uint64_t *number)
{
	if (journal->end != HA_GIN_UP || journal->posted == journal->issued)
		return false;
	if (journal->posted >= journal->applied + journal->room)
		return false;
	*number = journal->posted++;
	return true;
}

/* A path that drains still says what was done before. */
bool ha_gin_acknowledge(struct ha_gin_journal *journal, uint32_t epoch, uint64_t number)
{
	if (epoch != journal->epoch || journal->end == HA_GIN_FENCED || number >= journal->posted)
		return false;
	journal->acknowledged = larger(journal->acknowledged, number + 1);
	return true;
}

bool ha_gin_hear_applied(struct ha_gin_journal *journal, uint32_t epoch, uint64_t applied)
{
	if (epoch != journal->epoch || journal->end != HA_GIN_UP || applied > journal->posted)
		return false;
	journal->applied = larger(journal->applied, applied);
	return true;
}

void ha_gin_journal_fence(struct ha_gin_journal *journal)
{
	if (journal->end == HA_GIN_UP)
		journal->end = HA_GIN_DRAINING;
}

void ha_gin_journal_fenced(struct ha_gin_journal *journal)
{
	journal->end = HA_GIN_FENCED;
}

enum ha_gin_resume ha_gin_journal_resume(struct ha_gin_journal *journal, uint32_t epoch,
					 const struct ha_gin_verdict *verdict)
{
	if (journal->end != HA_GIN_FENCED)
		return HA_GIN_UNFENCED;
	if (epoch <= journal->epoch || verdict->counted > journal->posted ||
	    verdict->applied > verdict->counted || verdict->applied < journal->applied)
		return HA_GIN_CONTRADICTS;
	if (journal->acknowledged > verdict->counted)
		return HA_GIN_LOST;
	journal->epoch = epoch;
	journal->end = HA_GIN_UP;
	journal->acknowledged = verdict->counted;
	journal->applied = verdict->applied;
	journal->posted = verdict->counted;
	return HA_GIN_RESUMED;
}
