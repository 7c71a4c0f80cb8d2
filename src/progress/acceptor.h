/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket of the progress thread's: who dials is let in, a few in a round, and looked at
 * before the next. Without descriptors nobody can be let in and the socket would stay readable, so
 * it is left alone for a second then.
 *
 * Who is let in has a seat until it is known to be somebody (base/seats.h), and where nobody is
 * expected strangers may cost the thread only so much: so many admissions a second, the others wait
 * in the kernel's queue.
 *
 * Its owner has a poller, which may have other things to do. All of it is the progress thread's but
 * the begin and the end.
 */
#ifndef HA_PROGRESS_ACCEPTOR_H
#define HA_PROGRESS_ACCEPTOR_H

#include "base/net.h"
#include "base/result.h"
#include "base/seats.h"
#include "progress/progress.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_acceptor {
	/* The owner's, before it begins. */
	struct ha_progress *progress;
	struct ha_poller *poller; /* added or not yet */
	unsigned at_a_time;
	/* Takes a client, whose socket does not block, and may end the acceptor's watch. For it,
	 * and for nobody else, there is a seat. */
	void (*seat)(struct ha_acceptor *acceptor, int fd, const union ha_sockaddr *from);
	/* All seats are taken: who has this one gives it back. */
	void (*make_way)(struct ha_acceptor *acceptor, struct ha_seat *seat);
	unsigned per_second; /* admissions of strangers; 0: no limit */
	/* Somebody is expected, so that the limit does not count. NULL: never. */
	bool (*expects)(struct ha_acceptor *acceptor);

	struct ha_seats seats;
	struct ha_watch watch; /* fd -1: pausing, or ended */
	int fd;
	uint64_t open_again_ns;
	uint64_t window_ns; /* since when admissions are counted */
	unsigned admitted;  /* since then, but those who turned out to be somebody */
};

/*
 * Takes over the listening descriptor if it can be watched; else it stays the caller's, and errno
 * says why.
 */
ha_result_t ha_acceptor_begin(struct ha_acceptor *acceptor, int fd) HA_MUST_CHECK;

/* Not in a callback. On return nobody is seated any more and the descriptor is closed. */
void ha_acceptor_end(struct ha_acceptor *acceptor);

/* One who was let in is no stranger. */
static inline void ha_acceptor_knows(struct ha_acceptor *acceptor)
{
	if (acceptor->admitted != 0)
		acceptor->admitted--;
}

static inline bool ha_acceptor_pauses(const struct ha_acceptor *acceptor)
{
	return acceptor->watch.fd < 0;
}

/* For visits of the poller: ends a pause that is over. When it wants the next one; 0: it does not.
 */
uint64_t ha_acceptor_visit(struct ha_acceptor *acceptor, uint64_t now_ns);

#endif
