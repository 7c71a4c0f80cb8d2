/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sysfs says about an RDMA device, found from the device's own path (ibv_device.ibdev_path,
 * normally /sys/class/infiniband/NAME), so that a tree elsewhere works as well.
 */
#ifndef HA_DEVICE_SYSFS_H
#define HA_DEVICE_SYSFS_H

#include <stdbool.h>
#include <stddef.h>

/* First line of ROOT/name, without the newline. False when there is none. */
bool ha_sysfs_read(const char *root, const char *name, char *buf, size_t size);

/* The device's place in the PCI tree, resolved; "" for a device without one (soft RoCE). */
void ha_sysfs_pci_path(const char *ibdev_path, char *buf, size_t size);

/* -1 when unknown. */
int ha_sysfs_numa_node(const char *ibdev_path);

/*
 * Whether a module that lets RDMA devices reach GPU memory is loaded, looked for in the sysfs that
 * the device itself is in: a device that is not in the kernel's cannot use the kernel's modules.
 */
bool ha_sysfs_peermem(const char *ibdev_path);

/* 1 or 2 for RoCE versions, 0 for InfiniBand or unknown. */
int ha_sysfs_roce_version(const char *ibdev_path, int port_num, int gid_index);

/* Whether the HCA may migrate paths by itself on this port (an attribute few drivers have). */
bool ha_sysfs_apm_enabled(const char *ibdev_path, int port_num);

#endif
