/* SPDX-License-Identifier: Apache-2.0 */
#include "base/net_accept.h"

#include "base/fork_guard.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

void ha_net_reserve_init(struct ha_net_reserve *reserve)
{
	atomic_init(&reserve->fd, -1);
}

void ha_net_reserve_fill(struct ha_net_reserve *reserve)
{
	int none = -1, fd;

	if (atomic_load_explicit(&reserve->fd, memory_order_relaxed) >= 0)
		return;
	fd = ha_fork_closes(open("/dev/null", O_RDONLY | O_CLOEXEC));
	if (fd >= 0 && !atomic_compare_exchange_strong(&reserve->fd, &none, fd))
		ha_fork_close(fd); /* another thread was quicker */
}

void ha_net_reserve_close(struct ha_net_reserve *reserve)
{
	int fd = atomic_exchange(&reserve->fd, -1);

	ha_fork_close(fd);
}

bool ha_net_is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static int take(int listener, union ha_sockaddr *from)
{
	socklen_t length = sizeof(*from);

	memset(from, 0, sizeof(*from));
	return accept4(listener, &from->sa, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* The kernel looks for a descriptor before it looks for a client. */
static bool somebody_waits(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

int ha_net_accept(int listener, struct ha_net_reserve *reserve, union ha_sockaddr *from)
{
	int fd = take(listener, from), error = errno;

	if (fd >= 0 || !ha_net_is_shortage(error))
		return fd;
	if (!somebody_waits(listener)) {
		errno = EAGAIN;
		return -1;
	}
	if (!reserve || atomic_load_explicit(&reserve->fd, memory_order_relaxed) < 0) {
		errno = error;
		return -1;
	}
	ha_net_reserve_close(reserve);
	return take(listener, from);
}
