/* SPDX-License-Identifier: Apache-2.0 */
/* What a controller of all-reduces in the network has, in tables for people. */
#ifndef NH_INC_SHOW_H
#define NH_INC_SHOW_H

#include <jansson.h>

/* said: the controller's report. */
void nh_inc_print(const char *address, const json_t *said);
/* Of a report's groups: at length. */
void nh_inc_print_groups(const json_t *groups);
/* Of a report's switches: how many no program serves. */
size_t nh_inc_unserved(const json_t *switches);

#endif
