/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs of simverbs whose send queues programs drive themselves, in the layout of a ConnectX:
 * what simverbs' libmlx5.so.1 asks its libibverbs.so.1 for, and what a test may ask.
 */
#ifndef SIMVERBS_MLX5_H
#define SIMVERBS_MLX5_H

#include <infiniband/verbs.h>
#include <stdint.h>

/* What programs get wrong, counted for each device. The first of a kind is named on stderr, too. */
struct sv_direct_mistakes {
	uint64_t
	    stale; /* a work request was not there, or of an earlier lap: a barrier is missing */
	uint64_t malformed; /* one of another queue pair, or that cannot be */
	uint64_t
	    without_doorbell; /* the record went on, and no doorbell came for SV_DIRECT_LATE_NS */
	uint64_t without_record; /* a doorbell, and the record had not gone on */
	uint64_t overrun;	 /* a completion fell on one that was not taken */
};

struct sv_direct_send_queue {
	void *blocks; /* of 64 bytes */
	uint32_t count;
	uint32_t *records; /* doorbell records: of the receive queue, of the send queue */
	void *doorbell;
};

struct sv_direct_completion_queue {
	void *entries; /* of 64 bytes */
	uint32_t count;
	uint32_t *records; /* what was taken */
};

/* From then on the queue is the program's, and ibv_post_send() and ibv_poll_cq() are not for it.
 * Nothing was posted yet. 0 or errno. Asked again it says the same. */
int sv_direct_send_queue(struct ibv_qp *qp, struct sv_direct_send_queue *out);
int sv_direct_completion_queue(struct ibv_cq *cq, struct sv_direct_completion_queue *out);

/* Of the device. */
void sv_direct_mistakes(struct ibv_context *context, struct sv_direct_mistakes *out);

#endif
