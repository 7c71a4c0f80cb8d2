/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who of several senders over the same two rails tries what they are worth, and that all go by what
 * it found. A stripe of each sender each millisecond, in virtual time; twice as much gets through
 * where none of them uses rail 1.
 */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "transport/shared_parking.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define SENDERS 3
#define BOTH	3u

struct world {
	struct ha_shared_parkings all;
	struct ha_parking_sender senders[SENDERS];
	struct ha_balance balance[SENDERS];
	unsigned slots[SENDERS];	     /* that could carry */
	bool pauses[SENDERS], slow[SENDERS]; /* what it has under way takes long */
	bool helps;			     /* rail 1, by now */
	uint32_t divided[SENDERS];	     /* what gets through of it; 0: undivided */
	uint64_t now_ns;
	unsigned parked; /* how often */
};

/* Only their addresses matter. */
static const char bundles[2];
static const uint8_t gids[2][16] = {{1}, {2}};

static const struct ha_bundle *bundle(unsigned i)
{
	return (const struct ha_bundle *)&bundles[i];
}

static unsigned second_of(unsigned sender)
{
	return sender == 0 ? 0 : 1;
}

/* Of the sender that leads first rail 1 is on slot 0, and on slot 1 of the others. */
static void begin(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->now_ns = 1000 * HA_NS_PER_S;
	ha_shared_parkings_init(&w->all);
	for (unsigned i = 0; i < SENDERS; i++) {
		const unsigned second = second_of(i);

		ha_balance_begin(&w->balance[i], 1 - second, 20000);
		ha_balance_begin(&w->balance[i], second, 10000);
		w->senders[i].rail_of_slot[second] = 1;
		w->slots[i] = BOTH;
		ha_parking_join(&w->senders[i], &w->all, bundle(0), gids[0]);
		ha_parking_sets_out(&w->senders[i], w->now_ns);
	}
}

static void end(struct world *w)
{
	for (unsigned i = 0; i < SENDERS; i++)
		ha_parking_leave(&w->senders[i], &w->all);
	assert_true(ha_list_empty(&w->all.all));
	ha_shared_parkings_destroy(&w->all);
}

static bool leads(const struct world *w, unsigned i)
{
	return atomic_load(&w->senders[i].shared->leader) == &w->senders[i];
}

static unsigned carriers(const struct world *w, unsigned i)
{
	return ha_parking_carriers(&w->senders[i], w->slots[i]);
}

/* Whether a sender uses rail 1. */
static bool uses_second(const struct world *w, unsigned i)
{
	return carriers(w, i) >> second_of(i) & 1;
}

static bool all_leave_it_out(const struct world *w)
{
	return !uses_second(w, 0) && !uses_second(w, 1) && !uses_second(w, 2);
}

static bool all_use_it(const struct world *w)
{
	return uses_second(w, 0) && uses_second(w, 1) && uses_second(w, 2);
}

static void go_on(struct world *w, unsigned ms)
{
	for (; ms > 0; ms--) {
		const uint32_t together = w->helps ? 3000 : 1000;
		const uint32_t bytes = all_leave_it_out(w) ? 2000 : together;

		w->now_ns += HA_NS_PER_MS;
		for (unsigned i = 0; i < SENDERS; i++) {
			if (!w->pauses[i] && !w->slow[i])
				w->parked += ha_parking_sender_carried(
				    &w->senders[i], &w->balance[i], w->slots[i],
				    w->divided[i] ? bytes / w->divided[i] : bytes, w->now_ns);
			(void)ha_parking_look(&w->senders[i], w->slow[i], w->now_ns);
		}
	}
}

static void until_parked(struct world *w, unsigned n, unsigned most_ms)
{
	for (; w->parked < n; most_ms--) {
		assert_true(most_ms > 0);
		go_on(w, 1);
	}
}

