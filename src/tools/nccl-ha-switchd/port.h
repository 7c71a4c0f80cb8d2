/* SPDX-License-Identifier: Apache-2.0 */
/* The port of a device at which a switch adds. */
#ifndef NS_PORT_H
#define NS_PORT_H

#include "device/device.h"

/*
 * name: a device, or DEVICE:PORT; NULL: the only port that is up. NULL: `why` says what is wrong
 * with it, and which ones there are.
 */
struct ha_port *ns_port_find(struct ha_device_set *set, const char *name, char *why, size_t size);

/* "mlx5_0:1" */
const char *ns_port_text(const struct ha_port *port, char *text, size_t size);

#endif
