/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes of the tests. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

double run_now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void become(const char *const *argv, const char *const *environment, int out)
{
	while (environment && *environment) {
		setenv(environment[0], environment[1], 1);
		environment += 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	execv(argv[0], (char *const *)(uintptr_t)argv);
	_exit(127);
}

void run_start(struct child *child, const char *const *argv, const char *const *environment)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	child->begun_s = run_now_s();
	child->pid = fork();
	assert_true(child->pid >= 0);
	if (child->pid == 0)
		become(argv, environment, fds[1]);
	close(fds[1]);
	child->out = fds[0];
}

/* Everything that is printed, until the last process has closed its end or the time is over. */
static void read_all(int fd, double deadline_s, struct outcome *o)
{
	char surplus[4096];
	size_t len = 0;

	while (run_now_s() < deadline_s) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		size_t room = sizeof(o->text) - 1 - len;
		ssize_t n;

		if (poll(&p, 1, 100) <= 0)
			continue;
		n = room ? read(fd, o->text + len, room) : read(fd, surplus, sizeof(surplus));
		if (n <= 0)
			break;
		len += room ? (size_t)n : 0;
	}
	o->text[len] = '\0';
}

void run_wait(struct child *child, struct outcome *o)
{
	double deadline_s = child->begun_s + RUN_LIMIT_S;
	int status;

	read_all(child->out, deadline_s, o);
	close(child->out);
	o->status = -1000;
	if (run_now_s() >= deadline_s)
		kill(-child->pid, SIGKILL);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	if (WIFEXITED(status))
		o->status = WEXITSTATUS(status);
	else if (run_now_s() < deadline_s)
		o->status = -WTERMSIG(status);
	o->seconds = run_now_s() - child->begun_s;
}

void run(const char *const *argv, const char *const *environment, struct outcome *o)
{
	struct child child;

	run_start(&child, argv, environment);
	run_wait(&child, o);
}

void run_fail(const struct outcome *o, const char *why, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, why);
	vsnprintf(text, sizeof(text), why, ap);
	va_end(ap);
	fprintf(stderr, "%s\n", o->text);
	fail_msg("%s", text);
	abort(); /* fail_msg does not return, but does not say so */
}
