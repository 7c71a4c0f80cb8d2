/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver's inbox and the applier that its inboxes share, rule by rule: docs/gin-protocol.md.
 */
#include "../unit/cmocka_all.h"

#include "gin/inbox.h"

#include <string.h>

#define ROOM 4

static struct ha_gin_applier applier;
static struct ha_gin_inbox in, other; /* two streams, over paths to NIC 0 */
static struct ha_gin_word words[3];

static void begin(unsigned int nics, bool is_e2e)
{
	ha_gin_applier_init(&applier, nics, is_e2e);
	ha_gin_inbox_init(&in, &applier, 0, ROOM);
	ha_gin_inbox_init(&other, &applier, 0, ROOM);
	memset(words, 0, sizeof(words));
}

static void put(struct ha_gin_inbox *inbox)
{
	assert_int_equal(ha_gin_count(inbox, inbox->epoch, inbox->counted, NULL, 0),
			 HA_GIN_COUNTED);
}

static void signal_to(struct ha_gin_inbox *inbox, unsigned int word, uint64_t addend)
{
	assert_int_equal(ha_gin_count(inbox, inbox->epoch, inbox->counted, &words[word], addend),
			 HA_GIN_COUNTED);
}

static void moves(struct ha_gin_inbox *inbox, unsigned int nic)
{
	ha_gin_inbox_fence(inbox);
	ha_gin_inbox_fenced(inbox);
	assert_true(ha_gin_inbox_resume(inbox, inbox->epoch + 1, nic));
}

static void dies(unsigned int nic)
{
	ha_gin_nic_died(&applier, nic);
	ha_gin_loopback_fenced(&applier, nic);
}

static void waits(struct ha_gin_inbox *inbox)
{
	assert_int_equal(ha_gin_next(inbox).what, HA_GIN_WAIT);
}

static void does(struct ha_gin_inbox *inbox, enum ha_gin_do what, unsigned int nic, uint64_t number)
{
	struct ha_gin_task task = ha_gin_next(inbox);

	assert_int_equal(task.what, what);
	assert_int_equal(task.nic, nic);
	assert_true(task.number == number);
}

static void adds(struct ha_gin_inbox *inbox, unsigned int nic, uint64_t number)
{
	does(inbox, HA_GIN_ADD, nic, number);
}

static void flushes(struct ha_gin_inbox *inbox, unsigned int nic)
{
	does(inbox, HA_GIN_FLUSH, nic, 0);
}

/* ---- counting ------------------------------------------------------------------------------- */

static void operations_are_counted_in_order_and_once(void **state)
{
	(void)state;
	begin(1, false);
	put(&in);
	assert_int_equal(ha_gin_count(&in, 0, 0, NULL, 0), HA_GIN_IMPOSSIBLE);
	assert_int_equal(ha_gin_count(&in, 0, 2, NULL, 0), HA_GIN_IMPOSSIBLE);
	put(&in);
	assert_true(in.counted == 2);
}

static void a_row_is_kept_until_its_signal_is_applied(void **state)
{
	(void)state;
	begin(1, false);
	for (unsigned int i = 0; i < ROOM; i++)
		signal_to(&in, 0, 1);
	adds(&in, 0, 0);
	assert_int_equal(ha_gin_count(&in, 0, ROOM, NULL, 0), HA_GIN_IMPOSSIBLE);
	assert_true(ha_gin_added(&in, 0, 0));
	put(&in);
}

static void nothing_counts_that_comes_after_the_fence(void **state)
{
	struct ha_gin_verdict verdict;

	(void)state;
	begin(2, false);
	put(&in);
	ha_gin_inbox_fence(&in);
	put(&in); /* had arrived */
	ha_gin_inbox_fenced(&in);
	assert_int_equal(ha_gin_count(&in, 0, 2, NULL, 0), HA_GIN_STALE);
	assert_true(ha_gin_inbox_verdict(&in, &verdict));
	assert_true(verdict.counted == 2);
	assert_true(ha_gin_inbox_resume(&in, 1, 1));
	assert_int_equal(ha_gin_count(&in, 0, 2, NULL, 0), HA_GIN_STALE);
	put(&in);
}

static void it_says_what_it_has_after_its_own_fence_only(void **state)
{
	struct ha_gin_verdict verdict;

	(void)state;
	begin(2, false);
	assert_false(ha_gin_inbox_verdict(&in, &verdict));
	assert_false(ha_gin_inbox_resume(&in, 1, 1));
	ha_gin_inbox_fence(&in);
	assert_false(ha_gin_inbox_verdict(&in, &verdict));
	assert_false(ha_gin_inbox_resume(&in, 1, 1));
	ha_gin_inbox_fenced(&in);
	assert_true(ha_gin_inbox_verdict(&in, &verdict));
	assert_false(ha_gin_inbox_resume(&in, 0, 1)); /* the epoch that was */
	assert_true(ha_gin_inbox_resume(&in, 1, 1));
}

