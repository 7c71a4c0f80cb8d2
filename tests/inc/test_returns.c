/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group that loses its only switch and gets it back, as often as many switches fail in the life
 * of a job, in virtual time: hosts add for each other in between, every element is compared
 * (epochs.h, group.h), and what is allocated at the same point of each round does not grow.
 */
#include "epochs.h"

#include <malloc.h>
#include <string.h>

#define RETURNS 150
#define OPS	2 /* by the switch, and then by hosts */

static size_t allocated(void)
{
	const struct mallinfo2 now = mallinfo2();

	return now.uordblks + now.hblkhd;
}

static bool all_are_done(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (g.host[h].done < g.most)
			return false;
	return true;
}

static bool hosts_have_added(void)
{
	return leader.way > 0 && leader.state == HA_LEADER_QUIET && all_are_done();
}

static bool all_are_home(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (follower[h].epoch != leader.decision.epoch ||
		    follower[h].state != HA_FOLLOWER_RUNS)
			return false;
	return leader.way == 0 && leader.state == HA_LEADER_QUIET;
}

static void block(unsigned int host, bool is_on)
{
	sv_stepped_block(host, 0, group_switch(&g, 0), 0, is_on);
	sv_stepped_block(group_switch(&g, 0), 0, host, 0, is_on);
}

/* One host's edge is cut while all wait for a sum. */
static void lose_and_get_back(unsigned int host)
{
	block(host, true);
	g.most += OPS / 2;
	run_until(hosts_have_added);
	assert_true(hosts_have_added());
	block(host, false);
	assert_true(ha_leader_go_back(&leader, sv_stepped_now()));
	run_until(all_are_home);
	assert_true(all_are_home());
}

static void many_returns_leave_nothing(void **state)
{
	struct group_shape shape = small();
	size_t before = 0, after = 0;

	(void)state;
	shape.switches = 1;
	memset(&seen, 0, sizeof(seen));
	memset(&plan, 0, sizeof(plan));
	plan.hosts_add_from = 1;
	open_run(&shape, 1);
	for (unsigned int op = 0; op <= RETURNS * OPS; op++)
		group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 40 + op % 3, op % 4 == 1);
	for (unsigned int n = 0; n < RETURNS; n++) {
		size_t *most = n < RETURNS / 2 ? &before : &after;

		g.most += OPS / 2;
		run_until(all_are_done);
		lose_and_get_back(n % shape.hosts);
		if (allocated() > *most)
			*most = allocated();
	}
	g.most = 0; /* the last one */
	run_well();
	print_message("at most %zu bytes in the first half of %u returns, %zu in the second; ",
		      before, RETURNS, after);
	tell();
	assert_int_equal(group_epochs_of_hosts(&g), RETURNS);
	assert_int_equal(leader.decision.epoch, 2 * RETURNS);
	/* The least that each return could leave is 32; packets under way are more or less. */
	assert_true(after < before + RETURNS / 2 * 8);
	assert_true(seen.again && seen.lost_frames && seen.lost_packets);
	group_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(many_returns_leave_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
