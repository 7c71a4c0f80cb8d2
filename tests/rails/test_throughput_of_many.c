/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What connections over the same two rails gain together, one or eight of them. Two hosts, one
 * thread, virtual time: the figures are exact. With an argument: the largest messages of eight.
 */
#include "../transport/at_scale.h"
#include "bundled.h"

#include "instance/instance.h"

#define CONNECTIONS 8
#define DEPTH	    2 /* at most, messages of one under way */
#define SIZE	    (1u << 20)
#define BLOCK_NS    (60 * HA_NS_PER_MS)
#define TURN_NS	    (10 * HA_NS_PER_US)

#define ROUND_APART_NS (3 * HA_NS_PER_MS)
#define ROUND_PAUSE_MS 67

struct message {
	struct ha_request *recv, *send;
	bool begun;
};

struct connection {
	struct pair pair; /* of its own: the ends and their memory */
	struct message messages[DEPTH];
	uint64_t bytes;
	bool pauses, gone; /* it begins no message; it is closed */
};

/* What a test has under way. */
struct load {
	unsigned connections, depth;
	size_t size; /* of a message */
};

static const struct load eight = {.connections = CONNECTIONS, .depth = 1, .size = SIZE};

static struct connection conns[CONNECTIONS];
static struct pair world; /* fabric and instances */
static struct load load;

/* ---- a stream of each ------------------------------------------------------------------------ */

static bool is_over(struct message *m)
{
	const bool sent = pair_is_done(&m->send), received = pair_is_done(&m->recv);

	return sent && received;
}

static void go_on(struct connection *c, unsigned slot)
{
	const size_t offset = slot * load.size;
	struct message *m = &c->messages[slot];
	const int tag = (int)slot;

	if (!is_over(m) || c->pauses)
		return;
	if (m->begun) {
		assert_memory_equal(c->pair.to.bytes + offset, c->pair.from.bytes + offset,
				    load.size);
		c->bytes += load.size;
	}
	m->begun = true;
	memset(c->pair.to.bytes + offset, CANARY, load.size);
	m->recv = post_recv(&c->pair, 1, &offset, &load.size, &tag);
	m->send = post_send(&c->pair, offset, load.size, tag);
}

static void turn(void)
{
	for (unsigned i = 0; i < load.connections; i++)
		for (unsigned slot = 0; slot < load.depth; slot++)
			go_on(&conns[i], slot);
	pair_turn(&world, TURN_NS);
}

/* Of all that is over. */
static uint64_t bytes_of_all(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < load.connections; i++)
		bytes += conns[i].bytes;
	return bytes;
}

/* By both rails. Of what is over there would be a message of each more or less in a block. */
static uint64_t bytes_on_the_wire(void)
{
	uint64_t bytes = 0;

	for (uint32_t rail = 0; rail < 2; rail++) {
		struct sv_stepped_traffic traffic;

		sv_stepped_get_traffic(0, rail, &traffic);
		bytes += traffic.bytes_out;
	}
	return bytes;
}

/* Bytes of all in a block of time. */
static uint64_t block(void)
{
	const uint64_t until_ns = sv_stepped_now() + BLOCK_NS, before = bytes_on_the_wire();

	while (sv_stepped_now() < until_ns)
		turn();
	return bytes_on_the_wire() - before;
}

/* What so many messages take, from the end of one on. */
static uint64_t messages_ns(unsigned messages)
{
	uint64_t bytes = bytes_of_all(), since_ns;

	while (bytes_of_all() == bytes)
		turn();
	since_ns = sv_stepped_now();
	for (bytes = bytes_of_all() + messages * load.size; bytes_of_all() < bytes;)
		turn();
	return sv_stepped_now() - since_ns;
}

/* ---- who decides whether a rail is left out -------------------------------------------------- */

static bool leads(const struct connection *c)
{
	const struct ha_parking_sender *parking = &c->pair.send->send->parking;

	return parking->shared && atomic_load(&parking->shared->leader) == parking;
}

