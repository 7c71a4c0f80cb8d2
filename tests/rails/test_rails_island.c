/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HA_NCCL_RAIL_MODE=island: within an island everything goes over the last rail, from the first
 * message on, and beyond over the first one, where no other is tried. Stepped.
 */
#include "bundled.h"

#define SIZE 300000

static void island_init(struct pair *pair, uint32_t rails, const char *island)
{
	bundled_init(pair, rails);
	pair->config.rail_mode = HA_RAIL_MODE_ISLAND;
	strcpy(pair->config.island, island);
}

static void up(struct pair *pair, uint32_t rails, const char *island)
{
	island_init(pair, rails, island);
	pair_up(pair);
}

#define TOGETHER ""
#define APART	 "10.0.0.1/32=a,10.0.0.2/32=b"

static uint64_t bytes_on(unsigned rail)
{
	struct sv_stepped_traffic host[2];

	sv_stepped_get_traffic(0, rail, &host[0]);
	sv_stepped_get_traffic(1, rail, &host[1]);
	return host[0].bytes_out + host[1].bytes_out;
}

static uint64_t messages_on(unsigned rail)
{
	struct sv_stepped_traffic in;

	sv_stepped_get_traffic(1, rail, &in);
	return in.immediates;
}

static void assert_on(const struct pair *pair, const char *nic)
{
	assert_string_equal(nic_of(pair->send, pair->send->active), nic);
	assert_string_equal(nic_of(pair->recv, pair->recv->active), nic);
}

/* Heartbeats go over the others. */
static void in_an_island_the_last_rail_has_it_all_from_the_first_message_on(void **state)
{
	(void)state;
	for (uint32_t rails = 2; rails <= 4; rails++) {
		struct pair pair;
		char last[8];

		snprintf(last, sizeof(last), "sim%u", rails - 1);
		up(&pair, rails, TOGETHER);
		for (uint32_t i = 0; i < 20; i++) {
			transfer(&pair, i % 2 ? SIZE : 100, i);
			assert_on(&pair, last);
			pair_idle(&pair, 10);
		}
		assert_true(bytes_on(rails - 1) > 10 * SIZE);
		for (unsigned rail = 0; rail < rails - 1; rail++) {
			assert_true(bytes_on(rail) < SIZE / 10);
			assert_int_equal(messages_on(rail), 0);
		}
		assert_true(messages_on(rails - 1) >= 20);
		assert_int_equal(pair.recv->recv->members, 0);
		assert_int_equal(captured_warnings, 0);
		pair_close(&pair);
	}
}

static void in_an_island_the_first_rail_stands_by(void **state)
{
	struct pair pair;

	(void)state;
	island_init(&pair, 2, TOGETHER);
	pair.config.enable_failback = true;
	pair_up(&pair);
	pair_wait_standby(&pair);
	assert_string_equal(nic_of(pair.send, standby_of(pair.send)), "sim0");
	for (unsigned host = 0; host < 2; host++) {
		sv_stepped_link(host, 1, false);
		transfer(&pair, SIZE, 1);
		assert_on(&pair, "sim0");
		sv_stepped_link(host, 1, true);
		for (int i = 0; i < 1000 && strcmp(nic_of(pair.send, pair.send->active), "sim1");
		     i++)
			pair_idle(&pair, 20);
		assert_on(&pair, "sim1");
		transfer(&pair, SIZE, 2);
	}
	pair_close(&pair);
}

/* Neither a packet nor a command, in an outage neither: no queue pair, and no heartbeat. */
static void beyond_the_island_no_other_rail_is_tried(void **state)
{
	int made, modified;
	struct pair pair;

	(void)state;
	island_init(&pair, 2, APART);
	pair_open(&pair);
	made = add_rule("errno=EIO verb=create_qp rail=1");
	modified = add_rule("errno=EIO verb=modify_qp rail=1");
	pair_connect(&pair);
	for (uint32_t i = 0; i < 5; i++) {
		transfer(&pair, SIZE, i);
		pair_idle(&pair, 500);
	}
	assert_on(&pair, "sim0");
	assert_int_equal(pair.send->failover->noffers, 1);
	assert_int_equal(pair.recv->failover->noffers, 1);
	sv_stepped_link(0, 0, false);
	pair_idle(&pair, 3000);
	sv_stepped_link(0, 0, true);
	transfer(&pair, SIZE, 9);
	assert_on(&pair, "sim0");
	assert_int_equal(bytes_on(1), 0);
	assert_int_equal(fired(made) + fired(modified), 0);
	pair_close(&pair);
}

