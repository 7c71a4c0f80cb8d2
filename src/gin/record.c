/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/record.h"

static struct ha_gin_word *word_of(const struct ha_gin_region *region, uint64_t offset)
{
	if (!region->words || offset % 8 != 0 || region->size < 8 || offset > region->size - 8)
		return NULL;
	return &region->words[offset / 8];
}

bool ha_gin_record_take(const volatile struct ha_gin_record *row, uint64_t number, uint32_t epoch,
			const struct ha_gin_region *regions, size_t count,
			struct ha_gin_record *record, struct ha_gin_word **word)
{
	*record = *row;
	if (record->number != number || record->epoch != epoch || record->unused != 0 ||
	    record->addend == 0)
		return false;
	if (record->region >= count)
		return false;
	*word = word_of(&regions[record->region], record->offset);
	return *word != NULL;
}
