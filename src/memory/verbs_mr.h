/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs call that registers memory. It ends where all objects do: device/give_back.h. */
#ifndef HA_MEMORY_VERBS_MR_H
#define HA_MEMORY_VERBS_MR_H

#include <infiniband/verbs.h>

struct ha_incarnation;
struct ha_mr_range;

/* The verbs call behind a registration, with a log line that says what to do when it fails. */
struct ibv_mr *ha_verbs_reg(struct ha_incarnation *on, struct ibv_pd *pd,
			    const struct ha_mr_range *range);

#endif
