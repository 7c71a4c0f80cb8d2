/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path that a message is posted on without a look at anything else.
 */
#ifndef HA_TRANSPORT_CLEAR_PATH_H
#define HA_TRANSPORT_CLEAR_PATH_H

#include "transport/comm.h"
#include "transport/recv.h"

/*
 * The active path, when data may be posted on it and every message takes its one queue pair; NULL
 * when that is to be found out, which the pumps do. So whatever ends it has to say so. [T]
 */
static inline struct ha_path *ha_comm_clear_path(const struct ha_comm *comm)
{
	return comm->clear;
}

static inline void ha_comm_find_clear_path(struct ha_comm *comm)
{
	struct ha_path *path = ha_comm_path(comm);

	comm->clear = ha_comm_may_post(comm) && path->plain ? path : NULL;
}

/* A path is being fenced, another one becomes the active one, the epoch ends. */
static inline void ha_comm_not_clear(struct ha_comm *comm)
{
	comm->clear = NULL;
	if (comm->recv)
		comm->recv->names_on = NULL;
}

#endif
