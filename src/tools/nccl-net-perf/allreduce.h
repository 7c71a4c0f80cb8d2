/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce as a ring. Sets flows and callbacks of a plan whose other fields are set. */
#ifndef NP_ALLREDUCE_H
#define NP_ALLREDUCE_H

#include <stdbool.h>
#include <stddef.h>

struct np_options;
struct np_plan;

bool np_plan_allreduce(struct np_plan *plan);
/* Its data alone: fill and check. */
void np_allreduce_data(struct np_plan *plan);
size_t np_allreduce_slot_bytes(const struct np_options *o);

#endif
