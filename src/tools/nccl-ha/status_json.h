/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha status as a JSON document. */
#ifndef NH_STATUS_JSON_H
#define NH_STATUS_JSON_H

#include "tools/nccl-ha/snapshot.h"

#include <jansson.h>

/* With each connection if `connections`; else with groups of them. NULL: no memory. */
json_t *nh_status_json(const struct nh_snapshot *snapshot, bool connections);

#endif
