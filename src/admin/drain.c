/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/drain.h"

#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/notes.h"
#include "failover/path_select.h"
#include "failover/port_pair.h"
#include "failover/standby.h"
#include "transport/comm.h"
#include "transport/shared.h"

#include <string.h>

const char *ha_admin_outcome_text(enum ha_admin_outcome outcome)
{
	static const char *const words[HA_OUTCOME_COUNT] = {
#define WORD(name, word) word,
	    NCCL_HA_FATES(WORD)
#undef WORD
	};

	return words[outcome];
}

/* A request while it is carried out. */
struct task {
	const struct ha_admin_request *request;
	struct ha_port *port; /* NULL: the request is not about one */
	uint64_t undrained;   /* whose marks were taken away: a bit each */
};

/* ---- where a connection is ------------------------------------------------------------------- */

static struct ha_pair active_pair(const struct ha_comm *comm)
{
	return ha_pair_of(&comm->failover->slots[comm->active]);
}

static bool is_home(const struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);

	if (!ha_comm_has_failover(comm))
		return path && path->port == comm->port;
	return ha_pair_shared(active_pair(comm), ha_pair_preferred) == 2;
}

static bool is_over(const struct ha_comm *comm)
{
	return ha_comm_error(comm) != HA_OK || ha_failover_is_over(comm);
}

static bool is_on(const struct ha_comm *comm, const struct ha_port *port)
{
	const struct ha_path *path = ha_comm_path(comm);

	return path && path->port == port;
}

static void describe(const struct ha_comm *comm, struct ha_admin_result *v)
{
	const struct ha_path *path = ha_comm_path(comm);

	v->id = ha_comm_number(comm);
	v->is_send = comm->is_send;
	v->path = comm->active;
	v->epoch = ha_comm_traffic_epoch(comm);
	v->home = is_home(comm);
	if (!path)
		return;
	v->device = path->nic->name;
	v->port_num = path->port->port_num;
	v->generation = path->generation;
}

/* ---- what becomes of it ---------------------------------------------------------------------- */

static enum ha_admin_outcome refuse(struct ha_admin_result *v, const char *why)
{
	v->why = why;
	return HA_OUTCOME_REFUSED;
}

/* The receiver goes elsewhere; the sender stops, and says that it is asked to. */
static enum ha_admin_outcome leave(struct ha_comm *comm, enum ha_reason reason)
{
	ha_failover_leave(comm, reason);
	ha_progress_call(comm->inst->progress, &comm->poller);
	return HA_OUTCOME_MOVING;
}

#define NO_FAILOVER "it has no failover: HA_NCCL_ENABLE_BACKUP=0 here or at the peer"
#define NO_RESERVE  "no healthy path in reserve"

/* The port is marked by now. A sender leaves it to its receiver, which learns of the mark. */
static enum ha_admin_outcome leave_drained(struct ha_comm *comm, bool force,
					   struct ha_admin_result *v)
{
	unsigned drained = ha_pair_drained(comm, active_pair(comm));
	bool somewhere = drained > 0 && ha_path_select_healthy(comm, drained - 1) >= 0;

	if (!somewhere && force)
		return leave(comm, HA_REASON_OPERATOR);
	if (!somewhere)
		return refuse(v, NO_RESERVE);
	return comm->is_send ? HA_OUTCOME_MOVING : leave(comm, HA_REASON_OPERATOR);
}

static enum ha_admin_outcome drain(struct ha_comm *comm, const struct ha_port *port, bool force,
				   struct ha_admin_result *v)
{
	if (!ha_comm_has_failover(comm))
		return is_on(comm, port) ? refuse(v, NO_FAILOVER) : HA_OUTCOME_AWAY;
	ha_say(comm, HA_SAY_STATE);
	if (!comm->is_send)
		ha_standby_drain(comm);
	if (ha_failover_is_moving(comm))
		return HA_OUTCOME_MOVING;
	return is_on(comm, port) ? leave_drained(comm, force, v) : HA_OUTCOME_AWAY;
}

static enum ha_admin_outcome move(struct ha_comm *comm, bool force, struct ha_admin_result *v)
{
	if (ha_failover_is_moving(comm))
		return HA_OUTCOME_MOVING;
	if (!ha_comm_has_failover(comm))
		return refuse(v, NO_FAILOVER);
	if (ha_path_select_healthy(comm, ha_pair_drained(comm, active_pair(comm))) < 0 && !force)
		return refuse(v, NO_RESERVE);
	return leave(comm, HA_REASON_OPERATOR);
}

static bool can_go_back(const struct ha_comm *comm, struct ha_admin_result *v)
{
	uint32_t cost = ha_pair_cost(comm, ha_pair_preferred);

	if (cost == HA_PAIR_NEVER)
		v->why = "a port of its preferred path is down";
	else if (cost >= HA_PAIR_DRAINED_COST)
		v->why = "a port of its preferred path is drained";
	return cost < HA_PAIR_DRAINED_COST;
}

