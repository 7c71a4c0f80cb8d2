/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a group one of whose ports is down, in virtual time: an edge does not move to
 * another port (docs/inc-protocol.md, "Ports"), so the queue pair's own retransmission makes up for
 * a short time, and a longer one is an epoch (epochs.h, group.h). Every element is compared.
 */
#include "epochs.h"

#include <string.h>

#define MS	       1000000ull
#define MOMENTS	       20
#define EVENTS_BETWEEN 3
#define SWITCH	       3
#define RETRY_NS       (67 * MS)      /* a queue pair's timeout */
#define GIVES_UP_NS    (8 * RETRY_NS) /* the first one and seven retries */

static uint64_t due;

static bool is_due(void)
{
	return sv_stepped_index() >= due;
}

static uint64_t up_ns;

static bool is_time(void)
{
	return sv_stepped_now() >= up_ns;
}

static void begin(unsigned int moment)
{
	const struct group_shape shape = small();

	memset(&plan, 0, sizeof(plan));
	plan.hosts_add_from = 2;
	open_run(&shape, 1 + moment);
	assert_int_equal(sv_stepped_fault_remove(plan.losses), 0);
	add_small(moment % 2);
	due = 1 + EVENTS_BETWEEN * moment;
	run_until(is_due);
}

/* For so long; then to the end, which is returned: after how long. */
static uint64_t down_for(unsigned int host, uint64_t ns)
{
	const uint64_t from_ns = sv_stepped_now();

	sv_stepped_link(host, 0, false);
	up_ns = from_ns + ns;
	run_until(is_time);
	sv_stepped_link(host, 0, true);
	run_well();
	return sv_stepped_now() - from_ns;
}

static void a_port_that_is_down_for_milliseconds_costs_no_epoch(void **state)
{
	uint64_t longest_ns = 0;

	(void)state;
	for (unsigned int moment = 0; moment < MOMENTS; moment++) {
		const uint64_t down_ns = (1 + moment) * MS;
		uint64_t after_ns;

		begin(moment);
		after_ns = down_for(moment % 4, down_ns) - down_ns;
		longest_ns = after_ns > longest_ns ? after_ns : longest_ns;
		assert_int_equal(leader.decision.epoch, 0);
		group_close(&g);
	}
	print_message("done %llu us after it was up at most\n",
		      (unsigned long long)longest_ns / 1000);
	assert_true(longest_ns < 2 * RETRY_NS);
}

/* There is another switch; of a host there is no other port, so it is tried until that is up. */
static void a_port_that_is_down_for_longer_is_an_epoch(void **state)
{
	uint64_t longest_ns[2] = {0}; /* of hosts, of switches */

	(void)state;
	for (unsigned int moment = 0; moment < MOMENTS; moment++) {
		const bool is_switch = moment % 4 == SWITCH;
		uint64_t *longest = &longest_ns[is_switch];
		uint64_t after_ns;

		begin(moment);
		after_ns = down_for(moment % 4, LATE_NS) - (is_switch ? 0 : LATE_NS);
		*longest = after_ns > *longest ? after_ns : *longest;
		assert_true(is_switch ? leader.decision.epoch == 1 : leader.decision.epoch > 1);
		group_close(&g);
	}
	print_message("done %llu us after a host's was up at most, and after a switch's was down "
		      "%llu us\n",
		      (unsigned long long)longest_ns[0] / 1000,
		      (unsigned long long)longest_ns[1] / 1000);
	assert_true(longest_ns[0] < 2 * RETRY_NS);
	assert_true(longest_ns[1] < GIVES_UP_NS + RETRY_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_port_that_is_down_for_milliseconds_costs_no_epoch),
	    cmocka_unit_test(a_port_that_is_down_for_longer_is_an_epoch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
