/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a group whose hosts have a second port when the first one is lost, in virtual
 * time: in the next epoch that host's edges are on the other one, and the group goes on over its
 * switch (epochs.h, group.h). Every element is compared.
 */
#include "../unit/captured_log.h"
#include "epochs.h"

#include "device/reopen.h"

#include <string.h>

#define MS	 1000000ull
#define SOON_NS	 (20 * MS)
#define RETRY_NS (67 * MS)	/* a queue pair's timeout */
#define GIVES_UP (8 * RETRY_NS) /* the first one and seven retries */
#define BACK_NS	 (300 * MS)	/* until a better port is gone back to */
#define HOSTS	 3

static uint64_t due;

static bool is_due(void)
{
	return sv_stepped_index() >= due;
}

static struct group_shape two_ports(void)
{
	struct group_shape shape = small();

	shape.switches = 1;
	shape.fabric.rails = 2;
	return shape;
}

static void begin_with(uint64_t seed, bool in_place)
{
	const struct group_shape shape = two_ports();

	open_run(&shape, seed);
	add_small(in_place);
}

static void clear(void)
{
	memset(&plan, 0, sizeof(plan));
	plan.has_one_switch = true;
}

/* ---- how it is lost ------------------------------------------------------------------------- */

typedef void loss(unsigned int host);

static void lose_port(unsigned int host)
{
	sv_stepped_link(host, 0, false);
}

static void lose_nic(unsigned int host)
{
	sv_stepped_kill(host, 0);
}

/* Nobody is told: the port stays up, and nothing passes between it and the switch. */
static void lose_path(unsigned int host)
{
	sv_stepped_block(host, 0, group_switch(&g, 0), 0, true);
	sv_stepped_block(group_switch(&g, 0), 0, host, 0, true);
}

/* The group's second port works, and its first one is lost before the event. Returns after how long
 * all was done; 0: that host had everything already, so that nothing had to be done. */
static uint64_t lose_before(uint64_t event, loss *lose, unsigned int host, uint64_t seed)
{
	uint64_t from_ns, after_ns;

	begin_with(seed, seed % 2);
	due = event;
	run_until(is_due);
	from_ns = sv_stepped_now();
	lose(host);
	run_well();
	after_ns = ha_member_at(g.host[host].member) == 1 ? sv_stepped_now() - from_ns : 0;
	for (unsigned int h = 0; h < HOSTS; h++)
		if (h != host && lose != lose_path)
			assert_int_equal(ha_member_at(g.host[h].member), 0);
	assert_true(after_ns == 0 || leader.decision.epoch > 0);
	assert_int_equal(group_epochs_of_hosts(&g), 0);
	group_close(&g);
	return after_ns;
}

static uint64_t events_in_peace(void)
{
	const struct group_shape shape = two_ports();

	clear();
	return events_of_peace(&shape, false);
}

/* Of which host, and how, before each event; frames and packets get lost besides. */
static void lose_before_any_event(loss *lose)
{
	const uint64_t events = events_in_peace();
	unsigned int moved = 0, runs = 0;

	memset(&seen, 0, sizeof(seen));
	for (unsigned int host = 0; host < HOSTS; host++)
		for (uint64_t at = 1; at < events; at++, runs++) {
			clear();
			moved += lose_before(at, lose, host, 1 + at) > 0;
		}
	print_message("%u of %u runs went on over the other port; ", moved, runs);
	tell();
	assert_true(moved > runs / 2 && seen.taken && seen.lacked && seen.again &&
		    seen.lost_frames && seen.lost_packets);
}

static void a_port_that_goes_down_before_any_event_costs_no_element(void **state)
{
	(void)state;
	lose_before_any_event(lose_port);
}

static void a_nic_that_dies_before_any_event_costs_no_element(void **state)
{
	(void)state;
	lose_before_any_event(lose_nic);
}

static void a_path_that_is_lost_without_a_word_is_left_when_an_edge_has_failed(void **state)
{
	(void)state;
	lose_before_any_event(lose_path);
}

