/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events of devices, ports and queues. Progress thread. */
#ifndef HA_TRANSPORT_ASYNC_EVENT_H
#define HA_TRANSPORT_ASYNC_EVENT_H

#include <infiniband/verbs.h>

struct ha_comm;
struct ha_instance;
struct ha_nic;

/* An asynchronous event: to all connections it concerns. Under the instance's lock. */
void ha_comms_event(struct ha_instance *inst, const struct ibv_async_event *event,
		    const struct ha_nic *nic);
/* Takes up events of the connection's own queues. Progress thread, without the token. */
void ha_comm_queue_events(struct ha_comm *comm);

#endif
