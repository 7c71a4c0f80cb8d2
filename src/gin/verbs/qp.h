/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue pair of a one-sided stream: one end of an epoch's path, or a NIC's loopback. It is made
 * for one use, fenced and closed, and never mended. The first thing that fails is kept as its
 * fault.
 *
 * Verbs that change it may wait for the device. One thread.
 */
#ifndef HA_GIN_VERBS_QP_H
#define HA_GIN_VERBS_QP_H

#include "base/result.h"
#include "device/device.h"
#include "device/give_back.h"
#include "gin/verbs/standstill.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* What the other end has to know. */
struct ha_gin_address {
	uint32_t qpn, psn;
	uint8_t gid[16];
	uint16_t lid;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t unused;
};

/* Work requests that are posted at a time, and bytes that one may carry inline. */
struct ha_gin_depth {
	uint32_t sends, recvs, max_inline;
};

/* What a work request is, in the upper byte of its wr_id; below it what its owner likes. */
enum ha_gin_wr {
	HA_GIN_WR_OPERATION, /* the last write of an operation: its number */
	HA_GIN_WR_READ,	     /* its number among reads */
	HA_GIN_WR_TELL,
	HA_GIN_WR_RECV,
	HA_GIN_WR_TASK, /* of a loopback */
	HA_GIN_WR_SENTINEL,
};

#define HA_GIN_WR_SHIFT 56

struct ha_gin_qp {
	struct ha_port *port;
	struct ha_incarnation *on; /* held, with its protection domain; NULL: closed */
	struct ibv_cq *cq;
	struct ibv_qp *qp; /* NULL: destroyed */
	uint32_t psn;
	unsigned int sentinels; /* posted and not back */
	bool is_fencing;
	bool is_undrainable; /* a verb of the fence failed: the sentinels will not tell */
	uint64_t fencing_ns; /* since then */
	struct ha_asked asked;
	struct ha_gin_standstill still;
	const char *fault; /* the verb that failed, or what a completion said; NULL: none */
};

/* In INIT: receives may be posted. On failure it is closed, and `fault` says why. */
ha_result_t ha_gin_qp_open(struct ha_gin_qp *qp, struct ha_port *port,
			   const struct ha_gin_depth *depth) HA_MUST_CHECK;
void ha_gin_qp_address(const struct ha_gin_qp *qp, struct ha_gin_address *out);
/* To RTS. May wait in the kernel until the other end's address is resolved. */
ha_result_t ha_gin_qp_connect(struct ha_gin_qp *qp,
			      const struct ha_gin_address *remote) HA_MUST_CHECK;

/* False: it has failed. A list is posted to its end, or the queue pair has failed. */
static inline bool ha_gin_qp_send(struct ha_gin_qp *qp, struct ibv_send_wr *wr);
bool ha_gin_qp_recv(struct ha_gin_qp *qp);

/* The next success, also of a queue pair that is being fenced. False: there is none now. */
static inline bool ha_gin_qp_poll(struct ha_gin_qp *qp, struct ibv_wc *wc);

/*
 * A wedged NIC takes posts and completes none: something is under way, and the count of what came
 * back has been the same for longer than `limit_ns`. To be called again and again; reads no clock
 * where nothing stands still.
 */
void ha_gin_qp_look_for_silence(struct ha_gin_qp *qp, uint64_t came, bool is_under_way,
				uint64_t limit_ns);

/* Begins a fence: it takes and sends no more packets. A second call is fine, as for a closed one.
 */
void ha_gin_qp_fence(struct ha_gin_qp *qp);
/*
 * Whether a fence is confirmed: all that came before has been polled, and nothing will come. To be
 * asked after polling, again and again; one that does not drain is destroyed.
 */
bool ha_gin_qp_is_fenced(struct ha_gin_qp *qp);

/* The same of one that nobody has been told of: whatever is refused is asked for again without its
 * owner (device/give_back.h). */
void ha_gin_qp_discard(struct ha_gin_qp *qp);

/* Destroys everything, fenced or not. False: the device refuses to destroy the queue pair, which is
 * not known to have stopped: to be closed again. A closed one is fine. */
bool ha_gin_qp_close(struct ha_gin_qp *qp);

/* Slow paths of sending and polling: what failed, and completions that are none of the owner's. */
bool ha_gin_qp_refused(struct ha_gin_qp *qp, const char *verb) __attribute__((cold, noinline));
bool ha_gin_qp_poll_past(struct ha_gin_qp *qp, struct ibv_wc *wc) __attribute__((cold, noinline));

static inline uint64_t ha_gin_wr_id(enum ha_gin_wr what, uint64_t low)
{
	return (uint64_t)what << HA_GIN_WR_SHIFT | low;
}

static inline enum ha_gin_wr ha_gin_wr_what(uint64_t wr_id)
{
	return (enum ha_gin_wr)(wr_id >> HA_GIN_WR_SHIFT);
}

static inline uint64_t ha_gin_wr_low(uint64_t wr_id)
{
	return wr_id & (((uint64_t)1 << HA_GIN_WR_SHIFT) - 1);
}

static inline bool ha_gin_qp_send(struct ha_gin_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (__builtin_expect(qp->fault || qp->is_fencing || ibv_post_send(qp->qp, wr, &bad) != 0,
			     0))
		return ha_gin_qp_refused(qp, "ibv_post_send");
	return true;
}

static inline bool ha_gin_qp_poll(struct ha_gin_qp *qp, struct ibv_wc *wc)
{
	if (!qp->cq || ibv_poll_cq(qp->cq, 1, wc) <= 0)
		return false;
	if (__builtin_expect(
		wc->status == IBV_WC_SUCCESS && ha_gin_wr_what(wc->wr_id) != HA_GIN_WR_SENTINEL, 1))
		return true;
	return ha_gin_qp_poll_past(qp, wc);
}

#endif
