/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rail is left out, when, and for how long: of two rails that carry so much together, and
 * so much when one of them has nothing. A stripe each millisecond, in virtual time.
 */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "transport/parking.h"

#include <string.h>

#define BOTH 3u

struct world {
	struct ha_parking parking;
	struct ha_balance balance;
	uint64_t now_ns;
	uint32_t together, alone; /* bytes a millisecond */
	uint32_t without_first;	  /* without the rail that announces more; 0: alone */
	uint32_t stripe_ms;	  /* what one takes */
	uint32_t late;		  /* stripes under way when one is left out: they come as before */
	uint32_t late_left;
	unsigned parked;     /* how often */
	uint64_t without_ms; /* how long one had nothing */
};

/* The second rail announces half of the first one's speed. */
static void begin(struct world *w, uint32_t together, uint32_t alone)
{
	memset(w, 0, sizeof(*w));
	w->now_ns = 1000 * HA_NS_PER_S;
	w->together = together;
	w->alone = alone;
	w->stripe_ms = 1;
	ha_balance_begin(&w->balance, 0, 20000);
	ha_balance_begin(&w->balance, 1, 10000);
	ha_parking_goes_on(&w->parking, w->now_ns);
}

/* Of the two. */
static unsigned carriers(const struct world *w)
{
	return BOTH & ~(1u << ha_parking_left_out(&w->parking));
}

/* Of the next stripe, of those that carry. */
static uint32_t bytes_of(struct world *w, unsigned carry)
{
	if (carry == BOTH) {
		w->late_left = w->late;
		return w->together;
	}
	if (w->late_left > 0) {
		w->late_left--;
		return w->together;
	}
	return carry == 2 && w->without_first ? w->without_first : w->alone;
}

static void go_on(struct world *w, uint64_t stripes)
{
	for (uint64_t i = 0; i < stripes; i++) {
		const unsigned carry = carriers(w);
		const uint32_t bytes = bytes_of(w, carry);

		w->now_ns += w->stripe_ms * HA_NS_PER_MS;
		w->without_ms += carry == BOTH ? 0 : w->stripe_ms;
		w->parked += ha_parking_carried(&w->parking, &w->balance, BOTH, bytes, w->now_ns);
	}
}

static void a_rail_without_which_more_gets_through_is_parked_longer_and_longer(void **state)
{
	uint32_t due_ms = 2000;
	struct world w;

	(void)state;
	begin(&w, 1000, 2000);
	for (unsigned n = 1; n <= 12; n++) {
		while (w.parked < n)
			go_on(&w, 1);
		assert_int_equal(w.parking.parked_ms, due_ms);
		assert_int_equal(carriers(&w), 1); /* the weaker one */
		go_on(&w, due_ms - 1);
		assert_int_equal(w.parked, n);
		assert_int_equal(carriers(&w), 1);
		go_on(&w, 2);
		assert_int_equal(carriers(&w), BOTH);
		due_ms = due_ms < 150000 ? 2 * due_ms : 300000;
	}
	assert_int_equal(due_ms, 300000);
}

static void it_is_parked_within_two_seconds(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 1031);
	go_on(&w, 400);
	assert_int_equal(w.parked, 1);
}

/* Until it is measured without a rail for the nth time. */
static void until_without(struct world *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		while (w->parking.state == HA_PARKING_ALONE)
			go_on(w, 1);
		while (w->parking.state != HA_PARKING_ALONE)
			go_on(w, 1);
	}
}

/* All together were slow, because of something else; where they are each time there is no telling.
 */
static void one_bad_moment_parks_no_rail(void **state)
{
	(void)state;
	for (unsigned moments = 1; moments <= 3; moments++) {
		struct world w;

		begin(&w, 900, 1000);
		if (moments < 3) {
			until_without(&w, moments);
			w.together = 2000;
		}
		go_on(&w, 1000);
		assert_int_equal(w.parked, moments == 3);
		assert_int_equal(w.parking.state,
				 moments == 3 ? HA_PARKING_PARKED : HA_PARKING_REST);
	}
}

/* It was fast without it, because others had nothing to send then. */
static void one_good_moment_without_it_parks_no_rail(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 2000);
	until_without(&w, 1);
	while (w.parking.state == HA_PARKING_ALONE)
		go_on(&w, 1);
	w.alone = 1000;
	go_on(&w, 1000);
	assert_int_equal(w.parked, 0);
	assert_int_equal(w.parking.state, HA_PARKING_REST);
}

