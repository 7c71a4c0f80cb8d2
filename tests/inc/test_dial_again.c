/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has lost the controller, and whose connections nobody takes: as long as its machine is away,
 * and a moment longer if they are dialled anew, since TCP by itself asks ever more seldom.
 */
#include "../unit/cmocka_all.h"

#include "base/clock.h"
#include "inc/net/lease.h"
#include "tools/nccl-ha-switchd/controller.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define QUEUE	 16
#define BEGIN_NS 1000
#define ROUNDS	 10

static union ha_sockaddr at;
static int listener, waiting[QUEUE];

/* A listener that nobody looks after: behind those that it has room for nobody is answered. */
static int setup(void **state)
{
	const union ha_sockaddr any = {
	    .in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};

	(void)state;
	listener = ha_net_listen(&any, 0, &at);
	assert_true(listener >= 0);
	for (unsigned i = 0; i < QUEUE; i++) {
		waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)connect(waiting[i], &at.sa, ha_sockaddr_len(&at));
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(listener);
	for (unsigned i = 0; i < QUEUE; i++)
		close(waiting[i]);
	return 0;
}

static void a_switch_dials_its_controller_anew_each_second(void **state)
{
	const struct ns_settings settings = {.name = "s", .controller = "there"};
	const struct ns_equipment equipment = {.controller = at};
	struct ns_groups groups;
	struct ns_controller c;
	uint64_t now_ns = BEGIN_NS;
	const int epoll = epoll_create1(EPOLL_CLOEXEC);

	(void)state;
	ns_groups_begin(&groups, NULL, NULL, epoll);
	ns_controller_begin(&c, &settings, &equipment, &groups);
	ns_controller_tick(&c, now_ns);
	for (unsigned i = 0; i < ROUNDS; i++) {
		assert_int_equal(c.line.talk.phase, HA_TALK_DIALING);
		assert_true(c.dialled_ns == now_ns);
		now_ns += HA_TALK_CONNECT_NS;
		ns_controller_tick(&c, now_ns);
		assert_true(c.dialled_ns < now_ns); /* not a nanosecond before */
		now_ns++;
		ns_controller_tick(&c, now_ns);
	}
	ns_controller_end(&c);
	close(epoll);
}

static void so_does_member_0(void **state)
{
	const struct ha_ask ask = {.controller = &at};
	struct ha_ask_answer answer = {.talk = {.fd = -1, .phase = HA_TALK_OVER}};
	struct ha_lease lease;
	uint64_t now_ns = BEGIN_NS;
	uint8_t receipt[1] = {0};

	(void)state;
	answer.receipt = receipt;
	ha_lease_begin(&lease, &ask, &answer);
	assert_int_equal(ha_lease_next(&lease, now_ns), HA_LEASE_NOTHING); /* it is lost */
	now_ns = lease.due_ns;
	for (unsigned i = 0; i < ROUNDS; i++) {
		assert_int_equal(ha_lease_next(&lease, now_ns), HA_LEASE_NOTHING);
		assert_int_equal(answer.talk.phase, HA_TALK_DIALING);
		assert_true(lease.dialled_ns == now_ns);
		now_ns += HA_TALK_CONNECT_NS + 1;
	}
	ha_talk_end(&answer.talk);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_switch_dials_its_controller_anew_each_second),
	    TEST(so_does_member_0),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
