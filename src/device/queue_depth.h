/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How deep a path's queues are: as deep as a full window wants, or as the device allows. verbs
 * limit the work requests of a queue (max_qp_wr) and the entries of a completion queue (max_cqe),
 * and everything that is posted on a path can end up in its completion queue at once.
 */
#ifndef HA_DEVICE_QUEUE_DEPTH_H
#define HA_DEVICE_QUEUE_DEPTH_H

#include <infiniband/verbs.h>
#include <stdint.h>

/*
 * The receive queue takes the immediates of a full window and room for control messages, so that
 * neither end ever waits for it; it is refilled a batch at a time.
 */
#define HA_RQ_DEPTH 64
#define HA_RQ_BATCH 16

/* Send queue of a sender: a full window of groups with their records. Of a receiver: elements. */
#define HA_SEND_SQ_DEPTH 320
#define HA_RECV_SQ_DEPTH 64
#define HA_FLUSH_DEPTH	 32

/* Less than this and a group does not fit, or a receive queue is never refilled. */
#define HA_LEAST_DEPTH (2 * HA_RQ_BATCH)

/* Work requests we post; each queue has room for one more, the sentinel of a fence. */
struct ha_queue_depth {
	uint32_t send, recv; /* of each queue pair */
	uint32_t cqes;	     /* of the completion queue of all of them and of a flush */
};

/* What `nqps` queue pairs get that want `send` work requests in a send queue. */
struct ha_queue_depth ha_queue_depth(const struct ibv_device_attr *attr, unsigned nqps,
				     uint32_t send);

/* Why that is of no use, in words; NULL: it is. */
const char *ha_queue_depth_lacks(const struct ibv_device_attr *attr,
				 const struct ha_queue_depth *depth);

#endif