/* Of many connections that have found other rates: what each of them would measure otherwise is
 * where the others are. */
static void rails_that_are_about_alike_are_left_out_in_the_same_order(void **state)
{
	static const uint32_t second_mbps[] = {18000, 20000, 22000};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct world w;

		begin(&w, 1000, 500);
		w.balance = (struct ha_balance){0};
		ha_balance_begin(&w.balance, 0, 20000);
		ha_balance_begin(&w.balance, 1, second_mbps[i]);
		until_without(&w, 1);
		assert_int_equal(carriers(&w), 2);
	}
}

/* Where one slows the other down, that is the one that looks slow. */
static void it_is_found_although_it_looks_like_the_better_one(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 500);
	w.without_first = 2000;
	go_on(&w, 450);
	assert_int_equal(w.parked, 1);
	assert_int_equal(carriers(&w), 2);
}

static void rails_that_help_have_nothing_for_75_ms_each_a_minute(void **state)
{
	/* Where it is clear that they do, for 50. */
	static const struct {
		uint32_t alone, ms;
	} cases[] = {{0, 50}, {500, 50}, {849, 50}, {850, 75}, {999, 75}, {1000, 75}, {1029, 75}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint32_t both_ms = 2 * cases[i].ms;
		struct world w;

		begin(&w, 1000, cases[i].alone);
		go_on(&w, 10 * 60000 + 400);
		assert_int_equal(w.parked, 0);
		/* The first one, and one for each minute since the last. */
		assert_in_range(w.without_ms, 9 * both_ms, 10 * (both_ms + 2) + 20);
	}
}

/* However long a message takes: a few of them, and a hundredth of the time from then on. */
static void of_slow_messages_few_go_without_a_rail(void **state)
{
	(void)state;
	for (uint32_t ms = 10; ms <= 1000; ms *= 10) {
		struct world w;
		uint64_t first_ms;

		begin(&w, 1000, 500);
		w.stripe_ms = ms;
		while (w.parking.state != HA_PARKING_REST || w.without_ms == 0)
			go_on(&w, 1);
		first_ms = w.without_ms;
		assert_in_range(first_ms / ms, 2, 2 * 7);
		go_on(&w, 1000 * first_ms / ms);
		assert_in_range(w.without_ms, first_ms, 1 + first_ms * 11);
		assert_int_equal(w.parked, 0);
	}
}

/* A queue of messages is still of before when a rail is left out. */
static void what_was_under_way_does_not_count(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 2000);
	w.stripe_ms = 10;
	w.late = 40;
	ha_balance_posted(&w.balance, 0, 40 * 1000, w.now_ns);
	while (w.parking.state != HA_PARKING_REST || w.without_ms == 0) {
		go_on(&w, 1);
		if (w.parked)
			return;
	}
	fail_msg("it was not parked");
}

/* What slowed the other one down is over. */
static void one_that_helps_again_is_tried_as_if_it_had_always(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 2000);
	go_on(&w, 1000);
	assert_int_equal(w.parked, 1);
	w.together = 3000;
	go_on(&w, 2000);
	assert_int_equal(carriers(&w), BOTH);
	w.together = 1000;
	go_on(&w, 60200);
	assert_int_equal(w.parked, 2);
	assert_int_equal(w.parking.parked_ms, 2000);
}

/* A program that sends now and then carries as much as it sends, with one rail or with both. */
static void time_in_which_nothing_is_under_way_does_not_count(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 2000);
	while (w.parked == 0 && w.now_ns < 2000 * HA_NS_PER_S) {
		w.now_ns += 50 * HA_NS_PER_MS;
		ha_parking_goes_on(&w.parking, w.now_ns);
		go_on(&w, 1);
	}
	assert_int_equal(w.parked, 1);
	begin(&w, 1000, 500);
	for (int i = 0; i < 1000; i++) {
		/* Pauses are longer with both. */
		w.now_ns += (carriers(&w) == BOTH ? 500 : 5) * HA_NS_PER_MS;
		ha_parking_goes_on(&w.parking, w.now_ns);
		go_on(&w, 1);
	}
	assert_int_equal(w.parked, 0);
	assert_true(w.without_ms > 0);
}