/* All frames come, and no packet is lost. */
static uint64_t longest_ns(loss *lose, uint64_t events)
{
	uint64_t longest = 0;

	for (uint64_t at = 1; at < events; at++) {
		uint64_t after_ns;

		clear();
		plan.is_quiet = plan.has_no_losses = true;
		after_ns = lose_before(at, lose, (unsigned int)(at % HOSTS), at);
		longest = after_ns > longest ? after_ns : longest;
	}
	return longest;
}

static void how_long_it_takes(void **state)
{
	const uint64_t events = events_in_peace();
	const uint64_t port = longest_ns(lose_port, events), nic = longest_ns(lose_nic, events),
		       path = longest_ns(lose_path, events);

	(void)state;
	print_message(
	    "all is done %llu us after a port went down at most, %llu us after a NIC died, "
	    "%llu us after a path was lost\n",
	    (unsigned long long)port / 1000, (unsigned long long)nic / 1000,
	    (unsigned long long)path / 1000);
	assert_true(port > 0 && port < SOON_NS && nic > 0 && nic < SOON_NS);
	/* A host that only waits has to be late, and then to send something. */
	assert_true(path > 0 && path < LATE_NS + GIVES_UP + RETRY_NS);
}

/* ---- before it begins, and afterwards ------------------------------------------------------- */

static void a_host_whose_first_port_is_down_begins_on_the_other_one(void **state)
{
	(void)state;
	for (unsigned int host = 0; host < HOSTS; host++) {
		clear();
		plan.starts_without[host] = true;
		begin_with(1 + host, false);
		run_well();
		assert_int_equal(leader.decision.epoch, 0);
		for (unsigned int h = 0; h < HOSTS; h++)
			assert_int_equal(ha_member_at(g.host[h].member), h == host);
		group_close(&g);
	}
}

static bool has_moved(void)
{
	return ha_member_at(g.host[1].member) == 1 && leader.state == HA_LEADER_QUIET;
}

static bool is_first_way(void)
{
	return leader.way == 0 && leader.state == HA_LEADER_QUIET;
}

static bool is_back(void)
{
	return ha_member_at(g.host[1].member) == 0 && leader.state == HA_LEADER_QUIET;
}

static uint64_t until_ns;

static bool is_time(void)
{
	return sv_stepped_now() >= until_ns;
}

static void wait_ns(uint64_t ns)
{
	until_ns = sv_stepped_now() + ns;
	run_until(is_time);
}

/* One operation at a time, all frames come, and a better port is gone back to. */
static void begin_quietly(void)
{
	clear();
	plan.is_quiet = plan.has_no_losses = true;
	plan.failback_ns = BACK_NS;
	begin_with(1, false);
	g.most = 1;
}

/* By epochs that nobody needs: what is open when they begin is not computed again. */
static void a_port_that_works_again_is_gone_back_to(void **state)
{
	uint64_t up_ns, after_ns;
	uint32_t epoch;

	(void)state;
	begin_quietly();
	lose_port(1);
	run_until(has_moved);
	assert_true(ha_leader_go_back(&leader, sv_stepped_now())); /* as its controller has it */
	run_until(is_first_way);
	epoch = leader.decision.epoch;
	wait_ns(3 * BACK_NS);
	assert_true(has_moved() &&
		    leader.decision.epoch == epoch); /* it is down: that is no reason */
	memset(&seen, 0, sizeof(seen));
	sv_stepped_link(1, 0, true);
	up_ns = sv_stepped_now();
	g.most = 2;
	run_until(is_back);
	after_ns = sv_stepped_now() - up_ns;
	print_message("it was back after %llu us\n", (unsigned long long)after_ns / 1000);
	assert_true(after_ns >= BACK_NS && after_ns < BACK_NS + SOON_NS + 2 * MS);
	assert_int_equal(seen.again, 0);
	g.most = 0;
	run_well();
	assert_int_equal(leader.decision.epoch, epoch + 1);
	group_close(&g);
}

