/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator asks for: a drained port carries nothing from then on while anything else works,
 * and everything again when nothing else does; failback brings it back. Two instances, one thread,
 * every event in its place; the socket that such orders come through is another test's.
 */
#include "harness.h"

#include "admin/drain.h"

#include <string.h>

#define CONNECTIONS_MAX 4

struct told {
	struct ha_admin_result verdicts[CONNECTIONS_MAX];
	unsigned count;
};

static void note(void *arg, const struct ha_admin_result *verdict)
{
	struct told *told = arg;

	assert_true(told->count < CONNECTIONS_MAX);
	told->verdicts[told->count++] = *verdict;
}

/* Gives an order as it comes over the socket. False: there is nothing that it could be about. */
static bool order(struct pair *pair, int host, const char *text, struct told *told)
{
	struct ha_admin_request parsed;
	const char *why;

	*told = (struct told){0};
	if (!ha_admin_request_parse(text, strlen(text), &parsed, &why))
		fail_msg("'%s': %s", text, why);
	return ha_admin_execute(pair->inst[host], &parsed, note, told);
}

/* Of the one connection. */
static enum ha_admin_outcome fate_of(struct pair *pair, int host, const char *text)
{
	struct told told;

	assert_true(order(pair, host, text, &told));
	assert_int_equal(told.count, 1);
	return told.verdicts[0].outcome;
}

static void rails(struct pair *pair, unsigned n)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = n;
	pair_up(pair);
	if (n > 1)
		pair_wait_standby(pair);
	transfer(pair, 5000, 1);
}

static unsigned rail_of(const struct ha_comm *comm)
{
	return (unsigned)comm->paths[comm->active]->port->index;
}

/* Both ends carry it over these ports; with messages that are right. */
static void assert_on(struct pair *pair, unsigned send_rail, unsigned recv_rail)
{
	transfer(pair, 20000, 7);
	assert_int_equal(rail_of(pair->send), send_rail);
	assert_int_equal(rail_of(pair->recv), recv_rail);
	transfer(pair, 300, 8);
}

static const char *const drain_0 = "nccl-ha 1 failover port sim0:1",
			 *const force_0 = "nccl-ha 1 failover port sim0:1 force",
			 *const drain_1 = "nccl-ha 1 failover port sim1:1",
			 *const undrain_0 = "nccl-ha 1 failback port sim0:1",
			 *const look_at_0 = "nccl-ha 1 status port sim0:1";

/* ---- drains ---------------------------------------------------------------------------------- */

static void a_drained_port_is_left_and_its_failure_is_none(void **state)
{
	(void)state;
	for (int host = 0; host < 2; host++) {
		struct pair pair;

		rails(&pair, 2);
		assert_int_equal(fate_of(&pair, host, look_at_0), HA_OUTCOME_ACTIVE);
		assert_int_equal(fate_of(&pair, host, drain_0), HA_OUTCOME_MOVING);
		pair_idle(&pair, 100);
		assert_on(&pair, 1, 1);
		assert_int_equal(fate_of(&pair, host, look_at_0), HA_OUTCOME_AWAY);
		assert_int_equal(fate_of(&pair, host, drain_0), HA_OUTCOME_AWAY);
		assert_logged("asked for by the operator");
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.send->count.failovers, 1);
		pair_idle(&pair, 3000); /* nothing goes back */
		assert_on(&pair, 1, 1);
		sv_stepped_link((uint32_t)host, 0, false);
		pair_idle(&pair, 500);
		assert_on(&pair, 1, 1);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.recv->count.failbacks, 0);
		pair_close(&pair);
	}
}

/* It works, though rather as a last resort than for long. */
static void without_a_path_in_reserve_a_drain_is_refused_unless_forced(void **state)
{
	(void)state;
	for (int host = 0; host < 2; host++) {
		struct told told;
		struct pair pair;

		rails(&pair, 1);
		assert_true(order(&pair, host, drain_0, &told));
		assert_int_equal(told.verdicts[0].outcome, HA_OUTCOME_REFUSED);
		assert_string_equal(told.verdicts[0].why, "no healthy path in reserve");
		pair_idle(&pair, 200);
		assert_on(&pair, 0, 0);
		assert_int_equal(pair.recv->count.failovers, 0);
		assert_int_equal(fate_of(&pair, host, force_0), HA_OUTCOME_MOVING);
		assert_on(&pair, 0, 0);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_logged("is drained and used all the same");
		pair_close(&pair);
	}
}

