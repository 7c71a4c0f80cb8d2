/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each thread of a switch does: it adds, and between that looks at its descriptors and at the
 * time. Without work it naps, the longer the longer there is none, while there are trees up to
 * NS_NAP_MOST_NS, or as long as keeps what its looks at all of them cost to a share of a processor;
 * and without trees until something happens.
 */
#ifndef NS_LOOP_H
#define NS_LOOP_H

#include "tools/nccl-ha-switchd/groups.h"

#include <stdbool.h>
#include <stdint.h>

#define NS_SPIN_NS     1000000ull /* without work, before the first nap */
#define NS_NAP_PART    16	  /* of the time without work so far: how long a nap is */
#define NS_NAP_MOST_NS 1000000ull
#define NS_NAP_TURNS   40 /* of the processor's time that was taken since the last nap */

struct ns_loop {
	struct ns_groups *groups; /* whose epoll is looked at */
	/* Something has happened at what epoll has this pointer of. */
	void (*look)(struct ns_loop *loop, void *source);
	void (*tick)(struct ns_loop *loop); /* each 20 ms */
	bool ends;			    /* nothing more is looked at */
	uint64_t now_ns, moved_ns, looked_ns, loss_ns, ticked_ns;
	uint64_t used_ns; /* of the processor, before the last nap */
};

void ns_loop_turn(struct ns_loop *loop);
/* Has epoll report `source` when the descriptor is readable. False: errno. */
bool ns_loop_watch(struct ns_loop *loop, int fd, void *source);

#endif
