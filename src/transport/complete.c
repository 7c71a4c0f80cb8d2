/* SPDX-License-Identifier: Apache-2.0 */
/* From the completion queues to the requests. Everything here runs under the token. */
#include "transport/comm.h"

#include "base/log.h"
#include "transport/mail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#define WC_BATCH 32

/* ---- errors -------------------------------------------------------------------------------- */

/* Whose fault a status is. */
enum fault {
	FAULT_PATH,    /* its own, and what everything unknown is taken for */
	FAULT_REQUEST, /* a bug or misuse: on another path it would fail the same way */
	FAULT_KEY,     /* a bug, except while the ends change their keys */
};

/*
 * `follows`: a path's fault for the first path; a request that meets the same status on so many
 * paths in a row is itself to blame. 0: never. Silence and flushes say nothing about the request,
 * and a second dead path looks the same. For LOC_QP_OP_ERR more is needed, as it is how soft RoCE
 * tells of a dead link.
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
    [IBV_WC_BAD_RESP_ERR] = {FAULT_REQUEST, HA_ERR_INTERNAL, 0},
    [IBV_WC_REM_INV_REQ_ERR] = {FAULT_REQUEST, HA_ERR_INTERNAL, 0},
    [IBV_WC_REM_ACCESS_ERR] = {FAULT_KEY, HA_ERR_INTERNAL, 0},
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
		return "a write of nothing";
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
	if (ha_wr_kind(wc->wr_id) == HA_WR_DATA)
		return comm->send->groups[ha_wr_slot(wc->wr_id) & comm->slot_mask].seq;
	/* An unsignalled write of the oldest that is not complete: queues fail in order. */
	return wc->wr_id == 0 ? comm->send->completed.base : 0;
}

/* Whether the request fails on whatever path it is tried. */
static bool follows_request(struct ha_comm *comm, const struct ibv_wc *wc, int paths)
{
	struct ha_blame *blame = &comm->blame;
	uint64_t seq = seq_of(comm, wc);

	if (seq == 0)
		return false; /* not a message: another one may have failed this time */
	if (blame->seq != seq || blame->status != (int)wc->status)
		*blame = (struct ha_blame){.seq = seq, .status = (int)wc->status};
	return ++blame->paths >= paths && paths != 0;
}

static bool blames_path(struct ha_comm *comm, const struct ibv_wc *wc, const struct status *status)
{
	switch (status->fault) {
	case FAULT_PATH:
		return !follows_request(comm, wc, status->follows);
	case FAULT_KEY:
		return comm->epoch_changing;
	case FAULT_REQUEST:
		break;
	}
	return false;
}

static void failed_completion(struct ha_comm *comm, struct ha_path *path, const struct ibv_wc *wc)
{
	const struct ha_wire_endpoint *remote = &path->remote;
	const struct status status = status_of(wc->status);
	char text[320];

	if (ha_path_stopped(path))
		return; /* flushed by ourselves */
	if (atomic_load_explicit(&comm->peer_bye, memory_order_acquire)) {
		/* Unless it concerns nobody: our own writes after the peer has gone. */
		if (ha_comm_waits_for_peer(comm) || ha_wr_kind(wc->wr_id) == HA_WR_FLUSH)
			ha_comm_settle(comm);
		return;
	}
	snprintf(text, sizeof(text),
		 "completion with status %d (%s), vendor error 0x%x, for %s (number %llu) on "
		 "local %s:%d QP %u, remote %s:%d",
		 wc->status, ibv_wc_status_str(wc->status), wc->vendor_err,
		 what(ha_wr_kind(wc->wr_id)), (unsigned long long)seq_of(comm, wc), path->nic->name,
		 path->port->port_num, wc->qp_num, remote->device, remote->port_num);
	if (blames_path(comm, wc, &status)) {
		ha_comm_path_failed(comm, path, HA_REASON_COMPLETION, status.code, "%s", text);
		return;
	}
	ha_comm_fail(comm, status.code, "%s", text);
	ha_path_fence(path);
}

static void failed_poll(struct ha_comm *comm, struct ha_path *path, int rc)
{
	if (ha_path_stopped(path))
		path->undrainable = true;
	else
		ha_comm_verb_failed(comm, path, HA_REASON_CQ_ERROR, "ibv_poll_cq", rc);
}

/* ---- dispatch ------------------------------------------------------------------------------ */

