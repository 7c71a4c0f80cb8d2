/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator: operations in the order in which they were begun, and pieces of them under way,
 * in the same order. What is bounced is copied as a piece begins and as it ends.
 */
#include "inccl/comm.h"

#include "inccl/bounce.h"
#include "inccl/group.h"
#include "inccl/result.h"

#include "base/clock.h"
#include "inc/coll/names.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPERATIONS  64
#define PIECE_BYTES (512u << 10) /* or a unit, if that is more */
#define SPIN_NS	    (20 * HA_NS_PER_US)
#define YIELD_NS    HA_NS_PER_MS
#define NAP_NS	    (50 * HA_NS_PER_US)

/* A piece that is ready to be asked for, or is asked for. */
struct under_way {
	struct ha_inccl_piece piece;
	struct ha_coll_request *asked;
	bool has_place;
	unsigned int place;
};

struct inccl_comm {
	struct inccl_group *group;
	struct ha_coll *coll; /* NULL: a call was not done in time */
	int result;	      /* INCCL_OK until it has ended */
	char why[HA_HOST_WHY];
	struct ha_inccl_bounce bounce;
	uint64_t cut, begun; /* operations, of which those below have all their pieces; and all */
	struct inccl_request operation[OPERATIONS];
	uint64_t done, asked; /* pieces */
	struct under_way under_way[HA_MEMBER_OPS];
	bool is_ready; /* the next one, to be asked for */
};

/* ---- opening and closing -------------------------------------------------------------------- */

static ha_result_t join(struct inccl_comm *comm)
{
	struct inccl_group *group = comm->group;
	char name[HA_COLL_GROUP_NAME];
	const struct ha_coll_wish wish = {
	    .config = &group->config,
	    .stats = group->stats,
	    .events = group->events,
	    .set = group->set,
	    .port = group->port,
	    .group = name,
	    .rank = group->rank,
	    .ranks = group->ranks,
	    .why = group->why,
	    .reads_events = true,
	};

	snprintf(name, sizeof(name), "%s.%u", group->name, group->opened++);
	return ha_coll_open(&wish, &comm->coll);
}

static size_t piece_bytes(size_t unit_bytes)
{
	return unit_bytes < PIECE_BYTES ? PIECE_BYTES / unit_bytes * unit_bytes : unit_bytes;
}

int inccl_comm_open(struct inccl_group *group, struct inccl_comm **out)
{
	struct inccl_comm *comm = calloc(1, sizeof(*comm));
	ha_result_t result;

	*out = NULL;
	if (!comm)
		return INCCL_ERR_SYSTEM;
	comm->group = group;
	result = join(comm);
	if (result != HA_OK) {
		free(comm);
		return ha_inccl_opened(result);
	}
	comm->bounce.piece_bytes = piece_bytes(ha_coll_unit_bytes(comm->coll));
	ha_inccl_group_count(group, 1);
	*out = comm;
	return INCCL_OK;
}

int inccl_comm_close(struct inccl_comm *comm)
{
	if (!comm)
		return INCCL_OK;
	ha_coll_close(comm->coll);
	ha_inccl_bounce_end(&comm->bounce);
	ha_inccl_group_count(comm->group, -1);
	free(comm);
	return INCCL_OK;
}

struct inccl_group *inccl_comm_group(const struct inccl_comm *comm)
{
	return comm->group;
}

const char *inccl_comm_why(struct inccl_comm *comm)
{
	return comm->why;
}

/* ---- the end of a communicator -------------------------------------------------------------- */

static void fail(struct inccl_comm *comm, ha_result_t result)
{
	comm->result = ha_inccl_ended(result);
	ha_coll_why(comm->coll, comm->why);
}

/* Then nothing touches any memory any more, and the others hear that this rank is gone. */
static void give_up(struct inccl_comm *comm)
{
	if (comm->result != INCCL_OK)
		return;
	ha_coll_close(comm->coll);
	comm->coll = NULL;
	comm->result = INCCL_ERR_TIMEOUT;
	snprintf(comm->why, sizeof(comm->why), "an operation was not done within its time");
}

/* ---- pieces --------------------------------------------------------------------------------- */

static struct under_way *at(struct inccl_comm *comm, uint64_t piece)
{
	return &comm->under_way[piece % HA_MEMBER_OPS];
}

