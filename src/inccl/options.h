/* SPDX-License-Identifier: Apache-2.0 */
/* A program's options and the plugin's variables, as one configuration. */
#ifndef HA_INCCL_OPTIONS_H
#define HA_INCCL_OPTIONS_H

#include "base/config.h"
#include "inccl/inccl.h"

#define HA_INCCL_GROUP_NAME 53 /* with the terminating zero: a number goes behind it */

/* Variables, and what is said here in their place, within the same limits; group gets the group's
 * name. False: an option that cannot be, which one WARN names. */
bool ha_inccl_options_take(const struct inccl_options *options, struct ha_config *config,
			   char group[HA_INCCL_GROUP_NAME]);

#endif
