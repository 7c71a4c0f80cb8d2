/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes. */
#include "tools/common/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/clock.h"

bool np_own_path(char *path, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", path, len - 1);

	if (n <= 0)
		return false;
	path[n] = '\0';
	return true;
}

void np_exec(const char *const *argv)
{
	execvp(argv[0], (char *const *)(uintptr_t)argv);
}

/* After fork: only what is safe between fork and exec. */
static void become(const char *const *argv, pid_t parent, int out_fd)
{
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (out_fd >= 0)
		dup2(out_fd, STDOUT_FILENO);
	np_exec(argv);
	_exit(127);
}

pid_t np_spawn(const char *const *argv, int out_fd)
{
	pid_t self = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		become(argv, self, out_fd);
	return pid;
}

/* Reads fd to its end. False when the time is over or memory is out. */
static bool read_output(int fd, uint64_t deadline_ns, char **text)
{
	size_t len = 0, cap = 4096;
	char *buf = malloc(cap);

	while (buf) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		uint64_t now = np_now_ns();
		ssize_t n;

		if (now >= deadline_ns ||
		    poll(&p, 1, (int)((deadline_ns - now) / 1000000) + 1) == 0)
			break;
		if (len + 1 == cap) {
			char *grown = realloc(buf, cap *= 2);

			if (!grown)
				break;
			buf = grown;
		}
		n = read(fd, buf + len, cap - len - 1);
		if (n == 0) {
			buf[len] = '\0';
			*text = buf;
			return true;
		}
		if (n > 0)
			len += (size_t)n;
		else if (errno != EINTR)
			break;
	}
	free(buf);
	return false;
}

char *np_run_tool(const char *const *argv, double timeout_s, char *err, size_t err_len)
{
	uint64_t deadline = np_now_ns() + (uint64_t)(timeout_s * 1e9);
	char *text = NULL;
	int fds[2], status = 0;
	pid_t pid;

	if (pipe(fds)) {
		snprintf(err, err_len, "pipe: %s", strerror(errno));
		return NULL;
	}
	pid = np_spawn(argv, fds[1]);
	close(fds[1]);
	if (pid < 0) {
		snprintf(err, err_len, "cannot start %s: %s", argv[0], strerror(errno));
		close(fds[0]);
		return NULL;
	}
	if (!read_output(fds[0], deadline, &text))
		kill(pid, SIGKILL);
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (text && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return text;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		snprintf(err, err_len, "cannot run %s", argv[0]);
	else if (WIFEXITED(status))
		snprintf(err, err_len, "'%s %s' failed with status %d", argv[0], argv[1],
			 WEXITSTATUS(status));
	else
		snprintf(err, err_len, "'%s %s' did not end within %.0f s", argv[0], argv[1],
			 timeout_s);
	free(text);
	return NULL;
}