/* As the plugin does it for a NIC that was reset. */
static void open_nic_again(unsigned int host)
{
	struct ha_nic *nic = group_port(&g, host)->nic;
	struct ha_reopening found;

	sv_stepped_revive(host, 0);
	sv_stepped_set_host(host);
	ha_nic_reopen(nic, &found);
	assert_non_null(found.incarnation);
	ha_nic_renew(g.set[host], nic, found.incarnation);
	assert_int_equal(ha_port_refresh(group_port(&g, host)), HA_OK);
	atomic_store(&nic->fatal, false);
	assert_true(ha_port_usable(group_port(&g, host)));
}

/* Whether or not something else begins an epoch. */
static void a_nic_that_has_come_back_does_not_know_the_members_memory(void **state)
{
	(void)state;
	begin_quietly();
	lose_nic(1);
	run_until(has_moved);
	open_nic_again(1);
	assert_true(ha_leader_go_back(&leader, sv_stepped_now()));
	run_until(is_first_way);
	wait_ns(3 * BACK_NS);
	assert_true(has_moved() && is_first_way() && leader.decision.epoch == 2);
	g.most = 0;
	run_well();
	group_close(&g);
}

static void where_an_operations_memory_is_not_known_nobody_goes(void **state)
{
	(void)state;
	clear();
	begin_with(1, true);
	ha_member_forgo(g.host[1].member, 1);
	due = 20;
	run_until(is_due);
	lose_port(1);
	wait_ns(LATE_NS);
	assert_int_equal(ha_member_at(g.host[1].member), 0);
	sv_stepped_link(1, 0, true);
	run_well();
	assert_int_equal(ha_member_at(g.host[1].member), 0);
	group_close(&g);
}

/* Whichever comes back first. */
static void a_host_without_a_port_goes_on_when_one_works_again(void **state)
{
	(void)state;
	for (unsigned int rail = 0; rail < 2; rail++) {
		clear();
		begin_with(1 + rail, true);
		due = 20;
		run_until(is_due);
		sv_stepped_link(2, 0, false);
		sv_stepped_link(2, 1, false);
		wait_ns(LATE_NS / 2);
		sv_stepped_link(2, rail, true);
		run_well();
		assert_int_equal(ha_member_at(g.host[2].member), rail);
		group_close(&g);
	}
}

static bool do_hosts_add(void)
{
	return group_epochs_of_hosts(&g) > 0 && leader.state == HA_LEADER_QUIET;
}

/* Their only switch is dead, and they go on adding for each other. */
static void hosts_that_add_for_each_other_go_on_over_the_other_port(void **state)
{
	unsigned int moved = 0;

	(void)state;
	for (unsigned int k = 0; k < 60; k++) {
		memset(&plan, 0, sizeof(plan));
		plan.hosts_add_from = 1;
		plan.kill_at[0] = 1;
		begin_with(1 + k, k % 2);
		run_until(do_hosts_add);
		due = sv_stepped_index() + 3 * k;
		run_until(is_due);
		(k % 2 ? lose_nic : lose_port)(k % HOSTS);
		run_well();
		moved += ha_member_at(g.host[k % HOSTS].member) == 1;
		group_close(&g);
	}
	print_message("%u of 60 runs went on over the other port\n", moved);
	assert_true(moved > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_port_that_goes_down_before_any_event_costs_no_element),
	    cmocka_unit_test(a_nic_that_dies_before_any_event_costs_no_element),
	    cmocka_unit_test(a_path_that_is_lost_without_a_word_is_left_when_an_edge_has_failed),
	    cmocka_unit_test(how_long_it_takes),
	    cmocka_unit_test(a_host_whose_first_port_is_down_begins_on_the_other_one),
	    cmocka_unit_test(a_port_that_works_again_is_gone_back_to),
	    cmocka_unit_test(a_nic_that_has_come_back_does_not_know_the_members_memory),
	    cmocka_unit_test(where_an_operations_memory_is_not_known_nobody_goes),
	    cmocka_unit_test(a_host_without_a_port_goes_on_when_one_works_again),
	    cmocka_unit_test(hosts_that_add_for_each_other_go_on_over_the_other_port),
	};

	capture_log(); /* a line for each port that goes down */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
