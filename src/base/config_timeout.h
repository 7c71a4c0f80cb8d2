/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the variables make time-outs shorter than those of NCCL. */
#ifndef HA_BASE_CONFIG_TIMEOUT_H
#define HA_BASE_CONFIG_TIMEOUT_H

#include <stdbool.h>

struct ha_config;

/*
 * One WARN where a variable of ours has connections give up before NCCL's own transport would; it
 * names the variables and the times of both. Returns whether there was one.
 */
bool ha_config_warn_short_timeouts(const struct ha_config *config);

#endif
