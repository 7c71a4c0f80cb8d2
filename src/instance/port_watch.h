/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What events say of ports is read anew by commands of their NIC: a device whose firmware does not
 * answer keeps nobody else waiting for it.
 */
#ifndef HA_INSTANCE_PORT_WATCH_H
#define HA_INSTANCE_PORT_WATCH_H

#include "base/result.h"

#include <stdbool.h>

struct ha_instance;
struct ha_nic;
struct ha_port;

/* HA_ERR_SYSTEM: no memory. When there are devices and the progress thread, before events are read.
 */
ha_result_t ha_port_watches_open(struct ha_instance *inst) HA_MUST_CHECK;

/* Heartbeats over this port are missing: it is read, in case nobody says that it is down. Progress
 * thread. */
void ha_port_watches_doubt(void *inst, struct ha_port *port);

/* Events of this NIC were read: sends for what they were about. When it is there, statistics and
 * connections are told. Progress thread. */
void ha_port_watches_look(struct ha_instance *inst, const struct ha_nic *nic);

/* Whether some port of this NIC is still to be read anew. Progress thread. */
bool ha_port_watches_pending(const struct ha_instance *inst, const struct ha_nic *nic);

/* Nothing is sent or told from here on; a command may still be under way. Before the progress
 * thread ends. */
void ha_port_watches_close(struct ha_instance *inst);

/* When every command is through. */
void ha_port_watches_free(struct ha_instance *inst);

#endif
