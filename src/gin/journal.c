/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/journal.h"

void ha_gin_journal_init(struct ha_gin_journal *journal, unsigned int room, bool is_e2e)
{
	*journal = (struct ha_gin_journal){.room = room, .slots = HA_GIN_WINDOW, .is_e2e = is_e2e};
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
