/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptors that the events of NICs come from, and who is told of them. */
#ifndef HA_INSTANCE_NIC_WATCH_H
#define HA_INSTANCE_NIC_WATCH_H

#include "base/result.h"

#include <stdbool.h>

struct ha_instance;
struct ha_nic;

/* Begins with every NIC of the instance. */
ha_result_t ha_nic_watches_open(struct ha_instance *inst) HA_MUST_CHECK;

/* Ends it: no event is read any more. Not on the progress thread. */
void ha_nic_watches_close(struct ha_instance *inst);

/* The NIC has another incarnation: its events are read from now on, and no others. False: they
 * cannot be. Progress thread. */
bool ha_nic_watch_again(struct ha_instance *inst, const struct ha_nic *nic);

#endif
