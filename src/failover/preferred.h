/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both ends know of the two ports that NCCL asked for: for whoever wants to know which of
 * them, or what is between, made a connection leave.
 */
#ifndef HA_FAILOVER_PREFERRED_H
#define HA_FAILOVER_PREFERRED_H

struct ha_comm;
struct ha_failover_view;

/* Fills in off_preferred and preferred; `out->health` is there. [T] */
void ha_preferred_describe(const struct ha_comm *comm, struct ha_failover_view *out);

#endif