static void one_tries_and_all_go_by_what_it_found(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	until_parked(&w, 1, 400);
	assert_true(leads(&w, 0));
	assert_true(all_leave_it_out(&w));
	assert_int_equal(carriers(&w, 0), 2); /* rail 0, wherever a sender has it */
	assert_int_equal(carriers(&w, 1), 1);
	go_on(&w, 1990);
	assert_true(all_leave_it_out(&w));
	go_on(&w, 20);
	assert_true(all_use_it(&w));
	until_parked(&w, 2, 400);
	assert_int_equal(w.senders[0].trial.parked_ms, 4000);
	end(&w);
}

static void only_those_go_by_it_that_reach_the_same_port_from_the_same_bundle(void **state)
{
	struct ha_parking_sender others[2] = {{.rail_of_slot = {0, 1}}, {.rail_of_slot = {0, 1}}};
	struct world w;

	(void)state;
	begin(&w);
	ha_parking_join(&others[0], &w.all, bundle(1), gids[0]);
	ha_parking_join(&others[1], &w.all, bundle(0), gids[1]);
	until_parked(&w, 1, 400);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(ha_parking_carriers(&others[i], BOTH), BOTH);
		ha_parking_leave(&others[i], &w.all);
	}
	end(&w);
}

static void a_rail_is_not_left_out_where_there_is_no_other(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	until_parked(&w, 1, 400);
	w.slots[0] = 1; /* its other one is lost */
	assert_int_equal(carriers(&w, 0), 1);
	assert_int_equal(carriers(&w, 1), 1);
	end(&w);
}

static void one_that_takes_no_part_leaves_none_out(void **state)
{
	struct ha_parking_sender alone = {.shared = NULL};
	struct ha_balance balance = {.rails[0].pending = 0};

	(void)state;
	assert_int_equal(ha_parking_carriers(&alone, BOTH), BOTH);
	assert_false(ha_parking_sender_carried(&alone, &balance, BOTH, 1000, HA_NS_PER_S));
	assert_int_equal(ha_parking_look(&alone, false, HA_NS_PER_S), 0);
	ha_parking_sender_lost(&alone, 0, 2);
	ha_parking_sender_begins(&alone);
	ha_parking_resign(&alone);
}

/* ---- another one leads ----------------------------------------------------------------------- */

/* What was parked stays so, for as long as it was to be, and twice as long the next time. */
static void a_leader_that_carries_nothing_makes_way_for_one_that_does(void **state)
{
	uint64_t due_ns;
	struct world w;

	(void)state;
	begin(&w);
	until_parked(&w, 1, 400);
	due_ns = w.senders[0].trial.due_ns;
	w.pauses[0] = w.pauses[1] = true;
	go_on(&w, 510);
	assert_false(leads(&w, 0));
	assert_true(leads(&w, 2));
	assert_true(all_leave_it_out(&w));
	assert_int_equal(w.senders[2].trial.due_ns, due_ns);
	until_parked(&w, 2, 2000 + 400);
	assert_int_equal(w.senders[2].trial.parked_ms, 4000);
	assert_true(all_leave_it_out(&w));
	end(&w);
}

static void a_leader_stays_while_it_carries_or_nobody_does(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	go_on(&w, 1);
	for (unsigned i = 0; i < 20; i++) { /* now and then is enough */
		w.pauses[0] = i % 2;
		go_on(&w, 125);
		assert_true(leads(&w, 0));
	}
	w.pauses[0] = false;
	go_on(&w, 1);
	w.pauses[0] = w.pauses[1] = w.pauses[2] = true;
	go_on(&w, 5000);
	assert_true(leads(&w, 0));
	end(&w);
}

static void a_leader_stays_while_something_of_it_is_under_way(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	go_on(&w, 1);
	w.slow[0] = true;
	go_on(&w, 2000);
	assert_true(leads(&w, 0));
	w.slow[0] = false;
	w.pauses[0] = true;
	go_on(&w, 510);
	assert_false(leads(&w, 0));
	end(&w);
}

/* Others measure otherwise: what was left out for a try is not, and it begins anew. */
static void what_a_leader_was_trying_begins_anew(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	while (!all_leave_it_out(&w))
		go_on(&w, 1);
	go_on(&w, 20);
	w.pauses[0] = true;
	ha_parking_resign(&w.senders[0]);
	assert_true(all_use_it(&w));
	go_on(&w, 1);
	assert_true(leads(&w, 1));
	assert_true(all_use_it(&w));
	assert_int_equal(w.senders[1].trial.state, HA_PARKING_TOGETHER);
	until_parked(&w, 1, 400);
	end(&w);
}

