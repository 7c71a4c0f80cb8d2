/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host's thread does over and over for all ends of streams that it watches. It waits for
 * verbs, and a NIC takes milliseconds to make a queue pair. So what threads of a program wait for
 * comes first, for all streams: gates, fences, what is written again. What they do not wait for
 * comes when no stream is on its way to a queue pair that is ready, and for a fifth of a
 * millisecond a round, or one thing where that takes longer: so it holds up nobody for long.
 */
#ifndef HA_IBGDA_MONITOR_H
#define HA_IBGDA_MONITOR_H

#include "base/list.h"

/* Ends are struct ha_ibgda_end, by `in_context`. */
void ha_ibgda_monitor_round(struct ha_list *ends);
/* A NIC has failed: all ends are told. */
void ha_ibgda_monitor_suspect(struct ha_list *ends, unsigned int nic);

#endif
