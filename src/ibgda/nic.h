/* SPDX-License-Identifier: Apache-2.0 */
/* One port of a stream's end. Its caller opens it, and registers memory on it. */
#ifndef HA_IBGDA_NIC_H
#define HA_IBGDA_NIC_H

#include "device/device.h"
#include "nccl_ha/ibgda_stream.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_ibgda_nic {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *receives; /* where nothing ever comes: every queue pair has to have one */
	struct ha_port_addr own;
	uint8_t port_num, timeout, retry_cnt; /* as ibv_modify_qp has them */
	/* Of the program's memory. */
	uint32_t lkeys[HA_IBGDA_REGIONS], rkeys[HA_IBGDA_REGIONS];
};

/* Makes `pd` and `receives`, of a context. 0 or -errno, and nothing is made. */
int ha_ibgda_nic_open(struct ha_ibgda_nic *nic);
/* 0 or -errno: of the first that the device keeps. */
int ha_ibgda_nic_close(struct ha_ibgda_nic *nic);
/* Takes the events that there are, of a context whose descriptor does not block: whether one says
 * that the port, or the device, is gone. Who destroys queue pairs has to call it: their events are
 * to be taken, too. */
bool ha_ibgda_nic_has_failed(const struct ha_ibgda_nic *nic);

#endif
