/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One fault of each kind before each event of a run of three hosts, and walks with several at
 * random moments, in virtual time: all hosts have every result, each with one order's bits, or all
 * that are left end with the error that names who has died (epochs.h, group.h).
 *
 * INC_EXPLORE_EVERY: before each Nth event; INC_EXPLORE_WALKS: how many walks.
 */
#include "../seeded_random.h"
#include "../stepped_rules.h"

#include "epochs.h"

#include <stdlib.h>
#include <string.h>

#define HOSTS  3
#define FAULTS 3 /* of a walk, at most */

static unsigned int setting(const char *name, unsigned int otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned int)strtoul(text, NULL, 10) : otherwise;
}

/* ---- faults --------------------------------------------------------------------------------- */

static int packet_rule = -1;

/* Between a host and the switch that is in use; another one is not concerned. */
static void block(unsigned int host, bool up, bool down)
{
	unsigned int i;

	if (!switch_in_use(&i))
		return;
	if (up)
		sv_stepped_block(host, 0, group_switch(&g, i), 0, true);
	if (down)
		sv_stepped_block(group_switch(&g, i), 0, host, 0, true);
}

static void edge_cut(unsigned int host)
{
	block(host, true, true);
}

static void way_up_cut(unsigned int host)
{
	block(host, true, false);
}

static void way_down_cut(unsigned int host)
{
	block(host, false, true);
}

static void switch_death(unsigned int host)
{
	unsigned int i;

	(void)host;
	if (switch_in_use(&i))
		kill_switch();
}

static void packet_lost(unsigned int host)
{
	(void)host;
	packet_rule = add_rule("drop nth=1");
}

static void packet_doubled(unsigned int host)
{
	(void)host;
	packet_rule = add_rule("dup nth=1");
}

static void false_alarm(unsigned int host)
{
	if (!g.is_gone[host])
		ha_member_cut(g.host[host].member);
}

static void death(unsigned int host)
{
	if (!g.is_gone[host])
		lose_host(host);
}

static void member_death(unsigned int host)
{
	death(1 + host % (HOSTS - 1));
}

static void leader_death(unsigned int host)
{
	(void)host;
	death(0);
}

static const struct fault {
	const char *name;
	void (*happens)(unsigned int host);
	bool is_death, is_of_packets;
} faults[] = {
    {"switch death", switch_death, false, false},
    {"edge cut", edge_cut, false, false},
    {"cut on the way up", way_up_cut, false, false},
    {"cut on the way down", way_down_cut, false, false},
    {"packet lost", packet_lost, false, true},
    {"packet doubled", packet_doubled, false, true},
    {"false alarm", false_alarm, false, false},
    {"member death", member_death, true, false},
    {"leader death", leader_death, true, false},
};

#define KINDS (sizeof(faults) / sizeof(faults[0]))

/* ---- runs ----------------------------------------------------------------------------------- */

static uint64_t due;

static bool is_due(void)
{
	return sv_stepped_index() >= due;
}

/* Four units in three operations, of two switches and then hosts. */
static void begin(const struct group_shape *shape, bool in_place, uint64_t seed)
{
	memset(&plan, 0, sizeof(plan));
	plan.hosts_add_from = 2;
	packet_rule = -1;
	open_run(shape, seed);
	add_small(in_place);
}

static struct group_shape shape_of(unsigned int variant)
{
	struct group_shape shape = small();

	shape.copies = variant / 2;
	return shape;
}

/* Everything is everywhere; false: all end with the name of who has died, but for those that had
 * left before, with everything. */
static bool ends_well(void)
{
	unsigned int over = 0;

	for (unsigned int h = 0; h < HOSTS; h++) {
		if (g.is_gone[h])
			continue;
		over += follower[h].state == HA_FOLLOWER_OVER;
		if (follower[h].state == HA_FOLLOWER_LEFT) {
			assert_int_equal(g.host[h].done, group_asks(&g, h));
			continue;
		}
		assert_int_equal(follower[h].verdict.kind, HA_INC_ABORT);
		assert_int_equal(follower[h].verdict.abort.why, HA_INC_ABORT_DEAD);
		assert_true(g.is_gone[follower[h].verdict.abort.about.member]);
	}
	return !over;
}