static void what_is_applied_after_the_verdict_is_told_in_the_next_epoch(void **state)
{
	struct ha_gin_verdict verdict;
	uint64_t applied;

	(void)state;
	begin(2, false);
	signal_to(&in, 0, 1);
	adds(&in, 0, 0);
	ha_gin_inbox_fence(&in);
	ha_gin_inbox_fenced(&in);
	assert_true(ha_gin_added(&in, 0, 0));
	assert_true(ha_gin_inbox_verdict(&in, &verdict));
	assert_true(verdict.applied == 0 && in.applied == 1);
	assert_false(ha_gin_tell(&in, &applied));
	assert_true(ha_gin_inbox_resume(&in, 1, 1));
	assert_true(ha_gin_tell(&in, &applied));
	assert_true(applied == 1);
	assert_false(ha_gin_tell(&in, &applied));
}

/* ---- signals -------------------------------------------------------------------------------- */

static void an_operation_is_applied_when_its_add_is_complete(void **state)
{
	uint64_t applied;

	(void)state;
	begin(1, false);
	put(&in);
	signal_to(&in, 0, 5);
	put(&in);
	adds(&in, 0, 1);
	waits(&in);
	assert_true(ha_gin_tell(&in, &applied));
	assert_true(applied == 1);
	assert_false(ha_gin_added(&in, 2, 0)); /* a put alone */
	assert_true(ha_gin_added(&in, 1, 7));
	assert_false(ha_gin_added(&in, 1, 7));
	assert_true(ha_gin_tell(&in, &applied));
	assert_true(applied == 3);
	assert_true(words[0].value == 12);
}

static void one_add_of_a_word_is_open_and_of_words_many(void **state)
{
	(void)state;
	begin(1, false);
	signal_to(&in, 0, 1);
	signal_to(&in, 1, 1);
	signal_to(&in, 0, 1);
	signal_to(&other, 0, 1);
	signal_to(&other, 2, 1);
	adds(&in, 0, 0);
	adds(&in, 0, 1);
	waits(&in);
	waits(&other); /* of another stream too, and its own order is kept */
	assert_true(ha_gin_added(&in, 0, 0));
	adds(&other, 0, 0);
	waits(&in);
	adds(&other, 0, 1);
}

static void while_adds_are_open_no_other_NIC_adds(void **state)
{
	(void)state;
	begin(2, false);
	moves(&other, 1);
	signal_to(&in, 0, 1);
	signal_to(&other, 1, 1);
	adds(&in, 0, 0);
	flushes(&other, 1); /* what came through it is in memory before NIC 0 adds for it */
	waits(&other);
	assert_true(ha_gin_flushed(&applier, 1));
	adds(&other, 0, 0);
}

static void a_NIC_that_lives_is_flushed_before_another_adds(void **state)
{
	(void)state;
	begin(2, false);
	put(&in);
	moves(&in, 1);
	signal_to(&in, 0, 1);
	flushes(&in, 0);
	waits(&in);
	assert_false(ha_gin_flushed(&applier, 1));
	assert_true(ha_gin_flushed(&applier, 0));
	adds(&in, 1, 1);
	assert_true(applier.gave_up == 0);
}

static void a_NIC_whose_path_was_left_is_flushed_before_another_adds(void **state)
{
	(void)state;
	begin(2, false);
	moves(&in, 1); /* half of an operation may be on its way to memory */
	signal_to(&in, 0, 1);
	flushes(&in, 0);
	moves(&in, 0);
	moves(&in, 1);
	assert_true(ha_gin_flushed(&applier, 0)); /* which was posted before that */
	flushes(&in, 0);
	assert_true(ha_gin_flushed(&applier, 0));
	adds(&in, 1, 0);
}

static void a_flush_proves_what_came_before_it_was_posted(void **state)
{
	(void)state;
	begin(2, false);
	put(&other);
	moves(&in, 1);
	signal_to(&in, 0, 1);
	flushes(&in, 0);
	signal_to(&other, 1, 1); /* through NIC 0, behind the flush */
	assert_true(ha_gin_flushed(&applier, 0));
	adds(&in, 1, 0);
	flushes(&other, 0); /* for its own */
	assert_true(ha_gin_flushed(&applier, 0));
	adds(&other, 1, 1);
}

