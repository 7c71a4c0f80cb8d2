/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may give orders: processes of this user and of root, but not of another container, where root
 * has the same number.
 */
#include "../cmocka_all.h"

#include "admin/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

/* Exit statuses of processes that look at who asks. */
enum { MAY, IS_ANOTHER_USER, IS_IN_ANOTHER_CONTAINER, CANNOT_TRY, BROKEN };

static struct sockaddr_un address;
static char dir[] = "/tmp/nccl-ha-unit-peer-XXXXXX";

static int listen_here(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	unlink(address.sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(chmod(address.sun_path, 0666), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	return -1;
}

static int look(int listener)
{
	struct ucred who;
	const char *why = NULL;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	bool may;

	if (fd < 0)
		return BROKEN;
	may = ha_admin_peer_may_ask(fd, &who, &why);
	close(fd);
	if (may)
		return MAY;
	if (strstr(why, "container"))
		return IS_IN_ANOTHER_CONTAINER;
	return strstr(why, "user and root") ? IS_ANOTHER_USER : BROKEN;
}

/* Runs a part of a test, which exits, in a process of its own: its status. */
static int in_a_process(void (*run)(int listener), int listener)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(30);
		run(listener);
		_exit(BROKEN);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void skip_if_impossible(int status)
{
	if (status != CANNOT_TRY)
		return;
	print_message("no namespace can be made here\n");
	skip();
}

/* ---- what they do ---------------------------------------------------------------------------- */

/* Until it is hung up on. */
static void dial_and_wait(int listener)
{
	int fd = dial();
	char byte;

	close(listener);
	_exit(fd >= 0 && read(fd, &byte, 1) == 0 ? 0 : BROKEN);
}

/* A child of this one is in another PID namespace from here on. */
static void enter_container(void)
{
	if (unshare(CLONE_NEWPID | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0)
		_exit(CANNOT_TRY);
}

static void look_at_one_in_a_container(int listener)
{
	pid_t pid;
	int seen;

	enter_container();
	pid = fork();
	if (pid == 0) {
		alarm(30);
		dial_and_wait(listener);
	}
	seen = look(listener);
	waitpid(pid, NULL, 0);
	_exit(seen);
}

static void look_from_a_container(int listener)
{
	int status, asks = dial(); /* who is outside, then */
	pid_t pid;

	if (asks < 0)
		_exit(BROKEN);
	enter_container();
	pid = fork();
	if (pid == 0)
		_exit(look(listener));
	if (waitpid(pid, &status, 0) != pid)
		_exit(BROKEN);
	_exit(WEXITSTATUS(status));
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* As nobody, in a user namespace that knows no other user: all the others look like nobody. */
static void look_without_users(int listener)
{
	pid_t pid = fork();
	int seen;

	if (pid == 0) {
		alarm(30);
		if (setuid(1234) != 0)
			_exit(BROKEN);
		dial_and_wait(listener);
	}
	if (unshare(CLONE_NEWUSER) != 0 || !write_file("/proc/self/uid_map", "65534 0 1\n"))
		_exit(CANNOT_TRY);
	seen = geteuid() == NOBODY ? look(listener) : BROKEN;
	waitpid(pid, NULL, 0);
	_exit(seen);
}

static void look_at_another_user(int listener)
{
	pid_t pid = fork();
	int seen;

	if (pid == 0) {
		alarm(30);
		if (setuid(NOBODY) != 0)
			_exit(BROKEN);
		dial_and_wait(listener);
	}
	seen = look(listener);
	waitpid(pid, NULL, 0);
	_exit(seen);
}

/* Who has connected ends, and leaves its socket to somebody else. */
static void look_at_one_that_has_ended(int listener)
{
	int pidfd, asks;
	socklen_t length = sizeof(pidfd);
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		char byte;

		asks = dial();
		if (asks < 0 || fork() != 0)
			_exit(0);
		alarm(30);
		close(listener);
		_exit(read(asks, &byte, 1) == 0 ? 0 : BROKEN);
	}
	waitpid(pid, NULL, 0);
	asks = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (getsockopt(asks, SOL_SOCKET, 77 /* SO_PEERPIDFD */, &pidfd, &length) != 0 &&
	    errno == ENOPROTOOPT)
		_exit(CANNOT_TRY);
	{
		struct ucred who;
		const char *why;

		_exit(ha_admin_peer_may_ask(asks, &who, &why) ? MAY : IS_IN_ANOTHER_CONTAINER);
	}
}

static void look_at_self(int listener)
{
	if (dial() < 0)
		_exit(BROKEN);
	_exit(look(listener));
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void who_is_here_may_ask(void **state)
{
	int listener = listen_here();

	(void)state;
	assert_int_equal(in_a_process(look_at_self, listener), MAY);
	close(listener);
}

static void another_user_may_not(void **state)
{
	int listener = listen_here();

	(void)state;
	if (geteuid() != 0) {
		print_message("as root only: becomes another user\n");
		skip();
	}
	assert_int_equal(in_a_process(look_at_another_user, listener), IS_ANOTHER_USER);
	close(listener);
}

static void the_root_of_a_container_may_not(void **state)
{
	int listener = listen_here(), status;

	(void)state;
	status = in_a_process(look_at_one_in_a_container, listener);
	skip_if_impossible(status);
	assert_int_equal(status, IS_IN_ANOTHER_CONTAINER);
	close(listener);
}

static void in_a_container_nobody_from_elsewhere_may(void **state)
{
	int listener = listen_here(), status;

	(void)state;
	status = in_a_process(look_from_a_container, listener);
	skip_if_impossible(status);
	assert_int_equal(status, IS_IN_ANOTHER_CONTAINER);
	close(listener);
}

static void a_user_without_a_number_of_his_own_may_not(void **state)
{
	int listener = listen_here(), status;

	(void)state;
	if (geteuid() != 0) {
		print_message("as root only: becomes another user\n");
		skip();
	}
	status = in_a_process(look_without_users, listener);
	skip_if_impossible(status);
	assert_int_equal(status, IS_ANOTHER_USER);
	close(listener);
}

static void a_process_that_has_ended_may_not(void **state)
{
	int listener = listen_here(), status;

	(void)state;
	status = in_a_process(look_at_one_that_has_ended, listener);
	if (status == CANNOT_TRY) {
		print_message("this kernel has no SO_PEERPIDFD\n");
		skip();
	}
	assert_int_equal(status, IS_IN_ANOTHER_CONTAINER);
	close(listener);
}

static int set_up(void **state)
{
	(void)state;
	if (!mkdtemp(dir) || chmod(dir, 0755) != 0)
		return -1;
	address.sun_family = AF_UNIX;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(address.sun_path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(who_is_here_may_ask),
	    cmocka_unit_test(another_user_may_not),
	    cmocka_unit_test(the_root_of_a_container_may_not),
	    cmocka_unit_test(in_a_container_nobody_from_elsewhere_may),
	    cmocka_unit_test(a_user_without_a_number_of_his_own_may_not),
	    cmocka_unit_test(a_process_that_has_ended_may_not),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
