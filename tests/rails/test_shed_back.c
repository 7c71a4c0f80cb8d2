/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail that was lost beside the control rail comes back without a fence of any other, and what a
 * peer says of rails that are lost is taken for what it can mean. Two hosts, one thread, virtual
 * time.
 */
#include "shedding.h"

#include "failover/message.h"
#include "transport/rail_share.h"

/* ---- and back ------------------------------------------------------------------------------- */

static void a_rail_that_is_back_carries_again_without_a_fence_of_the_others(void **state)
{
	(void)state;
	for (unsigned mode = 0; mode < 2; mode++) {
		uint32_t other, fenced;
		struct pair pair;

		carrying(&pair, 3, modes[mode]);
		other = pair.recv->paths[path_on(pair.recv, "sim2")]->generation;
		for (unsigned times = 1; times <= 8; times++) {
			const unsigned p = path_on(pair.recv, "sim1");
			struct in_flight t = pair_start(&pair);

			sv_stepped_step();
			fenced = pair.recv->failover->slots[p].fenced_gen;
			sv_stepped_link(times % 2, LOST_RAIL, false);
			assert_arrived(&pair, &t);
			until_whole(&pair, 10);
			assert_true(pair.recv->failover->slots[p].fenced_gen > fenced);
			sv_stepped_link(times % 2, LOST_RAIL, true);
			wait_members(&pair, 3);
			transfer(&pair, 300000, times);
		}
		assert_no_failover(&pair);
		assert_int_equal(pair.recv->paths[path_on(pair.recv, "sim2")]->generation, other);
		pair_close(&pair);
	}
}

/* What the sender has of large messages on path p: nothing is under way there, and nothing is
 * learnt. */
static void assert_forgotten(const struct pair *pair, unsigned p)
{
	static const struct ha_rail_load none;
	uint16_t share[HA_RAILS_MAX];

	assert_false(pair->send->send->shares.slots >> p & 1);
	assert_memory_equal(&pair->send->send->balance.rails[p], &none, sizeof(none));
	ha_rail_shares_now(pair->send, share);
	assert_int_equal(share[LOST_RAIL], 0);
}

/* Of stripes that were under way when it was lost nothing is under way when it is back: then it has
 * its half again, of messages that are cut by what each rail has to do. */
static void a_rail_that_is_back_owes_nothing_from_before(void **state)
{
	enum { MESSAGES = 8 };

	(void)state;
	for (unsigned mode = 0; mode < 2; mode++) {
		uint64_t before[2], carried[2];
		struct in_flight t;
		struct pair pair;
		unsigned p;

		carrying_by(&pair, 2, modes[mode], "");
		p = path_on(pair.send, "sim1");
		t = pair_start(&pair);
		for (unsigned i = 0; i < 4; i++)
			sv_stepped_step();
		assert_true(pair.send->send->balance.rails[p].pending != 0);
		sv_stepped_link(0, LOST_RAIL, false);
		assert_arrived(&pair, &t);
		until_whole(&pair, 10);
		assert_forgotten(&pair, p);
		sv_stepped_link(0, LOST_RAIL, true);
		wait_members(&pair, 2);
		memcpy(before, pair.send->striped.bytes, sizeof(before));
		for (uint32_t i = 0; i < MESSAGES; i++)
			transfer(&pair, 300000, i);
		for (unsigned rail = 0; rail < 2; rail++)
			carried[rail] = pair.send->striped.bytes[rail] - before[rail];
		assert_int_equal(carried[0] + carried[1], MESSAGES * 300000);
		assert_in_range(carried[LOST_RAIL], MESSAGES * 300000 / 4, MESSAGES * 300000);
		assert_no_failover(&pair);
		pair_close(&pair);
	}
}

static bool is_named(const struct ha_comm *recv, uint64_t seq, unsigned p)
{
	return recv->recv_ring->cts[seq & recv->slot_mask][0].named >> 4 * p & 0xf;
}