static void a_NIC_that_has_added_is_flushed_before_another_adds(void **state)
{
	(void)state;
	begin(2, false);
	ha_gin_inbox_init(&other, &applier, 1, ROOM);
	signal_to(&in, 0, 1);
	adds(&in, 0, 0);
	assert_true(ha_gin_added(&in, 0, 0));
	signal_to(&other, 0, 1);
	flushes(&other, 0);
	assert_true(ha_gin_flushed(&applier, 0));
	adds(&other, 1, 0);
}

/* ---- NICs that die -------------------------------------------------------------------------- */

static void what_a_dead_NIC_cannot_prove_is_counted(void **state)
{
	(void)state;
	begin(2, false);
	put(&in);
	dies(0);
	moves(&in, 1);
	signal_to(&in, 0, 1);
	adds(&in, 1, 1);
	assert_true(applier.gave_up == 1);
	assert_int_equal(applier.over, HA_GIN_WORKS);
}

static void end_to_end_what_is_not_proved_is_an_error(void **state)
{
	(void)state;
	begin(2, true);
	put(&in);
	dies(0);
	moves(&in, 1);
	signal_to(&in, 0, 1);
	waits(&in);
	assert_int_equal(applier.over, HA_GIN_UNPROVED);
	waits(&in);
	waits(&other);
}

static void an_add_proves_what_came_before_its_signal(void **state)
{
	(void)state;
	begin(2, true);
	put(&in);
	signal_to(&in, 0, 1);
	adds(&in, 0, 1);
	assert_true(ha_gin_added(&in, 1, 0));
	dies(0);
	moves(&in, 1);
	signal_to(&in, 0, 1);
	adds(&in, 1, 2);
	assert_int_equal(applier.over, HA_GIN_WORKS);
}

static void a_NIC_that_is_back_proves_nothing_of_what_came_before(void **state)
{
	(void)state;
	begin(2, false);
	put(&in);
	ha_gin_nic_died(&applier, 0);
	assert_false(ha_gin_loopback_made(&applier, 0)); /* not fenced */
	ha_gin_loopback_fenced(&applier, 0);
	moves(&in, 1);
	assert_true(ha_gin_loopback_made(&applier, 0));
	assert_true(applier.gave_up == 1);
	signal_to(&in, 0, 1);
	adds(&in, 1, 1);
}

static void a_NIC_whose_loopback_failed_is_flushed_through_the_next_one(void **state)
{
	(void)state;
	begin(2, true);
	put(&in);
	ha_gin_loopback_failed(&applier, 0);
	moves(&in, 1);
	signal_to(&in, 0, 1);
	waits(&in);
	ha_gin_loopback_fenced(&applier, 0);
	waits(&in);
	assert_true(ha_gin_loopback_made(&applier, 0));
	flushes(&in, 0);
	assert_true(ha_gin_flushed(&applier, 0));
	adds(&in, 1, 1);
	assert_true(applier.gave_up == 0);
}

/* Two adds through NIC 0, which then dies; the word of the first holds 10. */
static void dies_with_two_adds(void)
{
	begin(3, false);
	words[0].value = 10;
	signal_to(&in, 0, 3);
	put(&in);
	signal_to(&in, 1, 4);
	adds(&in, 0, 0);
	adds(&in, 0, 2);
	ha_gin_nic_died(&applier, 0);
}

static void an_open_add_is_looked_into_after_its_loopback_is_fenced(void **state)
{
	(void)state;
	dies_with_two_adds();
	waits(&in);
	signal_to(&other, 2, 1);
	waits(&other); /* adds of NIC 0 are open */
	assert_false(ha_gin_was_read(&in, 0, 10));
	ha_gin_loopback_fenced(&applier, 0);
	does(&in, HA_GIN_READ, 1, 0);
	waits(&in); /* one by one */
	waits(&other);
	assert_false(ha_gin_added(&in, 0, 10));
}

static void an_add_that_was_done_is_not_done_again(void **state)
{
	(void)state;
	dies_with_two_adds();
	ha_gin_loopback_fenced(&applier, 0);
	does(&in, HA_GIN_READ, 1, 0);
	assert_true(ha_gin_was_read(&in, 0, 13));
	assert_true(in.applied == 2 && words[0].value == 13);
	does(&in, HA_GIN_READ, 1, 2);
	assert_true(ha_gin_was_read(&in, 2, 4));
	assert_true(in.applied == 3);
	waits(&in);
	assert_true(applier.open == 0);
}

static void an_add_that_was_not_done_is_done_and_so_are_those_behind_it(void **state)
{
	(void)state;
	dies_with_two_adds();
	ha_gin_loopback_fenced(&applier, 0);
	does(&in, HA_GIN_READ, 1, 0);
	assert_true(ha_gin_was_read(&in, 0, 10));
	assert_true(in.applied == 0);
	adds(&in, 1, 0);
	adds(&in, 1, 2);
	assert_true(ha_gin_added(&in, 0, 10));
	assert_true(in.applied == 2);
}

