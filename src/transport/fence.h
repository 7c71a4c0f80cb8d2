/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping a path, and knowing that it has stopped. */
#ifndef HA_TRANSPORT_FENCE_H
#define HA_TRANSPORT_FENCE_H

#include "transport/path.h"

#include <stdint.h>

struct ha_comm;

/*
 * Nothing is posted on it from now on; its fence is begun by whoever decides what becomes of the
 * connection. NULL and a second call are fine. Under the token.
 */
void ha_path_stop(struct ha_path *path);

/*
 * Begins a fence: a command of the NIC moves the queue pairs to ERR, where they take no more
 * packets, and posts a last work request, the sentinel, on each of their queues. Never waits. Any
 * path state; NULL and a second call are fine. Under the token.
 */
void ha_path_fence(struct ha_path *path);

enum ha_fence {
	HA_FENCE_PENDING, /* ask again; perhaps for ever, where the NIC does not answer */
	HA_FENCE_DONE,	  /* the path is HA_PATH_FENCED */
	HA_FENCE_FAILED,  /* neither drained nor destroyed: its memory must not be reused */
};

/*
 * How far the fence is: applies what has completed, successes included, and looks whether all
 * sentinels are back. A verb that failed is tried again. If they don't come within HA_FENCE_NS, has
 * the queue pairs destroyed, since a destroyed queue pair touches no memory. A destroy that answers
 * EIO is no fence by itself: see ha_incarnation_took_along. Never waits. Under the token; not from
 * the middle of a batch of completions.
 */
enum ha_fence ha_path_fenced(struct ha_comm *comm, struct ha_path *path, uint64_t now_ns);

/* Destroys its queue pairs, as far as that goes: those that are gone are NULL then. A command
 * thread, or who has the path to himself. */
enum ha_destruction ha_path_destroy_queues(struct ha_path *path);

/* What a device that is well has refused for seconds is a leak until it is otherwise. By whoever
 * has asked for its queue pairs. */
void ha_path_count_leaks(struct ha_path *path, enum ha_destruction destruction);

/* The same of its flush queue pair alone, of a path that is fenced. */
void ha_path_destroy_flush(struct ha_path *path);

#endif
