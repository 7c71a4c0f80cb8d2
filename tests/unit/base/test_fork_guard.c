/* SPDX-License-Identifier: Apache-2.0 */
/* What a forked child keeps, and what its parent does. */
#include "../cmocka_all.h"

#include "base/fork_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static int null(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd > 2);
	return fd;
}

/* In a child: 0 when `holds` does. */
static int in_child(bool (*holds)(const int *fds), const int *fds)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(holds(fds) ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static bool is_no_child(const int *fds)
{
	return !ha_fork_is_child() && is_open(fds[0]);
}

static bool has_the_second_only(const int *fds)
{
	return ha_fork_is_child() && !is_open(fds[0]) && is_open(fds[1]);
}

/* A number that is free again may be somebody else's, whose it stays. */
static bool closes_nothing_twice(const int *fds)
{
	int mine = dup2(fds[1], fds[0]);

	ha_fork_close(fds[0]);
	return mine == fds[0] && is_open(fds[0]);
}

static void a_child_has_lost_what_was_noted_and_nothing_else(void **state)
{
	int fds[2] = {null(), null()};

	(void)state;
	assert_int_equal(in_child(is_no_child, fds), 0);
	assert_int_equal(ha_fork_closes(fds[0]), fds[0]);
	assert_int_equal(in_child(has_the_second_only, fds), 0);
	assert_int_equal(in_child(closes_nothing_twice, fds), 0);
	assert_false(ha_fork_is_child());
	assert_true(is_open(fds[0]));
	ha_fork_close(fds[0]);
	assert_false(is_open(fds[0]));
	assert_int_equal(in_child(is_no_child, &fds[1]), 0); /* of a process that has none */
	close(fds[1]);
}

static void what_is_forgotten_is_somebody_elses(void **state)
{
	int fds[2] = {null(), null()};

	(void)state;
	ha_fork_closes(fds[0]);
	ha_fork_forgets(fds[0]);
	assert_int_equal(in_child(is_no_child, fds), 0);
	close(fds[0]);
	close(fds[1]);
}

static bool anything(const int *fds)
{
	(void)fds;
	return true;
}

/* The socket is the parent's: its other end must not see an end. */
static void a_child_shuts_nothing_down(void **state)
{
	char byte = 'x';
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	ha_fork_closes(fds[0]);
	assert_int_equal(in_child(anything, fds), 0);
	assert_int_equal(recv(fds[1], &byte, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(write(fds[0], &byte, 1), 1);
	assert_int_equal(recv(fds[1], &byte, 1, MSG_DONTWAIT), 1);
	ha_fork_close(fds[0]);
	close(fds[1]);
}

static void standard_descriptors_and_none_are_not_noted(void **state)
{
	(void)state;
	for (int fd = -1; fd <= 2; fd++)
		assert_int_equal(ha_fork_closes(fd), fd);
	assert_int_equal(in_child(is_no_child, (const int[]){0}), 0);
	ha_fork_close(-1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_child_has_lost_what_was_noted_and_nothing_else),
	    cmocka_unit_test(what_is_forgotten_is_somebody_elses),
	    cmocka_unit_test(a_child_shuts_nothing_down),
	    cmocka_unit_test(standard_descriptors_and_none_are_not_noted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
