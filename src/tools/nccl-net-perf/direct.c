/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that move bytes from the sender's buffer straight to their place at the receiver:
 * send/receive around the ring, all-to-all, and ping-pong between neighbours.
 *
 * The bytes for a peer are divided among the channels, and each channel's share is cut in messages
 * of at most --chunk bytes.
 */
#include <string.h>

#include "tools/nccl-net-perf/direct.h"
#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/pattern.h"

static size_t part(size_t count, size_t i, size_t n)
{
	return count / n * i + count % n * i / n;
}

/* In all-to-all: the part of the sender's data that is for a rank. Others send all they have. */
static size_t part_start(const struct np_plan *plan, int rank)
{
	if (plan->op != NP_ALLTOALL)
		return 0;
	return part(plan->size, (size_t)rank, (size_t)plan->rk->nranks);
}

static size_t part_len(const struct np_plan *plan, int rank)
{
	return plan->op == NP_ALLTOALL ? part_start(plan, rank + 1) - part_start(plan, rank)
				       : plan->size;
}

/*
 * Where a peer's bytes land. In all-to-all all of them are as long as the part that is for this
 * rank, one after the other.
 */
static size_t landing(const struct np_plan *plan, int peer)
{
	return plan->op == NP_ALLTOALL ? part_len(plan, plan->rk->rank) * (size_t)peer : 0;
}

/* Ping-pong: the lower of a pair sends first, the other answers when it has got everything. */
static bool my_turn(const struct np_plan *plan)
{
	const struct np_flow *f = plan->flows;

	if (plan->op != NP_PINGPONG || !(plan->rk->rank & 1))
		return true;
	for (int i = 0; i < plan->nflows; i++)
		if (!f[i].link->send && f[i].done < f[i].steps)
			return false;
	return true;
}

static bool describe(struct np_plan *plan, struct np_flow *flow, uint32_t step,
		     struct np_message *msg)
{
	size_t from = part(flow->len, step, flow->steps);
	size_t to = part(flow->len, step + 1, flow->steps);

	if (flow->link->send && !my_turn(plan))
		return false;
	msg->n = 1;
	msg->buffer = flow->link->send ? NP_BUF_IN : NP_BUF_OUT;
	msg->data[0] = plan->rk->buffers[msg->buffer].data + flow->base + from;
	msg->size[0] = to - from;
	msg->expect[0] = to - from;
	msg->tag[0] = flow->link->send ? plan->rk->rank : flow->link->peer;
	return true;
}

static void fill(struct np_plan *plan)
{
	np_pattern_fill(plan->rk->buffers[NP_BUF_IN].data, plan->size, plan->rk->rank,
			plan->iteration, 0);
}

static uint64_t check(struct np_plan *plan)
{
	const uint8_t *out = plan->rk->buffers[NP_BUF_OUT].data;
	int self = plan->rk->rank;
	uint64_t wrong = 0;

	for (int i = 0; i < plan->nflows; i++) {
		const struct np_link *link = plan->flows[i].link;

		if (!link->send && link->channel == 0)
			wrong +=
			    np_pattern_check(out + landing(plan, link->peer), part_len(plan, self),
					     link->peer, plan->iteration, part_start(plan, self));
	}
	return wrong;
}

static void consume(struct np_plan *plan, struct np_flow *flow, uint32_t step,
		    const struct np_message *msg)
{
	int self = plan->rk->rank, peer = flow->link->peer;
	size_t at = flow->base - landing(plan, peer) + part(flow->len, step, flow->steps);

	if (plan->checking)
		plan->consumed_wrong +=
		    np_pattern_check(msg->data[0], msg->expect[0], peer, plan->iteration,
				     part_start(plan, self) + at);
}

static bool add_peer(struct np_plan *plan, bool send, int peer)
{
	const struct np_options *o = plan->rk->o;
	size_t len = part_len(plan, send ? peer : plan->rk->rank);
	size_t start = send ? part_start(plan, peer) : landing(plan, peer);
	size_t channels = (size_t)o->channels;

	for (int c = 0; c < o->channels; c++) {
		size_t base = part(len, (size_t)c, channels);
		size_t share = part(len, (size_t)c + 1, channels) - base;
		uint32_t steps = share ? (uint32_t)((share + o->chunk - 1) / o->chunk) : 1;
		struct np_flow *flow =
		    np_plan_add_flow(plan, send, peer, c, steps, (uint32_t)o->depth);

		if (!flow)
			return false;
		flow->base = start + base;
		flow->len = share;
	}
	return true;
}

bool np_plan_direct(struct np_plan *plan)
{
	int self = plan->rk->rank, n = plan->rk->nranks;

	plan->describe = describe;
	plan->fill = fill;
	plan->check = check;
	plan->consume = consume;
	switch (plan->op) {
	case NP_SENDRECV:
		return add_peer(plan, true, (self + 1) % n) &&
		       add_peer(plan, false, (self + n - 1) % n);
	case NP_PINGPONG:
		if ((self ^ 1) >= n)
			return true; /* the odd one out has nothing to do */
		return add_peer(plan, true, self ^ 1) && add_peer(plan, false, self ^ 1);
	default:
		for (int i = 1; i < n; i++)
			if (!add_peer(plan, true, (self + i) % n) ||
			    !add_peer(plan, false, (self + n - i) % n))
				return false;
		return true;
	}
}