/* What a row says of a generation is not all of it, and its key is of one NIC. */
static void a_slot_carries_again_when_no_row_names_what_was_lost_of_it(void **state)
{
	enum { MESSAGES = 12 };
	const size_t size = 300000;
	struct ha_request *recv[MESSAGES];
	struct pair pair;
	unsigned p;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.recv, "sim1");
	for (int i = 0; i < MESSAGES; i++) {
		const size_t offset = (size_t)i * size;

		recv[i] = post_recv(&pair, 1, &offset, &size, &i);
		assert_true(is_named(pair.recv, pair.recv->recv->next_seq - 1, p));
	}
	sv_stepped_link(0, LOST_RAIL, false);
	pair_idle(&pair, 20);
	assert_true(is_whole(&pair));
	sv_stepped_link(0, LOST_RAIL, true);
	pair_pass(&pair, 3000);
	assert_int_equal(pair.recv->paths[p]->generation, 2);
	assert_int_equal(pair.recv->failover->slots[p].state, HA_SLOT_GOOD);
	fill(pair.from.bytes, MESSAGES * size, 8);
	for (int i = 0; i < MESSAGES; i++) {
		struct ha_request *send = post_send(&pair, (size_t)i * size, size, i);

		assert_int_equal(carrying_now(&pair), 1);
		assert_int_equal(pair_finish(&pair, recv[i], NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		if (i < MESSAGES - 1)
			pair_idle(&pair, 10);
	}
	assert_memory_equal(pair.to.bytes, pair.from.bytes, MESSAGES * size);
	wait_members(&pair, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* Rows of before name what was lost of the slot, with a key of a device that has died since. What
 * is built there on the device that came back, whose keys are others, carries nothing of them. */
static void a_row_names_nothing_that_is_built_since_in_a_slot(void **state)
{
	enum { MESSAGES = 3 };
	const size_t size = 300000;
	struct ha_request *recv[MESSAGES], *send[MESSAGES];
	struct pair pair;
	unsigned p;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.recv, "sim1");
	for (int i = 0; i < MESSAGES; i++) {
		const size_t offset = (size_t)i * size;

		recv[i] = post_recv(&pair, 1, &offset, &size, &i);
	}
	pair_idle(&pair, 1);
	sv_stepped_kill(1, LOST_RAIL);
	pair_idle(&pair, 100);
	assert_true(is_whole(&pair));
	sv_stepped_revive(1, LOST_RAIL);
	for (int s = 0; s < 70 && !(pair.send->paths[p] && pair.recv->paths[p]); s++)
		pair_idle(&pair, 1000);
	pair_idle(&pair, 1000);
	assert_true(ha_path_ready(pair.send->paths[p]) && ha_path_ready(pair.recv->paths[p]));
	assert_true(pair.send->paths[p]->generation > 1);
	fill(pair.from.bytes, MESSAGES * size, 8);
	for (int i = 0; i < MESSAGES; i++) {
		const uint64_t row = pair.send->send->match_seq & pair.send->slot_mask;

		assert_true(pair.send->send_ring->cts[row][0].named >> 4 * p & 0xf);
		send[i] = post_send(&pair, (size_t)i * size, size, i);
	}
	for (int i = 0; i < MESSAGES; i++) {
		assert_int_equal(pair_finish(&pair, recv[i], NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
	}
	assert_memory_equal(pair.to.bytes, pair.from.bytes, MESSAGES * size);
	pair_idle(&pair, 10);
	assert_int_equal(sheds(&pair), 1);
	wait_members(&pair, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* A message is under way when the receiver's port goes down; the NIC of `host` is slow to fence. */
static struct in_flight lose_beside_a_slow_nic(struct pair *pair, uint32_t host, int *slow)
{
	struct in_flight t;

	*slow = make_slow(host);
	t = pair_start(pair);
	for (unsigned i = 0; i < 10; i++)
		sv_stepped_step();
	sv_stepped_link(1, LOST_RAIL, false);
	return t;
}

/* Its port is there again while the sender's NIC still keeps the fence to itself. */
static void a_slot_is_not_built_again_before_it_is_mended(void **state)
{
	struct in_flight t;
	struct pair pair;
	unsigned p;
	int slow;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.recv, "sim1");
	t = lose_beside_a_slow_nic(&pair, 0, &slow);
	pair_pass(&pair, 2);
	sv_stepped_link(1, LOST_RAIL, true);
	pair_pass(&pair, 15);
	assert_false(is_whole(&pair));
	assert_int_equal(pair.recv->failover->slots[p].fenced_gen, 1);
	assert_int_equal(pair.recv->failover->slots[p].newest_gen, 1);
	assert_arrived(&pair, &t);
	until_whole(&pair, 20);
	assert_int_equal(sheds(&pair), 1);
	assert_true(fired(slow) > 0);
	sv_stepped_fault_remove(slow);
	pair_pass(&pair, 6000);
	wait_members(&pair, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* ---- what a peer says ------------------------------------------------------------------------ */

/* Of both ends' bundle one rail alone is left, and a port that is none is in reserve. */
static unsigned reserve_off_the_bundle(struct pair *pair)
{
	bundled_init(pair, 2);
	pair->fabric.rails = 3;
	pair_open(pair);
	pair_connect(pair);
	wait_members(pair, 2);
	sv_stepped_link(0, LOST_RAIL, false);
	sv_stepped_link(1, LOST_RAIL, false);
	for (int i = 0; i < 100; i++) {
		pair_idle(pair, 100);
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			if (pair->send->paths[p] && strcmp(nic_of(pair->send, p), "sim2") == 0 &&
			    ha_slot_is_up(&pair->send->failover->slots[p]))
				return p;
	}
	fail_msg("nothing is in reserve off the bundle");
	return 0;
}

/* As the other end would say it now. */
static struct ha_message said_by(const struct ha_comm *from, uint8_t kind)
{
	struct ha_message m = {
	    .kind = kind,
	    .rto_ms = 1000,
	    .ports_up = 0xffff,
	    .epoch = from->failover->epoch,
	    .serial = from->failover->serial + 1,
	    .window = from->is_send ? from->send->completed : from->recv->done,
	};

	return m;
}

/* It takes what is mended: its loss is a failover, and never a shed, where ends take no turns. */
static void the_control_rail_cannot_be_shed(void **state)
{
	struct ha_message m;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	without_turns(&pair);
	m = said_by(pair.recv, HA_MSG_SHED);
	m.lost = m.drained = (uint8_t)(1u << pair.send->active);
	m.fenced_gen[pair.send->active] = 1;
	hear(pair.send, &m);
	assert_false(ha_rails_lack(pair.send));
	assert_int_equal(pair.send->striped.sheds[0].sheds, 0);
	pair_idle(&pair, 100);
	transfer(&pair, 300000, 2);
	assert_int_equal(pair.recv->failover->rails[pair.recv->active].generation, 0);
	pair_close(&pair);
}

/* The NIC here has not said yet that nothing comes any more: what a sender says of its end frees
 * nothing. */
static void mended_means_nothing_before_the_own_fence(void **state)
{
	struct ha_message m;
	struct in_flight t;
	struct pair pair;
	unsigned p;
	int slow;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.recv, "sim1");
	t = lose_beside_a_slow_nic(&pair, 1, &slow);
	for (int i = 0; i < 1000 && !ha_rails_is_lost(pair.recv, p); i++)
		pair_step(&pair);
	assert_int_equal(pair.recv->failover->rails[p].state, HA_RAIL_SHEDDING);
	m = said_by(pair.send, HA_MSG_MENDED);
	m.fenced_gen[p] = m.mended_gen[p] = 1;
	hear(pair.recv, &m);
	assert_true(ha_rails_is_lost(pair.recv, p));
	assert_int_equal(pair.recv->striped.sheds[LOST_RAIL].mends, 0);
	assert_int_equal(pair.recv->failover->slots[p].newest_gen, 1);
	assert_arrived(&pair, &t);
	until_whole(&pair, 100);
	assert_int_equal(sheds(&pair), 1);
	assert_true(fired(slow) > 0);
	sv_stepped_fault_remove(slow);
	pair_pass(&pair, 6000);
	pair_close(&pair);
}

/* A statement that comes again, when the same slot has lost another path: it is final of the first
 * one only. */
static void what_was_said_of_an_earlier_loss_says_nothing_of_this_one(void **state)
{
	struct ha_message m;
	struct in_flight t;
	struct pair pair;
	unsigned p;
	int slow;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.send, "sim1");
	sv_stepped_link(1, LOST_RAIL, false);
	pair_idle(&pair, 20);
	until_whole(&pair, 10);
	m = said_by(pair.recv, HA_MSG_SHED);
	m.lost = m.drained = (uint8_t)(1u << p);
	m.fenced_gen[p] = 1;
	sv_stepped_link(1, LOST_RAIL, true);
	wait_members(&pair, 2);
	assert_int_equal(pair.send->paths[p]->generation, 2);
	t = lose_beside_a_slow_nic(&pair, 1, &slow);
	for (int i = 0; i < 1000 && pair.send->failover->rails[p].state != HA_RAIL_SHED; i++)
		pair_step(&pair);
	assert_int_equal(pair.send->failover->rails[p].state, HA_RAIL_SHED);
	assert_int_equal(pair.recv->failover->rails[p].state, HA_RAIL_SHEDDING);
	m.serial = pair.recv->failover->serial + 1;
	hear(pair.send, &m);
	assert_int_equal(pair.send->failover->rails[p].mended_gen, 1);
	assert_arrived(&pair, &t);
	until_whole(&pair, 100);
	assert_int_equal(pair.send->failover->rails[p].mended_gen, 2);
	assert_no_failover(&pair);
	sv_stepped_fault_remove(slow);
	pair_pass(&pair, 6000);
	pair_close(&pair);
}

/* What a receiver says is why; a number that no version of ours has is no place in memory. */
static void a_reason_that_is_unknown_is_said_to_be(void **state)
{
	struct ha_message m;
	struct pair pair;
	unsigned p;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.send, "sim1");
	m = said_by(pair.recv, HA_MSG_SHED);
	m.lost = (uint8_t)(1u << p);
	m.fenced_gen[p] = 1;
	m.reason = 255;
	hear(pair.send, &m);
	assert_true(ha_rails_is_lost(pair.send, p));
	assert_logged("sim1:1 (path 1.1) is shed, the other rails carry on: unknown");
	until_whole(&pair, 100);
	transfer(&pair, 300000, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* Nothing but a rail can be shed: a receiver that says so of another path says nothing. */
static void what_is_no_rail_cannot_be_shed(void **state)
{
	struct ha_message m;
	struct pair pair;
	unsigned p;

	(void)state;
	p = reserve_off_the_bundle(&pair);
	m = said_by(pair.recv, HA_MSG_SHED);
	m.lost = m.drained = (uint8_t)(1u << p);
	m.fenced_gen[p] = pair.send->failover->slots[p].newest_gen;
	hear(pair.send, &m);
	assert_false(ha_rails_is_lost(pair.send, p));
	pair_idle(&pair, 100);
	assert_int_equal(pair.send->failover->rails[p].generation, 0);
	for (unsigned rail = 0; rail < 2; rail++)
		assert_int_equal(pair.send->striped.sheds[rail].sheds, rail == LOST_RAIL);
	transfer(&pair, 300000, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* ---- the table ------------------------------------------------------------------------------ */

static void a_rail_goes_through_its_states_in_one_order(void **state)
{
	static const enum ha_rail_state next[HA_RAIL_COUNT][HA_RAIL_EVENT_COUNT] = {
	    [HA_RAIL_WHOLE] = {HA_RAIL_SHEDDING, HA_RAIL_COUNT, HA_RAIL_COUNT, HA_RAIL_WHOLE},
	    [HA_RAIL_SHEDDING] = {HA_RAIL_COUNT, HA_RAIL_SHED, HA_RAIL_COUNT, HA_RAIL_WHOLE},
	    [HA_RAIL_SHED] = {HA_RAIL_COUNT, HA_RAIL_COUNT, HA_RAIL_WHOLE, HA_RAIL_WHOLE},
	};

	(void)state;
	for (unsigned s = 0; s < HA_RAIL_COUNT; s++)
		for (unsigned e = 0; e < HA_RAIL_EVENT_COUNT; e++)
			assert_int_equal(ha_rail_next((enum ha_rail_state)s, (enum ha_rail_event)e),
					 next[s][e]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_rail_that_is_back_carries_again_without_a_fence_of_the_others),
	    cmocka_unit_test(a_rail_that_is_back_owes_nothing_from_before),
	    cmocka_unit_test(a_slot_carries_again_when_no_row_names_what_was_lost_of_it),
	    cmocka_unit_test(a_row_names_nothing_that_is_built_since_in_a_slot),
	    cmocka_unit_test(a_slot_is_not_built_again_before_it_is_mended),
	    cmocka_unit_test(what_is_no_rail_cannot_be_shed),
	    cmocka_unit_test(a_reason_that_is_unknown_is_said_to_be),
	    cmocka_unit_test(what_was_said_of_an_earlier_loss_says_nothing_of_this_one),
	    cmocka_unit_test(the_control_rail_cannot_be_shed),
	    cmocka_unit_test(mended_means_nothing_before_the_own_fence),
	    cmocka_unit_test(a_rail_goes_through_its_states_in_one_order),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
