/* SPDX-License-Identifier: Apache-2.0 */
/* How a group meets its peers and goes on with them. Any thread. */
#ifndef HA_GIN_VERBS_GROUP_PEERS_H
#define HA_GIN_VERBS_GROUP_PEERS_H

#include "gin/verbs/group.h"

/* Every stream has had its first epoch. */
bool ha_gin_group_is_connected(struct ha_gin_group *group);

/* Moves everything that can be moved; nothing where another thread is at it. */
ha_result_t ha_gin_group_progress(struct ha_gin_group *group) HA_MUST_CHECK;

#endif
