/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats go one way of several, and each queue pair another: a bond's legs, or equal ways
 * between switches. What is dead on one of them says little about the others. In virtual time.
 */
#include "harness.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "liveness/liveness.h"
#include "liveness/session_report.h"

#include <string.h>

static void rails(struct pair *pair, uint32_t n)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = n;
	pair_up(pair);
	if (n > 1)
		pair_wait_standby(pair);
	for (int i = 0; i < 1000; i++)
		pair_advance(pair);
	assert_int_equal(pair->recv->active, 0);
}

/* So long, with a look at each millisecond: is it protected? Returns how long it was not. */
static unsigned unprotected_ms(struct pair *pair, unsigned ms)
{
	uint64_t begin_ns = sv_stepped_now(), seen_ns = begin_ns;
	unsigned without_ms = 0;

	while (sv_stepped_now() < begin_ns + ms * HA_NS_PER_MS) {
		pair_advance(pair);
		if (sv_stepped_now() - seen_ns < HA_NS_PER_MS)
			continue;
		seen_ns = sv_stepped_now();
		without_ms += !pair_has_standby(pair);
	}
	return without_ms;
}

static uint64_t qps_made(const struct pair *pair)
{
	return pair->send->count.rebuilds + pair->recv->count.rebuilds;
}

/* Where datagrams get lost, of all rails or of one, and nothing else: an idle connection stays. */
static void only_heartbeats_are_lost(void **state)
{
	static const char *const rules[] = {"drop op=ud", "drop op=ud rail=0", "drop op=ud rail=1",
					    "drop op=ud rail=0 host=1"};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		uint64_t messages, made;
		struct pair pair;
		int id;

		rails(&pair, 2);
		messages = pair.send->count.control_sent + pair.recv->count.control_sent;
		made = qps_made(&pair);
		id = add_rule(rules[i]);
		assert_int_equal(unprotected_ms(&pair, 20000), 0);
		assert_true(fired(id) > 20);
		assert_int_equal(pair.recv->count.failovers, 0);
		assert_int_equal(pair.recv->active, 0);
		assert_int_equal(qps_made(&pair), made);
		assert_int_equal(pair.send->count.control_sent + pair.recv->count.control_sent,
				 messages);
		transfer(&pair, 5000, 3);
		/* A path that really fails is still left. */
		sv_stepped_cut(0, true);
		for (int ms = 0; ms < 5000 && pair.recv->active == 0; ms++)
			pair_advance(&pair);
		assert_int_not_equal(pair.recv->active, 0);
		pair_close(&pair);
	}
}

static bool all_answered(const struct pair *pair)
{
	for (unsigned p = 0; p < 2; p++)
		if (ha_session_state(pair->recv->failover->links[p].live.session) !=
			HA_SESSION_UP ||
		    ha_session_state(pair->send->failover->links[p].live.session) != HA_SESSION_UP)
			return false;
	return true;
}

/* One way of two loses all datagrams that take it: heartbeats find the other one and come back. */
static void heartbeats_take_another_way(void **state)
{
	uint64_t lost = 0;

	(void)state;
	for (unsigned round = 0; round < 8; round++) {
		struct pair pair;
		unsigned ms = 0;
		char rule[64];
		int id;

		rails(&pair, 2);
		snprintf(rule, sizeof(rule), "drop op=ud leg=%u", round % 2);
		id = add_rule(rule);
		/* Until all four have found a good way and stay on it: each by chance, at most once
		 * a second. */
		for (unsigned good = 0; good < 40 && ms < 120000; ms += 100) {
			assert_int_equal(unprotected_ms(&pair, 100), 0);
			good = all_answered(&pair) ? good + 1 : 0;
		}
		assert_true(ms < 120000);
		lost += fired(id);
		assert_int_equal(pair.recv->count.failovers, 0);
		pair_close(&pair);
	}
	assert_true(lost > 0);
}

/* ---- the other way round --------------------------------------------------------------------- */

