/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that nothing keeps alive: what its path does wrong is latched. So it is where either
 * end has no failover, or has switched it off.
 */
#include "transport/comm.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/fence.h"
#include "transport/path.h"
#include "transport/peer_end.h"

#include <string.h>

static void nowhere(struct ha_instance *inst, bool is_send, struct ha_reconnect_at *out)
{
	(void)inst;
	(void)is_send;
	(void)out;
}

static ha_result_t open_nothing(struct ha_comm *comm, const struct ha_hello *local,
				const struct ha_hello *remote)
{
	(void)comm;
	(void)local;
	(void)remote;
	return HA_OK;
}

static void nothing(struct ha_comm *comm)
{
	(void)comm;
}

static struct ha_path *nothing_left(const struct ha_comm *comm, unsigned p)
{
	(void)comm;
	(void)p;
	return NULL;
}

static void nothing_of_ports(struct ha_comm *comm, uint64_t ports)
{
	(void)comm;
	(void)ports;
}

static void nothing_of_path(struct ha_comm *comm, struct ha_path *path)
{
	(void)comm;
	(void)path;
}

/* A port that is down, or has lost its address, may be back within the hardware's retries. */
static bool may_pass(enum ha_reason reason)
{
	return reason == HA_REASON_PORT_DOWN || reason == HA_REASON_ADDRESS_CHANGE;
}

static void path_failed(struct ha_comm *comm, struct ha_path *path,
			const struct ha_path_failure *failure)
{
	if (may_pass(failure->reason))
		return;
	ha_comm_fail(comm, failure->code, "%s", failure->text);
	ha_path_fence(path);
}

static bool memory_refused(struct ha_comm *comm, const struct ha_nic *nic)
{
	(void)comm;
	(void)nic;
	return false;
}

static void frame(struct ha_comm *comm, const struct ha_frame_header *header,
		  const uint8_t *payload)
{
	(void)ha_peer_end_frame(comm, header, payload);
}

/*
 * That nothing comes over it any more says nothing of the path, which may go another way, nor that
 * the network will not be back: NCCL's own transport would not notice. The queue pair decides.
 */
static bool socket_broken(struct ha_comm *comm)
{
	return ha_frame_sock_end(&comm->ctrl_sock->frames) == HA_SOCK_SILENT;
}

/* A peer whose path still looks healthy would wait for us for ever. */
static uint64_t visit(struct ha_comm *comm)
{
	struct ha_abort given_up = {
	    .epoch = ha_comm_epoch(comm),
	    .code = (uint16_t)ha_comm_error(comm),
	};

	if (given_up.code == HA_OK || comm->abort_said)
		return 0;
	comm->abort_said = true;
	ha_ctrl_sock_abort(comm->ctrl_sock, &given_up);
	return 0;
}

static void goodbye(struct ha_comm *comm)
{
	struct ha_bye bye;

	if (ha_comm_error(comm) != HA_OK)
		return;
	ha_comm_fill_bye(comm, &bye);
	ha_ctrl_sock_bye(comm->ctrl_sock, &bye);
}

static void describe(const struct ha_comm *comm, struct ha_failover_view *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < HA_MAX_PATHS; i++)
		out->health[i] =
		    ha_path_ready(comm->paths[i]) ? NCCL_HA_PATH_GOOD : NCCL_HA_PATH_FAILED;
}

const struct ha_failover_ops ha_no_failover = {
    .features = 0,
    .reconnect_at = nowhere,
    .open = open_nothing,
    .start = nothing,
    .free = nothing,
    .path_failed = path_failed,
    .memory_refused = memory_refused,
    .probe_done = nothing_of_path,
    .msg = nothing_of_path,
    .frame = frame,
    .socket_broken = socket_broken,
    .stalled = nothing,
    .ports_changed = nothing_of_ports,
    .visit = visit,
    .left = nothing_left,
    .goodbye = goodbye,
    .describe = describe,
};
