/* SPDX-License-Identifier: Apache-2.0 */
/* A signal's record, which a peer may write as it likes. */
#include "../unit/cmocka_all.h"

#include "gin/record.h"

#define NUMBER 70
#define EPOCH  3

static struct ha_gin_word words[4];
static const struct ha_gin_region regions[] = {
    {words, 32},
    {NULL, 64},	 /* not in use */
    {words, 20}, /* two words and a half */
    {words, 4},	 /* none */
};

static const struct ha_gin_record good = {
    .number = NUMBER, .epoch = EPOCH, .offset = 24, .addend = 5};

static bool takes(struct ha_gin_record row)
{
	struct ha_gin_record record;
	struct ha_gin_word *word = NULL;
	bool taken = ha_gin_record_take(&row, NUMBER, EPOCH, regions,
					sizeof(regions) / sizeof(regions[0]), &record, &word);

	if (taken) {
		assert_memory_equal(&record, &row, sizeof(row));
		assert_ptr_equal(word, &regions[row.region].words[row.offset / 8]);
	}
	return taken;
}

static void a_record_names_its_word(void **state)
{
	struct ha_gin_record row = good;

	(void)state;
	assert_true(takes(row));
	row.offset = 0;
	assert_true(takes(row));
	row.region = 2;
	row.offset = 8;
	assert_true(takes(row));
	row.addend = UINT64_MAX;
	assert_true(takes(row));
}

static void a_record_of_another_operation_is_refused(void **state)
{
	struct ha_gin_record row = good;

	(void)state;
	row.number = NUMBER - 64; /* of the same row, a window ago */
	assert_false(takes(row));
	row = good;
	row.epoch = EPOCH - 1;
	assert_false(takes(row));
	row = good;
	row.addend = 0;
	assert_false(takes(row));
	row = good;
	row.unused = 1;
	assert_false(takes(row));
}

static void a_word_that_is_not_there_is_refused(void **state)
{
	static const struct {
		uint16_t region;
		uint64_t offset;
	} nowhere[] = {
	    {0, 25}, {0, 31}, {0, 32}, {0, UINT64_MAX - 7}, {0, 1ull << 63}, {1, 0},
	    {2, 16}, {3, 0},  {4, 0},  {UINT16_MAX, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
		struct ha_gin_record row = good;

		row.region = nowhere[i].region;
		row.offset = nowhere[i].offset;
		assert_false(takes(row));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_record_names_its_word),
	    cmocka_unit_test(a_record_of_another_operation_is_refused),
	    cmocka_unit_test(a_word_that_is_not_there_is_refused),
	};

	return cmocka_run_group_tests_name("gin_record", tests, NULL, NULL);
}
