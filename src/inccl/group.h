/* SPDX-License-Identifier: Apache-2.0 */
/* A process's place among others: its NIC, its registered memory, and what its communicators are
 * opened with. */
#ifndef HA_INCCL_GROUP_H
#define HA_INCCL_GROUP_H

#include "base/list.h"
#include "inc/coll/coll.h"
#include "inccl/options.h"

struct inccl_group {
	/* Constant while it is open. */
	struct ha_config config;
	char name[HA_INCCL_GROUP_NAME];
	unsigned int rank, ranks;
	struct ha_device_set *set;
	struct ha_port *port;
	struct ha_stats *stats;	    /* NULL: none */
	struct ha_eventlog *events; /* NULL: none */

	/* Of its user's one thread at a time. */
	unsigned int opened; /* communicators that were, by which they are called */
	char why[HA_HOST_WHY];

	pthread_mutex_t lock; /* protects the rest */
	unsigned int comms;
	struct ha_list regions;
};

/* Of the region that has all of it; NULL: none has. Stays until that is deregistered. */
struct ha_mr *ha_inccl_group_find(struct inccl_group *group, const void *memory, size_t bytes);

/* A communicator more, or one less. */
void ha_inccl_group_count(struct inccl_group *group, int more);

#endif
