/* SPDX-License-Identifier: Apache-2.0 */
/* A connection between two hosts on a bundle of 2 to 4 rails each, stepped. */
#ifndef HA_TESTS_RAILS_BUNDLED_H
#define HA_TESTS_RAILS_BUNDLED_H

#include "../transport/harness.h"
#include "failover/engine.h"
#include "transport/recv.h"

/* The configuration, which may be changed before bundled_up. */
static inline void bundled_init(struct pair *pair, uint32_t rails)
{
	static const char *const names[] = {"sim0+sim1", "sim0+sim1+sim2", "sim0+sim1+sim2+sim3"};

	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = rails;
	strcpy(pair->config.rails, names[rails - 2]);
}

static inline void bundled(struct pair *pair, uint32_t rails)
{
	bundled_init(pair, rails);
	pair_up(pair);
}

static inline const char *nic_of(const struct ha_comm *comm, unsigned p)
{
	return comm->paths[p]->nic->name;
}

/* The path that is up beside the active one. */
static inline unsigned standby_of(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && comm->paths[p] && ha_slot_is_up(&comm->failover->slots[p]))
			return p;
	fail_msg("no standby");
	return 0;
}

static inline unsigned carrying_now(const struct pair *pair)
{
	return 1 + (unsigned)__builtin_popcount(pair->recv->recv->members);
}

/* Until so many rails carry, as they do where messages are large. */
static inline void wait_members(struct pair *pair, unsigned rails)
{
	for (int i = 0; i < 2000 && carrying_now(pair) < rails; i++) {
		pair_idle(pair, 5);
		transfer(pair, 300000, 1);
		pair_settle(pair);
	}
	assert_int_equal(carrying_now(pair), rails);
}

/* As with a peer of an older version: the loss of the control rail is a failover. */
static inline void without_turns(struct pair *pair)
{
	pair->send->features &= ~HA_FEATURE_TURN;
	pair->recv->features &= ~HA_FEATURE_TURN;
}

/* Also where heartbeats go on and nothing else does. */
static inline ha_result_t finish_within_a_second(struct pair *pair, struct ha_request *req,
						 int *sizes)
{
	const uint64_t until_ns = sv_stepped_now() + HA_NS_PER_S;
	ha_result_t result;
	bool done;

	while ((result = ha_test(req, &done, sizes)) == HA_OK && !done) {
		assert_true(sv_stepped_now() < until_ns);
		pair_step(pair);
	}
	return result;
}

#endif
