/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a signal's record, which the peer's NIC writes: it is refused, or it is of the
 * operation that is asked for and names a whole word of memory that signals may go to.
 */
#include "fuzz.h"

#include "gin/record.h"

#include <string.h>

#define NUMBER 7
#define EPOCH  3
#define WORDS  4

/* The last byte of a region is the last one that a word may have. */
static struct ha_gin_word words[2][WORDS];
static const struct ha_gin_region regions[] = {
    {words[0], 8 * WORDS},
    {NULL, 64},
    {words[1], 8 * WORDS - 3},
};
#define REGIONS (sizeof(regions) / sizeof(regions[0]))

static const struct ha_gin_record good = {
    .number = NUMBER, .epoch = EPOCH, .offset = 8, .addend = 1};
static const struct ha_gin_record last = {
    .number = NUMBER, .epoch = EPOCH, .region = 2, .offset = 16, .addend = UINT64_MAX};

const struct fuzz_seed fuzz_seeds[] = {
    {&good, sizeof(good)},
    {&last, sizeof(last)},
    {NULL, 0},
};

/* The number and the epoch put right in every other input: a mutant of both would be rare. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ha_gin_record row, record;
	struct ha_gin_word *word = NULL;

	if (size < sizeof(row))
		return 0;
	memcpy(&row, data, sizeof(row));
	if (row.addend & 1) {
		row.number = NUMBER;
		row.epoch = EPOCH;
	}
	if (!ha_gin_record_take(&row, NUMBER, EPOCH, regions, REGIONS, &record, &word))
		return 0;
	FUZZ_CHECK(!memcmp(&record, &row, sizeof(row)));
	FUZZ_CHECK(record.number == NUMBER && record.epoch == EPOCH && record.addend != 0);
	FUZZ_CHECK(record.region == 0 || record.region == 2);
	FUZZ_CHECK(record.offset % 8 == 0 && record.offset + 8 <= regions[record.region].size);
	FUZZ_CHECK(word == &regions[record.region].words[record.offset / 8]);
	word->value++; /* for the sanitizers */
	return 0;
}
