/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring all-reduce: reduce-scatter, then all-gather, each channel over its own part of the data.
 *
 * A channel's part is cut in one segment per rank and a segment in pieces of at most --chunk
 * bytes. Step (t, p) of the 2 (n - 1) rounds t moves piece p of one segment to the next rank. In
 * the first n - 1 rounds what arrives lands in a slot and is added to the own summand; in the
 * others it is final and lands in place.
 */
#include <stdlib.h>

#include "tools/nccl-net-perf/allreduce.h"
#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/pattern.h"

/* Flows come in pairs by channel: 2c sends, 2c + 1 receives. */
struct allreduce {
	size_t count; /* elements */
	uint32_t pieces;
	size_t slot_bytes;
};

static size_t part(size_t count, size_t i, size_t n)
{
	return count / n * i + count % n * i / n;
}

static size_t slot_bytes(const struct np_options *o)
{
	return o->chunk / 16 * 16 + 16; /* a piece rounds up to a whole element */
}

size_t np_allreduce_slot_bytes(const struct np_options *o)
{
	return slot_bytes(o) * (size_t)o->depth * (size_t)o->channels;
}

/* First element and number of elements of a piece of a segment in a channel's part. */
static size_t locate(const struct np_plan *plan, const struct np_flow *flow, int segment,
		     uint32_t piece, size_t *count)
{
	const struct allreduce *ar = plan->state;
	size_t n = (size_t)plan->rk->nranks, s = (size_t)segment;
	size_t first = part(flow->len, s, n), len = part(flow->len, s + 1, n) - first;
	size_t from = part(len, piece, ar->pieces), to = part(len, piece + 1, ar->pieces);

	*count = to - from;
	return flow->base + first + from;
}

static int segment_sent(const struct np_plan *plan, uint32_t round)
{
	int n = plan->rk->nranks, k = (int)round;

	if (k < n - 1)
		return (plan->rk->rank - k + n) % n;
	return (plan->rk->rank + 1 - (k - (n - 1)) + n) % n;
}

/* What is received in a round is what the previous rank sends in it. */
static int segment_received(const struct np_plan *plan, uint32_t round)
{
	int n = plan->rk->nranks;

	return (segment_sent(plan, round) - 1 + n) % n;
}

static bool describe_send(struct np_plan *plan, const struct np_flow *flow, uint32_t step,
			  struct np_message *msg)
{
	const struct allreduce *ar = plan->state;
	const struct np_flow *receives = &plan->flows[flow->index + 1];
	uint32_t round = step / ar->pieces, piece = step % ar->pieces;
	size_t size = np_type_sizes[plan->type], count, at;

	/* From the second round on, what the previous round brought is sent on. */
	if (round && receives->done <= step - ar->pieces)
		return false;
	at = locate(plan, flow, segment_sent(plan, round), piece, &count);
	msg->n = 1;
	msg->buffer = round ? NP_BUF_OUT : NP_BUF_IN;
	msg->data[0] = plan->rk->buffers[msg->buffer].data + at * size;
	msg->size[0] = count * size;
	msg->tag[0] = plan->rk->rank;
	return true;
}

static bool describe_receive(struct np_plan *plan, const struct np_flow *flow, uint32_t step,
			     struct np_message *msg)
{
	const struct allreduce *ar = plan->state;
	const struct np_flow *sends = &plan->flows[flow->index - 1];
	uint32_t round = step / ar->pieces, piece = step % ar->pieces;
	uint32_t reduce_rounds = (uint32_t)plan->rk->nranks - 1;
	size_t size = np_type_sizes[plan->type], count, at;
	size_t slot = (size_t)flow->link->channel * flow->window + step % flow->window;

