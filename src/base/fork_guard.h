/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a forked child must not keep: descriptors. A socket lives for as long as any process has it,
 * and so do a lock and an open device. With a worker that lives on, the death of its parent would
 * be no end of file for the peer, its ports would be open, its statistics locked.
 *
 * A child closes what is noted here, before anything else runs in it, and never shuts down: the
 * sockets are its parent's. What is opened while another thread forks, and not noted yet, stays
 * open in that child.
 */
#ifndef HA_BASE_FORK_GUARD_H
#define HA_BASE_FORK_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>

/* Notes a descriptor, and returns it; one of the standard ones, or none, is not. Any thread. */
int ha_fork_closes(int fd);
/* It is about to be closed by somebody else. Any thread. */
void ha_fork_forgets(int fd);

/* close, of a descriptor that was noted; in a child, which has closed it, nothing. Any thread. */
void ha_fork_close(int fd);

/* This process was forked while there were any, and has lost them. Any thread: one load, so each
 * message may ask. */
extern atomic_bool ha_fork_child; /* fork_guard.c alone sets it */
static inline bool ha_fork_is_child(void)
{
	return atomic_load_explicit(&ha_fork_child, memory_order_relaxed);
}

#endif
