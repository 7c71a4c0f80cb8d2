/* SPDX-License-Identifier: Apache-2.0 */
/* Completions that report an error: whose fault it is, the path's or the request's. */
#include "transport/wc_error.h"
#include "transport/comm.h"
#include "transport/fence.h"
#include "transport/path_error.h"
#include "transport/peer_end.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <stdio.h>

/* Whose fault a status is. */
enum fault {
	FAULT_PATH,    /* its own, and what everything unknown is taken for */
	FAULT_REQUEST, /* a bug or misuse: on another path it would fail the same way */
	FAULT_REFUSED, /* the other device's word: a path's, until others say the same */
	FAULT_KEY, /* the other device's word about a key: nobody's while the ends change them */
};

/*
 * `follows`: a path's fault for the first path; a request that meets the same status on so many
 * paths in a row is itself to blame. 0: never. Silence and flushes say nothing about the request,
 * and a second dead path looks the same. For LOC_QP_OP_ERR more is needed, as it is how soft RoCE
 * tells of a dead link.
 *
 * A refusal is what a bug of ours looks like, and what comes of a device that has lost its place in
 * a message, as Linux's soft RoCE may when it sends again. So it is tried elsewhere; and as nothing
 * else would ever end that, clear-to-sends and receives are counted, too. Three, not two: that
 * device was seen to do it again within the messages of one replay.
 */
static const struct status {
	enum fault fault;
	ha_result_t code; /* when it is latched; HA_OK: a system error */
	int follows;
} statuses[] = {
    [IBV_WC_LOC_LEN_ERR] = {FAULT_REQUEST, HA_ERR_INTERNAL, 0},
    [IBV_WC_LOC_PROT_ERR] = {FAULT_REQUEST, HA_ERR_INTERNAL, 0},
    [IBV_WC_LOC_ACCESS_ERR] = {FAULT_REQUEST, HA_ERR_INTERNAL, 0},
    [IBV_WC_MW_BIND_ERR] = {FAULT_REQUEST, HA_ERR_INTERNAL, 0},
    [IBV_WC_BAD_RESP_ERR] = {FAULT_REFUSED, HA_ERR_INTERNAL, 3},
    [IBV_WC_REM_INV_REQ_ERR] = {FAULT_REFUSED, HA_ERR_INTERNAL, 3},
    [IBV_WC_REM_ACCESS_ERR] = {FAULT_KEY, HA_ERR_INTERNAL, 3},
    [IBV_WC_WR_FLUSH_ERR] = {FAULT_PATH, HA_ERR_SYSTEM, 0},
    [IBV_WC_RETRY_EXC_ERR] = {FAULT_PATH, HA_ERR_REMOTE, 0},
    [IBV_WC_RNR_RETRY_EXC_ERR] = {FAULT_PATH, HA_ERR_REMOTE, 0},
    [IBV_WC_RESP_TIMEOUT_ERR] = {FAULT_PATH, HA_ERR_REMOTE, 0},
    [IBV_WC_FATAL_ERR] = {FAULT_PATH, HA_ERR_SYSTEM, 0},
    [IBV_WC_REM_OP_ERR] = {FAULT_PATH, HA_ERR_REMOTE, 2},
    [IBV_WC_REM_ABORT_ERR] = {FAULT_PATH, HA_ERR_REMOTE, 2},
    [IBV_WC_GENERAL_ERR] = {FAULT_PATH, HA_ERR_SYSTEM, 2},
    [IBV_WC_LOC_QP_OP_ERR] = {FAULT_PATH, HA_ERR_SYSTEM, 4},
};

static struct status status_of(enum ibv_wc_status status)
{
	struct status of = {.fault = FAULT_PATH};

	if ((unsigned)status < sizeof(statuses) / sizeof(statuses[0]))
		of = statuses[status];
	if (of.code == HA_OK)
		of.code = HA_ERR_SYSTEM;
	return of;
}

static const char *what(enum ha_wr_kind kind)
{
	switch (kind) {
	case HA_WR_DATA:
	case HA_WR_STRIPE:
		return "a message";
	case HA_WR_CTS:
		return "a clear-to-send";
	case HA_WR_IMM:
		return "a receive";
	case HA_WR_FLUSH:
		return "a flush";
	case HA_WR_CONTROL:
		return "a control message";
	case HA_WR_PROBE:
		return "a probe";
	case HA_WR_WATCH:
	case HA_WR_LATENCY:
		return "a write of nothing";
	case HA_WR_COUNT:
		return "a read of the peer's count";
	case HA_WR_GPU_PROOF:
		return "a read of GPU memory";
	case HA_WR_SENTINEL:
		return "a sentinel";
	}
	return "an unsignalled write";
}

