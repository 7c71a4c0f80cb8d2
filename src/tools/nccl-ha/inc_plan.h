/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a group of all-reduces in the network: its trees for people, or as YAML. */
#ifndef NH_INC_PLAN_H
#define NH_INC_PLAN_H

#include <jansson.h>
#include <stdbool.h>

/* plan: as the controller says it. False: it is none, and nothing is printed. */
bool nh_inc_plan_print(const json_t *plan, bool as_yaml);

#endif
