/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank of the group that says what it likes may cost the others. */
#include "hostile_rank.h"

#include "gin/verbs/region.h"

#include <stdlib.h>

/* Bytes asked for, ever. */
static size_t asked;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
	asked += count * size;
	return __real_calloc(count, size);
}

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
	asked += size;
	return __real_realloc(memory, size);
}

static void nothing(const struct ha_gin_message *message)
{
	(void)message;
}

/* Numbers are given in order; what others have registered less often does not matter to them. */
static void the_last_number_first_costs_no_more_than_a_table_of_numbers(void **state)
{
	const struct ha_gin_message hello = {.say = HA_GIN_HELLO, .hello = {1, RANKS}};
	const struct ha_gin_message region = {
	    .say = HA_GIN_REGION, .number = HA_GIN_REGIONS - 1, .region = {.size = SIZE}};

	(void)state;
	hostile_begin(nothing, false);
	hostile_say(&hello, 40);
	asked = 0;
	hostile_say(&region, 40);
	assert_int_equal(hostile.error, HA_OK);
	assert_in_range(asked, HA_GIN_REGIONS * sizeof(void *), 64 * HA_GIN_REGIONS);
	hostile_end();
}

static void a_number_beyond_the_last_latches_the_group(void **state)
{
	const struct ha_gin_message hello = {.say = HA_GIN_HELLO, .hello = {1, RANKS}};
	const struct ha_gin_message region = {
	    .say = HA_GIN_REGION, .number = HA_GIN_REGIONS, .region = {.size = SIZE}};

	(void)state;
	hostile_begin(nothing, false);
	hostile_say(&hello, 40);
	assert_int_equal(hostile.error, HA_OK);
	hostile_say(&region, 40);
	assert_int_equal(hostile.error, HA_ERR_REMOTE);
	hostile_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_last_number_first_costs_no_more_than_a_table_of_numbers),
	    cmocka_unit_test(a_number_beyond_the_last_latches_the_group),
	};

	return cmocka_run_group_tests_name("gin_hostile", tests, NULL, NULL);
}
