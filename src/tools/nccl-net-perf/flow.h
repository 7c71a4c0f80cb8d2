/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress thread's engine: flows of messages over connections.
 *
 * A flow is what NCCL calls a proxy sub-operation: one direction of one connection, a fixed number
 * of steps, some of them in flight. An operation is a plan: its flows and two callbacks, one that
 * says what a step moves (or that it cannot be posted yet), one that hears of its completion.
 * Steps are posted in order and tested oldest first, as NCCL does.
 */
#ifndef NP_FLOW_H
#define NP_FLOW_H

#include "tools/nccl-net-perf/rank.h"

/* What one step moves: one buffer for a send, up to NP_MAX_RECVS for a grouped receive. */
struct np_message {
	int n;
	void *data[NP_MAX_RECVS];
	size_t size[NP_MAX_RECVS]; /* to send; for a receive, the room there is */
	int tag[NP_MAX_RECVS];
	enum np_buffer_kind buffer;
	size_t expect[NP_MAX_RECVS]; /* what a receive must report */
};

/* A posted step. */
struct np_inflight {
	void *request;
	uint64_t posted_ns;
	bool flushing; /* the receive is done, its flush is not */
	struct np_message msg;
};

struct np_plan;

struct np_flow {
	struct np_link *link;
	uint32_t steps;
	uint32_t window;
	/* Progress thread. posted - done are in flight, at ring[step % window]. */
	uint32_t posted;
	uint32_t done;
	struct np_inflight *ring;
	/* The operation's. */
	int index;   /* among the flows of the plan */
	size_t base; /* where its part of the data starts */
	size_t len;  /* and how long it is */
};

struct np_plan {
	struct np_rank *rk;
	struct np_side *side;
	enum np_op op;
	enum np_type type; /* of allreduce */
	size_t size;
	uint32_t iteration;	 /* of the data pattern */
	uint64_t runs;		 /* iterations begun */
	bool checking;		 /* this one's data is checked */
	uint64_t consumed_wrong; /* by consume, in this one */
	struct np_flow *flows;
	int nflows;
	void *state; /* the operation's own */

	/* Runs an iteration in place of flows; NULL: there are flows. False with rk->error set. */
	bool (*run)(struct np_plan *plan);
	/* Describes a step; false: not yet (another step has to complete first). */
	bool (*describe)(struct np_plan *plan, struct np_flow *flow, uint32_t step,
			 struct np_message *msg);
	/* A step has completed. May be NULL. */
	void (*completed)(struct np_plan *plan, struct np_flow *flow, uint32_t step,
			  const struct np_message *msg);
	/*
	 * With canaries: a receive is complete and nothing needs its memory any more but this check
	 * of its data, if plan->checking. Adds to plan->consumed_wrong, in place of check. NULL:
	 * memory is needed until the iteration ends.
	 */
	void (*consume)(struct np_plan *plan, struct np_flow *flow, uint32_t step,
			const struct np_message *msg);
	/* Fills what is sent in plan->iteration. */
	void (*fill)(struct np_plan *plan);
	/* Counts the elements that are wrong after it. */
	uint64_t (*check)(struct np_plan *plan);
};

/* An operation of some size, ready to run. NULL with rk->error set. */
struct np_plan *np_plan_new(struct np_rank *rk, struct np_side *side, enum np_op op, size_t size);
void np_plan_free(struct np_plan *plan);

/* How large the buffers must be for an operation of this size. */
void np_plan_buffer_sizes(const struct np_rank *rk, const struct np_side *side, enum np_op op,
			  size_t size, size_t len[NP_BUF_COUNT]);

/* Runs one iteration, on the progress thread. False with rk->error set. */
bool np_plan_run(struct np_plan *plan);

/* For the operations, with canaries: memory is about to be written, and is free again. */
bool np_plan_lend(struct np_plan *plan, const struct np_flow *flow, uint32_t step,
		  enum np_buffer_kind kind, const void *data, size_t len);
void np_plan_return(struct np_plan *plan, enum np_buffer_kind kind, const void *data,
		    size_t written);

/* For the operations: adds a flow; NULL with rk->error set. */
struct np_flow *np_plan_add_flow(struct np_plan *plan, bool send, int peer, int channel,
				 uint32_t steps, uint32_t window);

#endif
