/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a path: what it is made of is destroyed, or kept where the device refuses. */
#include "transport/path_close.h"

#include "base/clock.h"
#include "base/log.h"
#include "device/give_back.h"
#include "memory/pd.h"
#include "transport/async_event.h"
#include "transport/comm.h"
#include "transport/fence.h"
#include "transport/kept_path.h"
#include "transport/latency.h"
#include "transport/shared.h"

/* What cannot be destroyed outlives the path. */
static void forget_all(struct ha_path *path)
{
	ha_events_forget_qp(path->flush.qp);
	for (unsigned i = 0; i < path->nqps; i++)
		ha_events_forget_qp(path->qps[i].qp);
	ha_events_forget_cq(path->cq);
}

static void let_ring_go(void *comm)
{
	ha_comm_put(comm);
}

/* The ring is the connection's: it stays as long as the device may write to it. */
static void end_registration(struct ha_path *path)
{
	struct ibv_mr *mr = path->ring_mr;

	path->ring_mr = NULL;
	if (mr)
		ha_give_back(path->on, HA_OBJECT_MR, mr, let_ring_go, ha_comm_hold(path->comm));
}

static void give_back_qp(struct ha_path *path, struct ibv_qp **qp)
{
	struct ibv_qp *given = *qp;

	*qp = NULL;
	ha_give_back(path->on, HA_OBJECT_QP, given, NULL, NULL);
}

/* Of queue pairs that have stopped: who is refused them asks again, and nobody waits for that. */
static void give_back_queues(struct ha_path *path)
{
	give_back_qp(path, &path->flush.qp);
	for (unsigned i = 0; i < path->nqps; i++)
		give_back_qp(path, &path->qps[i].qp);
	path->destruction = HA_DESTRUCTION_DONE;
	ha_path_count_leaks(path, HA_DESTRUCTION_DONE); /* who asks now counts himself */
}

/* Those that may still write are not out of sight before they are destroyed. */
static void end_queues(struct ha_path *path)
{
	if (atomic_load(&path->state) != HA_PATH_FENCED) {
		path->destruction = (uint8_t)ha_path_destroy_queues(path);
		return;
	}
	forget_all(path);
	give_back_queues(path);
}

/* No queue pair lives that may write where it must not. */
static bool is_harmless(const struct ha_path *path)
{
	return path->destruction == HA_DESTRUCTION_DONE ||
	       atomic_load(&path->state) == HA_PATH_FENCED;
}

/* The path's objects. Whoever calls it has them to himself. Not `destroyed`: a queue pair lives
 * that may write where it must not. */
static void destroy_objects(struct ha_path *path)
{
	if (path->destroyed)
		return;
	if (!path->flush.qp) {
		path->flush.qp = path->flush.made; /* which nobody came to use */
		path->flush.made = NULL;
	}
	end_queues(path);
	/* Without it there is no ring to write to, whatever has become of the queue pairs. */
	end_registration(path);
	if (!is_harmless(path))
		return;
	ha_events_forget_cq(path->cq);
	ha_give_back(path->on, HA_OBJECT_CQ, path->cq, NULL, NULL);
	path->cq = NULL;
	path->destroyed = true;
	if (!path->on)
		return;
	ha_incarnation_hold(path->on);
	ha_nic_pd_put(path->on);
}

/* It was destroyed, as the driver says. It is put aside before the incarnation is let go: who
 * closes that finds it. */
static void free_path(struct ha_path *path)
{
	struct ha_incarnation *on = path->on;

	ha_latency_report(path);
	ha_path_keep(path);
	if (on)
		ha_incarnation_let_go(on);
}

/* What a device that is well refuses is asked for again so often while nobody waits for it. */
#define KEPT_AGAIN_NS HA_NS_PER_S

/* A queue pair lives that cannot be destroyed: it keeps the ring that it may still write to, and
 * all that it is made of, as long as the device is open. */
static void keep(struct ha_path *path)
{
	if (path->kept)
		; /* as before, and was said then */
	else if (path->destruction == HA_DESTRUCTION_UNREACHABLE)
		HA_INFO(HA_SUBSYS_NET,
			"connection %s: %s is being taken away: what is left there is given back "
			"when the device is closed",
			path->comm->name, path->nic->name);
	else
		HA_WARN("connection %s: the queue pairs on %s:%d cannot be destroyed: they and the "
			"memory they may still use stay until the device is closed",
			path->comm->name, path->nic->name, path->port->port_num);
	path->kept = true;
	path->destroy_ns = ha_now_ns() + KEPT_AGAIN_NS;
	forget_all(path);
	ha_path_keep(path);
}

