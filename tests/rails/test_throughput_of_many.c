/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What eight connections over the same two rails gain together. Two hosts, one thread, virtual
 * time: the figures are exact.
 */
#include "../transport/at_scale.h"
#include "bundled.h"

#include "instance/instance.h"

#define CONNECTIONS 8
#define SIZE	    (1u << 20)
#define BLOCK_NS    (60 * HA_NS_PER_MS)
#define TURN_NS	    (10 * HA_NS_PER_US)

struct connection {
	struct pair pair; /* of its own: the ends and their memory */
	struct ha_request *recv, *send;
	uint64_t bytes;
	bool pauses, gone; /* it begins no message; it is closed */
};

static struct connection conns[CONNECTIONS];
static struct pair world;  /* fabric and instances */
static size_t size = SIZE; /* of a message */

/* ---- a stream of each ------------------------------------------------------------------------ */

/* One message at a time. */
static void go_on(struct connection *c)
{
	const size_t offset = 0;
	const bool sent = pair_is_done(&c->send), received = pair_is_done(&c->recv);
	const int tag = 1;

	if (!sent || !received || c->pauses)
		return;
	if (c->bytes != 0)
		assert_memory_equal(c->pair.to.bytes, c->pair.from.bytes, size);
	c->bytes += size;
	memset(c->pair.to.bytes, CANARY, size);
	c->recv = post_recv(&c->pair, 1, &offset, &size, &tag);
	c->send = post_send(&c->pair, 0, size, tag);
}

static void turn(void)
{
	for (unsigned i = 0; i < CONNECTIONS; i++)
		go_on(&conns[i]);
	pair_turn(&world, TURN_NS);
}

/* Bytes of all in a block of time. */
static uint64_t block(void)
{
	const uint64_t until_ns = sv_stepped_now() + BLOCK_NS;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < CONNECTIONS; i++)
		bytes -= conns[i].bytes;
	while (sv_stepped_now() < until_ns)
		turn();
	for (unsigned i = 0; i < CONNECTIONS; i++)
		bytes += conns[i].bytes;
	return bytes;
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

	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (!conns[i].gone && leads(&conns[i])) {
			assert_null(found);
			found = &conns[i];
		}
	assert_non_null(found);
	return found;
}

/* ---- the world ------------------------------------------------------------------------------- */

static void up(bool bundle, const uint32_t rate_mbps[2], uint32_t drag_milli)
{
	bundled_init(&world, 2);
	world.fabric.rail_drag_milli = drag_milli;
	if (!bundle)
		*world.config.rails = '\0';
	memcpy(world.fabric.rail_rate_mbps, rate_mbps, 2 * sizeof(*rate_mbps));
	pair_open(&world);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		conns[i] = (struct connection){.pair = world};
		pair_connect(&conns[i].pair);
		fill(conns[i].pair.from.bytes, SIZE, i);
	}
}

static void until_over(struct connection *c)
{
	const uint64_t until_ns = sv_stepped_now() + HA_NS_PER_S;

	while (!pair_is_done(&c->recv) || !pair_is_done(&c->send)) {
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
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (!conns[i].gone)
			end(&conns[i]);
	pair_close(&world);
}

/* What the first rail does alone, in two blocks. */
static uint64_t alone(const uint32_t rate_mbps[2])
{
	uint64_t bytes;

	up(false, rate_mbps, 0);
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

	up(true, rate_mbps, 0);
	for (unsigned i = 0; i < 6; i++)
		(void)block();
	both = block() + block();
	assert_int_equal(leader()->pair.send->send->parking.trial.state, HA_PARKING_REST);
	down();
	print_message("%.3f times as much\n", (double)both / (double)one);
	return (unsigned)(both * 1000 / one);
}

static void eight_connections_gain_as_much_on_two_equal_rails(void **state)
{
	static const uint32_t rate_mbps[2] = {8000, 8000};

	(void)state;
	assert_in_range(gain(rate_mbps), 1950, 2050);
}

static void eight_connections_gain_as_much_where_one_rail_is_three_times_as_fast(void **state)
{
	static const uint32_t rate_mbps[2] = {12000, 4000};

	(void)state;
	assert_in_range(gain(rate_mbps), 950 * 4 / 3, 1000 * 4 / 3 + 40);
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
	up(true, dragged_mbps, 2000);
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
	static const uint32_t rate_mbps[2] = {3000, 1500};
	const struct connection *first;

	size = SIZE / 4;
	up(true, rate_mbps, 2000);
	until_parked(0, 2);
	first = leader();
	ends(&conns[first - conns]);
	pair_idle(&world, 1600);
	until_parked(2000, 2);
	assert_ptr_not_equal(leader(), first);
	down();
	size = SIZE;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(eight_connections_gain_as_much_on_two_equal_rails),
	    cmocka_unit_test(eight_connections_gain_as_much_where_one_rail_is_three_times_as_fast),
	    cmocka_unit_test(eight_connections_leave_out_a_rail_that_slows_the_other_one_down),
	    cmocka_unit_test(one_that_carries_nothing_any_more_leaves_the_decision_to_another_one),
	    cmocka_unit_test(the_decision_outlives_the_connection_that_took_it),
	    cmocka_unit_test(the_decision_outlives_an_error_of_the_connection_that_took_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
