/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

/* The beginning of a file of /proc, as a string; false: it cannot be read. */
static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	return true;
}

/* ---- users ----------------------------------------------------------------------------------- */

/*
 * In a user namespace that maps some users only, the others all have one number. Whoever has it may
 * be anybody.
 */
static bool may_be_anybody(uid_t uid)
{
	char text[64];
	uint32_t inside, outside, count;
	unsigned long overflow = 65534;

	if (read_text("/proc/self/uid_map", text, sizeof(text)) &&
	    sscanf(text, "%" SCNu32 " %" SCNu32 " %" SCNu32, &inside, &outside, &count) == 3 &&
	    count == UINT32_MAX)
		return false;
	if (read_text("/proc/sys/kernel/overflowuid", text, sizeof(text)))
		overflow = strtoul(text, NULL, 10);
	return uid == overflow;
}

/* ---- containers ------------------------------------------------------------------------------ */

/* Whether /proc has the numbers that this process knows processes by. */
static bool proc_is_ours(void)
{
	char text[16];
	ssize_t n = readlink("/proc/self", text, sizeof(text) - 1);

	if (n < 0)
		return false;
	text[n] = '\0';
	return atol(text) == (long)getpid();
}

/* Whether a process is in our PID namespace: one that is in another within it has further numbers
 * there, which "NSpid:" lists. */
static bool has_one_number(pid_t pid)
{
	char path[40], text[2048];
	const char *line;
	int first, second;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (!proc_is_ours() || !read_text(path, text, sizeof(text)))
		return false;
	line = strstr(text, "\nNSpid:");
	return line && sscanf(line, " NSpid: %d%*[ \t]%d", &first, &second) == 1;
}

/* -1: the kernel has none, errno is ENOPROTOOPT; or the process is gone. */
static int pidfd_of(int fd)
{
	socklen_t length = sizeof(int);
	int pidfd = -1;

	return getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0 ? pidfd : -1;
}

/* Who connected may have ended, and its number be another's by now: who can be held on to must
 * still be there afterwards. */
static bool is_of_our_container(int fd, pid_t pid)
{
	struct pollfd ended = {.events = POLLIN};
	bool is_ours;

	if (pid <= 0) /* in no namespace of ours: in another container, or outside of this one */
		return false;
	ended.fd = pidfd_of(fd);
	if (ended.fd < 0)
		return errno == ENOPROTOOPT && has_one_number(pid);
	is_ours = has_one_number(pid) && poll(&ended, 1, 0) == 0;
	close(ended.fd);
	return is_ours;
}

bool ha_admin_peer_may_ask(int fd, struct ucred *who, const char **why)
{
	socklen_t length = sizeof(*who);

	*why = "only the job's user and root may ask";
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &length) != 0)
		return false;
	if ((who->uid != geteuid() && who->uid != 0) || may_be_anybody(who->uid))
		return false;
	*why =
	    "only processes of the job's own container may ask: run nccl-ha in its PID namespace "
	    "(nsenter -t PID -p -m), where /proc shows it";
	return is_of_our_container(fd, who->pid);
}
