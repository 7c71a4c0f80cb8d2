/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One unreliable datagram queue pair on a port, with completion queue, buffers and address handles:
 * small messages out and in. It stays of use through link failures, errors of its queues and
 * another order of the port's partitions, always with the same number; a dead device is for the
 * caller to notice.
 *
 * One thread at a time, but for what says otherwise. Opening, closing, restarting it and making
 * addresses are commands to the device, which may wait for seconds where that is sick.
 */
#ifndef HA_LIVENESS_UD_QP_H
#define HA_LIVENESS_UD_QP_H

#include "base/result.h"
#include "device/address.h"
#include "device/device.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_DATAGRAM_MAX 64
#define HA_GRH_BYTES	40

struct ha_ud_qp;

/* What came, and from whom as the device and the packet's headers say. Valid during the call. */
struct ha_datagram {
	const uint8_t *data;
	size_t len;
	uint32_t from_qpn;
	uint16_t from_lid; /* InfiniBand */
	bool has_gid;	   /* there is a global route header that makes sense */
	uint8_t from_gid[16];
};

/*
 * The sender's GID of a global route header as it lies in front of a datagram: an IPv6 header, or
 * on RoCE v2 over IPv4 that one's in the last 20 bytes, as a GID that is mapped. False: neither.
 * Pure.
 */
bool ha_grh_source(const uint8_t grh[HA_GRH_BYTES], uint8_t gid[16]);

/* Logs why when it fails. qkey below 2^31. */
ha_result_t ha_ud_qp_open(struct ha_port *port, uint32_t qkey, struct ha_ud_qp **out) HA_MUST_CHECK;
/*
 * Another user, such as ha_ud_qp_address on another thread. Any thread, while there is one.
 * Returns its argument.
 */
struct ha_ud_qp *ha_ud_qp_hold(struct ha_ud_qp *ud_qp);
/* For each hold, and for open: the last one closes it, which may wait in the kernel. Any thread. */
void ha_ud_qp_close(struct ha_ud_qp *ud_qp);

uint32_t ha_ud_qp_qpn(const struct ha_ud_qp *ud_qp);

/* Whether the device that it was made on has died: it may have come back since. Any thread. */
bool ha_ud_qp_device_died(const struct ha_ud_qp *ud_qp);

/* Readable when something came; ha_ud_qp_arm, then ha_ud_qp_receive. */
int ha_ud_qp_fd(const struct ha_ud_qp *ud_qp);

/* Makes the descriptor unreadable until something comes that ha_ud_qp_receive has not seen.
 * False: it is of no use any more, the device is gone. */
bool ha_ud_qp_arm(struct ha_ud_qp *ud_qp);

/*
 * An address handle from the port as it is addressed now. NULL with errno. On RoCE this may wait
 * for the neighbour's answer, up to seconds if there is none. Any thread.
 */
struct ibv_ah *ha_ud_qp_address(const struct ha_ud_qp *ud_qp, const struct ha_remote_addr *to);
/* The end of one; NULL is fine. Any thread. */
void ha_ud_qp_address_free(const struct ha_ud_qp *ud_qp, struct ibv_ah *ah);

/* Sends or drops: 0, or the errno it was dropped for. */
int ha_ud_qp_send(struct ha_ud_qp *ud_qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
		  const void *data, size_t len);

/* Hands over what came, as much as fits the receive queue at once. `got` may send. */
void ha_ud_qp_receive(struct ha_ud_qp *ud_qp,
		      void (*got)(void *arg, const struct ha_datagram *datagram), void *arg);

/*
 * Bringing the queue pair back after an error, or to the index that the port's partition has now.
 * After an error nothing is sent or received until it is, and never while it is under way.
 * ha_ud_qp_restart runs on any thread, between begin and end.
 */
bool ha_ud_qp_restart_due(const struct ha_ud_qp *ud_qp);
void ha_ud_qp_restart_begin(struct ha_ud_qp *ud_qp);
/* 0 or errno. */
int ha_ud_qp_restart(struct ha_ud_qp *ud_qp);
/* rc: what ha_ud_qp_restart said. If it failed it is due again after a pause. */
void ha_ud_qp_restart_end(struct ha_ud_qp *ud_qp, int rc);

/* Times the queue pair had to be brought back after an error. */
uint64_t ha_ud_qp_restarts(const struct ha_ud_qp *ud_qp);

#endif
