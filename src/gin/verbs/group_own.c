/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/group_own.h"

#include <sched.h>

void ha_gin_group_wait(struct ha_gin_group *group)
{
	atomic_fetch_add_explicit(&group->waiting, 1, memory_order_relaxed);
	while (atomic_exchange_explicit(&group->token, 1, memory_order_acquire) != 0)
		sched_yield();
	atomic_fetch_sub_explicit(&group->waiting, 1, memory_order_relaxed);
}