static void free_or_keep(struct ha_path *path)
{
	if (path->destroyed)
		free_path(path);
	else
		keep(path);
}

/* A path that was left, when its command is through: a thread of the commands. */
void ha_path_free_left(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, command);

	destroy_objects(path);
	free_or_keep(path);
}

/* ---- without waiting ----------------------------------------------------------------------- */

/* A thread of the commands. */
static void close_path(struct ha_command *command)
{
	destroy_objects(ha_container_of(command, struct ha_path, command));
}

static void start_closing(struct ha_path *path)
{
	ha_path_command(path, close_path, HA_COMMAND_CLEAN);
}

void ha_path_free_in_background(struct ha_path *path)
{
	path->command.run = close_path;
	path->command.kind = HA_COMMAND_CLEAN;
	path->command.owner = &path->comm->inst->kept.poller; /* the connection has none any more */
	path->command.key = (uintptr_t)path;
	ha_command_send(ha_path_commands(path), &path->command);
	ha_command_leave(ha_path_commands(path), &path->command);
}

bool ha_path_closing(struct ha_path *path)
{
	if (ha_path_away(path))
		return true;
	if (path->destroyed) {
		free_path(path);
		return false;
	}
	if (ha_now_ns() < path->destroy_ns)
		return true;
	path->destroy_ns = ha_now_ns() + HA_FENCE_NS;
	start_closing(path);
	return true;
}

/* ---- and waiting --------------------------------------------------------------------------- */

/* A queue pair that could not be destroyed is tried again so often. */
#define AGAIN_NS HA_NS_PER_MS

/* Whether it becomes other by waiting, and somebody needs that. The end of a device that is being
 * taken away takes too long to wait for it where only the ring is at stake. */
static bool may_wait(const struct ha_path *path, uint64_t since_ns, uint64_t limit_ns)
{
	if (is_harmless(path) ||
	    (path->destruction == HA_DESTRUCTION_UNREACHABLE && !path->exposed))
		return false;
	return path->comm->inst->threads && ha_real_ns() - since_ns < limit_ns;
}

/* False: it takes too long. */
static bool closes_within(struct ha_path *path, uint64_t limit_ns)
{
	uint64_t since_ns = ha_real_ns();
	bool tried = false;

	while (ha_command_wait(ha_path_commands(path), &path->command, limit_ns)) {
		if (path->destroyed)
			return true;
		if (tried && !may_wait(path, since_ns, limit_ns))
			return false;
		if (tried)
			ha_real_sleep_ns(AGAIN_NS);
		tried = true;
		start_closing(path);
	}
	return false;
}

static void leave(struct ha_path *path)
{
	if (!path->comm->left_path)
		HA_INFO(HA_SUBSYS_NET,
			"connection %s: destroying queue pairs on %s:%d takes long and is left to "
			"the background",
			path->comm->name, path->nic->name, path->port->port_num);
	path->comm->left_path = true;
	ha_command_leave(ha_path_commands(path), &path->command);
}

/* Says so now and then, for as long as it takes. */
#define STUCK_TOLD_NS (60 * HA_NS_PER_S)

static void wait_for_exposed(struct ha_path *path)
{
	uint64_t limit_ns = path->comm->inst->threads ? STUCK_TOLD_NS : UINT64_MAX;

	do {
		HA_WARN(
		    "connection %s: the queue pairs on %s:%d neither drain nor can be destroyed "
		    "soon; closing waits, since the device may still use the memory of "
		    "requests in flight",
		    path->comm->name, path->nic->name, path->port->port_num);
	} while (!closes_within(path, limit_ns) && !is_harmless(path) && path->comm->inst->threads);
}

void ha_path_close(struct ha_path *path)
{
	if (!path)
		return;
	ha_command_recall(ha_path_commands(path), &path->command); /* it need not be connected */
	if (closes_within(path, ha_command_timeout_ns)) {
		free_path(path);
		return;
	}
	if (!path->exposed) {
		leave(path);
		return;
	}
	wait_for_exposed(path);
	free_or_keep(path);
}
