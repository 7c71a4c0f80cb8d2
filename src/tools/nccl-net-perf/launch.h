/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks on this machine, and joining those that mpirun or srun started. */
#ifndef NP_LAUNCH_H
#define NP_LAUNCH_H

#include "tools/nccl-net-perf/options.h"

/* Starts all ranks, waits for them, and returns the exit status of the run. */
enum np_exit np_launch(const struct np_options *o, int argc, char **argv);

#endif