static inline void apply(struct ha_comm *comm, struct ha_path *path, const struct ibv_wc *wc)
{
	uint64_t id = wc->wr_id;

	/* The queue may hold completions of queue pairs that were replaced since. */
	bool current = ha_wr_gen(id) == (uint16_t)path->generation && ha_wr_path(id) == path->index;

	if (__builtin_expect(wc->status != IBV_WC_SUCCESS, 0)) {
		/* An unsignalled request completes only when it fails, and has no wr_id of its own.
		 */
		if (current && ha_wr_kind(id) == HA_WR_SENTINEL)
			path->sentinels--;
		else if (current || ha_path_has_qp(path, wc->qp_num))
			failed_completion(comm, path, wc);
		else
			comm->count.stale_completions++;
		return;
	}
	if (__builtin_expect(!current, 0)) {
		comm->count.stale_completions++;
		return;
	}
	switch (ha_wr_kind(id)) {
	case HA_WR_DATA:
		ha_send_complete(comm, path, ha_wr_qp(id), ha_wr_slot(id));
		break;
	case HA_WR_IMM:
		ha_recv_immediate(comm, path, ha_wr_qp(id), ntohl(wc->imm_data), wc->byte_len);
		break;
	case HA_WR_CTS:
		ha_qp_left(&path->qps[ha_wr_qp(id)], ha_wr_slot(id));
		break;
	case HA_WR_FLUSH:
		ha_flush_complete(comm, path, ha_wr_slot(id));
		break;
	case HA_WR_WATCH:
		ha_timeout_watched(path, ha_wr_qp(id), ha_wr_slot(id));
		break;
	case HA_WR_CONTROL:
		ha_path_mail_done(path, ha_wr_slot(id));
		break;
	case HA_WR_PROBE:
		ha_path_probe_done(path, ha_wr_slot(id));
		break;
	case HA_WR_SENTINEL: /* only of a peer that sends what nobody asked for: no proof */
		break;
	}
}

static inline __attribute__((always_inline)) int poll_path(struct ha_comm *comm,
							   struct ha_path *path, int budget)
{
	struct ibv_wc wc[WC_BATCH];
	int total = 0;

	while (total < budget) {
		int want = budget - total < WC_BATCH ? budget - total : WC_BATCH;
		int n = ibv_poll_cq(path->cq, want, wc);

		if (__builtin_expect(n < 0, 0)) {
			failed_poll(comm, path, n == -1 ? errno : -n);
			return total;
		}
		for (int i = 0; i < n; i++)
			apply(comm, path, &wc[i]);
		total += n;
		if (n < want)
			break;
	}
	return total;
}

/* Room may have come for what was held back. */
static inline void pump(struct ha_comm *comm)
{
	if (comm->is_send) {
		if (comm->send->post_seq != comm->send->match_seq)
			ha_send_pump(comm);
	} else if (comm->recv->cts_seq != comm->recv->next_seq) {
		ha_recv_pump(comm);
	}
}

int ha_comm_poll_path(struct ha_comm *comm, struct ha_path *path, int budget)
{
	int n = poll_path(comm, path, budget);

	comm->count.completions += (uint64_t)n;
	return n;
}

int ha_comm_poll_standby(struct ha_comm *comm)
{
	int total = 0;

	comm->standby_in = (uint32_t)comm->config->poll_standby_interval;
	for (unsigned i = 0; i < comm->npaths; i++) {
		struct ha_path *path = comm->paths[i];

		/* A path that is fenced has no completions any more; its queue pairs may be gone.
		 */
		if (i != comm->active && path &&
		    atomic_load_explicit(&path->state, memory_order_relaxed) != HA_PATH_FENCED)
			total += ha_comm_poll_path(comm, path, comm->poll_batch);
	}
	comm->standby_completions += (uint64_t)total;
	return total;
}

int ha_comm_poll(struct ha_comm *comm, int budget)
{
	struct ha_path *path = ha_comm_path(comm);
	int total = __builtin_expect(path != NULL, 1) ? poll_path(comm, path, budget) : 0;

	comm->count.completions += (uint64_t)total;
	if (__builtin_expect(--comm->standby_in == 0, 0))
		total += ha_comm_poll_standby(comm);
	if (__builtin_expect(comm->silent, 0))
		ha_e2e_look(comm);
	else if (total == 0)
		return 0;
	pump(comm);
	return total;
}
