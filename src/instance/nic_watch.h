/* SPDX-License-Identifier: Apache-2.0 */
/* Which descriptor the events of a NIC come from. */
#ifndef HA_INSTANCE_NIC_WATCH_H
#define HA_INSTANCE_NIC_WATCH_H

#include <stdbool.h>

struct ha_instance;
struct ha_nic;

/* The NIC has another incarnation: its events are read from now on, and no others. False: they
 * cannot be. Progress thread. */
bool ha_nic_watch_again(struct ha_instance *inst, const struct ha_nic *nic);

#endif
