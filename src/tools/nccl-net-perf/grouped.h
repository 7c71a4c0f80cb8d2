/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped receives. Sets flows and callbacks of a plan whose other fields are set. */
#ifndef NP_GROUPED_H
#define NP_GROUPED_H

#include <stdbool.h>
#include <stddef.h>

struct np_options;
struct np_plan;

bool np_plan_grouped(struct np_plan *plan);
size_t np_grouped_out_bytes(const struct np_options *o, int max_recvs, size_t size);

#endif
