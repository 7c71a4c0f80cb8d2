/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts and signals by threads of a GPU, which write work requests and ring doorbells themselves, over
 * queue pairs that the host may change under them. nvcc; or C11 and C++17, for threads of the host.
 *
 * Any number of threads may use a stream at the same time. None has a limit of its own, traps, or
 * decides anything: to them a failover is a request that takes long. They end with HA_IBGDA_OVER when
 * the host has given the stream up.
 *
 * Fewer than 65536 requests of a stream may be reserved and not complete, those of threads that wait for room included.
 * Source memory of a put is untouched until ha_ibgda_quiet() has returned for it. A program learns of data by the
 * signal behind it, never by looking at the data. Addends are 1 to HA_IBGDA_ADDEND_MOST.
 *
 * HA_IBGDA_BACKUP=0: there is one queue pair and no gate, to measure what the other one costs.
 */
#ifndef NCCL_HA_IBGDA_CUH
#define NCCL_HA_IBGDA_CUH

#include "nccl_ha/ibgda_cqe.h"
#include "nccl_ha/ibgda_stream.h"

#include <stdbool.h>

#ifndef HA_IBGDA_BACKUP
#define HA_IBGDA_BACKUP 1
#endif

enum ha_ibgda_result {
	HA_IBGDA_OK,
	HA_IBGDA_OVER, /* the stream has failed: the host knows why */
};

struct ha_ibgda_put {
	uint64_t local, remote; /* addresses */
	uint32_t local_region, remote_region;
	uint32_t size; /* bytes; 0: there is only the signal */
};

struct ha_ibgda_signal {
	uint32_t id;
	uint32_t addend; /* 0: there is only the put */
};

/* One put, one signal, or a put with the signal behind it, as they are posted. */
struct ha_ibgda_work {
	struct ha_ibgda_put put;
	struct ha_ibgda_signal signal;
	uint64_t first;	 /* number of its first request */
	uint64_t number; /* value of the signal; 0: not taken yet. It is taken once. */
	uint32_t count;	 /* requests */
};

/* ---- the gate -------------------------------------------------------------------------------- */

/* With which requests are complete: of a GPU it is one look at the host's memory. What is older than the gate is right as
 * well, as what was complete stays so. */
HA_DEV uint64_t ha_ibgda_look(const struct ha_ibgda_stream *stream, uint64_t *cons)
{
#if HA_IBGDA_BACKUP
	return ha_dev_load_beside(&stream->gate, cons);
#else
	*cons = ha_dev_load(&stream->cons);
	return stream->gate;
#endif
}

/* ... after everything that this thread has stored. */
HA_DEV uint64_t ha_ibgda_look_in_order(const struct ha_ibgda_stream *stream)
{
#if HA_IBGDA_BACKUP
	return ha_dev_load_in_order(&stream->gate);
#else
	return stream->gate;
#endif
}

/* ... and which requests are complete. One that is older than the gate shows less room than there is. */
HA_DEV uint64_t ha_ibgda_look_beside_cons(const struct ha_ibgda_stream *stream, uint64_t *cons)
{
#if HA_IBGDA_BACKUP
	return ha_dev_load_in_order_beside(&stream->gate, cons);
#else
	*cons = ha_dev_load(&stream->cons);
	return stream->gate;
#endif
}

HA_DEV bool ha_ibgda_is_same(const struct ha_ibgda_stream *stream, uint64_t gate)
{
#if HA_IBGDA_BACKUP
	return ha_dev_load_relaxed(&stream->gate) == gate;
#else
	(void)stream, (void)gate;
	return true;
#endif
}

HA_DEV bool ha_ibgda_is_open(uint64_t gate)
{
#if HA_IBGDA_BACKUP
	return !(gate & (HA_IBGDA_CLOSED | HA_IBGDA_DEAD));
#else
	(void)gate;
	return true;
#endif
}

/* Of an open gate. */
HA_DEV struct ha_ibgda_queue *ha_ibgda_queue_of(uint64_t gate)
{
	return (struct ha_ibgda_queue *)(uintptr_t)gate;
}