/* Without a mark that its receiver sees go, a sender can only leave for what it knows to work. */
static enum ha_admin_outcome send_back(struct ha_comm *comm, struct ha_admin_result *v)
{
	int p = ha_path_select_healthy(comm, ha_pair_drained(comm, active_pair(comm)));

	if (p < 0 || !ha_path_select_is_better(comm, (unsigned)p))
		return refuse(v, "its preferred path is not known to work at this end: ask at the "
				 "receiver's host, which can build it");
	return leave(comm, HA_REASON_FAILBACK);
}

/* Of a port, those that prefer it. */
static enum ha_admin_outcome go_back(struct ha_comm *comm, const struct task *task,
				     struct ha_admin_result *v)
{
	bool concerned = !task->port || comm->port == task->port;

	if (!ha_comm_has_failover(comm))
		return is_home(comm) ? HA_OUTCOME_HOME : HA_OUTCOME_AWAY;
	/* The peer may have had paths to a port that is not this connection's own, or rails. */
	if (concerned || task->undrained != 0)
		ha_say(comm, HA_SAY_STATE);
	if (!concerned)
		return is_home(comm) ? HA_OUTCOME_HOME : HA_OUTCOME_AWAY;
	if (!ha_failover_is_moving(comm) && is_home(comm))
		return HA_OUTCOME_HOME;
	if (!comm->is_send)
		ha_standby_return(comm);
	if (ha_failover_is_moving(comm))
		return HA_OUTCOME_MOVING;
	if (!can_go_back(comm, v))
		return HA_OUTCOME_REFUSED;
	if (comm->is_send && !(task->undrained >> comm->port->index & 1))
		return send_back(comm, v);
	return HA_OUTCOME_MOVING; /* the receiver does it, here or there */
}

static enum ha_admin_outcome look(const struct ha_comm *comm, const struct ha_port *port)
{
	if (ha_failover_is_moving(comm))
		return HA_OUTCOME_MOVING;
	return port && !is_on(comm, port) ? HA_OUTCOME_AWAY : HA_OUTCOME_ACTIVE;
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum ha_admin_outcome decide(struct ha_comm *comm, const struct task *task,
				    struct ha_admin_result *v)
{
	if (is_over(comm))
		return HA_OUTCOME_FAILED;
	switch (task->request->verb) {
	case HA_ADMIN_FAILOVER:
		return task->port ? drain(comm, task->port, task->request->force, v)
				  : move(comm, task->request->force, v);
	case HA_ADMIN_FAILBACK:
		return go_back(comm, task, v);
	default:
		return look(comm, task->port);
	}
}

static struct ha_port *find_port(const struct ha_instance *inst,
				 const struct ha_admin_request *request)
{
	for (int i = 0; i < inst->devices->nports_all; i++) {
		struct ha_port *port = &inst->devices->ports[i];

		if (port->port_num == request->port_num &&
		    strcmp(port->nic->name, request->device) == 0)
			return port;
	}
	return NULL;
}

static bool is_meant(const struct ha_comm *comm, const struct ha_admin_request *request)
{
	return request->target != HA_ADMIN_CONNECTION ||
	       ((ha_comm_number(comm) ^ request->connection) & request->mask) == 0;
}

static void mark(struct ha_instance *inst, struct task *task)
{
	for (int i = 0; i < inst->devices->nports_all; i++) {
		struct ha_port *port = &inst->devices->ports[i];

		if (task->request->target == HA_ADMIN_CONNECTION ||
		    (task->port && task->port != port))
			continue;
		if (task->request->verb == HA_ADMIN_FAILOVER)
			atomic_store(&port->drained, true);
		else if (task->request->verb == HA_ADMIN_FAILBACK)
			task->undrained |= (uint64_t)atomic_exchange(&port->drained, false) << i;
	}
}

/* Under the instance's lock. Whether there was one to be told of. */
static bool execute_each(struct ha_instance *inst, const struct task *task,
			 void (*tell)(void *arg, const struct ha_admin_result *result), void *arg)
{
	struct ha_list *pos;
	bool any = false;

	ha_list_for_each (pos, &inst->comms) {
		struct ha_comm *comm = ha_container_of(pos, struct ha_comm, in_instance);
		struct ha_admin_result result = {0};

		if (!is_meant(comm, task->request))
			continue;
		ha_token_acquire(comm);
		describe(comm, &result); /* as the request finds it */
		result.outcome = decide(comm, task, &result);
		tell(arg, &result);
		ha_token_release(comm);
		any = true;
	}
	return any;
}

bool ha_admin_execute(struct ha_instance *inst, const struct ha_admin_request *request,
		      void (*tell)(void *arg, const struct ha_admin_result *result), void *arg)
{
	struct task task = {.request = request};
	bool any;

	if (request->target == HA_ADMIN_PORT) {
		task.port = find_port(inst, request);
		if (!task.port)
			return false;
	}
	mark(inst, &task);
	pthread_mutex_lock(&inst->lock);
	any = execute_each(inst, &task, tell, arg);
	pthread_mutex_unlock(&inst->lock);
	return any || request->target != HA_ADMIN_CONNECTION;
}