/* The message that a send work request belongs to; 0: none, or not known. */
static uint64_t seq_of(const struct ha_comm *comm, const struct ibv_wc *wc)
{
	if (!comm->send)
		return 0;
	if (ha_wr_kind(wc->wr_id) == HA_WR_DATA || ha_wr_kind(wc->wr_id) == HA_WR_STRIPE)
		return comm->send->groups[ha_wr_slot(wc->wr_id) & comm->slot_mask].seq;
	/* An unsignalled write of the oldest that is not complete: queues fail in order. */
	return wc->wr_id == 0 ? comm->send->completed.base : 0;
}

/* The oldest message that is not complete: while it is the same, nothing has got through. */
static uint64_t oldest(const struct ha_comm *comm)
{
	return comm->send ? comm->send->completed.base : comm->recv->done.base;
}

/* Whether the request fails on whatever path it is tried. */
/*
 * The same port once more is no other path: its queue pairs may have been replaced in place, and
 * the port be what is wrong. Twice it is, where there is no other port to ask.
 */
static bool follows_request(struct ha_comm *comm, const struct ha_path *path,
			    const struct ibv_wc *wc, uint64_t seq, int paths)
{
	struct ha_last_error *last = &comm->last_error;

	if (seq == 0)
		return false; /* not a message: another one may have failed this time */
	if (last->seq != seq || last->status != (int)wc->status)
		*last = (struct ha_last_error){.seq = seq, .status = (int)wc->status};
	if (last->port == path->port) {
		last->port = NULL; /* the next time it counts */
		return false;
	}
	last->port = path->port;
	return ++last->paths >= paths && paths != 0;
}

static bool blames_path(struct ha_comm *comm, const struct ha_path *path, const struct ibv_wc *wc,
			const struct status *status)
{
	switch (status->fault) {
	case FAULT_PATH:
		return !follows_request(comm, path, wc, seq_of(comm, wc), status->follows);
	case FAULT_REFUSED:
	case FAULT_KEY:
		if (status->fault == FAULT_KEY && comm->epoch_changing)
			return true;
		/* What a standby refuses is a probe, and holds nothing up. */
		return !path->carried ||
		       !follows_request(comm, path, wc, oldest(comm), status->follows);
	case FAULT_REQUEST:
		break;
	}
	return false;
}

void ha_comm_completion_failed(struct ha_comm *comm, struct ha_path *path, const struct ibv_wc *wc)
{
	const struct ha_wire_endpoint *remote = &path->remote;
	const struct status status = status_of(wc->status);
	char text[384];
	int n;

	if (ha_path_stopped(path))
		return; /* flushed by ourselves */
	if (atomic_load_explicit(&comm->peer_bye, memory_order_acquire)) {
		/* Unless it concerns nobody: our own writes after the peer has gone. */
		if (ha_comm_waits_for_peer(comm) || ha_wr_kind(wc->wr_id) == HA_WR_FLUSH)
			ha_comm_settle(comm);
		return;
	}
	n = snprintf(text, sizeof(text),
		     "completion with status %d (%s), vendor error 0x%x, for %s (number %llu) on "
		     "local %s:%d QP %u, remote %s:%d",
		     wc->status, ibv_wc_status_str(wc->status), wc->vendor_err,
		     what(ha_wr_kind(wc->wr_id)), (unsigned long long)seq_of(comm, wc),
		     path->nic->name, path->port->port_num, wc->qp_num, remote->device,
		     remote->port_num);
	if (blames_path(comm, path, wc, &status)) {
		ha_comm_path_failed(comm, path, HA_REASON_COMPLETION, status.code, "%s", text);
		return;
	}
	if (status.fault != FAULT_REQUEST && n < (int)sizeof(text))
		snprintf(text + n, sizeof(text) - (size_t)n, ", the same on %d paths in a row",
			 comm->last_error.paths);
	ha_comm_fail(comm, status.code, "%s", text);
	ha_path_fence(path);
}