/* Waits while it is closed. One that is not open then will not be any more. */
HA_DEV uint64_t ha_ibgda_find_gate(const struct ha_ibgda_stream *stream)
{
	uint64_t gate = ha_ibgda_look_in_order(stream);

	while (gate & HA_IBGDA_CLOSED) {
		ha_dev_pause();
		gate = ha_ibgda_look_in_order(stream);
	}
	return gate;
}

/* ---- completion ------------------------------------------------------------------------------ */

HA_DEV void ha_ibgda_raise_alarm(const struct ha_ibgda_stream *stream, uint64_t number)
{
	(void)ha_dev_swap_if(stream->alarm, 0, number + 1); /* the first one counts */
}

/* Whether a queue that threads wait at has been made anew since. */
HA_DEV bool ha_ibgda_is_anew(const struct ha_ibgda_queue *queue, uint64_t base)
{
#if HA_IBGDA_BACKUP
	return ha_dev_load_relaxed(&queue->base) != base;
#else
	(void)queue, (void)base;
	return false;
#endif
}

/* What a queue says of a request. Who waits for room may wait for one that is laps ahead of the device, so whose turn
 * an entry is does not suffice: the index has to be the request's. Nothing keeps the queue from being used again
 * meanwhile: its base is another one then, and what was read may be of any request. */
HA_DEV enum ha_cqe_kind ha_ibgda_poll(const struct ha_ibgda_stream *stream,
				      const struct ha_ibgda_queue *queue, uint64_t number)
{
	const uint64_t base = ha_dev_load_relaxed(&queue->base);
	struct ha_cqe cqe;

	if (number < base)
		return HA_CQE_DONE; /* settled before this generation began */
	HA_DEV_STEP("entry");
	cqe = ha_cqe_read(queue->completions, stream->log, number - base);
	HA_DEV_STEP("poll");
	if (cqe.index != (uint16_t)(number - base) || ha_ibgda_is_anew(queue, base))
		return HA_CQE_NOT_YET;
	return cqe.kind;
}

/* The request of that number, and all before it, are complete: their source may be written. */
HA_DEV enum ha_ibgda_result ha_ibgda_quiet(struct ha_ibgda_stream *stream, uint64_t number)
{
	for (;; ha_dev_pause()) {
		uint64_t cons;
		const uint64_t gate = ha_ibgda_look(stream, &cons);
		enum ha_cqe_kind kind;

		if (gate & HA_IBGDA_CLOSED)
			continue; /* whether what was acknowledged has come is looked for */
		if (cons > number)
			return HA_IBGDA_OK;
		if (!ha_ibgda_is_open(gate))
			return HA_IBGDA_OVER;
		kind = ha_ibgda_poll(stream, ha_ibgda_queue_of(gate), number);
		if (kind == HA_CQE_DONE) {
			ha_dev_raise(&stream->cons, number + 1);
			return HA_IBGDA_OK;
		}
		/* Of a generation that has ended it tells nobody anything. */
		if (kind == HA_CQE_FAILED && ha_ibgda_is_same(stream, gate))
			ha_ibgda_raise_alarm(stream, number);
	}
}

/* ---- posting --------------------------------------------------------------------------------- */

HA_DEV uint64_t ha_ibgda_end(const struct ha_ibgda_work *post)
{
	return post->first + post->count;
}

/* There is room for requests below in any queue when what had their places is complete. */
HA_DEV bool ha_ibgda_has_room(const struct ha_ibgda_stream *stream, uint64_t cons, uint64_t end)
{
	return end <= cons + (1ull << stream->log);
}

/* Each word is made when it is stored, so that few registers are in use at a time. */
HA_DEV void ha_ibgda_write_put(const struct ha_ibgda_stream *stream,
			       const struct ha_ibgda_queue *queue, const struct ha_ibgda_work *post)
{
	const struct ha_ibgda_put *put = &post->put;
	struct ha_wqe *wqe = ha_ibgda_request(stream, queue, post->first);

	ha_wqe_control(wqe, (uint32_t)(post->first - queue->base), HA_WQE_WRITE, queue->qpn, 3,
		       ha_ibgda_note_put(put->local_region, put->remote_region));
	ha_wqe_remote(wqe, put->remote, queue->keys[put->remote_region].remote);
	ha_wqe_local(wqe, put->local, queue->keys[put->local_region].local, put->size);
}

