/* SPDX-License-Identifier: Apache-2.0 */
/* What the background thread does for a connection. */
#ifndef HA_TRANSPORT_VISIT_H
#define HA_TRANSPORT_VISIT_H

#include "progress/progress.h"

#include <stdbool.h>

struct ha_comm;

/* The connection's poller. Progress thread, without the token. */
enum ha_poll_result ha_comm_visit(struct ha_poller *poller);

/*
 * Remembers that the active path works if anything has completed well on it since the last time.
 * There is no clock on the data path, so this is called at each visit, each time when polls look at
 * the standby paths, and when the path fails: between two of these lies what it cannot tell apart.
 */
void ha_comm_note_life(struct ha_comm *comm);

#endif
