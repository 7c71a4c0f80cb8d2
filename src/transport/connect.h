/* SPDX-License-Identifier: Apache-2.0 */
/* Connects that are under way. */
#ifndef HA_TRANSPORT_CONNECT_H
#define HA_TRANSPORT_CONNECT_H

struct ha_instance;

/* Drops every connect under way. From ha_instance_close. */
void ha_connect_abandon_all(struct ha_instance *inst);

#endif
