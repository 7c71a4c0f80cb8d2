/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic that stands still: requests are outstanding, and the oldest stays the oldest. Far sooner
 * than a soft timeout, and no failure: a reason to ask. The peer may have nothing to send.
 *
 * There is no clock on the data path. It is looked at by visits, and by polls of the application
 * that find nothing for so long that they look around, a few of them in a row.
 */
#ifndef HA_TRANSPORT_STALL_H
#define HA_TRANSPORT_STALL_H

#include <stdint.h>

struct ha_comm;

/* [T] */
struct ha_stall_watch {
	uint64_t oldest;   /* message that is not done; 0: nothing is outstanding */
	uint64_t due_ns;   /* when to ask; 0: it has just begun, UINT64_MAX: asked often enough */
	uint64_t pause_ns; /* from then to when to ask again */
	uint8_t polls;	   /* looks of polls since it stands still */
};

/* A visit looks. Returns when to look again, on ha_now_ns's clock; 0: no need. [T] */
uint64_t ha_stall_visit(struct ha_comm *comm, uint64_t now_ns);

/* A poll that has found nothing looks around. [T] */
void ha_stall_poll(struct ha_comm *comm);

#endif