static void what_could_not_move_moves_when_it_can(void **state)
{
	(void)state;
	for (int host = 0; host < 2; host++) {
		struct pair pair;

		rails(&pair, 2);
		sv_stepped_link(1 - (uint32_t)host, 1, false);
		sv_stepped_link((uint32_t)host, 1, false);
		pair_idle(&pair, 100);
		assert_int_equal(fate_of(&pair, host, drain_0), HA_OUTCOME_REFUSED);
		pair_idle(&pair, 100);
		assert_on(&pair, 0, 0);
		sv_stepped_link(0, 1, true);
		sv_stepped_link(1, 1, true);
		pair_idle(&pair, 300);
		assert_on(&pair, 1, 1);
		pair_close(&pair);
	}
}

static void both_hosts_are_drained_one_after_the_other(void **state)
{
	struct pair pair;

	(void)state;
	/* The same rail: the second has nothing left to do. */
	rails(&pair, 2);
	assert_int_equal(fate_of(&pair, 0, drain_0), HA_OUTCOME_MOVING);
	pair_idle(&pair, 100);
	assert_int_equal(fate_of(&pair, 1, drain_0), HA_OUTCOME_AWAY);
	pair_idle(&pair, 100);
	assert_on(&pair, 1, 1);
	assert_int_equal(pair.recv->count.failovers, 1);
	pair_close(&pair);
	/* Different rails: they meet across. */
	rails(&pair, 2);
	assert_int_equal(fate_of(&pair, 0, drain_0), HA_OUTCOME_MOVING);
	pair_idle(&pair, 300);
	assert_on(&pair, 1, 1);
	assert_int_equal(fate_of(&pair, 1, drain_1), HA_OUTCOME_MOVING);
	pair_idle(&pair, 300);
	assert_on(&pair, 1, 0);
	pair_close(&pair);
}

static void a_drained_port_is_better_than_none(void **state)
{
	(void)state;
	for (int host = 0; host < 2; host++) {
		struct pair pair;

		rails(&pair, 2);
		assert_int_equal(fate_of(&pair, host, drain_0), HA_OUTCOME_MOVING);
		pair_idle(&pair, 100);
		assert_on(&pair, 1, 1);
		sv_stepped_link((uint32_t)host, 1, false);
		transfer(&pair, 30000, 3);
		assert_int_equal(rail_of(host ? pair.recv : pair.send), 0);
		assert_logged("is drained and used all the same");
		/* And left again when something else has worked for a while. */
		sv_stepped_link((uint32_t)host, 1, true);
		pair_idle(&pair, 3000);
		transfer(&pair, 30000, 4);
		assert_int_equal(rail_of(host ? pair.recv : pair.send), 1);
		pair_close(&pair);
	}
}

static void the_failure_comes_while_the_port_is_drained(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 60; steps++) {
		const size_t offset = 0, size = 20000;
		const int tag = 3, host = (int)(steps % 2);
		struct ha_request *recv, *send;
		struct told told;
		struct pair pair;

		rails(&pair, 2);
		fill(pair.from.bytes, size, 3);
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		send = post_send(&pair, 0, size, tag);
		assert_true(order(&pair, host, drain_0, &told));
		for (unsigned i = 0; i < steps / 2; i++)
			pair_step(&pair);
		sv_stepped_link((uint32_t)(steps / 4 % 2), 1, false);
		assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		assert_true(filled(pair.to.bytes, size, 3));
		transfer(&pair, 3000, 4);
		pair_close(&pair);
	}
}

static void a_path_in_reserve_is_rather_one_that_nobody_drained(void **state)
{
	struct pair pair;

	(void)state;
	rails(&pair, 4);
	pair_idle(&pair, 100);
	/* One after the other: the last one is where it ends. */
	for (unsigned i = 0; i < 3; i++) {
		unsigned rail = rail_of(pair.recv);
		char text[64];
		struct told told;

		snprintf(text, sizeof(text), "nccl-ha 1 failover port sim%u:1", rail);
		assert_true(order(&pair, 1, text, &told));
		assert_int_equal(told.verdicts[0].outcome, HA_OUTCOME_MOVING);
		pair_idle(&pair, 1000);
		transfer(&pair, 9000, i);
		assert_false(ha_port_drained(pair.recv->paths[pair.recv->active]->port));
	}
	assert_int_equal(pair.recv->count.failovers, 3);
	pair_close(&pair);
}

