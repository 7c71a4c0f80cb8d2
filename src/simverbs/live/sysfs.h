/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sysfs-like tree of a fabric: for each host, what programs look up below /sys.
 *
 *	<tree>/<host>/sys/class/infiniband/sim0 -> ../../devices/pci0000:10/.../infiniband/sim0
 *	<tree>/<host>/sys/class/infiniband_verbs/uverbs0 -> ...
 *	<tree>/<host>/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/{numa_node,vendor,...}
 *		infiniband/sim0/{device ->, node_guid, ports/1/{state,rate,gids/0,...}}
 *
 * Rails lie below different PCI root complexes, two rails per NUMA node.
 */
#ifndef SV_LIVE_SYSFS_H
#define SV_LIVE_SYSFS_H

#include "simverbs/live/fabric.h"

/* Makes the tree of all hosts. 0 or -errno. */
int sv_sysfs_create(const struct sv_fabric_header *h);
/* Removes a tree. 0 or -errno; a tree that is not there is fine. */
int sv_sysfs_remove(const char *root);
/* Rewrites what depends on the link of a device's port (phys: from 0). */
void sv_sysfs_link_changed(const struct sv_fabric_header *h, unsigned device, unsigned phys);

/* A device has another name than before: `renamed` of the fabric counts that already. */
void sv_sysfs_renamed(const struct sv_fabric_header *h, unsigned device);

/* What SYSFS_PATH is for a host; and paths of its devices as an ibv_device has them. */
void sv_sysfs_host_path(const struct sv_fabric_header *h, unsigned host, char *buf, size_t len);
void sv_sysfs_ibdev_path(const struct sv_fabric_header *h, unsigned device, char *buf, size_t len);
void sv_sysfs_dev_path(const struct sv_fabric_header *h, unsigned device, char *buf, size_t len);

#endif