/* It carries another part of all, and finds out for itself what it is without that rail. */
static void what_gets_through_is_a_leaders_own(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	until_parked(&w, 1, 400);
	go_on(&w, 1800);
	w.pauses[0] = w.pauses[1] = true;
	w.divided[2] = 10;
	w.helps = true;
	go_on(&w, 1000);
	assert_true(leads(&w, 2));
	assert_int_equal(w.parked, 1);
	assert_true(all_use_it(&w));
	end(&w);
}

static void a_leader_that_leaves_is_followed_and_the_last_one_leaves_nothing(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	until_parked(&w, 1, 400);
	w.pauses[0] = true;
	ha_parking_leave(&w.senders[0], &w.all);
	assert_int_equal(carriers(&w, 0), BOTH);
	go_on(&w, 1);
	assert_true(leads(&w, 1));
	assert_true(!uses_second(&w, 1) && !uses_second(&w, 2));
	end(&w);
}

/* One after the other, in the middle: they do not try for ever. */
static void leaders_that_leave_in_the_middle_do_not_leave_it_out_again_and_again(void **state)
{
	unsigned without_ms = 0;
	struct world w;

	(void)state;
	begin(&w);
	for (unsigned ms = 0; ms < 10000; ms++) {
		go_on(&w, 1);
		if (!all_leave_it_out(&w) || ++without_ms % 40 != 0)
			continue;
		for (unsigned i = 0; i < SENDERS; i++)
			ha_parking_resign(&w.senders[i]);
	}
	assert_in_range(without_ms, 80, 160);
	end(&w);
}

/* It has nothing to try, or not what is left out. */
static void one_that_lacks_a_rail_does_not_lead(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.slots[0] = 2; /* rail 0 */
	w.slots[1] = 1;
	go_on(&w, 1);
	assert_true(leads(&w, 2));
	until_parked(&w, 1, 400);
	ha_parking_resign(&w.senders[2]);
	w.pauses[2] = true;
	w.slots[0] = 1u << 1 | 1u << 2; /* of three rails */
	w.senders[0].rail_of_slot[2] = 2;
	go_on(&w, 10);
	assert_null(atomic_load(&w.senders[0].shared->leader));
	assert_false(uses_second(&w, 2));
	w.slots[1] = BOTH;
	go_on(&w, 1);
	assert_true(leads(&w, 1));
	assert_false(uses_second(&w, 2));
	end(&w);
}

/* ---- a leader loses paths -------------------------------------------------------------------- */

static void lose(struct world *w, unsigned i, unsigned slot)
{
	w->slots[i] &= ~(1u << slot);
	ha_parking_sender_lost(&w->senders[i], slot, w->slots[i]);
}

static void what_one_loses_that_does_not_lead_changes_nothing(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	until_parked(&w, 1, 400);
	lose(&w, 1, 1);
	ha_parking_sender_begins(&w.senders[2]);
	assert_true(leads(&w, 0));
	assert_true(all_leave_it_out(&w));
	end(&w);
}

static void one_that_has_one_rail_left_makes_way(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	until_parked(&w, 1, 400);
	lose(&w, 0, 1); /* the other one, which is no better for it */
	assert_false(leads(&w, 0));
	assert_int_equal(carriers(&w, 0), 1);
	assert_true(!uses_second(&w, 1) && !uses_second(&w, 2));
	go_on(&w, 1);
	assert_true(leads(&w, 1));
	end(&w);
}

/* Of what comes there nothing is known. */
static void a_parked_rail_that_is_lost_is_tried_anew(void **state)
{
	struct world w;

	(void)state;
	for (unsigned all_of_it = 0; all_of_it < 2; all_of_it++) {
		begin(&w);
		until_parked(&w, 1, 400);
		if (all_of_it)
			ha_parking_sender_begins(&w.senders[0]);
		else
			lose(&w, 0, 0);
		assert_true(uses_second(&w, 1) && uses_second(&w, 2));
		w.slots[0] = BOTH;
		until_parked(&w, 2, 400);
		assert_int_equal(w.senders[0].trial.parked_ms, 2000);
		end(&w);
	}
}