static uint64_t deliver(struct pair *pair, size_t size, uint32_t seed)
{
	uint64_t since_ns = sv_stepped_now(), until_ns = since_ns + 20 * HA_NS_PER_S;
	const size_t offset = 0;
	const int tag = (int)seed;
	struct ha_request *recv, *send = NULL;
	bool received = false, sent = false;

	fill(pair->from.bytes, size, seed);
	recv = post_recv(pair, 1, &offset, &size, &tag);
	while (!received || !sent) {
		if (sv_stepped_now() >= until_ns)
			fail_msg("a message is not through after 20 s; log:\n%s", pair->log);
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

/* Heartbeats go on, one queue pair's packets get lost: what is posted on it tells, in an RTO. */
static void one_queue_pair_is_dead(void **state)
{
	(void)state;
	for (unsigned host = 0; host < 2; host++) {
		const struct ha_comm *comm;
		struct pair pair;
		char rule[64];
		int id;

		rails(&pair, 2);
		comm = host == 0 ? pair.send : pair.recv;
		snprintf(rule, sizeof(rule), "drop host=%u rail=0 qpn=%u", host,
			 comm->paths[0]->qps[0].qp->qp_num);
		id = add_rule(rule);
		assert_true(deliver(&pair, 5000, 4) <=
			    (pair.recv->rto_ms + pair.recv->rto_ms / 4 + 20) * HA_NS_PER_MS);
		assert_true(fired(id) > 0);
		assert_int_equal(pair.recv->count.failovers, 1);
		pair_close(&pair);
	}
}

static unsigned leg_of(uint32_t host, const struct ha_path *path)
{
	return (unsigned)sv_stepped_leg_of(host, (uint32_t)path->nic->index,
					   path->qps[0].qp->qp_num);
}

/*
 * The leg of a bond that carries the only path dies, and nobody is told. There is no other device:
 * the path is built again between the same two ports, until it is on the other leg.
 */
static void a_leg_dies_under_the_only_device(void **state)
{
	(void)state;
	for (uint32_t seed = 1; seed <= 8; seed++) {
		uint32_t host = seed % 2;
		struct pair pair;
		unsigned dead;

		rails(&pair, 1);
		dead = leg_of(host, (host == 0 ? pair.send : pair.recv)->paths[0]);
		sv_stepped_leg(host, 0, dead, SV_LEG_DOWN);
		(void)deliver(&pair, 5000, seed);
		assert_true(pair.recv->count.failovers >= 1);
		assert_int_not_equal(leg_of(host, ha_comm_path(host == 0 ? pair.send : pair.recv)),
				     dead);
		assert_int_equal(ha_comm_error(pair.send), HA_OK);
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		pair_close(&pair);
	}
}

/* With another device: traffic goes on there, or over fresh queue pairs that are on the living leg;
 * then the bond's living leg carries it or stands by. */
static void a_leg_dies_and_the_bond_is_of_use_again(void **state)
{
	(void)state;
	for (uint32_t seed = 1; seed <= 6; seed++) {
		struct pair pair;
		unsigned dead;

		rails(&pair, 2);
		dead = leg_of(0, pair.send->paths[0]);
		sv_stepped_leg(0, 0, dead, SV_LEG_DOWN);
		(void)deliver(&pair, 5000, seed);
		assert_true(ha_comm_path(pair.send)->nic->index == 1 ||
			    leg_of(0, ha_comm_path(pair.send)) != dead);
		for (int ms = 0; ms < 60000 && !pair_has_standby(&pair); ms++)
			pair_advance(&pair);
		assert_true(pair_has_standby(&pair));
		assert_int_equal(unprotected_ms(&pair, 5000), 0);
		pair_close(&pair);
	}
}

/* Queue pairs of one path spread, by labels of their own. */
static void queue_pairs_of_a_path_spread(void **state)
{
	unsigned on[2] = {0, 0};
	uint32_t labels[64];
	unsigned n = 0;

	(void)state;
	for (uint32_t seed = 1; seed <= 4; seed++) {
		struct pair pair;

		pair_init(&pair);
		pair.config.ib_qps_per_connection = 8;
		pair.fabric.seed = seed;
		pair_up(&pair);
		for (unsigned i = 0; i < pair.send->paths[0]->nqps; i++) {
			struct ibv_qp *qp = pair.send->paths[0]->qps[i].qp;
			struct ibv_qp_init_attr init;
			struct ibv_qp_attr attr;

			assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_AV, &init), 0);
			assert_true(attr.ah_attr.is_global);
			assert_in_range(attr.ah_attr.grh.flow_label, 1, 0xfffff);
			for (unsigned k = 0; k < n; k++)
				assert_int_not_equal(labels[k], attr.ah_attr.grh.flow_label);
			labels[n++] = attr.ah_attr.grh.flow_label;
			on[sv_stepped_leg_of(0, 0, qp->qp_num)]++;
		}
		pair_close(&pair);
	}
	assert_true(n >= 32);
	assert_in_range(on[0], n / 5, n - n / 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(only_heartbeats_are_lost),
	    cmocka_unit_test(heartbeats_take_another_way),
	    cmocka_unit_test(one_queue_pair_is_dead),
	    cmocka_unit_test(a_leg_dies_under_the_only_device),
	    cmocka_unit_test(a_leg_dies_and_the_bond_is_of_use_again),
	    cmocka_unit_test(queue_pairs_of_a_path_spread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