static void a_kernel_that_set_the_word_to_zero_is_thought_of(void **state)
{
	(void)state;
	dies_with_two_adds();
	ha_gin_loopback_fenced(&applier, 0);
	does(&in, HA_GIN_READ, 1, 0);
	assert_true(ha_gin_was_read(&in, 0, 3)); /* before the add */
	assert_true(in.applied == 2 && words[0].value == 3);
	does(&in, HA_GIN_READ, 1, 2);
	assert_true(ha_gin_was_read(&in, 2, 0)); /* not done, or done and set to zero */
	assert_int_equal(applier.over, HA_GIN_CANNOT_TELL);
	assert_true(in.applied == 2);
	waits(&in);
}

static void a_value_that_cannot_be_decides_nothing(void **state)
{
	(void)state;
	dies_with_two_adds();
	ha_gin_loopback_fenced(&applier, 0);
	does(&in, HA_GIN_READ, 1, 0);
	assert_true(ha_gin_was_read(&in, 0, 11));
	assert_int_equal(applier.over, HA_GIN_CANNOT_TELL);
	assert_true(in.applied == 0);
}

static void a_read_that_fails_is_done_through_another_NIC(void **state)
{
	(void)state;
	dies_with_two_adds();
	ha_gin_loopback_fenced(&applier, 0);
	does(&in, HA_GIN_READ, 1, 0);
	ha_gin_nic_died(&applier, 1);
	assert_true(ha_gin_read_failed(&in, 0));
	assert_false(ha_gin_read_failed(&in, 0));
	does(&in, HA_GIN_READ, 2, 0);
}

static void without_a_loopback_it_waits_for_one(void **state)
{
	(void)state;
	dies_with_two_adds();
	dies(1);
	dies(2);
	ha_gin_loopback_fenced(&applier, 0);
	waits(&in);
	signal_to(&other, 2, 1);
	waits(&other);
	assert_true(ha_gin_loopback_made(&applier, 0)); /* the very one: with another loopback */
	does(&in, HA_GIN_READ, 0, 0);
	waits(&other);
	assert_true(ha_gin_was_read(&in, 0, 10));
	adds(&other, 0, 0);
	adds(&in, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(operations_are_counted_in_order_and_once),
	    cmocka_unit_test(a_row_is_kept_until_its_signal_is_applied),
	    cmocka_unit_test(nothing_counts_that_comes_after_the_fence),
	    cmocka_unit_test(it_says_what_it_has_after_its_own_fence_only),
	    cmocka_unit_test(what_is_applied_after_the_verdict_is_told_in_the_next_epoch),
	    cmocka_unit_test(an_operation_is_applied_when_its_add_is_complete),
	    cmocka_unit_test(one_add_of_a_word_is_open_and_of_words_many),
	    cmocka_unit_test(while_adds_are_open_no_other_NIC_adds),
	    cmocka_unit_test(a_NIC_that_lives_is_flushed_before_another_adds),
	    cmocka_unit_test(a_NIC_whose_path_was_left_is_flushed_before_another_adds),
	    cmocka_unit_test(a_flush_proves_what_came_before_it_was_posted),
	    cmocka_unit_test(a_NIC_that_has_added_is_flushed_before_another_adds),
	    cmocka_unit_test(what_a_dead_NIC_cannot_prove_is_counted),
	    cmocka_unit_test(end_to_end_what_is_not_proved_is_an_error),
	    cmocka_unit_test(an_add_proves_what_came_before_its_signal),
	    cmocka_unit_test(a_NIC_that_is_back_proves_nothing_of_what_came_before),
	    cmocka_unit_test(a_NIC_whose_loopback_failed_is_flushed_through_the_next_one),
	    cmocka_unit_test(an_open_add_is_looked_into_after_its_loopback_is_fenced),
	    cmocka_unit_test(an_add_that_was_done_is_not_done_again),
	    cmocka_unit_test(an_add_that_was_not_done_is_done_and_so_are_those_behind_it),
	    cmocka_unit_test(a_kernel_that_set_the_word_to_zero_is_thought_of),
	    cmocka_unit_test(a_value_that_cannot_be_decides_nothing),
	    cmocka_unit_test(a_read_that_fails_is_done_through_another_NIC),
	    cmocka_unit_test(without_a_loopback_it_waits_for_one),
	};

	return cmocka_run_group_tests_name("gin_inbox", tests, NULL, NULL);
}