HA_DEV void ha_ibgda_write_signal(const struct ha_ibgda_stream *stream,
				  const struct ha_ibgda_queue *queue,
				  const struct ha_ibgda_work *post)
{
	const uint64_t last = ha_ibgda_end(post) - 1;
	struct ha_wqe *wqe = ha_ibgda_request(stream, queue, last);

	ha_wqe_control(wqe, (uint32_t)(last - queue->base), HA_WQE_WRITE, queue->qpn, 3,
		       ha_ibgda_note_signal(post->signal.id, post->signal.addend));
	ha_wqe_remote(wqe, queue->cells_addr + 8ull * post->signal.id, queue->cells_key);
	ha_wqe_value(wqe, post->number);
}

/* Of the peer's cells, 8 bytes to put.local: its answer comes from behind all that was written there before. */
HA_DEV void ha_ibgda_write_read(const struct ha_ibgda_stream *stream,
				const struct ha_ibgda_queue *queue,
				const struct ha_ibgda_work *post)
{
	const struct ha_ibgda_put *put = &post->put;
	struct ha_wqe *wqe = ha_ibgda_request(stream, queue, post->first);

	ha_wqe_control(wqe, (uint32_t)(post->first - queue->base), HA_WQE_READ, queue->qpn, 3,
		       ha_ibgda_note_put(put->local_region, 0));
	ha_wqe_remote(wqe, queue->cells_addr, queue->cells_key);
	ha_wqe_local(wqe, put->local, queue->keys[put->local_region].local, put->size);
}

/* Only who has the turn comes here, so numbers of an id grow as requests do. */
HA_DEV void ha_ibgda_take_number(struct ha_ibgda_stream *stream, struct ha_ibgda_work *post)
{
	uint64_t *sum = &stream->sums[post->signal.id];

	if (post->number)
		return;
	post->number = ha_dev_load_relaxed(sum) + post->signal.addend;
	ha_dev_store(sum, post->number);
}

/* Whether the turn came; else the gate has moved. */
HA_DEV bool ha_ibgda_wait_turn(const struct ha_ibgda_stream *stream,
			       const struct ha_ibgda_queue *queue, uint64_t gate, uint64_t number)
{
	while (ha_dev_load(&queue->ready) != number) {
		if (!ha_ibgda_is_same(stream, gate))
			return false;
		ha_dev_pause();
	}
	return true;
}

HA_DEV bool ha_ibgda_lock(const struct ha_ibgda_stream *stream, struct ha_ibgda_queue *queue,
			  uint64_t gate)
{
	while (ha_dev_swap_if(&queue->lock, 0, 1)) {
		if (!ha_ibgda_is_same(stream, gate))
			return false;
		ha_dev_pause();
	}
	return true;
}

/* Requests below `end` are published; somebody rings for them, once. */
HA_DEV void ha_ibgda_ring(const struct ha_ibgda_stream *stream, struct ha_ibgda_queue *queue,
			  uint64_t gate, uint64_t end)
{
	if (ha_dev_load(&queue->prod) >= end)
		return;
	HA_DEV_STEP("ring");
	if (!ha_ibgda_lock(stream, queue, gate))
		return;
	HA_DEV_STEP("locked");
	if (ha_dev_load(&queue->prod) < end) {
		HA_DEV_STEP("prod");
		ha_dev_store(&queue->prod, end);
		HA_DEV_STEP("record");
		ha_dev_store32(queue->record, ha_wqe_record((uint32_t)(end - queue->base)));
		HA_DEV_STEP("doorbell");
		ha_dev_store_doorbell(queue->doorbell,
				      ha_ibgda_request(stream, queue, end - 1)->words[0]);
	}
	HA_DEV_STEP("unlock");
	ha_dev_store(&queue->lock, 0);
}