/* What it takes until a message is there, commands of NICs included: a millisecond each of the
 * first rail's, and a second of the other's. */
static uint64_t connect_ns(bool bundle)
{
	uint64_t since_ns, ns;
	struct pair pair;

	island_init(&pair, 2, APART);
	if (!bundle) {
		*pair.config.rails = '\0';
		pair.fabric.rails = 1;
	}
	pair_open(&pair);
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	for (unsigned rail = 0; rail < pair.fabric.rails; rail++) {
		static const char *const waits[] = {"1ms", "1s"};
		char rule[80];

		snprintf(rule, sizeof(rule), "wait=%s verb=create_qp rail=%u", waits[rail], rail);
		(void)add_rule(rule);
		snprintf(rule, sizeof(rule), "wait=%s verb=modify_qp rail=%u", waits[rail], rail);
		(void)add_rule(rule);
	}
	since_ns = sv_stepped_now();
	pair_connect(&pair);
	transfer(&pair, SIZE, 1);
	ns = sv_stepped_now() - since_ns + sv_stepped_waited_ns();
	pair_close(&pair);
	return ns;
}

/* Nor does whoever sets a connection up wait for one. */
static void beyond_the_island_a_rail_whose_commands_hang_costs_nothing(void **state)
{
	const uint64_t alone_ns = connect_ns(false), bundle_ns = connect_ns(true);

	(void)state;
	print_message("alone %.2f ms, bundle %.2f ms\n", (double)alone_ns / HA_NS_PER_MS,
		      (double)bundle_ns / HA_NS_PER_MS);
	assert_in_range(alone_ns, HA_NS_PER_MS, 100 * HA_NS_PER_MS);
	assert_in_range(bundle_ns, HA_NS_PER_MS, alone_ns + alone_ns / 20);
}

/* A port that NCCL did not bundle reaches beyond. */
static void beyond_the_island_ports_of_no_bundle_stand_by(void **state)
{
	struct pair pair;

	(void)state;
	island_init(&pair, 2, APART);
	pair.fabric.rails = 3;
	pair_up(&pair);
	pair_wait_standby(&pair);
	assert_on(&pair, "sim0");
	assert_string_equal(nic_of(pair.send, standby_of(pair.send)), "sim2");
	assert_int_equal(bytes_on(1), 0);
	pair_close(&pair);
}

static void a_rail_that_is_down_at_the_start_is_come_back_to(void **state)
{
	struct pair pair;

	(void)state;
	island_init(&pair, 2, TOGETHER);
	pair.config.enable_failback = true;
	pair_open(&pair);
	sv_stepped_link(0, 1, false);
	pair_settle(&pair);
	pair_connect(&pair);
	transfer(&pair, SIZE, 1);
	assert_string_equal(nic_of(pair.send, pair.send->active), "sim0");
	sv_stepped_link(0, 1, true);
	for (int i = 0; i < 1000 && strcmp(nic_of(pair.send, pair.send->active), "sim1"); i++)
		pair_idle(&pair, 20);
	assert_on(&pair, "sim1");
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(in_an_island_the_last_rail_has_it_all_from_the_first_message_on),
	    cmocka_unit_test(in_an_island_the_first_rail_stands_by),
	    cmocka_unit_test(beyond_the_island_no_other_rail_is_tried),
	    cmocka_unit_test(beyond_the_island_a_rail_whose_commands_hang_costs_nothing),
	    cmocka_unit_test(beyond_the_island_ports_of_no_bundle_stand_by),
	    cmocka_unit_test(a_rail_that_is_down_at_the_start_is_come_back_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
