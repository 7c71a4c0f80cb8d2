/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket of the progress thread's: who dials is let in, a few in a round, so that each
 * has been looked at before the next ones come. Without descriptors nobody can be let in and the
 * socket would stay readable, so it is left alone for a second then.
 *
 * Its owner has a poller, which may have other things to do. All of it is the progress thread's but
 * the begin and the end.
 */
#ifndef HA_PROGRESS_ACCEPTOR_H
#define HA_PROGRESS_ACCEPTOR_H

#include "base/result.h"
#include "progress/progress.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_acceptor {
	/* The owner's, before it begins. */
	struct ha_progress *progress;
	struct ha_poller *poller; /* added or not yet */
	unsigned at_a_time;
	/* Takes a client, whose socket does not block, and may end the acceptor's watch. */
	void (*seat)(struct ha_acceptor *acceptor, int fd);

	struct ha_watch watch; /* fd -1: pausing, or ended */
	int fd;
	uint64_t open_again_ns;
};

/*
 * Takes over the listening descriptor if it can be watched; else it stays the caller's, and errno
 * says why.
 */
ha_result_t ha_acceptor_begin(struct ha_acceptor *acceptor, int fd) HA_MUST_CHECK;

/* Not in a callback. On return nobody is seated any more and the descriptor is closed. */
void ha_acceptor_end(struct ha_acceptor *acceptor);

static inline bool ha_acceptor_pauses(const struct ha_acceptor *acceptor)
{
	return acceptor->watch.fd < 0;
}

/* For visits of the poller: ends a pause that is over. When it wants the next one; 0: it does not.
 */
uint64_t ha_acceptor_visit(struct ha_acceptor *acceptor, uint64_t now_ns);

#endif
