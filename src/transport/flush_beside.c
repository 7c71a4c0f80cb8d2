/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/flush_beside.h"

#include "memory/mr.h"
#include "transport/comm.h"
#include "transport/flush.h"
#include "transport/flush_old.h"
#include "transport/path_error.h"
#include "transport/recv.h"

static bool is_needed(const struct ha_comm *comm, unsigned p)
{
	return comm->recv->flush_through >> p & 1 && ha_path_ready(comm->paths[p]);
}

void ha_flush_beside_named(struct ha_path *path, const struct ha_mr *mr)
{
	if (!ha_mr_is_host(mr))
		path->flush.named = true;
}

/* Its queue pair is there: that NIC's proof of the memory was a read through it. */
void ha_flush_beside_came(struct ha_comm *comm, struct ha_path *path)
{
	path->flush.came++;
	comm->recv->flush_through |= (uint8_t)(1u << path->index);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* One mark at a time: what comes while it is out is seen to by a later read. */
static void mark(struct ha_flush_qp *flush)
{
	if (flush->marked)
		return;
	flush->marked = true;
	flush->mark_came = flush->came;
	flush->mark_posted = flush->posted;
}

static bool has_room(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_flush_qp *flush =
		    is_needed(comm, p) ? &comm->paths[p]->flush : NULL;

		if (flush && flush->posted - flush->done >= HA_FLUSH_DEPTH)
			return false;
	}
	return true;
}

/* Memory that is not registered there has nothing that came over it. */
static void read_through(struct ha_comm *comm, struct ha_path *path, struct ha_request *req)
{
	uint64_t keys = ha_mr_keys(req->mr, path->nic_index);
	int rc;

	if (keys == 0)
		return;
	rc = ha_flush_read(comm, path, req->id, req->addr, keys);
	if (rc != 0) {
		req->waits |= HA_FLUSH_WANT_OLD;
		ha_comm_verb_failed(comm, path, HA_REASON_POST, "ibv_post_send (flush)", rc);
		return;
	}
	mark(&path->flush);
	req->waits |= (uint16_t)(HA_FLUSH_WAIT_BESIDE << path->index);
}

bool ha_flush_beside_post(struct ha_comm *comm, struct ha_request *req)
{
	if (!has_room(comm))
		return false;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (is_needed(comm, p))
			read_through(comm, comm->paths[p], req);
	if (ha_flush_beside_unsettled(comm))
		req->waits |= HA_FLUSH_WANT_OLD;
	comm->standby_every = 1;
	comm->standby_in = 1;
	return true;
}

bool ha_flush_beside_read(struct ha_comm *comm, struct ha_path *path)
{
	struct ha_flush_qp *flush = &path->flush;

	if (comm->paths[path->index] != path || path->index == comm->active)
		return false;
	if (flush->marked && (int32_t)(flush->done - flush->mark_posted) >= 0) {
		flush->marked = false;
		flush->seen_to = flush->mark_came;
		if (flush->seen_to == flush->came)
			comm->recv->flush_through &= (uint8_t) ~(1u << path->index);
	}
	return true;
}

bool ha_flush_beside_reads(const struct ha_comm *comm)
{
	if (!comm->recv)
		return false;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && ha_path_ready(comm->paths[p]) &&
		    comm->paths[p]->flush.posted != comm->paths[p]->flush.done)
			return true;
	return false;
}

/* ---- the loss of one ------------------------------------------------------------------------- */

bool ha_flush_beside_unsettled(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->recv->flush_through >> p & 1 && !ha_path_ready(comm->paths[p]))
			return true;
	return ha_flush_old_is_left(comm);
}

void ha_flush_beside_is_active(struct ha_comm *comm)
{
	struct ha_request_pool *pool = &comm->recv->flush_pool;
	const unsigned wait = (unsigned)HA_FLUSH_WAIT_BESIDE << comm->active;
	struct ha_flush_qp *flush = &ha_comm_path(comm)->flush;

	comm->recv->flush_through &= (uint8_t) ~(1u << comm->active);
	flush->marked = false;
	for (unsigned i = 0; i < pool->count; i++) {
		struct ha_request *req = &pool->all[i];

		if (req->posted == HA_FLUSH_SPREAD && req->waits & wait)
			req->waits = (uint16_t)((req->waits & ~(wait | HA_FLUSH_WANT_ACTIVE)) |
						HA_FLUSH_WAIT_ACTIVE);
	}
}

bool ha_flush_beside_leave(struct ha_comm *comm, const struct ha_path *path)
{
	if (comm->paths[path->index] != path)
		return false;
	comm->recv->flush_through &= (uint8_t) ~(1u << path->index);
	return path->flush.named && path->index != comm->active;
}
