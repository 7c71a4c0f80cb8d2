/* SPDX-License-Identifier: Apache-2.0 */
/* Who dials is let in a few at a time, and where no descriptor is left the rest waits for one. */
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "base/clock.h"
#include "base/list.h"
#include "progress/acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLERS 9

static uint64_t now_ns;

static uint64_t test_clock(void)
{
	return now_ns;
}

/* An acceptor with its owner, and those who dial. */
struct door {
	struct ha_acceptor acceptor;
	struct ha_poller poller;
	struct ha_progress *progress;
	struct sockaddr_in addr;
	int callers[CALLERS], seated[CALLERS], nseated;
	bool closes; /* after the first one */
	bool expects;
};

static void seat(struct ha_acceptor *acceptor, int fd, const union ha_sockaddr *from)
{
	struct door *door = ha_container_of(acceptor, struct door, acceptor);

	assert_int_equal(from->in.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	door->seated[door->nseated++] = fd;
	if (door->closes)
		ha_progress_unwatch_self(door->progress, &acceptor->watch);
}

static bool expects(struct ha_acceptor *acceptor)
{
	return ha_container_of(acceptor, struct door, acceptor)->expects;
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct door *door = ha_container_of(poller, struct door, poller);

	poller->due_ns = ha_acceptor_visit(&door->acceptor, ha_now_ns());
	return HA_POLL_ASLEEP;
}

static void open_door(struct door *door, unsigned at_a_time)
{
	const struct ha_progress_options options = {.thread = false};
	socklen_t length = sizeof(door->addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	memset(door, 0, sizeof(*door));
	now_ns = HA_NS_PER_S;
	ha_clock_set_source(test_clock);
	door->addr.sin_family = AF_INET;
	door->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&door->addr, length), 0);
	assert_int_equal(listen(fd, CALLERS), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&door->addr, &length), 0);
	assert_int_equal(ha_progress_start(&options, &door->progress), HA_OK);
	ha_list_init(&door->poller.link);
	door->poller.visit = visit;
	door->acceptor = (struct ha_acceptor){
	    .progress = door->progress,
	    .poller = &door->poller,
	    .at_a_time = at_a_time,
	    .seat = seat,
	};
	assert_int_equal(ha_acceptor_begin(&door->acceptor, fd), HA_OK);
	ha_progress_add(door->progress, &door->poller);
	for (int i = 0; i < CALLERS; i++) {
		door->callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(door->callers[i], (struct sockaddr *)&door->addr, length),
				 0);
	}
}

static void close_door(struct door *door)
{
	int fd = door->acceptor.fd;

	ha_progress_remove(door->progress, &door->poller);
	ha_acceptor_end(&door->acceptor);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	for (int i = 0; i < CALLERS; i++)
		close(door->callers[i]);
	for (int i = 0; i < door->nseated; i++)
		close(door->seated[i]);
	ha_progress_halt(door->progress);
	assert_true(ha_progress_end(door->progress, NULL, NULL));
	ha_clock_set_source(NULL);
}

static void a_few_in_each_round(void **state)
{
	struct door door;

	(void)state;
	open_door(&door, 4);
	ha_progress_round(door.progress);
	assert_int_equal(door.nseated, 4);
	ha_progress_round(door.progress);
	assert_int_equal(door.nseated, 8);
	ha_progress_round(door.progress);
	ha_progress_round(door.progress);
	assert_int_equal(door.nseated, CALLERS);
	assert_false(ha_acceptor_pauses(&door.acceptor));
	assert_int_equal(ha_acceptor_visit(&door.acceptor, now_ns), 0);
	close_door(&door);
}

