/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fabric kept of an older generation comes when other queue pairs have got the numbers
 * that it goes to, on the same ports, while the application's memory still has the same key.
 * Nothing but the packet sequence number, which each queue pair draws at random, keeps it out. In
 * virtual time.
 */
#include "harness.h"

#include "base/clock.h"
#include "failover/engine.h"

#include <stdio.h>
#include <string.h>

#define MESSAGES 32
#define SIZE	 2000u
#define LATE_MS	 5000

static struct ibv_qp *qp_in_use(const struct ha_comm *comm)
{
	return ha_comm_path(comm)->qps[0].qp;
}

/* Of the first writes of a connection each is late, and gets there by being sent again. */
static uint64_t send_what_comes_late(struct pair *pair)
{
	char rule[100];
	int id;

	snprintf(rule, sizeof(rule), "delay=%dms host=0 op=write minlen=%u nth=1 every=2 count=%d",
		 LATE_MS, SIZE, MESSAGES);
	id = add_rule(rule);
	for (uint32_t i = 0; i < MESSAGES; i++)
		transfer(pair, SIZE, i);
	return fired(id);
}

static bool goes_on(const struct ha_comm *comm, uint32_t epoch)
{
	return comm->failover->epoch == epoch && comm->failover->state == HA_FO_ACTIVE &&
	       (comm->is_send || comm->failover->resumed);
}

/* The receiver's queue pair breaks; both ends go on with fresh ones on the same ports. */
static void replace_queue_pairs(struct pair *pair)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp *broken = qp_in_use(pair->recv);
	uint32_t epoch = pair->recv->failover->epoch + 1;
	unsigned steps = 0;

	assert_int_equal(ibv_modify_qp(broken, &attr, IBV_QP_STATE), 0);
	assert_true(sv_stepped_raise_qp(1, 0, broken->qp_num, IBV_EVENT_QP_FATAL));
	while (!goes_on(pair->send, epoch) || !goes_on(pair->recv, epoch)) {
		if (steps++ > 10000)
			fail_msg("the connection does not go on; log:\n%s", captured_log);
		pair_advance(pair);
	}
}

/* Until all that was late has been delivered: how much of it to the number that came again. */
static unsigned deliver_what_is_late(struct pair *pair, uint64_t until_ns)
{
	unsigned met = 0;

	while (sv_stepped_now() < until_ns) {
		struct sv_event_info next;

		met += sv_stepped_peek(&next) && next.time_ns <= sv_stepped_now() + HA_NS_PER_MS &&
		       next.kind == SV_EVENT_PACKET && next.dst_host == 1 &&
		       next.dst_qpn == qp_in_use(pair->recv)->qp_num && next.length == SIZE;
		pair_advance(pair);
	}
	return met;
}

/*
 * The application has long had its messages and uses the memory for something else. Had the new
 * queue pair begun with the number of the old one, one of what is late would be the packet that it
 * waits for.
 */
static void a_number_that_comes_again_lets_nothing_old_in(void **state)
{
	uint32_t old_qpn;
	struct pair pair;
	uint64_t until_ns;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair.config.stall_ms = 0; /* what is retransmitted stands still for a moment */
	pair.fabric.qpns_again = true;
	pair_up(&pair);
	old_qpn = qp_in_use(pair.recv)->qp_num;
	assert_int_equal(send_what_comes_late(&pair), MESSAGES);
	until_ns = sv_stepped_now() + (LATE_MS + 100) * HA_NS_PER_MS;
	replace_queue_pairs(&pair);
	pair_pass(&pair, 50); /* the first ones are destroyed */
	replace_queue_pairs(&pair);
	assert_int_equal(qp_in_use(pair.recv)->qp_num, old_qpn);
	memset(pair.to.bytes, 0x33, MEM_SIZE);
	assert_int_equal(deliver_what_is_late(&pair, until_ns), MESSAGES);
	for (size_t i = 0; i < MEM_SIZE; i++)
		assert_int_equal(pair.to.bytes[i], 0x33);
	assert_int_equal(pair.recv->count.failovers, 2);
	memset(pair.to.bytes, CANARY, MEM_SIZE); /* what transfer() looks for around its message */
	for (uint32_t i = 0; i < MESSAGES; i++)
		transfer(&pair, SIZE, 100 + i);
	pair_close(&pair);
}

/* Every bit of them comes up both ways, and hardly one comes twice. */
static void sequence_numbers_are_drawn_anew_for_each_connection(void **state)
{
	uint32_t seen[2 * MESSAGES], ones = 0, zeros = 0, twice = 0;

	(void)state;
	for (size_t i = 0; i < MESSAGES; i++) {
		struct pair pair;

		pair_init(&pair);
		pair_up(&pair);
		seen[2 * i] = ha_comm_path(pair.send)->qps[0].local_psn;
		seen[2 * i + 1] = ha_comm_path(pair.recv)->qps[0].local_psn;
		pair_close(&pair);
	}
	for (size_t i = 0; i < 2 * MESSAGES; i++) {
		ones |= seen[i];
		zeros |= ~seen[i];
		for (size_t k = 0; k < i; k++)
			twice += seen[k] == seen[i];
	}
	assert_int_equal(ones, 0xffffff);
	assert_int_equal(zeros & 0xffffff, 0xffffff);
	assert_true(twice <= 1); /* by chance once in 8,000 runs */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_number_that_comes_again_lets_nothing_old_in),
	    cmocka_unit_test(sequence_numbers_are_drawn_anew_for_each_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