/* Into one generation's queue. Whether it is published there, and that generation was open after that. */
HA_DEV bool ha_ibgda_submit(struct ha_ibgda_stream *stream, struct ha_ibgda_work *post,
			    uint64_t gate, bool is_read)
{
	struct ha_ibgda_queue *queue = ha_ibgda_queue_of(gate);
	const uint64_t end = ha_ibgda_end(post);

	HA_DEV_STEP("write");
	if (is_read)
		ha_ibgda_write_read(stream, queue, post);
	else if (post->put.size)
		ha_ibgda_write_put(stream, queue, post);
	HA_DEV_STEP("turn");
	if (!ha_ibgda_wait_turn(stream, queue, gate, post->first))
		return false;
	if (post->signal.addend) {
		ha_ibgda_take_number(stream, post);
		HA_DEV_STEP("number");
		ha_ibgda_write_signal(stream, queue, post);
	}
	HA_DEV_STEP("publish");
	ha_dev_store(&queue->ready, end);
	ha_dev_fence();
	HA_DEV_STEP("published");
	ha_ibgda_ring(stream, queue, gate, end);
	HA_DEV_STEP("gate");
	return ha_ibgda_is_same(stream, gate);
}

/* Sent back by a gate that has moved: whether the host had it already, and has written it into the queue in use.
 * Before it is published anywhere nobody can have it. */
HA_DEV bool ha_ibgda_was_taken(const struct ha_ibgda_work *post, uint64_t gate)
{
	return ha_ibgda_end(post) <= ha_dev_load_relaxed(&ha_ibgda_queue_of(gate)->taken);
}

/* There was no room, the gate was closed, or it has moved meanwhile. */
HA_DEV_SLOW enum ha_ibgda_result ha_ibgda_post_slowly(struct ha_ibgda_stream *stream,
						      struct ha_ibgda_work *post,
						      bool is_read)
{
	const uint64_t depth = 1ull << stream->log, end = ha_ibgda_end(post);

	if (!ha_ibgda_has_room(stream, ha_dev_load(&stream->cons), end) &&
	    ha_ibgda_quiet(stream, end - depth - 1) != HA_IBGDA_OK)
		return HA_IBGDA_OVER;
	for (;;) {
		const uint64_t gate = ha_ibgda_find_gate(stream);

		if (!ha_ibgda_is_open(gate))
			return HA_IBGDA_OVER;
		HA_DEV_STEP("opened");
		if (ha_ibgda_was_taken(post, gate) ||
		    ha_ibgda_submit(stream, post, gate, is_read))
			return HA_IBGDA_OK;
	}
}

HA_DEV enum ha_ibgda_result ha_ibgda_post_as(struct ha_ibgda_stream *stream,
					     struct ha_ibgda_work *post, bool is_read)
{
	uint64_t gate, cons, end;

	post->number = 0;
	post->first = ha_dev_add(&stream->resv, post->count);
	end = ha_ibgda_end(post);
	HA_DEV_STEP("reserve");
	gate = ha_ibgda_look_beside_cons(stream, &cons); /* after the reservation */
	HA_DEV_STEP("opened");
	if (ha_ibgda_has_room(stream, cons, end) && ha_ibgda_is_open(gate) &&
	    ha_ibgda_submit(stream, post, gate, is_read))
		return HA_IBGDA_OK;
	return ha_ibgda_post_slowly(stream, post, is_read);
}

/* Posts it and returns; post->first + post->count - 1 is what ha_ibgda_quiet() is asked for. */
HA_DEV enum ha_ibgda_result ha_ibgda_post(struct ha_ibgda_stream *stream,
					  struct ha_ibgda_work *post)
{
	post->count = (post->put.size ? 1u : 0u) + (post->signal.addend ? 1u : 0u);
	return ha_ibgda_post_as(stream, post, false);
}

/* All that was posted before is in the peer's memory, whatever becomes of its NIC: a round trip more than quiet. 8 bytes
 * at `local`, of a region of this end, are the read's. Where the host accepts what a dead NIC cannot prove
 * (accepts_unproved), what it has counted there is not proved by this either. */
HA_DEV enum ha_ibgda_result ha_ibgda_quiet_placed(struct ha_ibgda_stream *stream, uint64_t local,
						  uint32_t region)
{
	struct ha_ibgda_work post;

	post.put.local = local;
	post.put.remote = 0;
	post.put.local_region = region;
	post.put.remote_region = 0;
	post.put.size = 8;
	post.signal.id = post.signal.addend = 0;
	post.count = 1;
	if (ha_ibgda_post_as(stream, &post, true) != HA_IBGDA_OK)
		return HA_IBGDA_OVER;
	return ha_ibgda_quiet(stream, post.first);
}

#endif
