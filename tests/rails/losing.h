/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of rails that are lost have in common: rails that carry, and when all are again. */
#ifndef HA_TESTS_RAILS_LOSING_H
#define HA_TESTS_RAILS_LOSING_H

#include "bundled.h"

#include "failover/hear.h"
#include "failover/rails.h"
#include "progress/command.h"

static const enum ha_completion_mode modes[] = {HA_COMPLETION_RC, HA_COMPLETION_E2E};

/* On a fabric that may have been changed since bundled_init. */
static inline void carrying_on(struct pair *pair, uint32_t rails, enum ha_completion_mode mode,
			       const char *share)
{
	strcpy(pair->config.rail_share, share);
	pair->config.completion = mode;
	pair_open(pair);
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	pair_connect(pair);
	wait_members(pair, rails);
	assert_string_equal(nic_of(pair->recv, pair->recv->active), "sim0");
}

static inline void carrying_by(struct pair *pair, uint32_t rails, enum ha_completion_mode mode,
			       const char *share)
{
	bundled_init(pair, rails);
	carrying_on(pair, rails, mode, share);
}

/* Each rail carries as much as another. */
static inline void carrying(struct pair *pair, uint32_t rails, enum ha_completion_mode mode)
{
	static const char *const alike[] = {"1,1", "1,1,1"};

	carrying_by(pair, rails, mode, alike[rails - 2]);
}

/* What a slow command takes is its NIC's time, not ours. */
static inline int set_up(void **state)
{
	(void)state;
	ha_command_took_ns = sv_stepped_waited_ns;
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	ha_command_took_ns = NULL;
	return 0;
}

static inline bool is_whole(const struct pair *pair)
{
	return !ha_rails_lack(pair->send) && !ha_rails_lack(pair->recv);
}

static inline void until_whole(struct pair *pair, unsigned ms)
{
	const uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (!is_whole(pair) && sv_stepped_now() < until_ns)
		pair_advance(pair);
	assert_true(is_whole(pair));
}

static inline void hear(struct ha_comm *comm, const struct ha_message *m)
{
	ha_token_acquire(comm);
	ha_failover_hear(comm, m);
	ha_token_release(comm);
}

#endif