static void a_new_connection_begins_elsewhere(void **state)
{
	(void)state;
	for (int host = 0; host < 2; host++) {
		struct told told;
		struct pair pair;

		pair_init(&pair);
		pair.config.enable_backup = true;
		pair.fabric.rails = 2;
		pair_open(&pair);
		assert_true(order(&pair, host, drain_0, &told));
		assert_int_equal(told.count, 0);
		pair_connect(&pair);
		assert_logged("sim0:1 is drained: a connection for it begins on sim1:1");
		transfer(&pair, 5000, 2);
		assert_int_equal(rail_of(host ? pair.recv : pair.send), 1);
		pair_idle(&pair, 3000);
		transfer(&pair, 5000, 3);
		assert_int_equal(rail_of(host ? pair.recv : pair.send), 1);
		/* Home is the port that NCCL asked for. */
		assert_int_equal(fate_of(&pair, host, undrain_0), HA_OUTCOME_MOVING);
		pair_idle(&pair, 500);
		assert_on(&pair, 0, 0);
		pair_close(&pair);
	}
}

/* ---- the way back ---------------------------------------------------------------------------- */

static void failback_ends_the_drain_and_returns(void **state)
{
	(void)state;
	for (unsigned n = 2; n <= 3; n++)
		for (int host = 0; host < 2; host++) {
			struct pair pair;

			rails(&pair, n);
			assert_int_equal(fate_of(&pair, host, drain_0), HA_OUTCOME_MOVING);
			pair_idle(&pair, 1000);
			transfer(&pair, 20000, 2);
			assert_int_equal(rail_of(host ? pair.recv : pair.send) == 0, false);
			assert_int_equal(fate_of(&pair, host, undrain_0), HA_OUTCOME_MOVING);
			pair_idle(&pair, 300);
			assert_on(&pair, 0, 0);
			assert_logged("preferred path is back");
			assert_int_equal(pair.recv->count.failbacks, 1);
			assert_int_equal(fate_of(&pair, host, undrain_0), HA_OUTCOME_HOME);
			pair_close(&pair);
		}
}

static void failback_says_when_there_is_nothing_to_go_back_to(void **state)
{
	(void)state;
	for (int host = 0; host < 2; host++) {
		struct told told;
		struct pair pair;

		rails(&pair, 2);
		sv_stepped_link(0, 0, false);
		pair_idle(&pair, 300);
		assert_true(order(&pair, host, "nccl-ha 1 failback all", &told));
		assert_int_equal(told.verdicts[0].outcome, HA_OUTCOME_REFUSED);
		assert_string_equal(told.verdicts[0].why, "a port of its preferred path is down");
		sv_stepped_link(0, 0, true);
		pair_idle(&pair, 20);
		assert_true(order(&pair, 0, drain_0, &told));
		pair_idle(&pair, 100);
		assert_false(order(&pair, host, "nccl-ha 1 failback connection 0", &told));
		if (host == 1) { /* the sender's drain is not this host's to end */
			assert_true(order(&pair, 1, undrain_0, &told));
			assert_int_equal(told.verdicts[0].outcome, HA_OUTCOME_REFUSED);
			assert_string_equal(told.verdicts[0].why,
					    "a port of its preferred path is drained");
		}
		pair_close(&pair);
	}
}

/* Not only where the preferred path happens to be the one in reserve. */
static void with_three_rails_the_preferred_path_is_gone_back_to(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = pair.config.enable_failback = true;
	pair.fabric.rails = 3;
	pair_up(&pair);
	pair_wait_standby(&pair);
	sv_stepped_link(1, 0, false);
	pair_idle(&pair, 1000);
	transfer(&pair, 1000, 1);
	assert_int_not_equal(rail_of(pair.recv), 0);
	sv_stepped_link(1, 0, true);
	pair_idle(&pair, 500);
	assert_int_not_equal(rail_of(pair.recv), 0); /* it has to be healthy for a while */
	pair_idle(&pair, 2500);
	assert_on(&pair, 0, 0);
	assert_int_equal(pair.recv->count.failbacks, 1);
	pair_close(&pair);
}

/* ---- one connection -------------------------------------------------------------------------- */

