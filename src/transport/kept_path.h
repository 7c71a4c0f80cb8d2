/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths that are closed and whose ring stays in memory: to it, and to nothing else that is ours, a
 * queue pair may still write that the driver could not destroy, or only says that it has.
 *
 * A device whose firmware has failed destroys nothing, and its driver says that it does. That it
 * has failed is told by an event, which may be unread then, or not raised yet. So what is destroyed
 * is kept for HA_LEAVING_NS, in which events are read. If the device is dead by then it is kept
 * until the device is open again, which no device is before it was reset; else it goes.
 *
 * A device that is being taken away answers EIO to whoever would destroy. When it has left, all
 * that it had is gone, and the path is closed then: else its old incarnation would stay open for
 * ever. A device that is well and refuses is asked again each second.
 */
#ifndef HA_TRANSPORT_KEPT_PATH_H
#define HA_TRANSPORT_KEPT_PATH_H

#include "progress/progress.h"

#include <pthread.h>
#include <stdbool.h>

struct ha_incarnation;
struct ha_instance;
struct ha_path;

/* The instance's. Lists are linked by next_retired. */
struct ha_kept_paths {
	pthread_mutex_t lock;
	struct ha_path *recent; /* destroyed, and events that say otherwise may come */
	struct ha_path *first;	/* the others */
	bool visited;		/* by the poller */
	struct ha_poller poller;
};

void ha_kept_paths_init(struct ha_kept_paths *kept);
/* Between these two what is recent is looked at. Any thread but the progress thread. */
void ha_kept_paths_start(struct ha_instance *inst);
void ha_kept_paths_stop(struct ha_instance *inst);

/*
 * Takes a path that nobody else knows any more. Of one that was destroyed the incarnation that it
 * was made on is held by the caller, until here. Any thread.
 */
void ha_path_keep(struct ha_path *path);

/*
 * Frees those of an incarnation that nobody holds any more, before it is closed. NULL: all of them,
 * when the devices are closed, which ends also what could not be destroyed. Any thread.
 */
void ha_kept_paths_free(struct ha_instance *inst, const struct ha_incarnation *on);

#endif