static struct connection *leader(void)
{
	struct connection *found = NULL;

	for (unsigned i = 0; i < load.connections; i++)
		if (!conns[i].gone && leads(&conns[i])) {
			assert_null(found);
			found = &conns[i];
		}
	assert_non_null(found);
	return found;
}

/* ---- the world ------------------------------------------------------------------------------- */

static void up(const struct load *of, bool bundle, const uint32_t rate_mbps[2], uint32_t drag_milli)
{
	load = *of;
	bundled_init(&world, 2);
	world.memory = (load.depth * load.size + MEM_SIZE - 1) / MEM_SIZE * MEM_SIZE;
	world.fabric.rail_drag_milli = drag_milli;
	if (!bundle)
		*world.config.rails = '\0';
	memcpy(world.fabric.rail_rate_mbps, rate_mbps, 2 * sizeof(*rate_mbps));
	pair_open(&world);
	for (unsigned i = 0; i < load.connections; i++) {
		conns[i] = (struct connection){.pair = world};
		pair_connect(&conns[i].pair);
		fill(conns[i].pair.from.bytes, load.depth * load.size, i);
	}
}

static void until_over(struct connection *c)
{
	const uint64_t until_ns = sv_stepped_now() + HA_NS_PER_S;

	for (unsigned slot = 0; slot < load.depth; slot++)
		while (!is_over(&c->messages[slot])) {
			assert_true(sv_stepped_now() < until_ns);
			pair_turn(&world, TURN_NS);
		}
}

static void end(struct connection *c)
{
	until_over(c);
	pair_disconnect(&c->pair);
	c->gone = c->pauses = true;
}

static void down(void)
{
	for (unsigned i = 0; i < load.connections; i++)
		if (!conns[i].gone)
			end(&conns[i]);
	pair_close(&world);
}

/* What the first rail does alone, in two blocks. */
static uint64_t alone(const uint32_t rate_mbps[2])
{
	uint64_t bytes;

	up(&eight, false, rate_mbps, 0);
	(void)block();
	bytes = block() + block();
	down();
	return bytes;
}

/* Thousandths of what the first rail does alone, once senders have tried what each is worth. */
static unsigned gain(const uint32_t rate_mbps[2])
{
	const uint64_t one = alone(rate_mbps);
	uint64_t both;

	up(&eight, true, rate_mbps, 0);
	for (unsigned i = 0; i < 6; i++)
		(void)block();
	both = block() + block();
	assert_int_equal(leader()->pair.send->send->parking.trial.state, HA_PARKING_REST);
	down();
	print_message("%.3f times as much\n", (double)both / (double)one);
	return (unsigned)(both * 1000 / one);
}

static const uint32_t equal_mbps[2] = {8000, 8000}, unequal_mbps[2] = {12000, 4000};

static void eight_connections_gain_as_much_on_two_equal_rails(void **state)
{
	(void)state;
	assert_in_range(gain(equal_mbps), 1950, 2050);
}

static void eight_connections_gain_as_much_where_one_rail_is_three_times_as_fast(void **state)
{
	(void)state;
	assert_in_range(gain(unequal_mbps), 950 * 4 / 3, 1000 * 4 / 3 + 40);
}

/* ---- larger messages, or one connection ------------------------------------------------------ */

/* Every rail was tried, and all of them carry. */
static bool is_settled(void)
{
	for (unsigned i = 0; i < load.connections; i++)
		if (leads(&conns[i])) {
			const struct ha_parking *trial = &conns[i].pair.send->send->parking.trial;

			return trial->state == HA_PARKING_REST && trial->due_ns != 0;
		}
	return false;
}

/* What so many messages of each take on two rails; on the first alone, at its rate. */
static uint64_t steady_ns(const struct load *of, bool bundle, const uint32_t rate_mbps[2],
			  unsigned messages)
{
	uint64_t ns;

	up(of, bundle, rate_mbps, 0);
	(void)messages_ns(2 * of->connections);
	while (bundle && !is_settled())
		turn();
	(void)messages_ns(2 * of->connections);
	ns = messages_ns(messages * of->connections);
	down();
	return ns;
}