/* By its whole number, or by the half of it that log lines have. */
static void name_order(char out[64], const char *verb, uint64_t id, bool whole)
{
	if (whole)
		snprintf(out, 64, "nccl-ha 1 %s connection %016llx", verb, (unsigned long long)id);
	else
		snprintf(out, 64, "nccl-ha 1 %s connection %08x", verb, (uint32_t)id);
}

static void a_connection_is_moved_and_brought_back(void **state)
{
	(void)state;
	for (int host = 0; host < 2; host++)
		for (int whole = 0; whole < 2; whole++) {
			struct told told;
			struct pair pair;
			char text[64];

			rails(&pair, 2);
			name_order(text, "failover", pair.send->id ^ 1ull << 63, true);
			assert_false(order(&pair, host, text, &told));
			name_order(text, "failover", pair.send->id, whole);
			assert_int_equal(fate_of(&pair, host, text), HA_OUTCOME_MOVING);
			pair_idle(&pair, 200);
			assert_on(&pair, 1, 1);
			pair_wait_standby(&pair);
			pair_idle(&pair, 200);
			name_order(text, "failback", pair.send->id, whole);
			assert_int_equal(fate_of(&pair, host, text), HA_OUTCOME_MOVING);
			pair_idle(&pair, 200);
			assert_on(&pair, 0, 0);
			assert_int_equal(fate_of(&pair, host, text), HA_OUTCOME_HOME);
			pair_close(&pair);
		}
}

static void what_has_no_failover_stays(void **state)
{
	struct told told;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.fabric.rails = 2;
	pair_up(&pair);
	transfer(&pair, 5000, 1);
	for (int host = 0; host < 2; host++) {
		assert_true(order(&pair, host, force_0, &told));
		assert_int_equal(told.verdicts[0].outcome, HA_OUTCOME_REFUSED);
		assert_non_null(strstr(told.verdicts[0].why, "HA_NCCL_ENABLE_BACKUP"));
		assert_int_equal(fate_of(&pair, host, drain_1), HA_OUTCOME_AWAY);
		assert_int_equal(fate_of(&pair, host, undrain_0), HA_OUTCOME_HOME);
	}
	transfer(&pair, 5000, 2);
	pair_close(&pair);
}

static void what_has_failed_is_left_alone(void **state)
{
	struct pair pair;

	(void)state;
	rails(&pair, 2);
	ha_comm_fail(pair.recv, HA_ERR_INTERNAL, "for this test");
	assert_int_equal(fate_of(&pair, 1, force_0), HA_OUTCOME_FAILED);
	pair_idle(&pair, 100);
	assert_int_equal(fate_of(&pair, 0, force_0), HA_OUTCOME_FAILED);
	assert_int_equal(fate_of(&pair, 0, undrain_0), HA_OUTCOME_FAILED);
	pair_close(&pair);
}

static void there_must_be_such_a_port(void **state)
{
	struct told told;
	struct pair pair;

	(void)state;
	rails(&pair, 2);
	assert_false(order(&pair, 0, "nccl-ha 1 failover port sim7:1", &told));
	assert_false(order(&pair, 0, "nccl-ha 1 failover port sim0:2", &told));
	assert_int_equal(told.count, 0);
	assert_on(&pair, 0, 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_drained_port_is_left_and_its_failure_is_none),
	    cmocka_unit_test(without_a_path_in_reserve_a_drain_is_refused_unless_forced),
	    cmocka_unit_test(what_could_not_move_moves_when_it_can),
	    cmocka_unit_test(both_hosts_are_drained_one_after_the_other),
	    cmocka_unit_test(a_drained_port_is_better_than_none),
	    cmocka_unit_test(the_failure_comes_while_the_port_is_drained),
	    cmocka_unit_test(a_path_in_reserve_is_rather_one_that_nobody_drained),
	    cmocka_unit_test(a_new_connection_begins_elsewhere),
	    cmocka_unit_test(failback_ends_the_drain_and_returns),
	    cmocka_unit_test(failback_says_when_there_is_nothing_to_go_back_to),
	    cmocka_unit_test(with_three_rails_the_preferred_path_is_gone_back_to),
	    cmocka_unit_test(a_connection_is_moved_and_brought_back),
	    cmocka_unit_test(what_has_no_failover_stays),
	    cmocka_unit_test(what_has_failed_is_left_alone),
	    cmocka_unit_test(there_must_be_such_a_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
