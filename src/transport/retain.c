/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/retain.h"

#include "base/log.h"
#include "memory/mr.h"
#include "memory/pages.h"
#include "transport/comm.h"
#include "transport/complete.h"
#include "transport/send.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ----------------------------------------------------------------------------------- */

static void give_back(struct ha_retained *kept)
{
	if (!kept)
		return;
	ha_pages_free(kept->bytes, HA_RETAIN_BYTES);
	free(kept);
}

void ha_retain_open(struct ha_comm *comm)
{
	struct ha_retained *kept = aligned_alloc(_Alignof(struct ha_retained), sizeof(*kept));

	if (kept) {
		memset(kept, 0, sizeof(*kept));
		kept->bytes = ha_pages_new(HA_RETAIN_BYTES);
	}
	if (!kept || !kept->bytes ||
	    ha_reg_later(comm, kept->bytes, HA_RETAIN_BYTES, &kept->mr) != HA_OK) {
		HA_INFO(
		    HA_SUBSYS_NET,
		    "connection %s: no memory for copies of small messages: each send waits until "
		    "the receiver has it",
		    comm->name);
		give_back(kept);
		return;
	}
	ha_token_acquire(comm);
	comm->send->retained = kept;
	ha_token_release(comm);
}

void ha_retain_close(struct ha_comm *comm)
{
	struct ha_retained *kept = comm->send ? comm->send->retained : NULL;

	if (!kept)
		return;
	ha_mr_deregister(kept->mr);
	comm->send->retained = NULL;
	give_back(kept);
}

/* ---- copies --------------------------------------------------------------------------------- */

static bool is_needed(const struct ha_retained *kept, uint64_t copy)
{
	return atomic_load_explicit(&kept->reqs[copy % HA_RETAIN_COUNT].state,
				    memory_order_relaxed) == HA_REQ_ACTIVE;
}

unsigned ha_retained_left(const struct ha_comm *comm)
{
	const struct ha_retained *kept = comm->send ? comm->send->retained : NULL;
	unsigned left = 0;

	for (uint64_t copy = kept ? kept->first : 0; kept && copy != kept->next; copy++)
		left += is_needed(kept, copy);
	return left;
}

unsigned ha_retain_awaited(struct ha_comm *comm)
{
	unsigned left;

	if (!comm->send || !comm->send->retained)
		return 0;
	ha_token_acquire(comm);
	if (ha_comm_error(comm) == HA_OK)
		ha_comm_poll(comm, comm->poll_batch);
	left = ha_retained_left(comm);
	ha_token_release(comm);
	if (ha_comm_error(comm) != HA_OK ||
	    atomic_load_explicit(&comm->peer_bye, memory_order_acquire))
		return 0;
	return left;
}

/* A place for so many bytes in one piece, behind the last copy; false: there is no room. */
static bool find_room(struct ha_retained *kept, size_t size, uint64_t *begin)
{
	uint64_t at = kept->end;

	while (kept->first != kept->next && !is_needed(kept, kept->first))
		kept->first++;
	if (kept->next - kept->first == HA_RETAIN_COUNT)
		return false;
	if (at % HA_RETAIN_BYTES + size > HA_RETAIN_BYTES)
		at += HA_RETAIN_BYTES - at % HA_RETAIN_BYTES;
	*begin = at;
	return kept->first == kept->next ||
	       at + size - kept->begin[kept->first % HA_RETAIN_COUNT] <= HA_RETAIN_BYTES;
}

static bool may_be_copied(const struct ha_retained *kept, const struct ha_send_group *group)
{
	const struct ha_request *req = group->reqs[0];

	return kept && group->n == 1 && req->size <= HA_RETAIN_MAX && !ha_is_retained(kept, req) &&
	       (req->size == 0 || (req->mr && ha_mr_is_host(req->mr)));
}

void ha_retain(struct ha_comm *comm, struct ha_send_group *group)
{
	struct ha_retained *kept = comm->send->retained;
	struct ha_request *req = group->reqs[0], *copy;
	uint64_t begin;

	if (!may_be_copied(kept, group) || !find_room(kept, req->size, &begin))
		return;
	copy = &kept->reqs[kept->next % HA_RETAIN_COUNT];
	memcpy(copy, req, sizeof(*copy));
	copy->addr = (uintptr_t)(kept->bytes + begin % HA_RETAIN_BYTES);
	copy->mr = kept->mr;
	memcpy((void *)copy->addr, (const void *)req->addr, req->size);
	kept->begin[kept->next++ % HA_RETAIN_COUNT] = begin;
	kept->end = begin + ((req->size + 63) & ~(size_t)63);
	group->reqs[0] = copy;
	ha_request_done(req);
}