/* Thousandths of what the first rail does alone. */
static unsigned steady_gain(const struct load *of, const uint32_t rate_mbps[2], unsigned messages)
{
	const uint64_t one_ns = steady_ns(of, false, rate_mbps, messages);
	const uint64_t both_ns = steady_ns(of, true, rate_mbps, messages);

	print_message("%.3f times as much\n", (double)one_ns / (double)both_ns);
	return (unsigned)(one_ns * 1000 / both_ns);
}

static void gains_as_much(const struct load *of, unsigned messages)
{
	assert_in_range(steady_gain(of, equal_mbps, messages), 1950, 2050);
	assert_in_range(steady_gain(of, unequal_mbps, messages), 950 * 4 / 3, 1000 * 4 / 3 + 40);
}

static void one_connection_gains_as_much_of_messages_of_1_MiB(void **state)
{
	static const struct load one = {.connections = 1, .depth = 2, .size = SIZE};

	(void)state;
	gains_as_much(&one, 40);
}

static void one_connection_gains_as_much_of_messages_of_8_MiB(void **state)
{
	static const struct load one = {.connections = 1, .depth = 2, .size = 8 * SIZE};

	(void)state;
	gains_as_much(&one, 16);
}

static void eight_connections_gain_as_much_of_messages_of_8_MiB(void **state)
{
	static const struct load large = {.connections = CONNECTIONS, .depth = 1, .size = 8 * SIZE};

	(void)state;
	gains_as_much(&large, 8);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* A message of each, which begin some milliseconds apart, and when all are over a pause: what
 * connections do that belong together. Returns what they took. */
static uint64_t round_ns(unsigned n)
{
	const uint64_t since_ns = sv_stepped_now();
	unsigned over, begun = 0;
	uint64_t ns;

	do {
		over = 0;
		for (unsigned i = 0; i < load.connections; i++) {
			struct connection *c = &conns[(i + n) % load.connections];

			c->pauses = i < begun || sv_stepped_now() < since_ns + i * ROUND_APART_NS;
			begun += !c->pauses;
			go_on(c, 0);
			over += is_over(&c->messages[0]);
		}
		pair_turn(&world, 10 * TURN_NS);
	} while (begun < load.connections || over < load.connections);
	ns = sv_stepped_now() - since_ns;
	pair_idle(&world, ROUND_PAUSE_MS);
	return ns;
}

/* That a message without the better rail takes longer than one is to be idle who decides: it has
 * one under way, and the try has its end. As long as 8 MiB take with ports of 8 and 2.7 Gb/s. */
static void rounds_of_slow_messages_go_without_a_rail_for_one_try(void **state)
{
	static const struct load slow = {.connections = CONNECTIONS, .depth = 1, .size = SIZE};
	static const uint32_t rate_mbps[2] = {1000, 333};
	const uint64_t all = CONNECTIONS * slow.size * 8000 / (rate_mbps[0] + rate_mbps[1]);
	unsigned without = 0;

	(void)state;
	up(&slow, true, rate_mbps, 0);
	for (unsigned n = 0; n < 30; n++) {
		const uint64_t ns = round_ns(n);
		without += ns > all * 5 / 4;
	}
	print_message("%u of 30 rounds\n", without);
	assert_true(is_settled());
	assert_in_range(without, 8, 14);
	down();
}

/* ---- a rail that costs the other one more than it carries ------------------------------------ */

/* Each byte on the second rail costs the first one the time of two. */
static const uint32_t dragged_mbps[2] = {12000, 6000};

/* Until it is parked for longer than that, in so many seconds at most. */
static void until_parked(uint32_t longer_than_ms, unsigned seconds)
{
	const uint64_t until_ns = sv_stepped_now() + seconds * HA_NS_PER_S;
	const struct ha_parking *trial;

	do {
		(void)block();
		assert_true(sv_stepped_now() < until_ns);
		trial = &leader()->pair.send->send->parking.trial;
	} while (trial->state != HA_PARKING_PARKED || trial->parked_ms <= longer_than_ms);
}

static void eight_connections_leave_out_a_rail_that_slows_the_other_one_down(void **state)
{
	const uint64_t one = alone(dragged_mbps);
	struct sv_stepped_traffic before, after;
	uint64_t both, since_ns;

	(void)state;
	up(&eight, true, dragged_mbps, 2000);
	since_ns = sv_stepped_now();
	(void)block();
	assert_in_range((block() + block()) * 1000 / one, 0, 900); /* it does slow it down */
	until_parked(0, 1);
	print_message("parked %.0f ms after it began\n",
		      (double)(sv_stepped_now() - since_ns) / HA_NS_PER_MS);
	(void)block();
	sv_stepped_get_traffic(0, 1, &before);
	both = block() + block();
	sv_stepped_get_traffic(0, 1, &after);
	assert_true(after.bytes_out - before.bytes_out < SIZE); /* heartbeats */
	print_message("%.3f times as much\n", (double)both / (double)one);
	assert_in_range(both * 1000 / one, 990, 1010);
	down();
}

/* What is parked stays parked when another one decides, and is tried by it when it is due: found no
 * better, it is parked for twice as long. */
static void next_one_goes_on(void (*ends)(struct connection *c))
{
	static const struct load small = {.connections = CONNECTIONS, .depth = 1, .size = SIZE / 4};
	static const uint32_t rate_mbps[2] = {3000, 1500};
	const struct connection *first;

	up(&small, true, rate_mbps, 2000);
	until_parked(0, 2);
	first = leader();
	ends(&conns[first - conns]);
	pair_idle(&world, 1600);
	until_parked(2000, 2);
	assert_ptr_not_equal(leader(), first);
	down();
}

static void pause(struct connection *c)
{
	c->pauses = true;
}

/* It has an error, and may not be closed for long. */
static void break_off(struct connection *c)
{
	c->pauses = true;
	until_over(c);
	assert_int_equal(ha_comm_fail(c->pair.send, HA_ERR_SYSTEM, "a test"), HA_ERR_SYSTEM);
	pair_turn(&world, TURN_NS);
	assert_false(leads(c));
}

static void one_that_carries_nothing_any_more_leaves_the_decision_to_another_one(void **state)
{
	(void)state;
	next_one_goes_on(pause);
}

static void the_decision_outlives_the_connection_that_took_it(void **state)
{
	(void)state;
	next_one_goes_on(end);
}

static void the_decision_outlives_an_error_of_the_connection_that_took_it(void **state)
{
	(void)state;
	next_one_goes_on(break_off);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest at_length[] = {
	    cmocka_unit_test(eight_connections_gain_as_much_of_messages_of_8_MiB),
	};
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_connection_gains_as_much_of_messages_of_1_MiB),
	    cmocka_unit_test(one_connection_gains_as_much_of_messages_of_8_MiB),
	    cmocka_unit_test(eight_connections_gain_as_much_on_two_equal_rails),
	    cmocka_unit_test(eight_connections_gain_as_much_where_one_rail_is_three_times_as_fast),
	    cmocka_unit_test(rounds_of_slow_messages_go_without_a_rail_for_one_try),
	    cmocka_unit_test(eight_connections_leave_out_a_rail_that_slows_the_other_one_down),
	    cmocka_unit_test(one_that_carries_nothing_any_more_leaves_the_decision_to_another_one),
	    cmocka_unit_test(the_decision_outlives_the_connection_that_took_it),
	    cmocka_unit_test(the_decision_outlives_an_error_of_the_connection_that_took_it),
	};

	(void)argv;
	if (argc > 1)
		return cmocka_run_group_tests(at_length, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