static bool next_piece(struct inccl_comm *comm, struct ha_inccl_piece *piece)
{
	for (; comm->cut < comm->begun; comm->cut++)
		if (ha_inccl_operation_next(&comm->operation[comm->cut % OPERATIONS],
					    comm->bounce.piece_bytes, piece))
			return true;
	return false;
}

static bool is_copied_in(const struct ha_inccl_piece *piece)
{
	return piece->send && !piece->of->send_mr;
}

/* False: there is none, or no place for it. */
static bool make_ready(struct inccl_comm *comm)
{
	struct under_way *next = at(comm, comm->asked);
	const struct inccl_request *request;

	if (comm->is_ready)
		return true;
	*next = (struct under_way){0};
	if (!next_piece(comm, &next->piece))
		return false;
	request = next->piece.of;
	next->has_place = is_copied_in(&next->piece) || !next->piece.recv || !request->recv_mr;
	if (next->has_place && !ha_inccl_bounce_take(&comm->bounce, &next->place))
		return false;
	if (is_copied_in(&next->piece))
		memcpy(ha_inccl_bounce_to_send(&comm->bounce, next->place), next->piece.send,
		       next->piece.bytes);
	comm->is_ready = true;
	return true;
}

static void fill_in(const struct inccl_comm *comm, const struct under_way *next,
		    struct ha_coll_all_reduce *ask)
{
	const struct inccl_request *request = next->piece.of;

	*ask = (struct ha_coll_all_reduce){
	    .type = request->type,
	    .op = request->op,
	    .count = next->piece.bytes / request->element_bytes,
	    .send = next->piece.send,
	    .recv = next->piece.recv,
	    .send_mr = request->send_mr,
	    .recv_mr = request->recv_mr,
	    .is_empty = next->piece.is_empty,
	};
	if (!next->piece.send || !request->send_mr) {
		ask->send = ha_inccl_bounce_to_send(&comm->bounce, next->place);
		ask->send_mr = comm->bounce.mr;
	}
	if (!next->piece.recv || !request->recv_mr) {
		ask->recv = ha_inccl_bounce_received(&comm->bounce, next->place);
		ask->recv_mr = comm->bounce.mr;
	}
}

/* False: not now, or it has ended. */
static bool ask(struct inccl_comm *comm)
{
	struct under_way *next = at(comm, comm->asked);
	struct ha_coll_all_reduce what;
	ha_result_t result;

	fill_in(comm, next, &what);
	result = ha_coll_all_reduce(comm->coll, &what, &next->asked);
	if (result != HA_OK)
		fail(comm, result);
	if (!next->asked)
		return false;
	ha_inccl_operation_begun(&next->piece);
	comm->is_ready = false;
	comm->asked++;
	return true;
}

/* False: the first one is not done, or it has ended. */
static bool finish(struct inccl_comm *comm)
{
	struct under_way *first = at(comm, comm->done);
	bool is_done;
	size_t bytes;
	const ha_result_t result = ha_coll_test(first->asked, &is_done, &bytes);

	if (result != HA_OK)
		fail(comm, result);
	if (!is_done)
		return false;
	if (first->piece.recv && !first->piece.of->recv_mr)
		memcpy(first->piece.recv, ha_inccl_bounce_received(&comm->bounce, first->place),
		       first->piece.bytes);
	if (first->has_place)
		ha_inccl_bounce_free(&comm->bounce, first->place);
	ha_inccl_operation_done(&first->piece);
	comm->done++;
	return true;
}

/* True: something has moved. */
static bool move(struct inccl_comm *comm)
{
	bool moved = false;

	while (comm->result == INCCL_OK && comm->done < comm->asked && finish(comm))
		moved = true;
	while (comm->result == INCCL_OK && comm->asked - comm->done < HA_MEMBER_OPS &&
	       make_ready(comm) && ask(comm))
		moved = true;
	return moved;
}

/* ---- operations ----------------------------------------------------------------------------- */

/* With its sizes, for so many elements. False: it cannot be. */
static bool make(const struct inccl_comm *comm, struct inccl_request *wish, size_t count,
		 unsigned int flags)
{
	const struct ha_reduction *reduction = ha_reduction_of(wish->type, wish->op);

	wish->rank = comm->group->rank;
	wish->ranks = comm->group->ranks;
	if (!reduction || count > SIZE_MAX / HA_REDUCE_MAX_BYTES / wish->ranks ||
	    wish->root >= wish->ranks || flags > INCCL_BOUNCE)
		return false;
	wish->element_bytes = ha_reduce_bytes(reduction, HA_REDUCE_WIRE);
	wish->bytes = count * wish->element_bytes;
	return (ha_inccl_operation_reads(wish) == 0 || wish->send) &&
	       (ha_inccl_operation_writes(wish) == 0 || wish->recv);
}