/* The next descriptor there would be is one too many. */
static void forbid_descriptors(struct rlimit *before)
{
	struct rlimit none;
	int next = dup(0);

	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
	none = *before;
	none.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void without_descriptors_it_pauses_for_a_second_and_nobody_is_lost(void **state)
{
	struct rlimit before;
	struct door door;

	(void)state;
	open_door(&door, 4);
	forbid_descriptors(&before);
	ha_progress_round(door.progress);
	assert_int_equal(door.nseated, 0);
	assert_true(ha_acceptor_pauses(&door.acceptor));
	now_ns += HA_NS_PER_S - HA_NS_PER_MS;
	for (int i = 0; i < 3; i++)
		ha_progress_round(door.progress);
	assert_true(ha_acceptor_pauses(&door.acceptor));
	assert_int_equal(door.poller.due_ns, 2 * HA_NS_PER_S);
	now_ns += 2 * HA_NS_PER_MS; /* there are still none: another second */
	for (int i = 0; i < 3; i++)
		ha_progress_round(door.progress);
	assert_true(ha_acceptor_pauses(&door.acceptor));
	assert_true(door.acceptor.open_again_ns > 3 * HA_NS_PER_S);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	now_ns += HA_NS_PER_S + HA_NS_PER_MS;
	for (int i = 0; i < 5; i++)
		ha_progress_round(door.progress);
	assert_false(ha_acceptor_pauses(&door.acceptor));
	assert_int_equal(door.nseated, CALLERS);
	close_door(&door);
}

/* For so long: how many have come in, where a thread would go on as long as there is anything. */
static int seated_after(struct door *door, unsigned ms)
{
	now_ns += ms * HA_NS_PER_MS;
	for (int i = 0; i < 20; i++)
		ha_progress_round(door->progress);
	return door->nseated;
}

/* 60 in a second: 3 in each of its 50 milliseconds. */
static void strangers_come_in_at_their_rate_unless_somebody_is_expected(void **state)
{
	struct door door;

	(void)state;
	open_door(&door, 4);
	door.acceptor.per_second = 60;
	door.acceptor.expects = expects;
	assert_int_equal(seated_after(&door, 0), 3);
	assert_true(ha_acceptor_pauses(&door.acceptor));
	assert_int_equal(door.poller.due_ns, now_ns + 50 * HA_NS_PER_MS);
	assert_int_equal(seated_after(&door, 49), 3);
	assert_int_equal(seated_after(&door, 1), 6);
	door.expects = true;
	assert_int_equal(seated_after(&door, 50), CALLERS);
	assert_false(ha_acceptor_pauses(&door.acceptor));
	close_door(&door);
}

static void who_is_no_stranger_does_not_count(void **state)
{
	struct door door;

	(void)state;
	open_door(&door, 1);
	door.acceptor.per_second = 60;
	for (int i = 0; i < CALLERS; i++) {
		ha_progress_round(door.progress);
		assert_int_equal(door.nseated, i + 1);
		ha_acceptor_knows(&door.acceptor);
	}
	close_door(&door);
}

static void who_takes_a_client_may_end_the_watch(void **state)
{
	struct door door;

	(void)state;
	open_door(&door, 4);
	door.closes = true;
	ha_progress_round(door.progress);
	assert_int_equal(door.nseated, 1);
	close_door(&door);
}

static void one_that_cannot_be_watched_stays_the_callers(void **state)
{
	const struct ha_progress_options options = {.thread = false};
	struct ha_acceptor acceptor = {.seat = seat};
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* epoll takes no such file */

	(void)state;
	capture_log();
	assert_int_equal(ha_progress_start(&options, &acceptor.progress), HA_OK);
	assert_int_equal(ha_acceptor_begin(&acceptor, fd), HA_ERR_SYSTEM);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	close(fd);
	ha_progress_halt(acceptor.progress);
	assert_true(ha_progress_end(acceptor.progress, NULL, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_few_in_each_round),
	    cmocka_unit_test(without_descriptors_it_pauses_for_a_second_and_nobody_is_lost),
	    cmocka_unit_test(strangers_come_in_at_their_rate_unless_somebody_is_expected),
	    cmocka_unit_test(who_is_no_stranger_does_not_count),
	    cmocka_unit_test(who_takes_a_client_may_end_the_watch),
	    cmocka_unit_test(one_that_cannot_be_watched_stays_the_callers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
