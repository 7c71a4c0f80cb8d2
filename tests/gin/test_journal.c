/* SPDX-License-Identifier: Apache-2.0 */
/* The sender's journal, rule by rule: docs/gin-protocol.md. */
#include "../unit/cmocka_all.h"

#include "gin/journal.h"

#define ROOM 4

static struct ha_gin_journal j;

/* Operations 0 to n - 1 are asked for, and posted as far as there is room. */
static void begin(uint64_t n, bool is_e2e)
{
	uint64_t number, next = 0;

	ha_gin_journal_init(&j, ROOM, is_e2e);
	for (uint64_t k = 0; k < n; k++) {
		assert_true(ha_gin_issue(&j, &number));
		assert_true(number == k);
	}
	while (ha_gin_post(&j, &number))
		assert_true(number == next++);
}

static enum ha_gin_resume resume(uint32_t epoch, uint64_t counted, uint64_t applied)
{
	return ha_gin_journal_resume(&j, epoch, &(struct ha_gin_verdict){counted, applied});
}

static void fence(void)
{
	ha_gin_journal_fence(&j);
	ha_gin_journal_fenced(&j);
}

static void posts(uint64_t number)
{
	uint64_t next;

	assert_true(ha_gin_post(&j, &next));
	assert_true(next == number);
}

static void nothing_is_posted(void)
{
	uint64_t next;

	assert_false(ha_gin_post(&j, &next));
}

static void no_operation_is_posted_without_room_for_it(void **state)
{
	(void)state;
	begin(9, false);
	assert_true(j.posted == ROOM);
	assert_true(ha_gin_acknowledge(&j, 0, 3)); /* not applied by that */
	nothing_is_posted();
	assert_true(ha_gin_hear_applied(&j, 0, 2));
	posts(4);
	posts(5);
	nothing_is_posted();
	assert_true(ha_gin_hear_applied(&j, 0, 1)); /* an older one that comes late */
	nothing_is_posted();
}

static void a_request_is_complete_when_it_is_acknowledged(void **state)
{
	(void)state;
	begin(3, false);
	assert_true(ha_gin_acknowledge(&j, 0, 1));
	assert_true(ha_gin_completed(&j) == 2);
	assert_true(ha_gin_acknowledge(&j, 0, 0));
	assert_true(ha_gin_completed(&j) == 2);
	assert_false(ha_gin_acknowledge(&j, 0, 3)); /* not posted */
	assert_true(ha_gin_hear_applied(&j, 0, 3));
	assert_true(ha_gin_completed(&j) == 2);
}

static void end_to_end_a_request_is_complete_when_it_is_applied(void **state)
{
	(void)state;
	begin(4, true);
	assert_true(ha_gin_acknowledge(&j, 0, 3));
	assert_true(ha_gin_completed(&j) == 0);
	assert_true(ha_gin_hear_applied(&j, 0, 1));
	assert_true(ha_gin_completed(&j) == 1);
	fence();
	assert_int_equal(resume(1, 4, 2), HA_GIN_RESUMED); /* three and four are counted only */
	assert_true(ha_gin_completed(&j) == 2);
}

static void a_window_of_requests_may_be_open(void **state)
{
	uint64_t number;

	(void)state;
	begin(HA_GIN_WINDOW, false);
	assert_false(ha_gin_issue(&j, &number));
	assert_true(ha_gin_acknowledge(&j, 0, 0));
	assert_true(ha_gin_issue(&j, &number));
	assert_true(number == HA_GIN_WINDOW);
	assert_false(ha_gin_issue(&j, &number));
}

static void nothing_is_posted_while_a_path_is_fenced(void **state)
{
	uint64_t number;

	(void)state;
	begin(2, false);
	assert_true(ha_gin_issue(&j, &number));
	ha_gin_journal_fence(&j);
	nothing_is_posted();
	assert_true(ha_gin_acknowledge(&j, 0, 0)); /* was done before */
	ha_gin_journal_fenced(&j);
	nothing_is_posted();
	assert_false(ha_gin_acknowledge(&j, 0, 1));
	assert_true(ha_gin_completed(&j) == 1);
}

