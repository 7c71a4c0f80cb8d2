/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on in a new epoch.
 *
 * Under the token, when the old path is fenced (ha_path_fenced said so), comm->epoch is the new one
 * and ha_comm_use_path has named the new path. Once for each epoch, before anything else is posted
 * in it. Until then requests stay as they are: nothing is posted on a path that is not ready.
 */
#ifndef HA_TRANSPORT_REPLAY_H
#define HA_TRANSPORT_REPLAY_H

#include "transport/send.h"
#include "transport/window.h"

#include <stdint.h>

struct ha_comm;
struct ha_send_group;

/* What became of what was in flight at a switch. */
struct ha_replay {
	uint64_t known;	   /* complete without being sent again, since the receiver has them */
	uint64_t messages; /* sent or asked for again, and how much that is */
	uint64_t bytes;
};

/* Sender: `done` is what the receiver has. */
void ha_send_resume(struct ha_comm *comm, const struct ha_window *done, struct ha_replay *replay);
/* Receiver: asks again for everything it does not have. */
void ha_recv_resume(struct ha_comm *comm);
#endif
