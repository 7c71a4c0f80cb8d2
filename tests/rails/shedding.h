/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of a rail that is lost beside the control rail have in common. */
#ifndef HA_TESTS_RAILS_SHEDDING_H
#define HA_TESTS_RAILS_SHEDDING_H

#include "losing.h"

/* The rail that a path other than the control rail's is on, in these tests. */
#define LOST_RAIL 1u

static inline unsigned path_on(const struct ha_comm *comm, const char *nic)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && strcmp(nic_of(comm, p), nic) == 0)
			return p;
	fail_msg("no path on %s", nic);
	return 0;
}

/* So many generations have been shed and mended, at both ends. */
static inline unsigned sheds(const struct pair *pair)
{
	unsigned n = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		assert_int_equal(pair->send->failover->rails[p].generation,
				 pair->recv->failover->rails[p].generation);
		assert_int_equal(pair->send->failover->rails[p].mended_gen,
				 pair->send->failover->rails[p].generation);
		n += pair->send->failover->rails[p].generation != 0;
	}
	return n;
}

static inline void assert_no_failover(const struct pair *pair)
{
	for (int end = 0; end < 2; end++) {
		const struct ha_comm *comm = end ? pair->recv : pair->send;

		assert_int_equal(ha_comm_error(comm), HA_OK);
		assert_int_equal(comm->count.failovers, 0);
		assert_int_equal(comm->failover->epoch, 1);
		assert_int_equal(ha_comm_epoch(comm), 1);
		assert_string_equal(nic_of(comm, comm->active), "sim0");
		assert_int_equal(ha_active_generation(comm), 1);
	}
}

/* The message that was in flight is there, whole, and both know. */
static inline void assert_arrived(struct pair *pair, const struct in_flight *t)
{
	int got = 0;

	assert_int_equal(pair_finish(pair, t->recv, &got), HA_OK);
	assert_int_equal(pair_finish(pair, t->send, NULL), HA_OK);
	assert_int_equal(got, 300000);
	assert_true(filled(pair->to.bytes, 300000, 5));
}

/* From now on this NIC takes its time with what it is told. */
static inline int make_slow(uint32_t host)
{
	char rule[80];

	snprintf(rule, sizeof(rule), "wait=5s verb=modify_qp host=%u rail=%u", host, LOST_RAIL);
	return add_rule(rule);
}

#endif
