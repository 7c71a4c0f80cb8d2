/* SPDX-License-Identifier: Apache-2.0 */
/* What nccl_ha/ibgda.h calls a context. */
#ifndef HA_IBGDA_CONTEXT_H
#define HA_IBGDA_CONTEXT_H

#include "base/config.h"
#include "base/list.h"
#include "ibgda/nic.h"
#include "ibgda/receiver.h" /* HA_IBGDA_NICS */
#include "ibgda/sender.h"
#include "nccl_ha/ibgda.h"

#include <pthread.h>
#include <stdbool.h>

struct ha_ibgda_context {
	/* Constant while it is open. */
	struct ha_config config;
	struct ha_device_set *devices;
	struct ha_ibgda_settings settings;
	struct ha_ibgda_memory memory;
	struct ha_ibgda_nic nics[HA_IBGDA_NICS];
	unsigned int num_nics;
	pthread_t thread;
	/* The rest, what ends have, and verbs. */
	pthread_mutex_t lock;
	bool stops;
	struct ha_list ends;
	unsigned int num_ends;
	struct ibv_mr *mrs[HA_IBGDA_REGIONS][HA_IBGDA_NICS];
};

#endif
