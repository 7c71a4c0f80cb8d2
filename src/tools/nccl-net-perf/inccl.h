/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces by libinccl, as a program without NCCL asks for them: a communicator of all ranks,
 * registered memory, and the whole of an all-reduce in one call.
 */
#ifndef NP_INCCL_H
#define NP_INCCL_H

#include <stdbool.h>

struct np_plan;
struct np_rank;
struct np_side;

/* Main thread. The library is that beside the plugin, or the system's. False with rk->error set. */
bool np_inccl_connect(struct np_rank *rk, struct np_side *side);
/* Fine for one that was never connected. True when no call failed. */
bool np_inccl_disconnect(struct np_rank *rk, struct np_side *side);

/* Sets the callbacks of a plan whose other fields are set. */
bool np_plan_inccl(struct np_plan *plan);

#endif