	at = locate(plan, flow, segment_received(plan, round), piece, &count);
	msg->n = 1;
	msg->tag[0] = flow->link->peer;
	msg->expect[0] = count * size;
	if (round < reduce_rounds) {
		msg->buffer = NP_BUF_SLOTS;
		msg->data[0] = plan->rk->buffers[NP_BUF_SLOTS].data + slot * ar->slot_bytes;
		msg->size[0] = ar->slot_bytes; /* more room than is sent, as NCCL's steps have */
		return true;
	}
	/* The partial sum at this place was sent n - 1 rounds ago: not before that is done. */
	if (sends->done <= step - reduce_rounds * ar->pieces)
		return false;
	msg->buffer = NP_BUF_OUT;
	msg->data[0] = plan->rk->buffers[NP_BUF_OUT].data + at * size;
	msg->size[0] = count * size;
	return true;
}

static bool describe(struct np_plan *plan, struct np_flow *flow, uint32_t step,
		     struct np_message *msg)
{
	return flow->link->send ? describe_send(plan, flow, step, msg)
				: describe_receive(plan, flow, step, msg);
}

static void completed(struct np_plan *plan, struct np_flow *flow, uint32_t step,
		      const struct np_message *msg)
{
	const struct allreduce *ar = plan->state;
	uint32_t round = step / ar->pieces;
	size_t size = np_type_sizes[plan->type], count, at;
	uint8_t *out;

	if (flow->link->send || round >= (uint32_t)plan->rk->nranks - 1)
		return;
	at = locate(plan, flow, segment_received(plan, round), step % ar->pieces, &count);
	out = plan->rk->buffers[NP_BUF_OUT].data + at * size;
	if (!np_plan_lend(plan, flow, step, NP_BUF_OUT, out, count * size))
		return;
	np_sum(out, msg->data[0], plan->rk->buffers[NP_BUF_IN].data + at * size, count, plan->type);
	np_plan_return(plan, NP_BUF_SLOTS, msg->data[0], msg->expect[0]);
}

static void fill(struct np_plan *plan)
{
	np_summand_fill(plan->rk->buffers[NP_BUF_IN].data, plan->size / np_type_sizes[plan->type],
			plan->type, plan->rk->rank, plan->iteration);
}

static uint64_t check(struct np_plan *plan)
{
	return np_sum_check(plan->rk->buffers[NP_BUF_OUT].data,
			    plan->size / np_type_sizes[plan->type], plan->type, plan->rk->nranks,
			    plan->iteration);
}

void np_allreduce_data(struct np_plan *plan)
{
	plan->fill = fill;
	plan->check = check;
}

bool np_plan_allreduce(struct np_plan *plan)
{
	const struct np_options *o = plan->rk->o;
	struct allreduce *ar = calloc(1, sizeof(*ar));
	size_t n = (size_t)plan->rk->nranks, channels = (size_t)o->channels;
	size_t size = np_type_sizes[plan->type], largest;
	int self = plan->rk->rank, ranks = plan->rk->nranks;
	uint32_t steps;

	plan->state = ar;
	if (!ar)
		return np_error_set(&plan->rk->error, NP_EXIT_ERROR, "out of memory");
	ar->count = plan->size / size;
	ar->slot_bytes = slot_bytes(o);
	/* As many pieces as the largest segment of the largest part needs: the same for all. */
	largest = (((ar->count + channels - 1) / channels + n - 1) / n) * size;
	ar->pieces = largest ? (uint32_t)((largest + o->chunk - 1) / o->chunk) : 1;
	steps = 2 * ((uint32_t)ranks - 1) * ar->pieces;
	for (int c = 0; c < o->channels; c++) {
		for (int send = 1; send >= 0; send--) {
			int peer = send ? (self + 1) % ranks : (self + ranks - 1) % ranks;
			struct np_flow *flow =
			    np_plan_add_flow(plan, send, peer, c, steps, (uint32_t)o->depth);

			if (!flow)
				return false;
			flow->base = part(ar->count, (size_t)c, channels);
			flow->len = part(ar->count, (size_t)c + 1, channels) - flow->base;
		}
	}
	plan->describe = describe;
	plan->completed = completed;
	np_allreduce_data(plan);
	return true;
}