static void a_rail_that_is_lost_is_not_left_out_any_more(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 2000);
	while (w.parking.state != HA_PARKING_ALONE)
		go_on(&w, 1);
	ha_parking_lost(&w.parking, 0);
	assert_int_equal(carriers(&w), BOTH);
	while (w.parked == 0)
		go_on(&w, 1);
	ha_parking_lost(&w.parking, 0); /* it is no better for that */
	assert_int_equal(carriers(&w), 1);
	ha_parking_lost(&w.parking, 1); /* another path comes there */
	assert_int_equal(carriers(&w), BOTH);
}

static void a_rail_that_joins_is_tried_soon(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 500);
	go_on(&w, 1000);
	assert_int_equal(w.parked, 0);
	ha_parking_lost(&w.parking, 1);
	w.together = 400;
	go_on(&w, 400);
	assert_int_equal(w.parked, 1);
}

static void one_rail_is_not_compared_with_none(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 0);
	for (int i = 0; i < 1000; i++) {
		w.now_ns += HA_NS_PER_MS;
		assert_false(ha_parking_carried(&w.parking, &w.balance, 2, 1000, w.now_ns));
		assert_int_equal(w.parking.state, HA_PARKING_REST);
	}
}

static void until_left_out(struct world *w, unsigned ms)
{
	while (carriers(w) == BOTH)
		go_on(w, 1);
	go_on(w, ms);
	assert_int_equal(w->parking.state, HA_PARKING_ALONE);
}

/* At once, and then not for a hundred times as long as both tries had one left out. */
static void a_try_that_comes_to_no_end_is_made_once_more(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 500);
	for (unsigned again = 0; again < 2; again++) {
		until_left_out(&w, 20);
		ha_parking_stop(&w.parking);
		assert_int_equal(carriers(&w), BOTH);
		assert_int_equal(w.parking.state, HA_PARKING_REST);
		assert_true(again == 1 || w.parking.due_ns <= w.now_ns);
	}
	go_on(&w, 100 * w.without_ms - 100);
	assert_int_equal(w.parking.state, HA_PARKING_REST);
	go_on(&w, 150);
	assert_int_not_equal(w.parking.state, HA_PARKING_REST);
}

/* It was not found to have become better. */
static void what_is_parked_stays_so_when_a_try_comes_to_no_end(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1000, 2000);
	while (w.parked == 0)
		go_on(&w, 1);
	for (unsigned again = 0; again < 2; again++) {
		while (carriers(&w) != BOTH)
			go_on(&w, 1);
		go_on(&w, 10);
		ha_parking_stop(&w.parking);
		assert_int_equal(carriers(&w), 1);
		assert_int_equal(w.parking.parked_ms, 2000);
		assert_true(again == 1 || w.parking.due_ns <= w.now_ns);
	}
	go_on(&w, 1980);
	assert_int_equal(carriers(&w), 1);
	while (w.parked == 1)
		go_on(&w, 1);
	assert_int_equal(w.parking.parked_ms, 4000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_rail_without_which_more_gets_through_is_parked_longer_and_longer),
	    cmocka_unit_test(it_is_parked_within_two_seconds),
	    cmocka_unit_test(one_bad_moment_parks_no_rail),
	    cmocka_unit_test(one_good_moment_without_it_parks_no_rail),
	    cmocka_unit_test(rails_that_are_about_alike_are_left_out_in_the_same_order),
	    cmocka_unit_test(it_is_found_although_it_looks_like_the_better_one),
	    cmocka_unit_test(rails_that_help_have_nothing_for_75_ms_each_a_minute),
	    cmocka_unit_test(of_slow_messages_few_go_without_a_rail),
	    cmocka_unit_test(what_was_under_way_does_not_count),
	    cmocka_unit_test(one_that_helps_again_is_tried_as_if_it_had_always),
	    cmocka_unit_test(time_in_which_nothing_is_under_way_does_not_count),
	    cmocka_unit_test(a_rail_that_is_lost_is_not_left_out_any_more),
	    cmocka_unit_test(a_rail_that_joins_is_tried_soon),
	    cmocka_unit_test(one_rail_is_not_compared_with_none),
	    cmocka_unit_test(a_try_that_comes_to_no_end_is_made_once_more),
	    cmocka_unit_test(what_is_parked_stays_so_when_a_try_comes_to_no_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
