/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks on this machine, and joining those that mpirun or srun started. */
#ifndef NP_LAUNCH_H
#define NP_LAUNCH_H

#include "tools/nccl-net-perf/options.h"

#include <stdint.h>

/* Starts all ranks, waits for them, and returns the exit status of the run. */
enum np_exit np_launch(const struct np_options *o, int argc, char **argv);

/*
 * The status of a run when one more rank has ended, with `ended`, so long after the first that
 * failed; `so_far` is of those before it. Memory that was written wrongly is said before all else,
 * and a rank that gave up waiting before the errors that come of it, and may come faster. Pure.
 */
enum np_exit np_launch_status(enum np_exit so_far, enum np_exit ended, uint64_t later_ns);

#endif
