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
};

static struct connection conns[CONNECTIONS];
static struct pair world; /* fabric and instances */

/* ---- a stream of each ------------------------------------------------------------------------ */

/* One message at a time. */
static void go_on(struct connection *c)
{
	const size_t offset = 0, size = SIZE;
	const bool sent = pair_is_done(&c->send), received = pair_is_done(&c->recv);
	const int tag = 1;

	if (!sent || !received)
		return;
	if (c->bytes != 0)
		assert_memory_equal(c->pair.to.bytes, c->pair.from.bytes, SIZE);
	c->bytes += SIZE;
	memset(c->pair.to.bytes, CANARY, SIZE);
	c->recv = post_recv(&c->pair, 1, &offset, &size, &tag);
	c->send = post_send(&c->pair, 0, SIZE, tag);
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

/* ---- the world ------------------------------------------------------------------------------- */

static void up(bool bundle, const uint32_t rate_mbps[2])
{
	bundled_init(&world, 2);
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

static void down(void)
{
	const uint64_t until_ns = sv_stepped_now() + HA_NS_PER_S;

	for (unsigned i = 0; i < CONNECTIONS; i++)
		while (!pair_is_done(&conns[i].recv) || !pair_is_done(&conns[i].send)) {
			assert_true(sv_stepped_now() < until_ns);
			pair_turn(&world, TURN_NS);
		}
	for (unsigned i = 0; i < CONNECTIONS; i++)
		pair_disconnect(&conns[i].pair);
	pair_close(&world);
}

/* Thousandths of what the first rail does alone, once senders have tried what each is worth. */
static unsigned gain(const uint32_t rate_mbps[2])
{
	uint64_t one, both;

	up(false, rate_mbps);
	(void)block();
	one = block() + block();
	down();
	up(true, rate_mbps);
	for (unsigned i = 0; i < 6; i++)
		(void)block();
	both = block() + block();
	for (unsigned i = 0; i < CONNECTIONS; i++)
		assert_int_equal(conns[i].pair.send->send->parking.state, HA_PARKING_REST);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(eight_connections_gain_as_much_on_two_equal_rails),
	    cmocka_unit_test(eight_connections_gain_as_much_where_one_rail_is_three_times_as_fast),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
