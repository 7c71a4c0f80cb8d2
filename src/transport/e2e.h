/* SPDX-License-Identifier: Apache-2.0 */
/* Completion end to end: a send is done when the peer's software has the message. [T] */
#ifndef HA_TRANSPORT_E2E_H
#define HA_TRANSPORT_E2E_H

#include <stdbool.h>

struct ha_comm;
struct ha_path;

/*
 * End-to-end completion (e2e.c): the sender takes up what the receiver has told, the receiver tells
 * it. At each poll.
 */
void ha_e2e_look(struct ha_comm *comm);
/* Receiver: whether what was told has arrived. */
bool ha_e2e_confirm(struct ha_comm *comm, const struct ha_path *path);
/* Receiver: another path; its RESUME has told everything so far. */
void ha_e2e_resume(struct ha_comm *comm);

#endif
