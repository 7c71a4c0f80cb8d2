/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Back to the preferred path when it has been healthy for a while (HA_NCCL_ENABLE_FAILBACK), at the
 * receiver. The while grows for as long as going back turns out to have been a mistake. [T]
 */
#ifndef HA_HA_FAILBACK_H
#define HA_HA_FAILBACK_H

#include <stdint.h>

struct ha_comm;

struct ha_failback {
	uint32_t hold_ms; /* how long the preferred path must have been healthy */
	uint64_t back_ns; /* when the last failback was; 0: never */
};

void ha_failback_init(struct ha_failback *back);

/* Leaves the active path if a better one has been up for long enough. */
void ha_failback_visit(struct ha_failback *back, struct ha_comm *comm, uint64_t now_ns);

/* When that will be; 0: nothing is better, or it is switched off. */
uint64_t ha_failback_due_ns(const struct ha_failback *back, const struct ha_comm *comm);

#endif
