/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canaries: receive memory that waits for nothing must not change.
 *
 * A write that the network delivers late or twice, after test has called its receive done, usually
 * carries the right bytes to the right place, so that checking data cannot see it. In NCCL it lands
 * in a buffer that by then holds something else. With --canary all receive memory holds a pattern
 * except where it is lent: from the irecv that gets it until its data has been checked. What is not
 * lent is looked at when it is lent next, whenever nothing moves, and for a while at the end, with
 * the connections still open.
 *
 * Everything runs on the progress thread; the main thread reads while that is idle.
 */
#ifndef NP_CANARY_H
#define NP_CANARY_H

#include "tools/nccl-net-perf/rank.h"

/* What memory was used for, for messages. */
struct np_use {
	enum np_op op;
	int peer;
	int channel;
	uint32_t step;
};

/* A stretch of memory that changed and should not have. Exchanged as bytes between ranks. */
struct np_late {
	enum np_buffer_kind kind;
	uint64_t offset; /* in that buffer */
	uint64_t bytes;	 /* that differ from the canary, from there on */
	uint64_t seen_ns;
	uint64_t free_ns;  /* since when it had waited for nothing; 0: always */
	struct np_use use; /* the last, if it ever had one */
	bool used;
	bool beyond; /* inside a receive, behind its message */
};

#define NP_LATE_KEPT 64

/* One rank's. Times count from the start of the run. */
struct np_late_list {
	uint64_t bytes;
	uint64_t seen; /* the first NP_LATE_KEPT are kept */
	struct np_late late[NP_LATE_KEPT];
};

struct np_canary;

/* Covers rk->buffers that receive; NULL when memory is out. */
struct np_canary *np_canary_new(const struct np_rank *rk);
void np_canary_free(struct np_canary *c);

/* Memory is about to be written, by the plugin or by us. What is lent already stays so. */
bool np_canary_lend(struct np_canary *c, enum np_buffer_kind kind, const void *data, size_t len,
		    const struct np_use *use);
/* It waits for nothing from now on. The first `written` bytes are what may have changed. */
void np_canary_return(struct np_canary *c, enum np_buffer_kind kind, const void *data,
		      size_t written);
void np_canary_return_all(struct np_canary *c);

/* Looks at some of what is not lent, next time at what follows. */
void np_canary_watch(struct np_canary *c);
/* Looks at all of it again and again for so long. */
void np_canary_linger(struct np_canary *c, struct np_worker *worker, double ms);

const struct np_late_list *np_canary_seen(const struct np_canary *c);
/* A message of one line about it. */
void np_canary_describe(const struct np_late *late, char *text, size_t len);

#endif
