/* SPDX-License-Identifier: Apache-2.0 */
#include "progress/acceptor.h"

#include "base/clock.h"
#include "base/list.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE_NS HA_NS_PER_S

static void pause_for(struct ha_acceptor *acceptor)
{
	acceptor->open_again_ns = ha_now_ns() + PAUSE_NS;
	ha_progress_unwatch_self(acceptor->progress, &acceptor->watch);
	ha_progress_call(acceptor->progress, acceptor->poller);
}

static void ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_acceptor *acceptor = ha_container_of(watch, struct ha_acceptor, watch);

	(void)events;
	for (unsigned i = 0; i < acceptor->at_a_time && watch->fd >= 0; i++) {
		int fd = accept4(acceptor->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			acceptor->seat(acceptor, fd);
		else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_for(acceptor);
		else
			return; /* nobody there; one that left meanwhile is no concern */
	}
}

static ha_result_t watch(struct ha_acceptor *acceptor, int fd)
{
	ha_result_t result;

	acceptor->watch.fd = fd;
	result = ha_progress_watch(acceptor->progress, &acceptor->watch);
	if (result != HA_OK)
		acceptor->watch.fd = -1;
	return result;
}

ha_result_t ha_acceptor_begin(struct ha_acceptor *acceptor, int fd)
{
	acceptor->watch.ready = ready;
	HA_TRY(watch(acceptor, fd));
	acceptor->fd = fd;
	return HA_OK;
}

void ha_acceptor_end(struct ha_acceptor *acceptor)
{
	ha_progress_unwatch(acceptor->progress, &acceptor->watch);
	close(acceptor->fd);
}

uint64_t ha_acceptor_visit(struct ha_acceptor *acceptor, uint64_t now_ns)
{
	if (!ha_acceptor_pauses(acceptor))
		return 0;
	if (now_ns >= acceptor->open_again_ns && watch(acceptor, acceptor->fd) != HA_OK)
		acceptor->open_again_ns = now_ns + PAUSE_NS;
	return ha_acceptor_pauses(acceptor) ? acceptor->open_again_ns : 0;
}
