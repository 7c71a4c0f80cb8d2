/* SPDX-License-Identifier: Apache-2.0 */
#include "progress/acceptor.h"

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/list.h"
#include "base/net_accept.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE_NS HA_NS_PER_S

/* In which as many are let in as come to per_second: so long somebody may wait who is expected from
 * now on. */
#define WINDOW_NS	   (50 * HA_NS_PER_MS)
#define WINDOWS_PER_SECOND (HA_NS_PER_S / WINDOW_NS)

static void pause_until(struct ha_acceptor *acceptor, uint64_t open_again_ns)
{
	acceptor->open_again_ns = open_again_ns;
	ha_progress_unwatch_self(acceptor->progress, &acceptor->watch);
	ha_progress_call(acceptor->progress, acceptor->poller);
}

/* Whether one more may come in now. */
static bool has_time(struct ha_acceptor *acceptor)
{
	uint64_t now_ns;

	if (acceptor->per_second == 0)
		return true;
	now_ns = ha_now_ns();
	if (now_ns - acceptor->window_ns >= WINDOW_NS) {
		acceptor->window_ns = now_ns;
		acceptor->admitted = 0;
	}
	if (acceptor->admitted * WINDOWS_PER_SECOND < acceptor->per_second ||
	    (acceptor->expects && acceptor->expects(acceptor)))
		return true;
	pause_until(acceptor, acceptor->window_ns + WINDOW_NS);
	return false;
}

static void admit(struct ha_acceptor *acceptor, int fd, const union ha_sockaddr *from)
{
	acceptor->admitted++;
	if (acceptor->seats.taken == HA_SEATS)
		acceptor->make_way(acceptor, ha_seats_next_to_leave(&acceptor->seats));
	acceptor->seat(acceptor, fd, from);
}

static void ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_acceptor *acceptor = ha_container_of(watch, struct ha_acceptor, watch);

	(void)events;
	for (unsigned i = 0; i < acceptor->at_a_time && watch->fd >= 0; i++) {
		union ha_sockaddr from;
		int fd;

		if (!has_time(acceptor))
			return;
		fd = ha_net_accept(acceptor->fd, NULL, &from);
		if (fd >= 0)
			admit(acceptor, fd, &from);
		else if (ha_net_is_shortage(errno))
			pause_until(acceptor, ha_now_ns() + PAUSE_NS);
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
	ha_seats_init(&acceptor->seats);
	HA_TRY(watch(acceptor, fd));
	acceptor->fd = ha_fork_closes(fd);
	return HA_OK;
}

void ha_acceptor_end(struct ha_acceptor *acceptor)
{
	ha_progress_unwatch(acceptor->progress, &acceptor->watch);
	ha_fork_close(acceptor->fd);
}

uint64_t ha_acceptor_visit(struct ha_acceptor *acceptor, uint64_t now_ns)
{
	if (!ha_acceptor_pauses(acceptor))
		return 0;
	if (now_ns >= acceptor->open_again_ns && watch(acceptor, acceptor->fd) != HA_OK)
		acceptor->open_again_ns = now_ns + PAUSE_NS;
	return ha_acceptor_pauses(acceptor) ? acceptor->open_again_ns : 0;
}
