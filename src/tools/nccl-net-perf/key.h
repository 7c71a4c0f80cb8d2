/* SPDX-License-Identifier: Apache-2.0 */
/* The job's key for the tool itself, which meets other hosts before the plugin does. */
#ifndef NP_KEY_H
#define NP_KEY_H

#include "base/job_key.h"

/*
 * As the plugin would load it (ha_job_key_load), from the environment: false, after a line on
 * stderr, where the plugin would not start. What HA_NCCL_JOB_KEY_FD names is left for the plugin of
 * this process, which reads it after us.
 */
bool np_key_load(struct ha_job_key **key);

#endif
