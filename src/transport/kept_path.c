/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/kept_path.h"

#include "base/clock.h"
#include "device/incarnation.h"
#include "transport/comm.h"
#include "transport/path.h"
#include "transport/path_close.h"
#include "transport/shared.h"

#include <errno.h>
#include <stdlib.h>

static void push(struct ha_path **list, struct ha_path *path)
{
	path->next_retired = *list;
	*list = path;
}

static void free_all(struct ha_path *path)
{
	while (path) {
		struct ha_path *next = path->next_retired;
		struct ha_comm *comm = path->comm;

		free(path->latency);
		free(path);
		ha_comm_put(comm); /* with the last one goes the ring */
		path = next;
	}
}

void ha_path_keep(struct ha_path *path)
{
	struct ha_instance *inst = path->comm->inst;
	struct ha_kept_paths *kept = &inst->kept;

	pthread_mutex_lock(&kept->lock);
	/* The visit sees to it that there is another one, as long as it is needed. */
	if (kept->visited)
		ha_progress_call(inst->progress, &kept->poller);
	push(path->destroyed ? &kept->recent : &kept->first, path);
	pthread_mutex_unlock(&kept->lock);
}

/* ---- what is recent -------------------------------------------------------------------------- */

/* From one visit to the next all events are read that there were at the first. */
static struct ha_path **where_now(struct ha_kept_paths *kept, struct ha_path *path, uint64_t now_ns,
				  struct ha_path **over)
{
	if (path->on && ha_incarnation_is_dead(path->on))
		return &kept->first;
	if (path->kept_since_ns == 0)
		path->kept_since_ns = now_ns;
	return now_ns < path->kept_since_ns + HA_LEAVING_NS ? &kept->recent : over;
}

/* When it is to be looked at again, and not before; 0: when its device is closed. A device that was
 * leaving, and answered nothing, has left some time; one that is well may grant what it refused. */
static uint64_t when_to_look(const struct ha_path *path, uint64_t now_ns)
{
	if (path->destroyed || !path->on)
		return 0;
	if (path->destruction == HA_DESTRUCTION_UNREACHABLE)
		return ha_incarnation_took_along(path->on, EIO, now_ns) ? now_ns
									: now_ns + HA_LEAVING_NS;
	return path->destroy_ns;
}

/* With the lock. Takes those out that may go by now. */
static struct ha_path *take_gone(struct ha_kept_paths *kept, uint64_t now_ns, uint64_t *next_ns)
{
	struct ha_path *path = kept->first, *next, *gone = NULL;

	kept->first = NULL;
	for (; path; path = next) {
		uint64_t look_ns = when_to_look(path, now_ns);
		bool over = look_ns != 0 && look_ns <= now_ns;

		next = path->next_retired;
		push(over ? &gone : &kept->first, path);
		if (!over)
			*next_ns = ha_earlier_ns(*next_ns, look_ns);
	}
	return gone;
}

/* Progress thread. */
static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_kept_paths *kept = ha_container_of(poller, struct ha_kept_paths, poller);
	struct ha_path *path, *next, *gone, *over = NULL;
	uint64_t now_ns = ha_now_ns(), next_ns = 0;

	pthread_mutex_lock(&kept->lock);
	path = kept->recent;
	kept->recent = NULL;
	for (; path; path = next) {
		next = path->next_retired;
		push(where_now(kept, path, now_ns, &over), path);
	}
	gone = take_gone(kept, now_ns, &next_ns);
	if (kept->recent)
		next_ns = ha_earlier_ns(next_ns, now_ns + HA_LEAVING_NS);
	poller->due_ns = next_ns;
	pthread_mutex_unlock(&kept->lock);
	free_all(over);
	for (path = gone; path; path = next) {
		next = path->next_retired;
		ha_path_free_in_background(path);
	}
	return HA_POLL_ASLEEP;
}

/* ---- life ------------------------------------------------------------------------------------ */

void ha_kept_paths_init(struct ha_kept_paths *kept)
{
	pthread_mutex_init(&kept->lock, NULL);
	ha_list_init(&kept->poller.link);
	kept->poller.visit = visit;
}

static void set_visited(struct ha_kept_paths *kept, bool visited)
{
	pthread_mutex_lock(&kept->lock);
	kept->visited = visited;
	pthread_mutex_unlock(&kept->lock);
}

void ha_kept_paths_start(struct ha_instance *inst)
{
	ha_progress_add(inst->progress, &inst->kept.poller);
	set_visited(&inst->kept, true);
}

void ha_kept_paths_stop(struct ha_instance *inst)
{
	if (!inst->kept.visited)
		return;
	set_visited(&inst->kept, false);
	ha_progress_remove(inst->progress, &inst->kept.poller);
}

static void take(struct ha_path **list, const struct ha_incarnation *on, struct ha_path **taken)
{
	struct ha_path *path = *list, *next;

	*list = NULL;
	for (; path; path = next) {
		next = path->next_retired;
		push(on && path->on != on ? list : taken, path);
	}
}

void ha_kept_paths_free(struct ha_instance *inst, const struct ha_incarnation *on)
{
	struct ha_kept_paths *kept = &inst->kept;
	struct ha_path *taken = NULL;

	pthread_mutex_lock(&kept->lock);
	take(&kept->recent, on, &taken);
	take(&kept->first, on, &taken);
	pthread_mutex_unlock(&kept->lock);
	free_all(taken);
}
