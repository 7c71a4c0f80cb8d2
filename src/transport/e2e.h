/* SPDX-License-Identifier: Apache-2.0 */
/* Completion end to end: a send is done when the peer's software has the message. [T] */
#ifndef HA_TRANSPORT_E2E_H
#define HA_TRANSPORT_E2E_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;

/*
 * End-to-end completion (e2e.c): the sender takes up what the receiver has told, the receiver tells
 * it. At each poll.
 */
void ha_e2e_look(struct ha_comm *comm);
/* Receiver: whether what was told has arrived. */
bool ha_e2e_confirm(struct ha_comm *comm, const struct ha_path *path);
/*
 * An epoch begins, at either end: counts are told from the first place on. What the receiver has so
 * far RESUME has told.
 */
void ha_e2e_begin(struct ha_comm *comm);
/* Sender: what the peer says in a message that it has. */
void ha_e2e_heard(struct ha_comm *comm, uint64_t count);
/* Sender: whether all that was posted has left the queue and the peer's count is still to come. */
bool ha_e2e_awaits_count(const struct ha_comm *comm);

#endif
