/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code for GPUs (nccl_ha/ibgda.cuh) and the host's steps (ibgda/switchover.h), one step of one
 * of them at a time: faults at each event, threads that sleep between any two of their stores.
 *
 *     stepped_ibgda_stream [SEEDS]    so many schedules, with every fault at every event of each
 */
#include "../unit/cmocka_all.h"

#include "ibgda/switchover.h"
#include "stream_world.h"

#include <stdio.h>
#include <stdlib.h>

static unsigned long every_event_of; /* schedules; 0: some events of some */

static struct world_plan schedule(uint64_t seed)
{
	return (struct world_plan){.seed = seed,
				   .threads = 2 + (unsigned int)(seed % 3),
				   .posts = 3,
				   .log = 1 + (uint32_t)(seed % 3)};
}

static void is_right(const struct world_plan *plan, const struct world_result *result)
{
	if (result->wrong)
		fail_msg("seed %llu, faults %d at %u and %d at %u, held at %s: %s, at event %u, "
			 "generation %u",
			 (unsigned long long)plan->seed, plan->faults[0].fault, plan->faults[0].at,
			 plan->faults[1].fault, plan->faults[1].at,
			 plan->held_at ? plan->held_at : "no step", result->wrong, result->events,
			 result->generations);
}

static void without_faults_every_byte_and_signal_is_right(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		const struct world_plan plan = schedule(seed);
		const struct world_result result = world_run(&plan);

		is_right(&plan, &result);
		assert_int_equal(result.generations, 0);
		assert_false(result.given_up);
	}
}

/* A fault at this event, and another one, of another kind, soon after it. */
static struct world_result run_with_faults(uint64_t seed, enum world_fault fault, unsigned int at)
{
	struct world_plan plan = schedule(seed);
	struct world_result result;

	plan.faults[0].fault = fault;
	plan.faults[0].at = at;
	plan.faults[1].fault = (enum world_fault)(1 + at % (WORLD_FAULTS - 1));
	plan.faults[1].at = at + 10 + at % 200;
	result = world_run(&plan);
	is_right(&plan, &result);
	return result;
}

static void with_two_faults_at_any_event_every_byte_and_signal_is_right(void **state)
{
	const unsigned long seeds = every_event_of ? every_event_of : 30;
	const unsigned int stride = every_event_of ? 1 : 37;
	unsigned long runs = 0, fired = 0, given_up = 0, refilled = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		const struct world_plan plan = schedule(seed);
		const unsigned int events = world_run(&plan).events;

		for (unsigned int fault = 1; fault < WORLD_FAULTS; fault++)
			for (unsigned int at = (unsigned int)seed % stride; at < events;
			     at += stride) {
				const struct world_result result = run_with_faults(seed, fault, at);

				runs++;
				fired += result.fired;
				given_up += result.given_up;
				refilled += result.refilled;
			}
	}
	printf("%lu runs, %lu faults fired, %lu streams given up with cause, %lu requests written "
	       "over before that went on\n",
	       runs, fired, given_up, refilled);
	assert_true(refilled >= (every_event_of ? 10000 : 100));
	assert_true(fired >= (every_event_of ? 2500 * seeds : 2000));
	assert_true(given_up > 0 && given_up < runs / 4);
}

/* Who writes again what the receiver has is found out in so few cases. */
static void what_the_receiver_has_written_over_is_not_written_again(void **state)
{
	unsigned int refilled = 0;

	(void)state;
	for (uint64_t seed = 1; refilled < 100 && seed < 1000; seed++)
		refilled +=
		    run_with_faults(seed, WORLD_CUT_ARRIVES, (unsigned int)(seed * 37 % 200))
			.refilled;
	assert_in_range(refilled, 100, 200);
}

/* It sleeps for two or three generations, at each of its steps in turn, and nothing that it holds
 * is used again. What it does not hold may be, the queue that it looked at included. */
static void a_thread_that_sleeps_between_any_two_stores_harms_nobody(void **state)
{
	const unsigned int seeds = every_event_of ? 400 : 100;

	(void)state;
	for (unsigned int step = 0; world_step(step); step++) {
		unsigned int held = 0;

		for (uint64_t seed = 1; seed <= seeds; seed++) {
			struct world_plan plan = schedule(seed);
			struct world_result result;

			plan.held_at = world_step(step);
			plan.held_for = 2 + seed % 2;
			plan.wakes_early = seed / 2 % 2;
			result = world_run(&plan);
			is_right(&plan, &result);
			held += result.held;
			assert_true(!result.held || result.generations >= plan.held_for);
			/* While it sleeps each generation keeps one; when it is awake none is kept.
			 */
			assert_true(result.left_most <= 3 + 3);
			assert_int_equal(result.left, 0);
		}
		assert_true(held > seeds / 2);
	}
}

/* A program ends it at any time: its host may be about to close the gate, or to open it elsewhere.
 */
static void a_stream_that_is_ended_stays_so_whatever_its_host_does(void **state)
{
	static struct ha_ibgda_queue queues[HA_IBGDA_QUEUES];
	uint64_t alarm = 0;
	struct ha_ibgda_stream stream = {.queues = queues, .alarm = &alarm, .log = 3};
	struct ha_ibgda_host host = {.stream = &stream};

	(void)state;
	ha_ibgda_end_gate(&host);
	ha_ibgda_host_init(&host, &stream);
	assert_int_equal(stream.gate, ha_ibgda_gate(&queues[0], HA_IBGDA_DEAD));
	ha_ibgda_fail(&host); /* not closed, or threads would wait for the next generation */
	assert_int_equal(stream.gate, ha_ibgda_gate(&queues[0], HA_IBGDA_DEAD));
	host.next = 1;
	ha_ibgda_open(&host);
	assert_int_equal(stream.gate, ha_ibgda_gate(&queues[1], HA_IBGDA_DEAD));
	ha_ibgda_give_up(&host);
	assert_int_equal(stream.gate, ha_ibgda_gate(&queues[1], HA_IBGDA_DEAD));

	host = (struct ha_ibgda_host){.stream = &stream};
	ha_ibgda_host_init(&host, &stream);
	ha_ibgda_fail(&host);
	ha_ibgda_end_gate(&host); /* those that wait return */
	assert_int_equal(stream.gate, ha_ibgda_gate(&queues[0], HA_IBGDA_DEAD));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(without_faults_every_byte_and_signal_is_right),
	    cmocka_unit_test(with_two_faults_at_any_event_every_byte_and_signal_is_right),
	    cmocka_unit_test(what_the_receiver_has_written_over_is_not_written_again),
	    cmocka_unit_test(a_thread_that_sleeps_between_any_two_stores_harms_nobody),
	    cmocka_unit_test(a_stream_that_is_ended_stays_so_whatever_its_host_does),
	};

	if (argc > 1)
		every_event_of = strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests_name("ibgda_stream", tests, NULL, NULL);
}
