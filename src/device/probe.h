/* SPDX-License-Identifier: Apache-2.0 */
/* Abilities of a device that only trying shows. */
#ifndef HA_DEVICE_PROBE_H
#define HA_DEVICE_PROBE_H

#include "base/config.h"

#include <stdbool.h>

struct ha_incarnation;

struct ha_abilities {
	bool relaxed_ordering; /* registrations may ask for it */
	bool dmabuf;	       /* ibv_reg_dmabuf_mr is there and works */
};

/* Registers a page or two on a PD of its own. name: for log lines. */
void ha_probe(const struct ha_config *config, struct ha_incarnation *on, const char *name,
	      struct ha_abilities *out);

#endif
