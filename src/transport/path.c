/* SPDX-License-Identifier: Apache-2.0 */
/* A path as its other files have it: its commands, its limits, its receive queue. */
#include "transport/path.h"

#include "base/log.h"
#include "progress/progress.h"
#include "transport/comm.h"
#include "transport/shared.h"
#include "transport/split.h"
#include "transport/stripe.h"

#include <string.h>

struct ha_commands *ha_path_commands(const struct ha_path *path)
{
	return ha_progress_commands(path->comm->inst->progress, (unsigned)path->nic->index);
}

void ha_path_command(struct ha_path *path, void (*run)(struct ha_command *command),
		     enum ha_command_kind kind)
{
	path->command.run = run;
	path->command.kind = (uint8_t)kind;
	path->command.owner = &path->comm->poller;
	path->command.key = (uintptr_t)path;
	ha_command_send(ha_path_commands(path), &path->command);
}

bool ha_path_wait(struct ha_path *path, uint64_t limit_ns)
{
	return ha_command_wait(ha_path_commands(path), &path->command, limit_ns);
}

ha_result_t ha_path_verb_error(const struct ha_path *path, const char *verb, int rc)
{
	HA_WARN("%s failed on %s:%d: %s", verb, path->nic->name, path->port->port_num,
		strerror(rc));
	return HA_ERR_SYSTEM;
}

void ha_path_set_limits(struct ha_path *path)
{
	uint64_t most = path->max_message;

	if (path->ar_threshold < most)
		most = path->ar_threshold;
	if (path->split == HA_SPLIT_QPS && path->nqps * (uint64_t)HA_SPLIT_ALIGN - 1 < most)
		most = path->nqps * (uint64_t)HA_SPLIT_ALIGN - 1;
	if (path->split == HA_SPLIT_RAILS && path->stripe_from - 1 < most)
		most = path->stripe_from - 1;
	path->single_limit = most;
}

int ha_qp_refill(struct ha_qp *qp, uint32_t n)
{
	/* The chain ends where it is told to: start in the middle for fewer. */
	struct ibv_recv_wr *first = &qp->refill[HA_RQ_BATCH - n];
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp->qp, first, &bad);
}
