/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous events of devices, ports and queues. Whoever reads them leaves a note at the
 * connections that they may concern, which is acted upon in the connections' visits: no
 * connection's token is waited for with the instance's lock held.
 */
#ifndef HA_TRANSPORT_ASYNC_EVENT_H
#define HA_TRANSPORT_ASYNC_EVENT_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct ha_comm;
struct ha_instance;
struct ha_nic;

/*
 * What a device set of an instance calls for each event (on_event): takes note of it at the ports'
 * statistics and at the connections that it may concern, under the instance's lock, which must not
 * be held. Before the event is acknowledged, so its queue pair still exists. Progress thread.
 */
void ha_instance_event(void *instance, const struct ibv_async_event *event, struct ha_nic *nic);

/* No event names its path any more: for what stays when the path goes. Any thread; NULL is fine. */
void ha_events_forget_qp(struct ibv_qp *qp);
void ha_events_forget_cq(struct ibv_cq *cq);

/* State or address of these ports of ours has changed (bits): each connection that may use one
 * looks. Under the instance's lock. */
void ha_comms_ports_changed(struct ha_instance *inst, uint64_t ports);

/* Takes up what was left at the connection. In its visit, under the token. */
void ha_comm_take_events(struct ha_comm *comm);

#endif
