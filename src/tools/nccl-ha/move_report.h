/* SPDX-License-Identifier: Apache-2.0 */
/* What came of nccl-ha failover and failback, for people and for programs. */
#ifndef NH_MOVE_REPORT_H
#define NH_MOVE_REPORT_H

#include <jansson.h>
#include <stdbool.h>

struct nh_move;

/* Whether everything is where it should be. */
bool nh_move_worked(const struct nh_move *move);

void nh_move_print(const struct nh_move *move, bool verbose);
json_t *nh_move_json(const struct nh_move *move);

#endif
