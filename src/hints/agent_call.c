/* SPDX-License-Identifier: Apache-2.0 */
#include "hints/agent_call.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool address_of(const char *dir, struct sockaddr_un *addr)
{
	int n;

	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	n = snprintf(addr->sun_path, sizeof(addr->sun_path), "%s/" MPIB_AGENT_SOCKET, dir);
	return n > 0 && (size_t)n < sizeof(addr->sun_path);
}

bool ha_agent_dir_fits(const char *dir)
{
	struct sockaddr_un addr;

	return address_of(dir, &addr);
}

/* A socket that does not block, in *fd when ANSWERED. A socket of this kind is connected at once or
 * not at all. */
static enum ha_agent_reply dial(const char *dir, int *fd, pid_t *pid)
{
	struct ucred who = {0};
	socklen_t length = sizeof(who);
	struct sockaddr_un addr;
	bool known;

	if (!address_of(dir, &addr))
		return HA_AGENT_ABSENT;
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return HA_AGENT_ABSENT;
	if (connect(*fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
		close(*fd);
		return HA_AGENT_ABSENT;
	}
	known = getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0;
	*pid = who.pid;
	if (known && (who.uid == 0 || who.uid == geteuid()))
		return HA_AGENT_ANSWERED;
	close(*fd);
	return HA_AGENT_FOREIGN;
}

enum ha_agent_reply ha_agent_find(const char *dir, pid_t *pid)
{
	enum ha_agent_reply reply;
	int fd;

	reply = dial(dir, &fd, pid);
	if (reply == HA_AGENT_ANSWERED)
		close(fd);
	return reply;
}

/* ---- an answer ------------------------------------------------------------------------------- */

/* False: the time is over. */
static bool wait_for_bytes(int fd, uint64_t until_ns)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t now_ns = ha_real_ns();

	if (now_ns >= until_ns)
		return false;
	return poll(&p, 1, (int)((until_ns - now_ns) / HA_NS_PER_MS) + 1) != 0;
}

static enum ha_agent_reply take(int fd, uint64_t until_ns, struct ha_agent_frame *response)
{
	uint8_t bytes[HA_AGENT_FRAME_MAX];
	size_t got = 0;
	int length;

	for (;;) {
		ssize_t n = recv(fd, bytes + got, sizeof(bytes) - got, 0);

		if (n == 0)
			return HA_AGENT_GARBLED; /* it hung up before its end */
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return HA_AGENT_GARBLED;
		if (n < 0) {
			if (!wait_for_bytes(fd, until_ns))
				return HA_AGENT_SILENT;
			continue;
		}
		got += (size_t)n;
		length = ha_agent_decode(bytes, got, response);
		if (length != 0)
			break;
	}
	return length > 0 && response->type == MPIB_AGENT_RESPONSE ? HA_AGENT_ANSWERED
								   : HA_AGENT_GARBLED;
}

enum ha_agent_reply ha_agent_call(const char *dir, const struct ha_agent_frame *request,
				  unsigned limit_ms, struct ha_agent_frame *response)
{
	uint8_t bytes[HA_AGENT_FRAME_MAX];
	size_t length = ha_agent_encode(request, bytes);
	enum ha_agent_reply reply;
	pid_t pid;
	int fd;

	reply = dial(dir, &fd, &pid);
	if (reply != HA_AGENT_ANSWERED)
		return reply;
	/* It fits: nothing was said on this socket before. */
	if (send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length)
		reply = take(fd, ha_real_ns() + limit_ms * HA_NS_PER_MS, response);
	else
		reply = HA_AGENT_ABSENT;
	close(fd);
	return reply;
}
