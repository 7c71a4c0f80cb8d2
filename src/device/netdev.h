/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which network interfaces go over the NICs that data goes over. The bootstrap sockets are the
 * other way to a peer when paths fail, so they should not fail with them.
 */
#ifndef HA_DEVICE_NETDEV_H
#define HA_DEVICE_NETDEV_H

#include "base/net.h"
#include "device/device.h"

/*
 * Fills in `fabric` and `physical` of n interfaces. The fabric's are IP over InfiniBand, the
 * interfaces of a GID or of the PCI function of a NIC in `set`, those with the address of a
 * port's GID, and what stands on one of them: bonds, bridges, VLANs. Reads sysfs at `class_net`,
 * normally HA_CLASS_NET; and that of each device, which is another one for a device that is not
 * the kernel's. Before there is a progress thread.
 */
void ha_netdev_mark(struct ha_device_set *set, const char *class_net, struct ha_netif *all, int n);

#define HA_CLASS_NET "/sys/class/net"

#endif
