/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A NIC whose device died is looked for again, opened again when it is back, and protects again.
 *
 * All that may wait for the device are commands of its NIC. What others see is one step, when all
 * is ready: the NIC is not fatal any more, as if its ports had just come up.
 */
#ifndef HA_INSTANCE_REOPEN_H
#define HA_INSTANCE_REOPEN_H

#include "base/clock.h"
#include "base/result.h"

struct ha_instance;
struct ha_nic;

/* How long after its death a device is looked for first, and at most between two looks: twice as
 * long after each that was in vain. */
#define HA_REOPEN_MIN_NS HA_NS_PER_S
#define HA_REOPEN_MAX_NS (60 * HA_NS_PER_S)

/* HA_ERR_SYSTEM: no memory. When there are devices, heartbeats and the progress thread. */
ha_result_t ha_reopen_open(struct ha_instance *inst) HA_MUST_CHECK;

/* A NIC's device has died. Progress thread. */
void ha_reopen_look(struct ha_instance *inst);

/* Nothing is begun from here on; commands may still be under way. Before the progress thread ends.
 */
void ha_reopen_close(struct ha_instance *inst);

/* When every command is through. */
void ha_reopen_free(struct ha_instance *inst);

#endif
