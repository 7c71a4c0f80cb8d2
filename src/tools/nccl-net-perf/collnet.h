/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces by a plugin's collNet, as NCCL's proxy asks for them: one group of all ranks on one
 * device, pieces of at most --chunk bytes in order, --depth of them under way for each channel.
 */
#ifndef NP_COLLNET_H
#define NP_COLLNET_H

#include <stdbool.h>

struct np_plan;
struct np_rank;
struct np_side;

/* On the service thread, when the net is initialised. False with rk->error set. */
bool np_group_init(struct np_rank *rk, struct np_side *side);
/* Fine for one that was never initialised. */
void np_group_finalize(struct np_rank *rk, struct np_side *side);

/* Main thread. The group of all ranks, and their buffers in it. False with rk->error set. */
bool np_group_connect(struct np_rank *rk, struct np_side *side);
/* True when no call failed. */
bool np_group_disconnect(struct np_rank *rk, struct np_side *side);

/* Sets the callbacks of a plan whose other fields are set. */
bool np_plan_collnet(struct np_plan *plan);

#endif
