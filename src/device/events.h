/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events of the NICs. */
#ifndef HA_DEVICE_EVENTS_H
#define HA_DEVICE_EVENTS_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct ha_device_set;
struct ha_nic;
struct ha_port;

/* Those of a NIC. */
uint64_t ha_ports_of_nic(const struct ha_device_set *set, const struct ha_nic *nic);

/* The port that an event names; NULL: none of ours. */
struct ha_port *ha_port_of_event(struct ha_device_set *set, const struct ha_nic *nic,
				 const struct ibv_async_event *event);

/*
 * Async events: the contexts' async fds are non-blocking. The progress thread polls
 * nic->now->ctx->async_fd and calls ha_nic_read_events, which updates state words, marks
 * ports whose ha_port_refresh is due, calls set->on_event (may be NULL) and acknowledges each event
 * before it returns, so that destroying a QP or CQ never waits for us. Returns the number of events
 * read. Once nic->fatal is set its descriptor may be readable for ever: leave it out of the poll.
 */
int ha_nic_read_events(struct ha_device_set *set, struct ha_nic *nic);

#endif