/* ---- threads --------------------------------------------------------------------------------- */

#define ROUNDS 20000

static struct ha_shared_parkings live;
static pthread_barrier_t start;
static uint64_t led; /* of all: only who leads may touch it */

struct driver {
	pthread_t thread;
	uint64_t led, left_out;
};

/* A sender that comes and goes, and makes way as soon as it has led for some stripes. */
static void *drive(void *arg)
{
	struct driver *driver = arg;
	struct ha_parking_sender sender = {.rail_of_slot = {0, 1}};
	struct ha_balance balance = {.rails[0].pending = 0};

	ha_balance_begin(&balance, 0, 20000);
	ha_balance_begin(&balance, 1, 10000);
	(void)pthread_barrier_wait(&start);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		ha_parking_join(&sender, &live, bundle(0), gids[0]);
		(void)ha_parking_sender_carried(&sender, &balance, BOTH, 1000, i * HA_NS_PER_MS);
		driver->left_out += ha_parking_carriers(&sender, BOTH) != BOTH;
		if (atomic_load(&sender.shared->leader) == &sender) {
			led++;
			driver->led++;
		}
		if (i % 256 == 0) {
			ha_parking_resign(&sender);
			(void)sched_yield();
		}
		if (i % 2048 == 0)
			ha_parking_leave(&sender, &live);
	}
	ha_parking_leave(&sender, &live);
	return NULL;
}

static void one_at_a_time_leads_whatever_threads_do(void **state)
{
	struct driver drivers[SENDERS] = {{.led = 0}};
	uint64_t sum = 0, left_out = 0;

	(void)state;
	ha_shared_parkings_init(&live);
	assert_int_equal(pthread_barrier_init(&start, NULL, SENDERS), 0);
	for (unsigned i = 0; i < SENDERS; i++)
		assert_int_equal(pthread_create(&drivers[i].thread, NULL, drive, &drivers[i]), 0);
	for (unsigned i = 0; i < SENDERS; i++) {
		assert_int_equal(pthread_join(drivers[i].thread, NULL), 0);
		sum += drivers[i].led;
		left_out += drivers[i].left_out;
	}
	assert_int_equal(led, sum);
	assert_true(led >= ROUNDS / 2);
	assert_true(left_out > 0); /* it was tried */
	assert_true(ha_list_empty(&live.all));
	ha_shared_parkings_destroy(&live);
	pthread_barrier_destroy(&start);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_tries_and_all_go_by_what_it_found),
	    cmocka_unit_test(only_those_go_by_it_that_reach_the_same_port_from_the_same_bundle),
	    cmocka_unit_test(a_rail_is_not_left_out_where_there_is_no_other),
	    cmocka_unit_test(one_that_takes_no_part_leaves_none_out),
	    cmocka_unit_test(a_leader_that_carries_nothing_makes_way_for_one_that_does),
	    cmocka_unit_test(a_leader_stays_while_it_carries_or_nobody_does),
	    cmocka_unit_test(a_leader_stays_while_something_of_it_is_under_way),
	    cmocka_unit_test(what_a_leader_was_trying_begins_anew),
	    cmocka_unit_test(leaders_that_leave_in_the_middle_do_not_leave_it_out_again_and_again),
	    cmocka_unit_test(what_gets_through_is_a_leaders_own),
	    cmocka_unit_test(a_leader_that_leaves_is_followed_and_the_last_one_leaves_nothing),
	    cmocka_unit_test(one_that_lacks_a_rail_does_not_lead),
	    cmocka_unit_test(what_one_loses_that_does_not_lead_changes_nothing),
	    cmocka_unit_test(one_that_has_one_rail_left_makes_way),
	    cmocka_unit_test(a_parked_rail_that_is_lost_is_tried_anew),
	    cmocka_unit_test(one_at_a_time_leads_whatever_threads_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
