/* SPDX-License-Identifier: Apache-2.0 */
/* The seqlock: no mixture is ever taken for a record, and a writer that died is noticed. */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "base/seqlock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define WORDS 32

static uint64_t seq, record[WORDS];
static atomic_bool stop;
static atomic_uint writes;

static bool try_write(uint64_t *number, uint64_t *to, const uint64_t *from, size_t nwords)
{
	if (!ha_seqlock_try_begin(number))
		return false;
	for (size_t i = 0; i < nwords; i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELEASE);
	ha_seqlock_end(number);
	return true;
}

static void *write_records(void *arg)
{
	uint64_t mine[WORDS], value = (uint64_t)(uintptr_t)arg << 32;

	while (!atomic_load(&stop)) {
		value++;
		for (int i = 0; i < WORDS; i++)
			mine[i] = value * (uint64_t)(i + 1);
		if (try_write(&seq, record, mine, WORDS))
			atomic_fetch_add(&writes, 1);
		sched_yield();
	}
	return NULL;
}

static void readers_never_take_a_mixture(void **state)
{
	uint64_t copy[WORDS];
	pthread_t writers[2];
	uint64_t until_ns = ha_now_ns() + 60 * HA_NS_PER_S;
	unsigned int reads = 0;

	(void)state;
	atomic_store(&stop, false);
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&writers[i], NULL, write_records, (void *)(i + 1)),
				 0);
	while ((reads < 20000 || atomic_load(&writes) < 2000) && ha_now_ns() < until_ns) {
		if (!ha_seqlock_read(&seq, record, copy, WORDS, 100))
			continue;
		for (int i = 1; i < WORDS; i++)
			if (copy[i] != copy[0] * (uint64_t)(i + 1))
				fail_msg("word %d is of another write", i);
		reads++;
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(writers[i], NULL);
	assert_true(reads >= 20000 && atomic_load(&writes) >= 2000);
}

static void a_second_writer_leaves_the_record_alone(void **state)
{
	uint64_t odd = 7, words[2] = {1, 2}, new_words[2] = {3, 4};

	(void)state;
	assert_false(try_write(&odd, words, new_words, 2));
	assert_int_equal(words[0], 1);
	assert_int_equal(odd, 7);
}

static void a_writer_that_died_is_noticed_in_bounded_time(void **state)
{
	uint64_t odd = 7, words[2] = {1, 2}, copy[2];

	(void)state;
	assert_false(ha_seqlock_read(&odd, words, copy, 2, 1000));
	assert_int_equal(copy[1], 2); /* what there was, for what it is worth */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(readers_never_take_a_mixture),
	    cmocka_unit_test(a_second_writer_leaves_the_record_alone),
	    cmocka_unit_test(a_writer_that_died_is_noticed_in_bounded_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