/* Where its memory is registered, or that it goes through copies. */
static int find_memory(struct inccl_comm *comm, struct inccl_request *request, unsigned int flags)
{
	const size_t reads = ha_inccl_operation_reads(request);
	const size_t writes = ha_inccl_operation_writes(request);

	if (!(flags & INCCL_BOUNCE) && reads > 0)
		request->send_mr = ha_inccl_group_find(comm->group, request->send, reads);
	if (!(flags & INCCL_BOUNCE) && writes > 0)
		request->recv_mr = ha_inccl_group_find(comm->group, request->recv, writes);
	if (flags & INCCL_DIRECT &&
	    ((reads > 0 && !request->send_mr) || (writes > 0 && !request->recv_mr)))
		return INCCL_ERR_REGISTERED;
	if (request->send_mr && request->recv_mr && !request->one_sends && !request->one_receives)
		return INCCL_OK;
	return ha_inccl_bounce_make(&comm->bounce, comm->coll) ? INCCL_OK : INCCL_ERR_SYSTEM;
}

int ha_inccl_begin(struct inccl_comm *comm, const struct inccl_request *wish, size_t count,
		   unsigned int flags, struct inccl_request **out)
{
	struct inccl_request *request = &comm->operation[comm->begun % OPERATIONS];
	struct inccl_request made = *wish;
	int result;

	*out = NULL;
	if (!make(comm, &made, count, flags))
		return INCCL_ERR_ARGUMENT;
	if (comm->result != INCCL_OK)
		return comm->result;
	if (request->comm)
		return INCCL_AGAIN;
	result = find_memory(comm, &made, flags);
	if (result != INCCL_OK)
		return result;
	made.comm = comm;
	*request = made;
	comm->begun++;
	move(comm);
	*out = request;
	return INCCL_OK;
}

/* INCCL_AGAIN, or the request is free. */
static int end_of(struct inccl_request *request)
{
	const bool is_done = ha_inccl_operation_is_done(request);
	const int result = is_done ? INCCL_OK : request->comm->result;

	if (!is_done && result == INCCL_OK)
		return INCCL_AGAIN;
	request->comm = NULL;
	return result;
}

int inccl_test(struct inccl_request *request)
{
	if (!request || !request->comm)
		return INCCL_ERR_ARGUMENT;
	move(request->comm);
	return end_of(request);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static uint64_t after_ms(uint32_t ms)
{
	return ha_real_ns() + ms * HA_NS_PER_MS;
}

/* The processor is left to others the sooner, the longer nothing moves. */
static void rest(uint64_t idle_ns)
{
	if (idle_ns > YIELD_NS)
		ha_real_sleep_ns(NAP_NS);
	else if (idle_ns > SPIN_NS)
		sched_yield();
}

static int wait_until(struct inccl_request *request, uint64_t until_ns)
{
	uint64_t moved_ns = ha_real_ns();

	for (;;) {
		const bool moved = move(request->comm);
		const int result = end_of(request);
		const uint64_t now_ns = ha_real_ns();

		if (result != INCCL_AGAIN)
			return result;
		if (now_ns >= until_ns)
			return INCCL_ERR_TIMEOUT;
		if (moved)
			moved_ns = now_ns;
		rest(now_ns - moved_ns);
	}
}

int inccl_wait(struct inccl_request *request, uint32_t timeout_ms)
{
	if (!request || !request->comm)
		return INCCL_ERR_ARGUMENT;
	return wait_until(request, after_ms(timeout_ms));
}

int ha_inccl_within(struct inccl_comm *comm, const struct inccl_request *wish, size_t count,
		    unsigned int flags, uint32_t timeout_ms)
{
	const uint64_t until_ns = after_ms(timeout_ms);
	struct inccl_request *request;
	int result;

	while ((result = ha_inccl_begin(comm, wish, count, flags, &request)) == INCCL_AGAIN &&
	       ha_real_ns() < until_ns) {
		move(comm);
		rest(YIELD_NS + 1);
	}
	if (result == INCCL_OK)
		result = wait_until(request, until_ns);
	if (result != INCCL_AGAIN && result != INCCL_ERR_TIMEOUT)
		return result;
	give_up(comm);
	return comm->result;
}
