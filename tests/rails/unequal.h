/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of which each goes by another mode of rails: they lose no byte, and say so once. */
#ifndef HA_TESTS_RAILS_UNEQUAL_H
#define HA_TESTS_RAILS_UNEQUAL_H

#include "bundled.h"

#include <string.h>

static const enum ha_completion_mode modes[] = {HA_COMPLETION_RC, HA_COMPLETION_E2E};

/* Long enough for whatever is to carry. */
static inline void go_on(struct pair *pair)
{
	for (uint32_t i = 0; i < 40; i++) {
		transfer(pair, i % 4 == 3 ? 1000 : 300000, i);
		pair_idle(pair, 20);
	}
}

/* Port `which` of the four goes down under a message, and is there again three seconds later. */
static inline void a_port_is_lost_under_a_message(struct pair *pair, unsigned which)
{
	struct in_flight t = pair_start(pair);
	int got = 0;

	for (unsigned steps = 0; steps < 3 + 2 * which; steps++)
		sv_stepped_step();
	sv_stepped_link(which % 2, which / 2, false);
	assert_int_equal(finish_within_a_second(pair, t.recv, &got), HA_OK);
	assert_int_equal(finish_within_a_second(pair, t.send, NULL), HA_OK);
	assert_int_equal(got, 300000);
	assert_true(filled(pair->to.bytes, 300000, 5));
	transfer(pair, 200000, which);
	sv_stepped_link(which % 2, which / 2, true);
	pair_idle(pair, 3000);
}

/* That there is no agent is said by a thread of its own, at whatever time; so it is not counted. */
static inline void but_for_agents(enum ha_log_level level, unsigned long subsys, const char *file,
				  int line, const char *text)
{
	if (!strstr(text, "no agent at"))
		capture_sink(level, subsys, file, line, text);
}

static inline void connect_modes(struct pair *pair, int send, int recv,
				 enum ha_completion_mode mode)
{
	static struct ha_config peer;

	bundled_init(pair, 2);
	ha_log_set_sink(but_for_agents);
	pair->config.completion = mode;
	strcpy(pair->config.agent_dir, "/nonexistent/agent"); /* so by islands */
	peer = pair->config;
	peer.rail_mode = recv;
	pair->config.rail_mode = send;
	pair->peer_config = &peer;
	pair_open(pair);
	pair_connect(pair);
}

static const struct {
	int mode;
	const char *name;
} of_rails[] = {{HA_RAIL_MODE_ADAPTIVE, "adaptive"},
		{HA_RAIL_MODE_STATIC, "static"},
		{HA_RAIL_MODE_ISLAND, "island"},
		{HA_RAIL_MODE_AGENT, "agent"}};

#define ISLAND 2
#define AGENT  3

static inline void lose_no_byte(unsigned send, unsigned recv)
{
	const bool alone = send == ISLAND || recv == ISLAND;
	struct pair pair;
	char text[96];

	connect_modes(&pair, of_rails[send].mode, of_rails[recv].mode, modes[(send + recv) % 2]);
	assert_int_equal(captured_warnings, send == recv ? 0 : 2);
	for (unsigned end = 0; end < 2; end++) {
		snprintf(text, sizeof(text), "HA_NCCL_RAIL_MODE is %s at the peer and %s here",
			 of_rails[end ? send : recv].name, of_rails[end ? recv : send].name);
		assert_int_equal(logged(text), send != recv);
	}
	for (unsigned which = 0; which < 4; which++) {
		go_on(&pair);
		assert_int_equal(carrying_now(&pair), alone ? 1 : 2);
		a_port_is_lost_under_a_message(&pair, which);
	}
	assert_int_equal(ha_comm_error(pair.send), HA_OK);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	pair_close(&pair);
}

#endif