static void it_does_not_resume_before_its_own_end_is_fenced(void **state)
{
	(void)state;
	begin(2, false);
	assert_int_equal(resume(1, 1, 0), HA_GIN_UNFENCED);
	ha_gin_journal_fence(&j);
	assert_int_equal(resume(1, 1, 0), HA_GIN_UNFENCED);
	ha_gin_journal_fenced(&j);
	assert_int_equal(resume(1, 1, 0), HA_GIN_RESUMED);
}

static void what_the_receiver_has_not_counted_is_written_again_and_nothing_else(void **state)
{
	(void)state;
	begin(4, false);
	assert_true(ha_gin_acknowledge(&j, 0, 0));
	fence();
	assert_int_equal(resume(1, 2, 1), HA_GIN_RESUMED);
	assert_true(ha_gin_completed(&j) == 2); /* the second one's acknowledgement was lost */
	posts(2);
	posts(3);
	nothing_is_posted();
}

static void the_verdict_says_what_room_there_is(void **state)
{
	uint64_t number;

	(void)state;
	begin(6, false);
	fence();
	assert_int_equal(resume(1, 4, 4), HA_GIN_RESUMED);
	posts(4);
	posts(5);
	assert_true(ha_gin_issue(&j, &number));
	posts(6);
}

static void what_is_complete_and_was_not_counted_is_a_loss(void **state)
{
	(void)state;
	begin(3, false);
	assert_true(ha_gin_acknowledge(&j, 0, 1));
	fence();
	assert_int_equal(resume(1, 1, 1), HA_GIN_LOST);
	nothing_is_posted();
}

static void what_is_said_of_another_epoch_counts_for_nothing(void **state)
{
	(void)state;
	begin(4, false);
	fence();
	assert_int_equal(resume(2, 1, 1), HA_GIN_RESUMED);
	posts(1);
	posts(2);
	assert_false(ha_gin_acknowledge(&j, 0, 2));
	assert_false(ha_gin_hear_applied(&j, 0, 2));
	assert_false(ha_gin_hear_applied(&j, 3, 2));
	assert_true(ha_gin_completed(&j) == 1 && j.applied == 1);
	assert_true(ha_gin_acknowledge(&j, 2, 1));
}

static void a_verdict_that_cannot_be_is_refused(void **state)
{
	(void)state;
	begin(3, false);
	assert_true(ha_gin_hear_applied(&j, 0, 1));
	assert_false(ha_gin_hear_applied(&j, 0, 4)); /* not posted */
	fence();
	assert_false(ha_gin_hear_applied(&j, 0, 2));
	assert_int_equal(resume(0, 2, 1), HA_GIN_CONTRADICTS); /* an epoch that was */
	assert_int_equal(resume(1, 4, 1), HA_GIN_CONTRADICTS); /* counted what was not posted */
	assert_int_equal(resume(1, 2, 3), HA_GIN_CONTRADICTS); /* applied what was not counted */
	assert_int_equal(resume(1, 2, 0), HA_GIN_CONTRADICTS); /* less than it has said */
	assert_int_equal(resume(1, 2, 1), HA_GIN_RESUMED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_operation_is_posted_without_room_for_it),
	    cmocka_unit_test(a_request_is_complete_when_it_is_acknowledged),
	    cmocka_unit_test(end_to_end_a_request_is_complete_when_it_is_applied),
	    cmocka_unit_test(a_window_of_requests_may_be_open),
	    cmocka_unit_test(nothing_is_posted_while_a_path_is_fenced),
	    cmocka_unit_test(it_does_not_resume_before_its_own_end_is_fenced),
	    cmocka_unit_test(what_the_receiver_has_not_counted_is_written_again_and_nothing_else),
	    cmocka_unit_test(the_verdict_says_what_room_there_is),
	    cmocka_unit_test(what_is_complete_and_was_not_counted_is_a_loss),
	    cmocka_unit_test(what_is_said_of_another_epoch_counts_for_nothing),
	    cmocka_unit_test(a_verdict_that_cannot_be_is_refused),
	};

	return cmocka_run_group_tests_name("gin_journal", tests, NULL, NULL);
}
