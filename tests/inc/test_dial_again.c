/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has lost the controller, and whose connections nobody takes: as long as its machine is away,
 * and a moment longer if they are dialled anew, since TCP by itself asks ever more seldom. And
 * whose connections are refused, as long as its program is away: how long it takes until it is
 * dialled when it is back, of all that a new group waits for then what is not done at once. In
 * virtual time.
 */
#include "../unit/cmocka_all.h"

#include "base/clock.h"
#include "inc/net/lease.h"
#include "tools/nccl-ha-switchd/controller.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define QUEUE	 16
#define BEGIN_NS 1000
#define ROUNDS	 10
#define STEP_NS	 (20 * HA_NS_PER_MS) /* between two looks at the clock, at most */
#define AWAY	 200		     /* such steps at most, from nought on */
#define BACK_NS	 (2 * HA_NS_PER_S)   /* for a new group's plan */

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

/* ---- a program that is away ------------------------------------------------------------------ */

/* An address at which nobody listens, and nobody else will meanwhile. */
static void program_goes(void)
{
	socklen_t size = sizeof(at.in);

	at = (union ha_sockaddr){
	    .in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, &at.sa, sizeof(at.in)), 0);
	assert_int_equal(getsockname(listener, &at.sa, &size), 0);
}

/* In real time, in which virtual time stands. */
static void wait_for_an_answer(const struct ha_talk *talk)
{
	struct pollfd p = {.fd = talk->fd, .events = POLLOUT};

	assert_int_equal(poll(&p, 1, -1), 1);
}

/* Who dials: as its program moves it. */
struct dialler {
	struct ha_talk *talk;
	void (*move)(void *who, uint64_t now_ns);
	void *who;
};

static bool is_through(const struct dialler *d, uint64_t now_ns)
{
	d->move(d->who, now_ns);
	while (d->talk->phase == HA_TALK_DIALING) {
		wait_for_an_answer(d->talk);
		d->move(d->who, now_ns);
	}
	return d->talk->phase != HA_TALK_OVER;
}

/* Until it is dialled, after it was away for so long. */
static uint64_t dialled_after(const struct dialler *d, uint64_t away_ns)
{
	const uint64_t back_ns = BEGIN_NS + away_ns;
	uint64_t now_ns = BEGIN_NS;

	for (; now_ns < back_ns; now_ns += STEP_NS)
		assert_false(is_through(d, now_ns));
	assert_int_equal(listen(listener, QUEUE), 0);
	while (!is_through(d, now_ns))
		now_ns += STEP_NS;
	return now_ns - back_ns;
}

static void tell_longest(const char *who, uint64_t longest_ns)
{
	print_message("a controller that is back is dialled by %s after %llu ms at most\n", who,
		      (unsigned long long)(longest_ns / HA_NS_PER_MS));
	assert_true(longest_ns > BACK_NS / 4); /* else it was never away in the middle of a pause */
	assert_true(longest_ns <= NS_REDIAL_MOST_NS + STEP_NS);
	assert_true(longest_ns < BACK_NS);
}

static void move_switch(void *who, uint64_t now_ns)
{
	struct ns_controller *c = who;

	if (c->line.talk.phase == HA_TALK_DIALING)
		c->line.look(&c->line, now_ns);
	else
		ns_controller_tick(c, now_ns);
}

static void a_switch_dials_a_controller_that_is_back_in_time(void **state)
{
	const struct ns_settings settings = {.name = "s", .controller = "there"};
	uint64_t longest_ns = 0;

	(void)state;
	for (unsigned i = 0; i < AWAY; i++) {
		struct ns_equipment equipment = {.controller = {{0}}};
		struct ns_groups groups;
		struct ns_controller c;
		const struct dialler dialler = {&c.line.talk, move_switch, &c};
		const int epoll = epoll_create1(EPOLL_CLOEXEC);
		uint64_t ns;

		program_goes();
		equipment.controller = at;
		ns_groups_begin(&groups, NULL, NULL, epoll);
		ns_controller_begin(&c, &settings, &equipment, &groups);
		ns = dialled_after(&dialler, i * STEP_NS);
		longest_ns = ns > longest_ns ? ns : longest_ns;
		ns_controller_end(&c);
		close(epoll);
		close(listener);
	}
	tell_longest("a switch", longest_ns);
}

/* One that is there by then, and would take it for one that serves the switch. */
static void a_switch_that_is_about_to_end_dials_nobody(void **state)
{
	const struct ns_settings settings = {.name = "s", .controller = "there"};
	struct ns_equipment equipment = {.controller = {{0}}};
	struct ns_groups groups;
	struct ns_controller c;
	const struct dialler dialler = {&c.line.talk, move_switch, &c};
	const int epoll = epoll_create1(EPOLL_CLOEXEC);
	uint64_t now_ns = BEGIN_NS;

	(void)state;
	program_goes();
	equipment.controller = at;
	ns_groups_begin(&groups, NULL, NULL, epoll);
	ns_controller_begin(&c, &settings, &equipment, &groups);
	assert_false(is_through(&dialler, now_ns)); /* it is to be dialled again */
	ns_controller_leave(&c);
	assert_int_equal(listen(listener, QUEUE), 0);
	for (unsigned i = 0; i < AWAY; i++, now_ns += STEP_NS)
		assert_false(is_through(&dialler, now_ns));
	ns_controller_end(&c);
	close(epoll);
	close(listener);
}

static void move_member(void *who, uint64_t now_ns)
{
	(void)ha_lease_next(who, now_ns);
}

static void so_does_member_0_of_a_group(void **state)
{
	const struct ha_ask ask = {.controller = &at};
	uint8_t receipt[1] = {0};
	uint64_t longest_ns = 0;

	(void)state;
	for (unsigned i = 0; i < AWAY; i++) {
		struct ha_ask_answer answer = {.talk = {.fd = -1, .phase = HA_TALK_OVER}};
		struct ha_lease lease;
		const struct dialler dialler = {&answer.talk, move_member, &lease};
		uint64_t ns;

		program_goes();
		answer.receipt = receipt;
		ha_lease_begin(&lease, &ask, &answer);
		ns = dialled_after(&dialler, i * STEP_NS);
		longest_ns = ns > longest_ns ? ns : longest_ns;
		ha_talk_end(&answer.talk);
		close(listener);
	}
	tell_longest("a group's member 0", longest_ns);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_switch_dials_its_controller_anew_each_second),
	    TEST(so_does_member_0),
	    cmocka_unit_test(a_switch_dials_a_controller_that_is_back_in_time),
	    cmocka_unit_test(so_does_member_0_of_a_group),
	    cmocka_unit_test(a_switch_that_is_about_to_end_dials_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
