/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ports as a ConnectX has them (simverbs' profile mlx5): a lost carrier is told of up to a second
 * late, or not at all, and commands take their time. What finds it sooner is the first heartbeat
 * that is missing: the device knows, if it is asked. In virtual time.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "progress/command.h"

#define SEEDS 24

/* The last answer before the cut may be as old as the interval; half as much again, and a little,
 * is waited for the next. */
#define FIRST_MISS_MS(heartbeat_ms) ((heartbeat_ms)*3 / 2 + 2)
/* Commands, two ends that agree, a message. */
#define SWITCH_MS 18

static int tear_down(void **state)
{
	(void)state;
	ha_command_took_ns = NULL;
	return 0;
}

static void two_rails(struct pair *pair, uint64_t seed)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair->fabric.seed = seed;
	pair->fabric.profile = SV_STEPPED_MLX5;
	pair_up(pair); /* in which commands move the clock: nothing waits for them in vain */
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	(void)sv_stepped_waited_ns();
	ha_command_took_ns = sv_stepped_waited_ns;
	pair_wait_standby(pair);
	/* Cuts fall anywhere between two heartbeats. */
	pair_pass(pair, 600 + (unsigned)seed * 37 % 200);
	assert_int_equal(pair->recv->active, 0);
}

/* Until a message is through; how long that took. */
static uint64_t deliver(struct pair *pair, size_t size, uint32_t seed)
{
	uint64_t since_ns = sv_stepped_now(), until_ns = since_ns + 5 * HA_NS_PER_S;
	const size_t offset = 0;
	const int tag = (int)seed;
	struct ha_request *recv, *send = NULL;
	bool received = false, sent = false;

	fill(pair->from.bytes, size, seed);
	recv = post_recv(pair, 1, &offset, &size, &tag);
	while (!received || !sent) {
		assert_true(sv_stepped_now() < until_ns);
		if (!send)
			send = try_send(pair, 0, size, tag);
		if (!received)
			assert_int_equal(ha_test(recv, &received, NULL), HA_OK);
		if (send && !sent)
			assert_int_equal(ha_test(send, &sent, NULL), HA_OK);
		pair_advance(pair);
	}
	assert_true(filled(pair->to.bytes, size, seed));
	return sv_stepped_now() - since_ns;
}

/* From the cut to the first message that is through, in ms. */
static unsigned cut_to_payload_ms(uint64_t seed, uint32_t host)
{
	struct pair pair;
	uint64_t took_ns;

	two_rails(&pair, seed);
	sv_stepped_link(host, 0, false);
	took_ns = deliver(&pair, 5000, 7);
	assert_int_equal(pair.recv->count.failovers, 1);
	ha_command_took_ns = NULL;
	pair_close(&pair);
	return (unsigned)((took_ns + HA_NS_PER_MS - 1) / HA_NS_PER_MS);
}

/* At either end, wherever between two heartbeats, however late the event. */
static void a_pulled_cable_is_found_by_the_first_missing_heartbeat(void **state)
{
	unsigned worst_ms = 0, best_ms = 1000000, limit_ms;
	struct ha_config config;

	(void)state;
	ha_config_load(&config, NULL);
	limit_ms = FIRST_MISS_MS((unsigned)config.heartbeat_ms) + SWITCH_MS;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		unsigned ms = cut_to_payload_ms(seed, seed % 2);

		worst_ms = ms > worst_ms ? ms : worst_ms;
		best_ms = ms < best_ms ? ms : best_ms;
	}
	print_message("cut to payload: %u to %u ms, at most %u allowed\n", best_ms, worst_ms,
		      limit_ms);
	assert_in_range(worst_ms, 1, limit_ms);
}

/* A port that is set down is told of at once, and left at once. */
static void a_port_set_down_is_left_at_once(void **state)
{
	struct pair pair;

	(void)state;
	two_rails(&pair, 1);
	sv_stepped_link_off(0, 0);
	assert_true(deliver(&pair, 5000, 7) <= SWITCH_MS * HA_NS_PER_MS);
	ha_command_took_ns = NULL;
	pair_close(&pair);
}

static const struct ha_port *port_of(const struct pair *pair)
{
	return &ha_instance_devices(pair->inst[0])->ports[0];
}

static bool is_active(const struct pair *pair)
{
	return atomic_load(&port_of(pair)->state) == IBV_PORT_ACTIVE;
}

/*
 * The cable is back before its loss was told: there will be no event at all, neither of that nor of
 * this. The port was found down, and is found up again.
 */
static void a_flap_that_nobody_tells_of(void **state)
{
	unsigned silent = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS && silent < 3; seed++) {
		struct pair pair;

		two_rails(&pair, seed);
		sv_stepped_link(0, 0, false);
		for (int i = 0; i < 2000 && is_active(&pair); i++)
			pair_advance(&pair);
		assert_false(is_active(&pair));
		silent += atomic_load(&port_of(&pair)->errors) == 0;
		if (atomic_load(&port_of(&pair)->errors) == 0)
			assert_logged("the port is down, and no event has said so yet");
		sv_stepped_link(0, 0, true);
		pair_pass(&pair, 1300);
		assert_true(is_active(&pair));
		assert_true(pair_has_standby(&pair));
		(void)deliver(&pair, 5000, 8);
		ha_command_took_ns = NULL;
		pair_close(&pair);
	}
	assert_int_equal(silent, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_pulled_cable_is_found_by_the_first_missing_heartbeat,
					    NULL, tear_down),
	    cmocka_unit_test_setup_teardown(a_port_set_down_is_left_at_once, NULL, tear_down),
	    cmocka_unit_test_setup_teardown(a_flap_that_nobody_tells_of, NULL, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
