/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle of two rails that goes by an agent: how much of a message goes over the second one. The
 * fabric is stepped, the agent lives in real time.
 */
#ifndef HA_TESTS_RAILS_BY_AGENT_H
#define HA_TESTS_RAILS_BY_AGENT_H

#include "bundled.h"

#include "device/bundle.h"
#include "nccl_ha/mpib_agent.h"
#include "transport/rail_share.h"
#include "transport/send.h"

#include <pthread.h>

#define SIZE (256u << 10)

#define SENDER	 "10.0.0.1" /* first rails */
#define RECEIVER "10.0.0.2"

/* The client of the agent logs from a thread of its own. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void locked_sink(enum ha_log_level level, unsigned long subsys, const char *file,
			       int line, const char *text)
{
	pthread_mutex_lock(&log_lock);
	capture_sink(level, subsys, file, line, text);
	pthread_mutex_unlock(&log_lock);
}

static inline bool has_logged(const char *text)
{
	bool has;

	pthread_mutex_lock(&log_lock);
	has = logged(text);
	pthread_mutex_unlock(&log_lock);
	return has;
}

static inline int warnings_so_far(void)
{
	int warnings;

	pthread_mutex_lock(&log_lock);
	warnings = captured_warnings;
	pthread_mutex_unlock(&log_lock);
	return warnings;
}

static struct pair pair;

static inline void by_agent_init(const char *dir)
{
	bundled_init(&pair, 2);
	ha_log_set_sink(locked_sink);
	pair.config.rail_mode = HA_RAIL_MODE_AGENT;
	strcpy(pair.config.agent_dir, dir);
}

/* Bytes of the next message over the second rail, all of which has come right. */
static inline uint64_t of_size_over_second(size_t size)
{
	const uint64_t before[2] = {pair.send->striped.bytes[0], pair.send->striped.bytes[1]};
	uint64_t moved[2];

	/* As long as what was read last is good for: the agent's time does not pass here. */
	sv_stepped_run(sv_stepped_now() + 20 * HA_NS_PER_US);
	transfer(&pair, size, 3);
	pair_settle(&pair);
	for (int rail = 0; rail < 2; rail++)
		moved[rail] = pair.send->striped.bytes[rail] - before[rail];
	assert_int_equal(moved[0] + moved[1], size);
	return moved[1];
}

static inline uint64_t over_second(void)
{
	return of_size_over_second(SIZE);
}

static inline void up(void)
{
	pair_up(&pair);
	wait_members(&pair, 2);
}

/* What a part of 1024 of a message is. */
static inline uint64_t part(uint32_t share)
{
	return SIZE / 1024 * share / 128 * 128;
}

#endif
