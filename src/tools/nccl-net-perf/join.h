/* SPDX-License-Identifier: Apache-2.0 */
/* Joining ranks that mpirun, srun or nccl-net-perf itself started. */
#ifndef NP_JOIN_H
#define NP_JOIN_H

#include "tools/nccl-net-perf/options.h"

/* Finds rank and number of ranks in the environment of mpirun or srun, if that is where we are. */
void np_detect_launcher(struct np_options *o);

/* Is the rank that the options name. */
enum np_exit np_join(const struct np_options *o, int argc, char **argv);

#endif