/* How often each has ended in results, and in an error. */
struct tally {
	unsigned int well, error, epochs;
	uint64_t acted;
};

static void run_to_the_end(struct tally *tally)
{
	run();
	if (ends_well())
		tally->well++;
	else
		tally->error++;
}

static void one_fault(const struct fault *fault, unsigned int variant, uint64_t at,
		      struct tally *tally)
{
	const struct group_shape shape = shape_of(variant);

	begin(&shape, variant % 2, at);
	due = at;
	run_until(is_due);
	fault->happens((unsigned int)at % HOSTS);
	run_to_the_end(tally);
	tally->epochs += leader.decision.epoch > 0;
	tally->acted += fault->is_of_packets && fired(packet_rule);
	if (fault->is_of_packets)
		assert_int_equal(leader.decision.epoch, 0);
	group_close(&g);
}

static void one_fault_before_any_event(void **state)
{
	const unsigned int every = setting("INC_EXPLORE_EVERY", 9);

	(void)state;
	for (unsigned int k = 0; k < KINDS; k++) {
		struct tally tally = {0};

		for (unsigned int variant = 0; variant < 4; variant++) {
			const struct group_shape shape = shape_of(variant);
			uint64_t events;

			memset(&plan, 0, sizeof(plan));
			events = events_of_peace(&shape, variant % 2);
			for (uint64_t at = 1 + variant % every; at < events; at += every)
				one_fault(&faults[k], variant, at, &tally);
		}
		print_message("%-20s %u right, %u ended with its name, %u of them with epochs\n",
			      faults[k].name, tally.well, tally.error, tally.epochs);
		assert_true(faults[k].is_death || tally.well > 0);
		assert_true(faults[k].is_death == (tally.error > 0));
		assert_true(faults[k].is_of_packets == (tally.acted > 0));
		assert_true(faults[k].is_of_packets || tally.epochs || faults[k].is_death);
	}
}

/* ---- walks ---------------------------------------------------------------------------------- */

static void walk(uint64_t seed, struct tally *tally)
{
	uint64_t chance = mix(seed);
	struct group_shape shape = shape_of((unsigned int)(chance % 4));
	const unsigned int n = (unsigned int)(1 + chance / 4 % FAULTS);

	shape.fabric.seed = seed;
	shape.window = (unsigned int)(1 + chance / 64 % 4);
	shape.lanes = (unsigned int)(1 + chance / 512 % 2);
	begin(&shape, chance % 2, seed);
	g.turns = seed;
	due = 0;
	for (unsigned int i = 0; i < n; i++) {
		chance = mix(chance);
		due += 1 + chance / 64 % 120;
		run_until(is_due);
		/* A group with two dead has two names to say. */
		if (!faults[chance % KINDS].is_death ||
		    !(g.is_gone[0] | g.is_gone[1] | g.is_gone[2]))
			faults[chance % KINDS].happens((unsigned int)(chance / 16 % HOSTS));
	}
	run_to_the_end(tally);
	tally->epochs += leader.decision.epoch > 1;
	group_close(&g);
}

static void walks_with_several(void **state)
{
	const unsigned int walks = setting("INC_EXPLORE_WALKS", 100);
	struct tally tally = {0};

	(void)state;
	for (uint64_t seed = 1; seed <= walks; seed++)
		walk(seed, &tally);
	print_message("%u walks: %u right, %u ended with a name, %u with two epochs and more\n",
		      walks, tally.well, tally.error, tally.epochs);
	assert_true(tally.well > walks / 4 && tally.error > walks / 20 && tally.epochs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_fault_before_any_event),
	    cmocka_unit_test(walks_with_several),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
