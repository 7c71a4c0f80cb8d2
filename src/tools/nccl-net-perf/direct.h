/* SPDX-License-Identifier: Apache-2.0 */
/* sendrecv, alltoall, pingpong. Sets flows and callbacks of a plan whose other fields are set. */
#ifndef NP_DIRECT_H
#define NP_DIRECT_H

#include <stdbool.h>

struct np_plan;

bool np_plan_direct(struct np_plan *plan);

#endif
