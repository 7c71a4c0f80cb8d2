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

HA_DEV uint64_t ha_ibgda_look(const struct ha_ibgda_stream *stream)
{
#if HA_IBGDA_BACKUP
	return ha_dev_load(&stream->gate);
#else
	(void)stream;
	return 0;
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

/* Waits while it is closed. */
HA_DEV uint64_t ha_ibgda_open_gate(const struct ha_ibgda_stream *stream)
{
	uint64_t gate = ha_ibgda_look(stream);

	while (gate & HA_IBGDA_CLOSED) {
		ha_dev_pause();
		gate = ha_ibgda_look(stream);
	}
	return gate;
}

HA_DEV struct ha_ibgda_queue *ha_ibgda_queue_of(const struct ha_ibgda_stream *stream, uint64_t gate)
{
	return (struct ha_ibgda_queue *)((char *)stream->queues + ha_ibgda_gate_offset(gate));
}

/* Numbers below are in the queue that the gate names, if they have been published anywhere. */
HA_DEV uint64_t ha_ibgda_taken(const struct ha_ibgda_stream *stream, uint64_t gate)
{
	return ha_dev_load_relaxed(&ha_ibgda_queue_of(stream, gate)->taken);
}

/* ---- completion ------------------------------------------------------------------------------ */

HA_DEV void ha_ibgda_raise_alarm(const struct ha_ibgda_stream *stream, uint64_t number)
{
	(void)ha_dev_swap_if(stream->alarm, 0, number + 1); /* the first one counts */
}

/* What the queue that the gate names says of a request. Who waits for room may wait for one that is laps
 * ahead of the device, so whose turn an entry is does not suffice: the index has to be the request's. */
HA_DEV enum ha_cqe_kind ha_ibgda_poll(const struct ha_ibgda_stream *stream, uint64_t gate,
				      uint64_t number)
{
	const struct ha_ibgda_queue *queue = ha_ibgda_queue_of(stream, gate);

	const uint64_t base = ha_dev_load_relaxed(&queue->base); /* which may be used again meanwhile */
	struct ha_cqe cqe;

	if (number < base)
		return HA_CQE_NOT_YET; /* it was settled, and `cons` says so soon */
	cqe = ha_cqe_read(queue->completions, stream->log, number - base);
	return cqe.index == (uint16_t)(number - base) ? cqe.kind : HA_CQE_NOT_YET;
}

/* The request of that number, and all before it, are complete: their source may be written. */
HA_DEV enum ha_ibgda_result ha_ibgda_quiet(struct ha_ibgda_stream *stream, uint64_t number)
{
	for (;;) {
		const uint64_t gate = ha_ibgda_open_gate(stream);
		enum ha_cqe_kind kind;

		if (ha_dev_load(&stream->cons) > number)
			return HA_IBGDA_OK;
		if (gate & HA_IBGDA_DEAD)
			return HA_IBGDA_OVER;
		kind = ha_ibgda_poll(stream, gate, number);
		HA_DEV_STEP("poll");
		/* The completion is of this generation if the gate still names it: look after it was read. */
		if (!ha_ibgda_is_same(stream, gate))
			continue;
		if (kind == HA_CQE_DONE) {
			ha_dev_raise(&stream->cons, number + 1);
			return HA_IBGDA_OK;
		}
		if (kind == HA_CQE_FAILED)
			ha_ibgda_raise_alarm(stream, number);
		ha_dev_pause();
	}
}

/* ---- posting --------------------------------------------------------------------------------- */

/* There is room for it in any queue when what had its places is complete. */
HA_DEV enum ha_ibgda_result ha_ibgda_reserve(struct ha_ibgda_stream *stream,
					     struct ha_ibgda_work *post)
{
	const uint64_t depth = 1ull << stream->log;
	uint64_t end;

	post->count = (post->put.size ? 1u : 0u) + (post->signal.addend ? 1u : 0u);
	post->number = 0;
	post->first = ha_dev_add(&stream->resv, post->count);
	end = post->first + post->count;
	ha_dev_fence(); /* the gate is loaded after the reservation */
	HA_DEV_STEP("reserve");
	if (end <= ha_dev_load(&stream->cons) + depth)
		return HA_IBGDA_OK;
	return ha_ibgda_quiet(stream, end - depth - 1);
}

HA_DEV void ha_ibgda_write_put(const struct ha_ibgda_stream *stream,
			       const struct ha_ibgda_queue *queue, const struct ha_ibgda_work *post)
{
	const struct ha_ibgda_put *put = &post->put;
	const struct ha_wqe_data data = {put->local, put->remote,
					 queue->keys[put->local_region].local,
					 queue->keys[put->remote_region].remote, put->size};

	ha_wqe_transfer(ha_ibgda_request(stream, queue, post->first),
			(uint32_t)(post->first - queue->base), HA_WQE_WRITE, queue->qpn, &data,
			ha_ibgda_note_put(put->local_region, put->remote_region));
}

HA_DEV void ha_ibgda_write_signal(const struct ha_ibgda_stream *stream,
				  const struct ha_ibgda_queue *queue,
				  const struct ha_ibgda_work *post)
{
	const uint64_t last = post->first + post->count - 1;

	ha_wqe_write_value(ha_ibgda_request(stream, queue, last), (uint32_t)(last - queue->base),
			   HA_WQE_WRITE, queue->qpn, queue->cells_addr + 8ull * post->signal.id,
			   queue->cells_key, post->number,
			   ha_ibgda_note_signal(post->signal.id, post->signal.addend));
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
			    uint64_t gate)
{
	struct ha_ibgda_queue *queue = ha_ibgda_queue_of(stream, gate);
	const uint64_t end = post->first + post->count;

	HA_DEV_STEP("write");
	if (post->put.size)
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

/* False: there is none any more. */
HA_DEV bool ha_ibgda_find_gate(const struct ha_ibgda_stream *stream, uint64_t *gate)
{
	*gate = ha_ibgda_look(stream);
	if (*gate & (HA_IBGDA_CLOSED | HA_IBGDA_DEAD))
		*gate = ha_ibgda_open_gate(stream);
	return !(*gate & HA_IBGDA_DEAD);
}

/* Posts it and returns; post->first + post->count - 1 is what ha_ibgda_quiet() is asked for. */
HA_DEV enum ha_ibgda_result ha_ibgda_post(struct ha_ibgda_stream *stream,
					  struct ha_ibgda_work *post)
{
	uint64_t gate;

	if (ha_ibgda_reserve(stream, post) != HA_IBGDA_OK || !ha_ibgda_find_gate(stream, &gate))
		return HA_IBGDA_OVER;
	for (;;) {
		HA_DEV_STEP("opened");
		if (ha_ibgda_submit(stream, post, gate))
			return HA_IBGDA_OK;
		if (!ha_ibgda_find_gate(stream, &gate))
			return HA_IBGDA_OVER;
		/* Sent back here, and the host had it already: it is in this queue. Before it is published
		 * anywhere nobody can have it. */
		if (post->first + post->count <= ha_ibgda_taken(stream, gate))
			return HA_IBGDA_OK;
	}
}

#endif
