/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a communicator, of whatever kind. */
#ifndef HA_INCCL_COMM_H
#define HA_INCCL_COMM_H

#include "inccl/operation.h"

/* Of `count` elements in each part of what is wished. As inccl_iallreduce(). */
int ha_inccl_begin(struct inccl_comm *comm, const struct inccl_request *wish, size_t count,
		   unsigned int flags, struct inccl_request **out);
/* All of it in one call; what is not done in time ends the communicator. */
int ha_inccl_within(struct inccl_comm *comm, const struct inccl_request *wish, size_t count,
		    unsigned int flags, uint32_t timeout_ms);

#endif
