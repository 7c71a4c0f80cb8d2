/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path: one local port, one remote port, and the RC queue pairs between them.
 *
 * A path is named by its index in the connection and a generation that counts its rebuilds. What
 * was posted on it and what state it is in is kept here, so that a connection can lose one path
 * and keep the others. Completions carry index and generation in their wr_id: those of an
 * earlier generation are dropped.
 */
#ifndef HA_TRANSPORT_PATH_H
#define HA_TRANSPORT_PATH_H

#include "base/result.h"
#include "device/device.h"
#include "transport/imm.h"
#include "transport/wire.h"

#include <infiniband/verbs.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

struct ha_comm;

#define HA_MAX_QPS HA_WIRE_MAX_QPS

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
/* Every so many clear-to-send writes one asks for a completion, to make room. */
#define HA_CTS_SIGNAL_INTERVAL 16

/* Pieces of a message that is spread over queue pairs start at multiples of this: NCCL's LL128
 * needs chunks of 128 bytes to land whole. */
#define HA_SPLIT_ALIGN 128

enum ha_path_state {
	HA_PATH_INIT,	/* queue pairs exist */
	HA_PATH_READY,	/* can carry data */
	HA_PATH_FENCED, /* in error: nothing arrives any more once drained */
};

/* Counters are [T] (see comm.h), the rest constant while the path is ready. */
struct ha_qp {
	alignas(64) struct ibv_qp *qp;
	uint32_t sq_depth;
	uint32_t sq_posted; /* work requests ever posted */
	uint32_t sq_done;   /* of these, known to have left the queue */
	uint32_t rq_used;   /* receives consumed and not replaced yet */
	uint32_t cts_unsignalled;
	uint32_t local_psn;
	uint64_t wr_base;			/* path, generation and queue pair of a wr_id */
	struct ibv_recv_wr refill[HA_RQ_BATCH]; /* linked, ready to post */
};

static inline uint32_t ha_qp_room(const struct ha_qp *qp)
{
	return qp->sq_depth - (qp->sq_posted - qp->sq_done);
}

struct ha_path {
	struct ha_comm *comm;
	struct ha_port *port;
	struct ha_nic *nic; /* port->nic */
	uint8_t index;
	uint16_t generation;
	atomic_int state; /* enum ha_path_state; written under T */
	uint8_t nqps;
	uint8_t split;	     /* spread each message over all queue pairs */
	uint32_t max_inline; /* bytes a send may carry inline, 0: none */
	uint32_t ring_lkey;
	uint32_t remote_rkey;  /* of the peer's ring */
	uint64_t remote_ring;  /* its address there */
	uint64_t max_message;  /* larger writes are cut */
	uint64_t single_limit; /* a message up to this goes in one write with its immediate */
	uint64_t ar_threshold; /* above this, data and immediate go apart; UINT64_MAX: never */
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *ring_mr;
	struct ha_port_addr addr; /* as it was told to the peer */
	struct ha_wire_endpoint remote;
	struct ha_qp qps[HA_MAX_QPS];
};

/* Whether a queue pair is one of the path's present ones. */
static inline bool ha_path_has_qp(const struct ha_path *path, uint32_t qp_num)
{
	for (unsigned i = 0; i < path->nqps; i++)
		if (path->qps[i].qp && path->qps[i].qp->qp_num == qp_num)
			return true;
	return false;
}

struct ha_path_options {
	struct ha_port *port;
	uint8_t index;
	uint16_t generation;
	uint8_t nqps;
};

/* Queue pairs in INIT with full receive queues, completion queue, ring registration. */
ha_result_t ha_path_open(struct ha_comm *comm, const struct ha_path_options *options,
			 struct ha_path **out) HA_MUST_CHECK;

/* What the peer has to know about our end. */
void ha_path_endpoint(const struct ha_path *path, struct ha_wire_endpoint *out);

/* To RTS against the peer's end. sl and traffic class must be in `remote`. */
ha_result_t ha_path_connect(struct ha_path *path,
			    const struct ha_wire_endpoint *remote) HA_MUST_CHECK;

/*
 * Moves the queue pairs to ERR: nothing more is sent, and once the queues are drained nothing more
 * arrives. Any path state.
 */
void ha_path_fence(struct ha_path *path);

/* Frees everything. A destroyed queue pair touches no memory, drained or not. NULL is fine. */
void ha_path_close(struct ha_path *path);

/* Works single_limit out from the other limits; after one of them was changed. */
void ha_path_set_limits(struct ha_path *path);

/* Fills the receive queue of one queue pair with `n` work requests, a batch at most. errno. */
int ha_qp_refill(struct ha_qp *qp, uint32_t n);

/* Service level and traffic class: the site's setting, else the communicator's, else 0. */
uint8_t ha_path_sl(const struct ha_config *config, int traffic_class);
uint8_t ha_path_tc(const struct ha_config *config, int traffic_class);

#endif
