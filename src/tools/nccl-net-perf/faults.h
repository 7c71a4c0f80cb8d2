/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NP_FAULTS_H
#define NP_FAULTS_H

#include "tools/common/fabric.h"
#include "tools/nccl-net-perf/options.h"

/*
 * Prints how often each --fault rule fired and adds it to the --json file. False if one never
 * fired or the counts cannot be read; the reason is printed.
 */
bool np_report_faults(const struct np_fabric *f, const struct np_options *o);

/* What the command line asks for, as np_fabric_open wants it. */
struct np_fabric_options np_fabric_options_of(const struct np_options *o);

#endif
